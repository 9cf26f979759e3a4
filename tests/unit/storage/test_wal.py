"""What the log promises while all is well, and when the disk is full or fails."""

import threading
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from quiver import limits
from quiver.errors import CorruptLog, DiskFull, LimitExceeded, StorageFailed
from quiver.storage.files import DiskFiles
from quiver.storage.frame import LogRecord
from quiver.storage.logfile import first_indexes, name_of
from quiver.testing import MemoryFiles
from tests.unit.storage.logs import (
    ALLOCATE_BYTES,
    FILE_BYTES,
    RESERVE_BYTES,
    assert_holds,
    fill,
    open_log,
    record,
)


def test_a_new_log_is_empty(files):
    wal, found = open_log(files)
    assert found == []
    assert (wal.last_index, wal.last_now_ms, wal.synced_index) == (0, 0, 0)


def test_entries_come_back_after_a_clean_close(files):
    wal, _ = open_log(files)
    records = fill(wal, 5)
    wal.close()
    wal, found = open_log(files)
    assert_holds(wal, found, records)
    assert (wal.last_index, wal.last_now_ms, wal.synced_index) == (5, 1_005, 5)


def test_entries_come_back_after_the_process_was_killed(files):
    wal, _ = open_log(files)
    records = fill(wal, 5, sync=False)
    again, found = open_log(files)
    assert_holds(again, found, records)
    assert again.synced_index == 5


def test_the_log_goes_on_where_it_ended(files):
    records: list[LogRecord] = []
    for _ in range(4):
        wal, found = open_log(files)
        assert_holds(wal, found, records)
        records += fill(wal, 3)
        wal.close()
    assert open_log(files)[0].last_index == 12


def test_several_entries_are_one_write(files):
    wal, _ = open_log(files)
    records = [record(index) for index in range(1, 21)]
    wal.append(records, urgent=False)
    assert (wal.last_index, wal.synced_index) == (20, 0)
    wal.sync()
    assert wal.synced_index == 20
    _, found = open_log(files)
    assert_holds(wal, found, records)


def test_a_batch_may_be_any_buffer(files):
    wal, _ = open_log(files)
    batch = pa.py_buffer(b"arrow bytes")
    wal.append(
        [LogRecord(1, 1, 1, 4, b"c", batch), LogRecord(2, 1, 1, 4, b"", memoryview(batch))],
        urgent=False,
    )
    assert wal.read(1) == wal.read(2) == b"arrow bytes"


def test_a_long_batch_is_checked_in_pieces(files, monkeypatch):
    monkeypatch.setattr(limits, "WAL_CHECK_BYTES", 64)
    wal, _ = open_log(files)
    long = LogRecord(1, 1, 1, 4, b"c", bytes(range(256)) * 4)
    wal.append([long], urgent=False)
    wal, found = open_log(files)
    assert_holds(wal, found, [long])


def test_an_entry_out_of_turn_is_a_bug(files):
    wal, _ = open_log(files)
    with pytest.raises(AssertionError, match="entry 2 appended as 1"):
        wal.append([record(2)], urgent=False)


def test_an_entry_over_the_limit_changes_nothing(files, monkeypatch):
    wal, _ = open_log(files)
    monkeypatch.setattr(limits, "WAL_COMMAND_BYTES_MAX", 5)
    with pytest.raises(LimitExceeded):
        wal.append([record(1)], urgent=False)
    wal.append([LogRecord(1, 1, 1, 1, b"short")], urgent=False)
    assert wal.last_index == 1


def test_a_full_file_is_followed_by_another(files):
    wal, _ = open_log(files)
    records = fill(wal, 30)
    firsts = first_indexes(files)
    assert len(firsts) > 5
    for first in firsts[:-1]:
        size = files.open(f"wal-{first:020}.log").size()
        assert FILE_BYTES <= size < FILE_BYTES + 200  # its real length: nothing reserved
    again, found = open_log(files)
    assert_holds(again, found, records)
    assert again.size_bytes == wal.size_bytes


def test_growth_is_counted_for_the_next_snapshot(files):
    wal, _ = open_log(files)
    fill(wal, 10)
    grown = wal.appended_bytes
    assert 10 * 64 < grown < wal.size_bytes
    assert open_log(files)[0].appended_bytes == grown
    assert open_log(files, after=10)[0].appended_bytes == 0
    wal.keep([], before=10)
    assert wal.appended_bytes == 0


def test_only_entries_behind_the_snapshot_are_replayed(files):
    wal, _ = open_log(files)
    records = fill(wal, 20)
    for after in range(21):
        again, found = open_log(files, after=after)
        assert_holds(again, found, records[after:])
        assert again.last_index == 20


def test_files_nobody_needs_are_removed(files):
    wal, _ = open_log(files)
    fill(wal, 30)
    before = first_indexes(files)
    wal.keep([], before=before[3] - 1)
    assert first_indexes(files) == before[3:]
    wal.keep([], before=30)
    assert first_indexes(files) == before[-1:]
    again, found = open_log(files, after=30)
    assert found == []
    assert again.last_index == 30


def test_removing_takes_nothing_that_is_behind_the_snapshot():
    for before in range(31):
        files = MemoryFiles()
        wal, _ = open_log(files)
        records = fill(wal, 30)
        wal.keep([], before=before)
        disk = files.crash("none")
        assert disk.names() == files.names()  # removed for good
        again, found = open_log(disk, after=before)
        assert_holds(again, found, records[before:])


def test_a_removed_file_frees_its_disk_space(tmp_path):
    wal, _ = open_log(DiskFiles(tmp_path))
    fill(wal, 20)
    wal.read(1)
    wal.keep([], before=20)
    links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [link for link in links if link.startswith(str(tmp_path)) and "deleted" in link]


def test_a_file_stays_while_one_of_its_batches_is_needed(files):
    wal, _ = open_log(files)
    records = fill(wal, 30)
    live = [2, 16]
    size = wal.size_bytes
    wal.keep(live, before=25)
    assert wal.size_bytes < size
    places = wal.places(live)
    again, found = open_log(files, after=25, places=places)
    assert_holds(again, found, records[25:])
    for log in (wal, again):
        assert [log.read(index) for index in live] == [records[index - 1].batch for index in live]
    assert again.places(live) == places
    again.keep([16], before=26)
    assert first_indexes(files)[0] > 2


def test_a_place_can_be_read_after_its_file_was_removed(files):
    wal, _ = open_log(files)
    records = fill(wal, 20)
    place = wal.locate(1)
    wal.keep([], before=20)
    assert place.read() == records[0].batch
    with pytest.raises(AssertionError, match="entry 1 has no batch"):
        wal.locate(1)


def test_a_place_can_be_read_after_the_log_was_closed(files):
    wal, _ = open_log(files)
    records = fill(wal, 2)
    place = wal.locate(2)
    wal.close()
    assert place.read() == records[1].batch


def test_few_old_files_are_open_at_a_time(tmp_path, files, monkeypatch):
    monkeypatch.setattr(limits, "WAL_FILES_OPEN_MAX", 2)
    wal, _ = open_log(files)
    records = fill(wal, 40)
    for each in records:
        if each.batch != b"":
            assert wal.read(each.index) == each.batch
    links = [str(link.resolve()) for link in Path("/proc/self/fd").iterdir()]
    assert sum(str(tmp_path) in link for link in links) <= 2 + 2  # and the last one, and the mark


def test_places_are_found_and_read_while_the_log_grows(files):
    wal, _ = open_log(files)
    records = {each.index: each for each in fill(wal, 2)}
    wrong: list[int] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            wrong.extend(
                index for index in (1, 2) if wal.locate(index).read() != records[index].batch
            )

    reader = threading.Thread(target=read)
    reader.start()
    fill(wal, 200, sync=False)
    done.set()
    reader.join()
    assert wrong == []


def test_a_damaged_batch_is_not_handed_out(files):
    wal, _ = open_log(files)
    fill(wal, 1)
    name = files.names()[-1]
    position = files.open(name).read(0, 1000).index(b"batch")
    files.open(name).write(position, [b"B"])
    with pytest.raises(CorruptLog, match=r"entry 1.*quiver doctor"):
        wal.read(1)


def test_a_place_that_has_another_entry_is_noticed(files):
    wal, _ = open_log(files)
    fill(wal, 12)
    ((_, first, position),) = wal.places([1])
    wal, _ = open_log(files, after=12, places=[(2, first, position)])
    with pytest.raises(CorruptLog, match="entry 2"):
        wal.read(2)


def test_a_clean_close_makes_everything_durable_and_says_so():
    files = MemoryFiles()
    wal, _ = open_log(files)
    records = fill(wal, 3, sync=False)
    wal.close()
    again, found = open_log(files.crash("none"))
    assert_holds(again, found, records)
    files = files.crash("none")
    files.open(name_of(1)).truncate(again.size_bytes - 8)
    with pytest.raises(CorruptLog, match="up to 3 were confirmed"):
        open_log(files)


def test_a_clean_close_gives_back_reserved_space(files):
    wal, _ = open_log(files)
    fill(wal, 2)
    name = files.names()[-1]
    assert files.open(name).size() % ALLOCATE_BYTES == 0
    wal.close()
    assert files.open(name).size() == wal_bytes(files)
    wal.close()
    with pytest.raises(StorageFailed, match="it was closed"):
        wal.append([record(3)], urgent=True)
    with pytest.raises(StorageFailed, match="it was closed"):
        wal.locate(1)


def wal_bytes(files) -> int:
    return open_log(files)[0].size_bytes


# -- no room ---------------------------------------------------------------------------------------


def test_a_full_disk_leaves_room_for_urgent_entries_only():
    files = MemoryFiles()
    wal, _ = open_log(files)
    records = fill(wal, 1)
    files.capacity_bytes = files.used_bytes  # others took the rest
    refused = LogRecord(
        2, 1, 1, 1, b"x" * (ALLOCATE_BYTES - wal.size_bytes - RESERVE_BYTES - 64 + 8)
    )
    with pytest.raises(DiskFull):
        wal.append([refused], urgent=False)
    wal.append([refused], urgent=True)
    wal.sync()
    with pytest.raises(DiskFull):
        wal.append([LogRecord(3, 1, 1, 1, b"x" * RESERVE_BYTES)], urgent=True)
    with pytest.raises(DiskFull):
        wal.append([LogRecord(3, 1, 1, 1, b"")], urgent=False)
    again, found = open_log(files.crash("none"))
    assert_holds(again, found, [*records, refused])
    files.capacity_bytes = None  # somebody made room: it goes on without a restart
    more = fill(wal, 10)
    again, found = open_log(files.crash("none"))
    assert_holds(again, found, [*records, refused, *more])


def test_the_reserve_is_refilled_as_soon_as_there_is_room():
    files = MemoryFiles()
    wal, _ = open_log(files)
    for index in range(1, 20):
        wal.append([LogRecord(index, 1, 1, 1, b"settle")], urgent=True)
        free = files.open(files.names()[-1]).size() - (wal.size_bytes - sum(wal._sizes.values()))
        assert free >= RESERVE_BYTES


def test_without_room_for_another_file_the_old_one_goes_on():
    files = MemoryFiles()
    wal, _ = open_log(files)
    records = []
    while wal.size_bytes < FILE_BYTES:
        records += fill(wal, 1)
    assert len(first_indexes(files)) == 1
    files.capacity_bytes = files.used_bytes
    urgent = LogRecord(wal.last_index + 1, 1, 1, 1, b"settle")
    wal.append([urgent], urgent=True)
    wal.sync()
    assert len(first_indexes(files)) == 1
    assert not [name for name in files.names() if name.endswith(".tmp")]
    files.capacity_bytes = None
    more = fill(wal, 1)
    assert len(first_indexes(files)) == 2
    again, found = open_log(files.crash("none"))
    assert_holds(again, found, [*records, urgent, *more])


def test_what_a_full_disk_refused_never_comes_back():
    """Whatever operation meets the full disk, and whatever of it survives a crash."""
    files = MemoryFiles()
    fill(open_log(files)[0], 12)
    refusals = 0
    for full_at in range(1, files.operations + 1):
        files = MemoryFiles(full_at=full_at)
        expected: list[LogRecord] = []
        try:
            wal, _ = open_log(files)
        except DiskFull:
            wal, _ = open_log(files)  # there was no room to begin with
        for index in range(1, 7):
            pair = [record(2 * index - 1), record(2 * index)]
            try:
                wal.append(pair, urgent=False)
            except DiskFull:
                for seed in range(10):
                    again, found = open_log(files.crash(Random(seed)))
                    assert_holds(again, found, expected[: again.last_index])
                    assert again.last_index <= len(expected)
                refusals += 1
                pair = [record(each.index, take=2) for each in pair]
                wal.append(pair, urgent=False)
            expected += pair
            for survives in ("none", "all"):
                again, found = open_log(files.crash(survives))
                assert_holds(again, found, expected[: again.last_index])
            wal.sync()
        again, found = open_log(files.crash("none"))
        assert_holds(again, found, expected)
    assert refusals > 5


# -- failure ---------------------------------------------------------------------------------------


def test_a_failed_sync_is_the_end():
    files = MemoryFiles()
    wal, _ = open_log(files)
    records = fill(wal, 3)
    wal.append([record(4)], urgent=False)
    files.fail_sync = True
    with pytest.raises(StorageFailed):
        wal.sync()
    files.fail_sync = False
    operations = files.operations
    for refused in (
        wal.sync,
        lambda: wal.append([record(5)], urgent=True),
        lambda: wal.keep([], before=1),
        lambda: wal.locate(1),
    ):
        with pytest.raises(StorageFailed, match=r"The log has stopped: .*failure of a sync"):
            refused()
    wal.close()
    assert files.operations == operations  # nothing was tried again
    again, found = open_log(files.crash("none"))
    assert_holds(again, found, records)


def test_what_a_failed_sync_left_in_memory_is_written_when_the_log_is_opened():
    files = MemoryFiles()
    wal, _ = open_log(files)
    records = fill(wal, 3)
    wal.append([record(4), record(5)], urgent=False)
    files.fail_sync = True
    with pytest.raises(StorageFailed):
        wal.sync()
    wal.close()
    files.fail_sync = False
    wal, found = open_log(files)
    records += [record(4), record(5)]
    assert_holds(wal, found, records)
    records += fill(wal, 1)
    again, found = open_log(files.crash("none"))
    assert_holds(again, found, records)


def test_it_is_opened_where_that_takes_room_and_there_is_none():
    files = MemoryFiles()
    wal, _ = open_log(files)
    records = fill(wal, 3, sync=False)
    wal.close()
    files.full_at = files.operations + 1
    again, found = open_log(files)
    assert files.operations > files.full_at
    assert_holds(again, found, records)


def test_a_failed_sync_while_rolling_is_the_end_too():
    files = MemoryFiles()
    wal, _ = open_log(files)
    while wal.size_bytes < FILE_BYTES:
        fill(wal, 1, sync=False)
    files.fail_sync = True
    with pytest.raises(StorageFailed):
        wal.append([record(wal.last_index + 1)], urgent=True)
    files.fail_sync = False
    with pytest.raises(StorageFailed, match="has stopped"):
        wal.sync()

"""What a log promises a node with peers: it can be looked at, compared, read from, and cut."""

import threading

import pytest

from quiver import limits
from quiver.errors import CorruptLog, DiskFull, StorageFailed
from quiver.storage.files import Files
from quiver.storage.frame import LogRecord
from quiver.storage.logfile import LogFile, first_indexes, name_of
from quiver.storage.mark import Mark
from quiver.storage.wal import PendingSync, Wal
from quiver.testing import MemoryFiles
from tests.unit.storage.logs import fill, open_log, open_v2, peer_record, record, records_of


def grown(files: Files, *terms: int) -> tuple[Wal, list[LogRecord]]:
    """A log with an entry of each of these terms, all synced, in several files."""
    wal, _ = open_v2(files)
    return wal, add(wal, *terms)


def add(wal: Wal, *terms: int, take: int = 0, sync: bool = True) -> list[LogRecord]:
    records = []
    for term in terms:
        records.append(peer_record(wal.last_index + 1, term, take=take))
        wal.append(records[-1:], urgent=False)
        if sync:
            wal.sync()
    return records


# -- looking and reading ---------------------------------------------------------------------------


def test_a_scan_tells_terms_and_sizes_and_applies_nothing(files):
    wal, records = grown(files, 1, 1, 1, 3, 3, 4, 4, 4, 4, 7)
    assert len(first_indexes(files)) > 2
    again, found = open_v2(files)
    assert found.terms == [(0, 0), (1, 1), (4, 3), (6, 4), (10, 7)]
    assert list(found.sizes) == [each.nbytes for each in records]
    assert (again.last_index, again.last_term, again.last_now_ms) == (10, 7, 1_010)
    assert (again.synced_index, again.commit_index) == (10, 0)
    assert [again.term_of(index) for index in range(11)] == [0, 1, 1, 1, 3, 3, 4, 4, 4, 4, 7]
    wal.close()
    again.close()


def test_behind_a_snapshot_the_terms_begin_with_its_last_entry(files):
    wal, records = grown(files, 1, 1, 2, 2, 2)
    again, found = open_v2(files, after=3, term=2)
    assert found.terms == [(3, 2)]
    assert list(found.sizes) == [each.nbytes for each in records[3:]]
    assert [again.term_of(index) for index in (3, 4, 5)] == [2, 2, 2]
    assert (again.first_index, again.commit_index) == (4, 3)
    for index in (2, 6):
        with pytest.raises(AssertionError, match=f"entry {index} is not in the log"):
            again.term_of(index)
    wal.close()
    again.close()


def test_entries_are_read_with_their_batches_from_anywhere(files):
    wal, records = grown(files, *[1] * 20)
    for first in range(1, 21):
        assert records_of(wal, first) == records[first - 1 :]
        assert wal.entries(first, 1) == records[first - 1 : first]  # at least one
        two = records[first - 1].nbytes + records[first].nbytes if first < 20 else 0
        assert len(wal.entries(first, two)) == (2 if first < 20 else 1)
    assert wal.entries(21, 100) == []
    assert wal.entries(1, 1 << 20) == records
    with pytest.raises(AssertionError, match="entry 0 is asked for"):
        wal.entries(0, 1)
    wal.close()


def test_entries_are_found_from_a_place_near_them(monkeypatch):
    """With places far apart, and with the place of every entry."""
    for step in (1, 100, 250, 10_000):
        monkeypatch.setattr(limits, "WAL_POINT_BYTES", step)
        files = MemoryFiles()
        wal, records = grown(files, *[1] * 20)
        again, _ = open_v2(files)
        for first in range(1, 21):
            assert records_of(wal, first) == records_of(again, first) == records[first - 1 :]


def test_damage_is_found_when_an_entry_is_read():
    files = MemoryFiles()
    wal, records = grown(files, 1, 1, 1)
    content = files.open(name_of(1)).read(0, 1_000)
    files.open(name_of(1)).write(content.index(b"batch 2"), [b"?"])
    assert wal.entries(1, 1) == records[:1]
    with pytest.raises(CorruptLog, match="entry 2"):
        wal.entries(1, 10_000)


def test_recent_entries_are_kept_in_memory_up_to_a_bound():
    files = MemoryFiles()
    wal, _ = open_v2(files, recent_bytes=500)
    records = add(wal, *[1] * 12)
    files.unreadable = files.names()
    held = [index for index in range(1, 13) if index > 12 - 500 // 120]
    assert records_of(wal, held[0]) == records[held[0] - 1 :]
    assert wal.entries(12, 1)[0] is records[11]
    with pytest.raises(Exception, match="could not be read"):
        wal.entries(1, 1)
    files.unreadable = ()
    assert records_of(wal, 1) == records
    wal.cut(10)
    more = add(wal, 2, 2)
    assert records_of(wal, 1) == records[:10] + more


def test_without_a_bound_nothing_is_kept_in_memory():
    files = MemoryFiles()
    wal, _ = grown(files, 1, 1)
    files.unreadable = files.names()
    with pytest.raises(Exception, match="could not be read"):
        wal.entries(2, 1)


def test_terms_never_fall(files):
    wal, _ = grown(files, 1, 3)
    with pytest.raises(AssertionError, match="term 2 appended behind 3"):
        add(wal, 2)
    assert wal.last_index == 2
    wal.close()


# -- the format ------------------------------------------------------------------------------------


def versions(files: Files) -> list[int]:
    found = []
    for first in first_indexes(files):
        log = LogFile.open(files, first)
        found.append(log.version)
        log.file.close()
    return found


def test_a_directory_that_joins_gets_new_files_and_keeps_its_old_ones(files):
    wal, _ = open_log(files)
    old = fill(wal, 7)
    wal.close()
    assert versions(files) == [1, 1]
    wal, found = open_v2(files)
    assert wal.commit_index == 7  # nobody else had a say
    assert found.terms == [(0, 0), (1, 1)]
    new = add(wal, 2, 2)
    assert versions(files) == [1, 1, 2]
    assert records_of(wal, 1) == [*old, *new]
    wal.close()
    wal, found = open_v2(files)
    assert found.terms == [(0, 0), (1, 1), (8, 2)]
    assert records_of(wal, 1) == [*old, *new]
    wal.close()


def test_an_empty_file_of_the_old_format_is_replaced(files):
    wal, _ = open_log(files)
    wal.close()
    wal, _ = open_v2(files)
    records = add(wal, 1, 1)
    assert versions(files) == [2]
    assert records_of(wal, 1) == records
    wal.close()
    again, _ = open_v2(files)
    assert records_of(again, 1) == records
    again.close()


def test_without_room_for_a_file_of_the_new_format_nothing_is_written():
    files = MemoryFiles()
    wal, _ = open_log(files)
    fill(wal, 1)
    wal.close()
    wal, _ = open_v2(files)
    files.capacity_bytes = files.used_bytes
    with pytest.raises(DiskFull, match="format 2"):
        add(wal, 1)
    assert (wal.last_index, versions(files)) == (1, [1])
    files.capacity_bytes = None
    add(wal, 1)
    assert (wal.last_index, versions(files)) == (2, [1, 2])


def test_the_format_never_goes_back():
    """A backup of a node is opened by itself: the log goes on as it is."""
    files = MemoryFiles()
    wal, _ = grown(files, 1, 5)
    wal.close()
    wal, found = open_log(files)
    assert [each.term for each in found] == [1, 5]
    for _ in range(5):
        wal.append([peer_record(wal.last_index + 1, 5)], urgent=False)
    assert len(versions(files)) > 1
    assert set(versions(files)) == {2}


# -- what is committed -----------------------------------------------------------------------------


def test_alone_what_is_synced_is_committed():
    files = MemoryFiles()
    wal, _ = open_log(files)
    fill(wal, 2)
    fill(wal, 1, sync=False)
    assert (wal.synced_index, wal.commit_index, Mark(files).commit) == (2, 2, 2)


def test_with_peers_readers_are_told_what_is_committed_and_durable():
    files = MemoryFiles()
    wal, _ = grown(files, 1, 1, 2)
    assert (Mark(files).synced, Mark(files).commit, Mark(files).term) == (3, 0, 2)
    wal.commit(2)
    assert Mark(files).commit == 2
    add(wal, 2, 2, sync=False)
    wal.commit(4)
    assert (wal.commit_index, Mark(files).synced, Mark(files).commit) == (4, 3, 3)
    wal.sync()
    assert (Mark(files).synced, Mark(files).commit) == (5, 4)
    again, _ = open_v2(files)
    assert again.commit_index == 4
    for index in (3, 6):
        with pytest.raises(AssertionError, match=f"entry {index} committed"):
            again.commit(index)


# -- cutting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", range(2, 13))
def test_what_is_cut_is_gone_and_the_log_goes_on_with_other_entries(files, after):
    wal, records = grown(files, 1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 3, 4)
    assert len(first_indexes(files)) > 3
    wal.commit(2)
    size = wal.size_bytes
    wal.cut(after)
    assert (wal.last_index, wal.synced_index) == (after, after)
    assert wal.last_term == records[after - 1].term
    assert wal.last_now_ms == records[after - 1].now_ms
    assert records_of(wal, 1) == records[:after]
    assert wal.size_bytes <= size
    assert first_indexes(files)[-1] <= after + 1
    for index in range(after + 1, 13):
        assert wal.file_of(index) is None
    as_it_is, _ = open_v2(files.crash("none") if isinstance(files, MemoryFiles) else files)
    assert (as_it_is.last_index, records_of(as_it_is, 1)) == (after, records[:after])
    as_it_is.close()
    more = add(wal, 5, 5, 6, 6, take=1)
    assert records_of(wal, 1) == [*records[:after], *more]
    for each in more:
        if each.batch != b"":
            assert wal.read(each.index) == each.batch
    now = [*records[:after], *more]
    assert [wal.term_of(each.index) for each in now] == [each.term for each in now]
    wal.close()
    again, _ = open_v2(files)
    assert records_of(again, 1) == [*records[:after], *more]
    again.close()


def test_what_is_committed_is_never_cut():
    wal, _ = grown(MemoryFiles(), *[1] * 6)
    wal.commit(4)
    with pytest.raises(AssertionError, match="cut behind 3: 4 is committed"):
        wal.cut(3)
    assert wal.last_index == 6
    wal.cut(4)
    assert wal.last_index == 4


def test_what_is_in_a_snapshot_is_never_cut():
    files = MemoryFiles()
    grown(files, *[1] * 6)
    wal, _ = open_v2(files, after=4)
    with pytest.raises(AssertionError, match="4 is committed"):
        wal.cut(3)
    wal.cut(4)
    assert (wal.last_index, wal.last_term) == (4, 1)


def test_nobody_cuts_the_log_of_a_node_alone():
    wal, _ = open_log(MemoryFiles())
    fill(wal, 2)
    with pytest.raises(AssertionError, match="alone"):
        wal.cut(1)


def test_a_cut_behind_the_end_does_nothing():
    files = MemoryFiles()
    wal, _ = grown(files, 1, 1)
    before = files.operations
    wal.cut(2)
    assert files.operations == before


def test_a_log_can_be_cut_again_and_again():
    files = MemoryFiles()
    wal, kept = grown(files, *[1] * 10)
    for term in range(2, 20):
        after = term % 7 + 2
        wal.cut(after)
        kept = kept[:after] + add(wal, *[term] * (12 - len(kept[:after])), take=term)
        assert records_of(wal, 1) == kept
    again, _ = open_v2(files.crash("none"))
    assert records_of(again, 1) == kept


def test_without_room_to_lower_the_mark_nothing_is_cut():
    files = MemoryFiles()
    wal, records = grown(files, *[1] * 10)
    files.full_at = files.operations + 1
    with pytest.raises(DiskFull):
        wal.cut(3)
    assert (wal.last_index, records_of(wal, 1)) == (10, records)
    add(wal, 1)
    wal.cut(3)
    assert open_v2(files.crash("none"))[0].last_index == 3


def test_an_old_place_does_not_read_the_entry_that_came_instead():
    files = MemoryFiles()
    wal, records = grown(files, *[1] * 6)
    place = wal.locate(6)
    assert place.read() == records[5].batch
    wal.cut(5)
    wal.append([LogRecord(6, 2, 1, records[5].kind, records[5].command, b"another")], urgent=False)
    with pytest.raises(CorruptLog, match="entry 6"):
        place.read()


def test_a_torn_write_behind_a_cut_is_torn_and_no_damage():
    """No frame that is left says that something behind the cut was synced, nor does the mark."""
    files = MemoryFiles()
    wal, records = grown(files, *[1] * 12)
    wal.cut(5)
    wal.append([peer_record(at, 2) for at in (6, 7, 8)], urgent=False)
    torn = files.crash("all")
    name = name_of(first_indexes(torn)[-1])
    content = torn.open(name).read(0, 10_000)
    torn.open(name).write(content.index(b"command 6"), [b"?"])
    again, found = open_v2(torn)
    assert (again.last_index, records_of(again, 1)) == (5, records[:5])
    assert found.torn
    assert not open_v2(torn)[1].torn  # it was cut off


# -- syncing ---------------------------------------------------------------------------------------


def test_a_sync_covers_what_was_there_when_it_began():
    files = MemoryFiles()
    wal, records = grown(files, 1, 1)
    add(wal, 1, 1, sync=False)
    pending = wal.start_sync()
    add(wal, 1, 1, sync=False)
    pending.wait()
    wal.finished(pending)
    assert (pending.index, wal.synced_index, Mark(files).synced) == (4, 4, 4)
    found, _ = open_v2(files.crash("none"))
    assert found.last_index == 4
    wal.sync()
    assert open_v2(files.crash("none"))[0].last_index == 6
    assert len(records) == 2


def test_another_thread_may_wait_for_a_sync(tmp_path):
    wal, _ = grown(MemoryFiles(), 1)
    add(wal, 1, sync=False)
    pending = wal.start_sync()
    thread = threading.Thread(target=pending.wait)
    thread.start()
    wal.finished(pending)
    thread.join()
    assert wal.synced_index == 2


def test_a_wait_that_was_interrupted_has_not_ended():
    calls = []

    def interrupted_once() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt

    pending = PendingSync(1, 0.0, interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        pending.wait()
    for _ in range(2):
        pending.wait()
    assert len(calls) == 2


def test_one_sync_is_under_way_at_a_time():
    wal, _ = grown(MemoryFiles(), 1)
    wal.start_sync()
    with pytest.raises(AssertionError, match="under way"):
        wal.start_sync()


def is_open(wal: Wal) -> bool:
    try:
        wal.locate(1)
    except StorageFailed:
        return False
    return True


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda wal: wal.sync(),
        lambda wal: wal.roll(),
        lambda wal: wal.lend(),
        lambda wal: wal.cut(1),
        lambda wal: wal.close(),
    ],
    ids=["sync", "roll", "lend", "cut", "close"],
)
def test_whoever_needs_the_disk_waits_for_the_sync_before(meanwhile):
    files = MemoryFiles()
    wal, _ = grown(files, 1, 1)
    add(wal, 1, sync=False)
    pending = wal.start_sync()
    meanwhile(wal)
    end = wal.last_index
    synced = Mark(files).synced
    assert synced == end
    pending.wait()
    if is_open(wal):
        wal.finished(pending)  # it comes late and changes nothing
    assert Mark(files).synced == synced


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda wal: wal.sync(),
        lambda wal: wal.roll(),
        lambda wal: wal.lend(),
        lambda wal: wal.cut(1),
    ],
    ids=["sync", "roll", "lend", "cut"],
)
def test_a_sync_that_failed_stops_the_log_whoever_finds_out(meanwhile):
    """The system tells of an error once: a second sync that succeeds would prove nothing."""
    files = MemoryFiles()
    wal, _ = grown(files, 1, 1)
    add(wal, 1, sync=False)
    pending = wal.start_sync()
    files.fail_sync = True
    pending.wait()
    files.fail_sync = False
    with pytest.raises(StorageFailed):
        meanwhile(wal)
    with pytest.raises(StorageFailed, match="has stopped"):
        wal.finished(pending)
    assert (wal.synced_index, wal.last_index) == (2, 3)
    wal.close()


def test_a_sync_that_failed_is_told_by_who_finishes_it():
    files = MemoryFiles()
    wal, _ = grown(files, 1)
    add(wal, 1, sync=False)
    pending = wal.start_sync()
    files.fail_sync = True
    with pytest.raises(StorageFailed, match="simulated failure"):
        wal.finished(pending)
    with pytest.raises(StorageFailed, match="has stopped"):
        wal.sync()


# -- what peers still need -------------------------------------------------------------------------


def kept_behind(wal: Wal, before: int, wanted: int | None) -> list[int]:
    wal.commit(before)
    wal.keep([], before=before, wanted=wanted)
    return [index for index in range(1, before + 1) if index >= wal.first_index]


@pytest.mark.parametrize("wanted", [1, 5, 9, 14, 20, 21, None])
def test_what_a_peer_still_wants_stays(wanted):
    files = MemoryFiles()
    wal, records = grown(files, *[1] * 10, *[2] * 10)
    kept = kept_behind(wal, 20, wanted)
    assert kept[:1] <= [wanted or 99]
    assert [*kept, 21][0] == wal.first_index == first_indexes(files)[0]
    assert records_of(wal, wal.first_index) == records[wal.first_index - 1 :]
    assert wal.term_of(wal.first_index - 1) == (
        0 if wal.first_index == 1 else records[wal.first_index - 2].term
    )
    assert bool(kept) == (wanted is not None and wanted < 20) or wal.first_index > 16
    with pytest.raises(AssertionError, match="is asked for"):
        wal.entries(wal.first_index - 1, 1)
    add(wal, 3)
    again, _ = open_v2(files, after=20, term=2)
    assert again.term_of(21) == 3


def test_peers_get_no_more_of_the_disk_than_they_are_worth(monkeypatch):
    files = MemoryFiles()
    wal, _ = grown(files, *[1] * 30)
    monkeypatch.setattr(limits, "WAL_BEHIND_BYTES_MAX", 1_000)
    kept_behind(wal, 30, 1)
    behind = sum(files.open(name_of(first)).size() for first in first_indexes(files)[:-1])
    assert 500 < behind <= 1_000


def test_what_a_transfer_has_pinned_stays_until_it_ends():
    files = MemoryFiles()
    wal, records = grown(files, *[1] * 30)
    firsts = first_indexes(files)
    release = wal.pin(firsts[1:3])
    again = wal.pin(firsts[2:3])
    kept_behind(wal, 30, None)
    assert first_indexes(files) == [*firsts[1:3], firsts[-1]]
    assert wal.first_index == firsts[-1]  # what is before the gap is not followed by the rest
    assert records_of(wal, wal.first_index) == records[wal.first_index - 1 :]
    release()
    wal.keep([], before=30)
    assert first_indexes(files) == [firsts[2], firsts[-1]]
    again()
    wal.keep([], before=30)
    assert first_indexes(files) == firsts[-1:]


def test_a_floor_is_no_reason_to_keep_what_a_node_alone_would_remove(files):
    wal, _ = open_log(files)
    for at in range(1, 31):
        wal.append([record(at)], urgent=False)
        wal.sync()
    wal.keep([], before=30, wanted=31)
    assert len(first_indexes(files)) == 1
    wal.close()

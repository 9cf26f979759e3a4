"""Damage is never mistaken for a torn write, nor a torn write for damage.

The logs here are as a process leaves them that ends without a close: several files, the last one with a
reserved tail, the confirmation mark up to date, some entries written and not synced.
"""

from collections.abc import Iterator
from random import Random

import pytest
from crc32c import crc32c

from quiver.errors import CorruptLog, UnsupportedFormat
from quiver.storage import mark
from quiver.storage.frame import HEADER_BYTES, LogRecord, encode
from quiver.storage.logfile import LogFile, first_indexes, name_of
from quiver.testing import MemoryFiles
from tests.lengths import quickly
from tests.unit.storage.logs import assert_holds, fill, open_log, record

CONFIRMED = 10
WRITTEN = 12


def crashed_log(version: int = 1) -> MemoryFiles:
    files = MemoryFiles()
    wal, _ = open_log(files, version=version)
    fill(wal, CONFIRMED)
    fill(wal, WRITTEN - CONFIRMED, sync=False)
    assert len(first_indexes(files)) == 3
    return files.crash("all")


def assert_nothing_confirmed_is_lost(files: MemoryFiles) -> str:
    """The log opens with all that was confirmed, or refuses and leaves everything as it was."""
    before = contents(files)
    try:
        wal, found = open_log(files)
    except (CorruptLog, UnsupportedFormat):
        assert contents(files) == before
        return "refused"
    assert wal.last_index >= CONFIRMED
    assert_holds(wal, found, [record(index + 1) for index in range(wal.last_index)])
    fill(wal, 3)  # and it can go on
    again, found = open_log(files.crash("none"))
    assert_holds(again, found, [record(index + 1) for index in range(wal.last_index)])
    return "opened"


def contents(files: MemoryFiles) -> dict[str, bytes]:
    return {name: files.open(name).read(0, 1 << 20) for name in files.names()}


def offsets_of_frames(files: MemoryFiles, first: int) -> dict[int, int]:
    return {header.index: at for at, header, _ in LogFile.open(files, first).walk()}


def all_bytes(files: MemoryFiles) -> Iterator[tuple[str, int]]:
    for name in files.names():
        for offset in range(files.open(name).size()):
            yield name, offset


@pytest.mark.parametrize("version", [1, 2])
def test_no_cut_of_any_file_loses_anything_confirmed(version):
    files = crashed_log(version)
    results = []
    for name, length in all_bytes(files):
        damaged = files.crash("all")
        damaged.open(name).truncate(length)
        results.append(assert_nothing_confirmed_is_lost(damaged))
    assert {"refused", "opened"} == set(results)


@pytest.mark.parametrize(
    "which", quickly(3, [(version, bit) for bit in range(8) for version in (1, 2)])
)
def test_no_flipped_bit_loses_anything_confirmed(which):
    version, bit = which
    files = crashed_log(version)
    results = []
    for name, offset in all_bytes(files):
        damaged = files.crash("all")
        file = damaged.open(name)
        file.write(offset, [bytes([file.read(offset, 1)[0] ^ 1 << bit])])
        results.append(assert_nothing_confirmed_is_lost(damaged))
    assert {"refused", "opened"} == set(results)


def test_no_flipped_bit_is_missed_even_without_the_mark():
    """What is not the last thing synced has later frames to vouch for it."""
    files = crashed_log()
    files.remove(mark.NAME)
    last = first_indexes(files)[-1]
    frames = offsets_of_frames(files, last)
    assert last < CONFIRMED
    for offset in range(frames[last], frames[last] + HEADER_BYTES):
        damaged = files.crash("all")
        file = damaged.open(name_of(last))
        file.write(offset, [bytes([file.read(offset, 1)[0] ^ 1])])
        assert assert_nothing_confirmed_is_lost(damaged) == "refused"


def test_no_missing_file_goes_unnoticed():
    files = crashed_log()
    for first in first_indexes(files):
        damaged = files.crash("all")
        damaged.remove(name_of(first))
        assert assert_nothing_confirmed_is_lost(damaged) == "refused"


def test_the_refusal_names_file_place_entry_and_remedy():
    files = crashed_log()
    first = first_indexes(files)[-1]
    offset = offsets_of_frames(files, first)[first + 1]
    files.open(name_of(first)).write(offset + 1, [b"?"])
    with pytest.raises(CorruptLog) as caught:
        open_log(files)
    for part in (name_of(first), f"byte {offset}", f"entry {first + 1}", "quiver doctor", "backup"):
        assert part in str(caught.value)


def test_a_missing_file_is_named_by_what_it_held():
    files = crashed_log()
    _, second, third = first_indexes(files)
    files.remove(name_of(second))
    with pytest.raises(CorruptLog, match=f"entries {second} to {third - 1}"):
        open_log(files)


def test_a_missing_file_that_only_the_snapshot_needs_is_named():
    files = MemoryFiles()
    wal, _ = open_log(files)
    fill(wal, 12)
    wal.keep([1], before=12)
    places = wal.places([1])
    files.remove(name_of(1))
    with pytest.raises(CorruptLog, match=f"{name_of(1)} is missing"):
        open_log(files, after=12, places=places)


def test_a_log_that_ends_before_the_snapshot_is_refused():
    files = MemoryFiles()
    wal, _ = open_log(files)
    fill(wal, 3)
    with pytest.raises(CorruptLog, match="up to 4 were confirmed"):
        open_log(files, after=4)


def test_rubbish_behind_a_file_that_is_complete_is_damage():
    files = crashed_log()
    file = files.open(name_of(1))
    file.write(file.size(), [bytes(64)])
    assert len(open_log(files.crash("all"))[1]) == WRITTEN  # a reserve that was not given back
    file.write(file.size(), [b"rubbish"])
    with pytest.raises(CorruptLog, match=name_of(1)):
        open_log(files)


def test_a_good_frame_in_a_wrong_place_is_not_good():
    files = MemoryFiles()
    wal, _ = open_log(files)
    wal.append([LogRecord(index, 1, 1, 1, b"of equal length") for index in (1, 2, 3)], urgent=False)
    wal.sync()
    frames = offsets_of_frames(files, 1)
    file = files.open(name_of(1))
    file.write(frames[2], [file.read(frames[1], frames[2] - frames[1])])
    with pytest.raises(CorruptLog, match="entry 2 cannot be read"):
        open_log(files)


def test_a_directory_without_its_log_is_refused():
    for after, remaining in ((0, [mark.NAME]), (5, [])):
        files = crashed_log()
        for name in set(files.names()) - set(remaining):
            files.remove(name)
        with pytest.raises(CorruptLog, match="is missing"):
            open_log(files, after=after)
        assert files.names() == remaining


def test_a_newer_format_is_told_from_damage():
    files = crashed_log()
    file = files.open(name_of(first_indexes(files)[-1]))
    header = file.read(0, 8) + (3).to_bytes(4, "little") + file.read(12, 16)
    file.write(0, [header, crc32c(header).to_bytes(4, "little")])
    with pytest.raises(UnsupportedFormat, match="has format 3"):
        open_log(files)


def test_a_torn_write_is_cut_and_never_comes_back():
    files = crashed_log()
    first = first_indexes(files)[-1]
    frames = offsets_of_frames(files, first)
    files.open(name_of(first)).write(frames[CONFIRMED + 1], [bytes(8)])  # 11 is torn, 12 is whole
    wal, found = open_log(files)
    assert_holds(wal, found, [record(index + 1) for index in range(CONFIRMED)])
    files = files.crash("none")  # the cut is durable
    assert files.open(name_of(first)).size() == frames[CONFIRMED + 1]
    wal, _ = open_log(files)
    fill(wal, 1)
    _, found = open_log(files)
    assert len(found) == CONFIRMED + 1


def test_the_reserve_of_a_full_disk_survives_a_restart():
    files = crashed_log()
    sizes = {name: len(data) for name, data in contents(files).items()}
    open_log(files)
    assert {name: len(data) for name, data in contents(files).items()} == sizes


def test_a_message_that_contains_a_frame_is_not_one():
    """Somebody queues a copy of a log; the write of it is torn; the copy must not testify."""
    forged = b"".join(encode(record(99), synced=98, salt=1))
    files = MemoryFiles()
    wal, _ = open_log(files)
    kept = fill(wal, 2)
    wal.append([LogRecord(3, 1, 1, 1, b"12345678", forged)], urgent=False)
    files = files.crash("all")
    name = files.names()[-1]
    position = files.open(name).read(0, 4096).index(b"12345678")
    files.open(name).write(position, [b"?"])
    wal, found = open_log(files)
    assert_holds(wal, found, kept)


def test_a_claim_is_found_across_the_pieces_of_a_long_tail(monkeypatch):
    monkeypatch.setattr("quiver.limits.WAL_CHECK_BYTES", 64)
    files = MemoryFiles()
    wal, _ = open_log(files)
    wal.append([record(1)], urgent=False)
    wal.sync()
    wal.append([record(2)], urgent=False)
    files.remove(mark.NAME)
    file = files.open(name_of(1))
    file.write(32, [b"?"])
    with pytest.raises(CorruptLog, match="up to 1 were confirmed"):
        open_log(files)


def test_both_slots_of_the_mark_can_be_lost():
    files = crashed_log()
    files.open(mark.NAME).write(0, [Random(1).randbytes(128)])
    wal, found = open_log(files)
    assert len(found) == WRITTEN
    assert mark.Mark(files).synced == wal.last_index == WRITTEN


def test_one_slot_of_the_mark_is_enough_to_notice_a_cut():
    files = crashed_log()
    newest = max((0, 64), key=lambda at: files.open(mark.NAME).read(at + 8, 8)[0])
    files.open(mark.NAME).write(64 - newest, [bytes(64)])
    assert mark.Mark(files).synced == CONFIRMED
    files.open(name_of(first_indexes(files)[-1])).truncate(40)
    with pytest.raises(CorruptLog):
        open_log(files)

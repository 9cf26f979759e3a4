"""A snapshot is there completely or not at all, and the newest one counts."""

from random import Random

import pytest
from crc32c import crc32c

from quiver.errors import CorruptLog, DiskFull, UnsupportedFormat
from quiver.storage import snapshot
from quiver.storage.files import Files
from quiver.storage.snapshot import LastEntry, SavedState
from quiver.testing import MemoryFiles, SimulatedCrash


def some_crashes(files: MemoryFiles) -> list[MemoryFiles]:
    return [files.crash(Random(seed)) for seed in range(20)]


LAST = LastEntry(term=9, chain=0xFEEDBEEF, level=3)


def loaded(files: Files) -> tuple[int, bytes]:
    saved = snapshot.load(files)
    assert saved is not None
    assert saved.last == LastEntry()
    return saved.index, saved.payload


def test_there_is_none_at_first(files):
    assert snapshot.load(files) is None


@pytest.mark.parametrize("payload", [b"", b"state", bytes(100_000)])
def test_a_snapshot_comes_back(files, payload):
    snapshot.save(files, 7, payload)
    assert loaded(files) == (7, payload)


def test_the_newest_one_counts_and_older_ones_go(files):
    for index in (9, 10, 123):
        snapshot.save(files, index, b"state %d" % index)
    assert files.names() == [snapshot.name_of(123)]
    assert loaded(files) == (123, b"state 123")


def test_version_1_is_written_as_it_always_was():
    files = MemoryFiles()
    snapshot.save(files, 7, b"state")
    assert files.open(snapshot.name_of(7)).read(0, 1000).hex() == (
        "517569766572534e01000000000000000700000000000000050000000000000000000000104afd537374617465"
    )


@pytest.mark.parametrize("payload", [b"", b"state", bytes(100_000)])
def test_version_2_says_what_the_log_goes_on_from(files, payload):
    snapshot.save(files, 7, payload, LAST)
    assert snapshot.load(files) == SavedState(7, payload, LAST)
    assert files.open(snapshot.name_of(7)).read(8, 4) == b"\2\0\0\0"


def test_an_older_quiver_finds_version_2_whole_and_too_new():
    """It looks for the checksum where it always was, and then at the version."""
    files = MemoryFiles()
    snapshot.save(files, 7, b"state", LAST)
    data = files.open(snapshot.name_of(7)).read(0, 1000)
    assert data[36:40] == crc32c(data[40:], crc32c(data[:36])).to_bytes(4, "little")


@pytest.mark.parametrize("last", [None, LAST])
def test_no_flipped_bit_and_no_cut_goes_unnoticed(last):
    files = MemoryFiles()
    snapshot.save(files, 7, b"state", last)
    name = snapshot.name_of(7)
    whole = files.open(name).read(0, 1000)
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        files.open(name).write(0, [damaged])
        with pytest.raises(CorruptLog, match=f"{name} .*quiver doctor"):
            snapshot.load(files)
    for length in range(len(whole)):
        files.open(name).write(0, [whole])
        files.open(name).truncate(length)
        with pytest.raises(CorruptLog):
            snapshot.load(files)


def test_a_snapshot_under_a_wrong_name_is_refused(files):
    snapshot.save(files, 7, b"state")
    files.rename(snapshot.name_of(7), snapshot.name_of(8))
    with pytest.raises(CorruptLog, match="not the snapshot that its name says"):
        snapshot.load(files)


def test_a_newer_format_is_told_from_damage(files):
    snapshot.save(files, 7, b"state")
    file = files.open(snapshot.name_of(7))
    header = file.read(0, 8) + (3).to_bytes(4, "little") + file.read(12, 24)
    file.write(0, [header, crc32c(b"state", crc32c(header)).to_bytes(4, "little")])
    with pytest.raises(UnsupportedFormat, match="has format 3"):
        snapshot.load(files)


def test_a_full_disk_leaves_the_old_one_and_no_rubbish():
    files = MemoryFiles()
    snapshot.save(files, 7, b"state")
    files.capacity_bytes = files.used_bytes + 10
    with pytest.raises(DiskFull):
        snapshot.save(files, 8, b"a longer state")
    assert files.names() == [snapshot.name_of(7)]
    files.capacity_bytes = None
    snapshot.save(files, 8, b"a longer state")
    assert loaded(files) == (8, b"a longer state")


def test_a_crash_at_any_operation_leaves_the_old_or_the_new_one():
    for crash_at in range(1, 20):
        files = MemoryFiles()
        snapshot.save(files, 7, b"old")
        files.crash_at = files.operations + crash_at
        try:
            snapshot.save(files, 8, b"new")
        except SimulatedCrash:
            for found in (files.crash("none"), files.crash("all"), *some_crashes(files)):
                snapshot.clean(found)
                assert loaded(found) in [(7, b"old"), (8, b"new")]
                assert not [name for name in found.names() if name.endswith(".tmp")]
        else:
            return
    pytest.fail("a snapshot takes more operations than this test expects")


def test_cleaning_removes_only_what_is_half_made(files):
    names = ["snapshot-1.snap", "snapshot-2.snap.tmp", "wal-1.log", "wal-2.log.tmp", "notes.tmp",
             "node", "node.tmp", "vote", "vote.tmp"]  # fmt: skip
    for name in names:
        files.create(name)
    snapshot.clean(files)
    assert files.names() == ["node", "notes.tmp", "snapshot-1.snap", "vote", "wal-1.log"]

"""The mark is never ahead, and what was taken back from it does not come back."""

from random import Random

import pytest

from quiver.errors import DiskFull
from quiver.storage.mark import NAME, Mark
from quiver.testing import MemoryFiles, SimulatedCrash


def values(files: MemoryFiles) -> tuple[int, int, int]:
    mark = Mark(files)
    return mark.synced, mark.commit, mark.term


def crashes(files: MemoryFiles) -> list[MemoryFiles]:
    return [files.crash("none"), files.crash("all"), *(files.crash(Random(at)) for at in range(20))]


def content(files: MemoryFiles) -> bytes:
    return files.open(NAME).read(0, 1_000)


def test_version_1_is_written_as_it_always_was():
    files = MemoryFiles()
    mark = Mark(files)
    mark.write(7, 7)
    assert content(files).hex() == "5175697665724d4b0700000000000000520d6e80"
    mark.write(8, 8)
    assert len(content(files)) == 64 + 20
    assert content(files)[64:80] == b"QuiverMK" + (8).to_bytes(8, "little")


def test_in_version_1_the_highest_counts_and_is_committed():
    files = MemoryFiles()
    mark = Mark(files)
    for index in (5, 9, 7):
        mark.write(index, index)
    assert values(files) == (9, 9, 1)


def test_in_version_2_the_last_one_counts():
    files = MemoryFiles()
    mark = Mark(files, 2)
    for synced in (5, 9, 7):
        mark.write(synced, synced - 1, 3)
        assert values(files) == (synced, synced - 1, 3)


def test_who_finds_version_2_goes_on_with_it():
    files = MemoryFiles()
    Mark(files, 2).write(9, 8, 7)
    Mark(files, 1).write(6, 5, 7)
    assert values(files) == (6, 5, 7)


def test_version_2_comes_after_version_1_and_may_be_lower():
    files = MemoryFiles()
    Mark(files).write(9, 9)
    Mark(files).write(10, 10)
    mark = Mark(files, 2)
    assert (mark.synced, mark.commit) == (10, 10)
    mark.write(8, 7, 2)
    assert values(files) == (8, 7, 2)


def lowered() -> MemoryFiles:
    files = MemoryFiles()
    mark = Mark(files, 2)
    mark.write(19, 12, 1)
    mark.write(20, 12, 1)
    mark.lower(15, 12, 1)
    return files.crash("none")


def test_lowering_is_durable():
    assert values(lowered()) == (15, 12, 1)


def test_what_was_lowered_does_not_come_back_whichever_slot_is_damaged():
    for at in range(len(content(lowered()))):
        for bit in range(8):
            files = lowered()
            data = content(files)[at] ^ 1 << bit
            files.open(NAME).write(at, [bytes([data])])
            assert values(files) in [(15, 12, 1), (0, 0, 0)]
            mark = Mark(files, 2)
            mark.write(16, 13, 2)
            assert values(files) == (16, 13, 2)


def test_no_cut_of_the_file_raises_it():
    for length in range(len(content(lowered()))):
        files = lowered()
        files.open(NAME).truncate(length)
        assert values(files) in [(15, 12, 1), (0, 0, 0)]


@pytest.mark.parametrize("late", [False, True])
def test_a_crash_while_it_is_lowered_leaves_the_old_or_the_new_value(late):
    for crash_at in range(1, 10):
        files = MemoryFiles()
        mark = Mark(files, 2)
        mark.write(19, 12, 1)
        mark.write(20, 12, 1)
        mark.sync()
        files.crash_at, files.crash_late = files.operations + crash_at, late
        try:
            mark.lower(15, 12, 1)
        except SimulatedCrash:
            for found in crashes(files):
                assert values(found) in [(20, 12, 1), (15, 12, 1)]
        else:
            assert crash_at > 4
            return


def test_without_room_the_old_one_stays_and_lowering_says_so():
    files = MemoryFiles()
    mark = Mark(files, 2)
    mark.write(20, 12, 1)
    files.full_at = files.operations + 1
    mark.write(21, 12, 1)
    assert (mark.synced, values(files)) == (20, (20, 12, 1))
    files.full_at = files.operations + 1
    with pytest.raises(DiskFull):
        mark.lower(15, 12, 1)
    assert values(files) == (20, 12, 1)
    mark.lower(15, 12, 1)
    assert values(files) == (15, 12, 1)


def test_version_1_cannot_be_lowered():
    mark = Mark(MemoryFiles())
    with pytest.raises(AssertionError, match="cannot be taken back"):
        mark.lower(0, 0, 0)

"""A vote that was told to anybody is never forgotten, and none is made up."""

from random import Random

import pytest
from crc32c import crc32c

from quiver.errors import CorruptVote, DiskFull, StorageFailed, UnsupportedFormat
from quiver.storage.identity import Identity
from quiver.storage.vote import NAME, VoteFile
from quiver.testing import MemoryFiles, SimulatedCrash

SLOT = 4096
USED = 40  # bytes of a slot
VOTES = [(1, None), (1, 2), (2, None), (5, 1), (6, 3)]
SURVIVALS = ["none", "all", *range(6)]


def crashed(files: MemoryFiles, survives: int | str) -> MemoryFiles:
    if isinstance(survives, int):
        return files.crash(Random(survives))
    return files.crash("all" if survives == "all" else "none")


def read(files: MemoryFiles) -> tuple[int, int | None]:
    vote = VoteFile(files)
    return vote.term, vote.peer


def voted() -> MemoryFiles:
    files = MemoryFiles()
    vote = VoteFile(files)
    for term, peer in VOTES:
        vote.write(term, peer)
    return files.crash("none")


def test_there_is_none_at_first_and_looking_makes_none(files):
    vote = VoteFile(files)
    assert (vote.term, vote.peer) == (0, None)
    assert files.names() == []


def test_each_vote_is_durable_when_it_is_written(files):
    vote = VoteFile(files)
    for term, peer in VOTES:
        vote.write(term, peer)
        assert (vote.term, vote.peer) == (term, peer)
        found = files.crash("none") if isinstance(files, MemoryFiles) else files
        again = VoteFile(found)
        assert (again.term, again.peer) == (term, peer)
        again.close()
    vote.close()


def test_it_goes_on_after_an_opening():
    files = voted()
    VoteFile(files).write(7, None)
    VoteFile(files).write(7, 2)
    assert read(files.crash("none")) == (7, 2)


@pytest.mark.parametrize(("term", "peer"), [(5, None), (6, 2), (6, None), (0, 1)])
def test_a_vote_never_goes_back(term, peer):
    vote = VoteFile(voted())
    with pytest.raises(AssertionError, match="is written after"):
        vote.write(term, peer)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("survives", SURVIVALS)
def test_a_crash_at_any_operation_leaves_the_last_vote_or_the_one_that_was_written(survives, late):
    """And after it another vote, and another crash: what was read after the first is kept, too."""
    for first in range(1, 40):
        files = MemoryFiles(crash_at=first, crash_late=late)
        try:
            told = write_all(files, VOTES)
        except Interrupted as interrupted:
            told = interrupted.told
        else:
            assert first > 15
            return
        for second in range(1, 8):
            found = crashed(files, survives)
            seen = read(found)
            assert seen in allowed(told)
            found.crash_at, found.crash_late = second, late
            more = [(seen[0] + 1, 1), (seen[0] + 2, None)]
            try:
                told_then = write_all(found, more)
            except Interrupted as interrupted:
                told_then = interrupted.told
            again = read(crashed(found, survives))
            assert again in [seen, *more]
            assert again >= (told_then[-1] if told_then else seen)


class Interrupted(Exception):
    """A crash, and which votes were written before."""

    def __init__(self, told: list[tuple[int, int | None]]) -> None:
        self.told = told


def write_all(
    files: MemoryFiles, votes: list[tuple[int, int | None]]
) -> list[tuple[int, int | None]]:
    told = []
    try:
        vote = VoteFile(files)
        for term, peer in votes:
            vote.write(term, peer)
            told.append((term, peer))
    except SimulatedCrash:
        raise Interrupted(told) from None
    return told


def allowed(told: list[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
    at = len(told)
    return [told[-1] if told else (0, None), *VOTES[at : at + 1]]


def test_one_damaged_slot_is_no_loss():
    whole = voted()
    places = [slot * SLOT + at for slot in (0, 1) for at in range(USED)]
    for at in places:
        for bit in range(8):
            files = whole.crash("all")
            file = files.open(NAME)
            file.write(at, [bytes([file.read(at, 1)[0] ^ 1 << bit])])
            assert read(files) == VOTES[-1]
            VoteFile(files).write(9, 1)
            assert read(files.crash("none")) == (9, 1)


def test_no_cut_of_the_file_makes_up_a_vote():
    whole = voted()
    results = set()
    for length in [*range(USED + 1), SLOT - 1, SLOT, *range(SLOT, SLOT + USED + 1)]:
        files = whole.crash("all")
        files.open(NAME).truncate(length)
        try:
            assert read(files) == VOTES[-1]
            results.add("read")
        except CorruptVote:
            assert length < USED
            results.add("refused")
    assert results == {"read", "refused"}


def test_without_a_good_slot_the_node_may_not_vote():
    files = voted()
    for at in (0, SLOT):
        files.open(NAME).write(at + 30, [b"?"])
    before = files.operations
    with pytest.raises(CorruptVote, match=r"may not vote.*empty directory"):
        VoteFile(files)
    assert files.operations == before


def test_slots_that_contradict_each_other_are_no_vote():
    """One of them is of an older state of this directory, or of another node."""
    files, other = voted(), MemoryFiles()
    VoteFile(other).write(1, 3)
    files.open(NAME).write(SLOT, [other.open(NAME).read(0, USED)])
    with pytest.raises(CorruptVote, match="contradicts itself"):
        VoteFile(files)


def test_a_vote_that_is_missing_in_a_cluster_is_not_one_that_was_never_given():
    files = voted()
    Identity("c" * 32, 1, 1, "d" * 32).save(files)
    assert read(files) == VOTES[-1]
    files.remove(NAME)
    with pytest.raises(CorruptVote, match="is missing"):
        VoteFile(files)


def test_the_vote_of_another_shard_is_none():
    with pytest.raises(CorruptVote):
        VoteFile(voted(), shard=1)


@pytest.mark.parametrize("operation", range(1, 5))
def test_without_room_the_old_vote_stands_or_the_new_one(operation):
    files = voted()
    vote = VoteFile(files)
    files.full_at = files.operations + operation
    if operation % 2:  # a write; the others are syncs
        with pytest.raises(DiskFull):
            vote.write(7, 1)
    else:
        vote.write(7, 1)
    assert read(files.crash("none")) == (vote.term, vote.peer)
    vote.write(8, 2)
    assert read(files.crash("none")) == (8, 2)


def test_after_a_failed_sync_there_are_no_more_votes():
    files = voted()
    vote = VoteFile(files)
    files.fail_sync = True
    with pytest.raises(StorageFailed):
        vote.write(7, 1)
    files.fail_sync = False
    with pytest.raises(StorageFailed, match="cannot be written"):
        vote.write(8, 1)
    assert read(files.crash("none")) == VOTES[-1]


def test_a_newer_format_is_told_from_damage():
    files = voted()
    file = files.open(NAME)
    for at in (0, SLOT):
        slot = file.read(at, 8) + (2).to_bytes(4, "little") + file.read(at + 12, USED - 16)
        file.write(at, [slot, crc32c(slot).to_bytes(4, "little")])
    with pytest.raises(UnsupportedFormat, match="has format 2"):
        VoteFile(files)

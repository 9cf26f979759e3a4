"""The power fails at every single operation of a peer's files; what they promise holds.

The promises: what was synced and not cut is there; what was cut does not come back once `cut` has
returned; what is committed is there and nothing more is said to be; a vote that was told is kept; an
identity is the old or the new one; and the directory opens, whatever happens in which moment.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Literal

import pytest

from quiver.storage import identity, snapshot
from quiver.storage.frame import LogRecord
from quiver.storage.identity import Identity, KnownPeer
from quiver.storage.logfile import first_indexes
from quiver.storage.snapshot import LastEntry
from quiver.storage.vote import VoteFile
from quiver.storage.wal import Wal
from quiver.testing import MemoryFiles, SimulatedCrash
from tests.lengths import quickly
from tests.unit.storage.logs import (
    assert_holds,
    fill,
    open_log,
    open_v2,
    peer_record,
    record,
    records_of,
)

SEEDS = {"some": 4, "many": 40}
SURVIVALS = ["none", "all", *SEEDS]
ALONE = 3  # entries of before the directory joined
JOINED = Identity("a" * 32, 1, 1, "b" * 32)
MET = Identity("a" * 32, 1, 1, "b" * 32, 0, (KnownPeer(2, "two", "two:7071"),))


@dataclass
class Story:
    """What was asked of the files, and what they have promised."""

    log: list[LogRecord] = field(default_factory=list)
    cut: list[LogRecord] = field(default_factory=list)  # the log before a cut that goes on
    synced: int = 0
    committed: int = 0
    votes: list[tuple[int, int | None]] = field(default_factory=lambda: [(0, None)])
    voting: tuple[int, int | None] | None = None
    cuts_over_borders: int = 0


class Life:
    """A peer's life: it joins, votes, appends, syncs, cuts, snapshots, closes and opens again."""

    def __init__(self, files: MemoryFiles, story: Story) -> None:
        self.files = files
        self.story = story
        self.take = 0

    def live(self) -> None:
        self.join()
        self.wal, _ = open_v2(self.files)
        self.story.committed = self.wal.commit_index
        self.append(1, 9)
        self.sync()
        self.commit(5)
        self.append(1, 3)
        self.cut(6)  # over a border; its end was not synced
        self.vote.write(*self.votes(2, 2))
        self.voted()
        self.append(2, 2)
        self.sync()
        self.append(2, 4)
        self.wal.roll()  # what follows is in one file
        self.append(2, 1)
        pending = self.wal.start_sync()
        covered = len(self.story.log)
        self.append(2, 1)
        self.wal.finished(pending)
        self.story.synced = self.wal.synced_index
        assert self.story.synced >= covered
        self.append(2, 1)
        self.cut(7)  # what was synced and what was not
        self.append(3, 1)
        self.append(3, 5)
        self.wal.roll()
        self.story.synced = len(self.story.log)
        self.append(3, 1)
        self.cut(first_indexes(self.files)[-1] - 1)  # the last file becomes empty
        self.vote.write(*self.votes(4, None))
        self.voted()
        self.append(4, 4)
        self.sync()
        self.commit(len(self.story.log) - 2)
        self.snapshot()
        self.append(4, 3)
        self.cut(len(self.story.log) - 1)
        self.wal.close()
        self.story.synced = len(self.story.log)
        MET.save(self.files)
        saved = snapshot.load(self.files)
        assert saved is not None
        self.wal, _ = open_v2(self.files, after=saved.index, term=saved.last.term)
        self.append(5, 2)
        self.cut(self.story.committed)
        self.append(6, 3)
        self.sync()

    def join(self) -> None:
        wal, _ = open_log(self.files)
        self.story.log += [record(at) for at in range(1, ALONE + 1)]
        self.story.committed = ALONE  # as soon as it is durable
        fill(wal, ALONE)
        self.story.synced = ALONE
        wal.close()
        self.vote = VoteFile(self.files)
        self.vote.write(*self.votes(1, 1))
        self.voted()
        JOINED.save(self.files)

    def votes(self, term: int, peer: int | None) -> tuple[int, int | None]:
        self.story.voting = term, peer
        return term, peer

    def voted(self) -> None:
        assert self.story.voting is not None
        self.story.votes.append(self.story.voting)
        self.story.voting = None

    def append(self, term: int, count: int) -> None:
        self.take += 1
        first = self.wal.last_index + 1
        records = [peer_record(first + at, term, take=self.take) for at in range(count)]
        self.story.log += records
        self.wal.append(records, urgent=False)

    def sync(self) -> None:
        self.wal.sync()
        self.story.synced = len(self.story.log)

    def commit(self, index: int) -> None:
        self.story.committed = index
        self.wal.commit(index)

    def cut(self, after: int) -> None:
        story = self.story
        story.cuts_over_borders += after + 1 < first_indexes(self.files)[-1]
        story.cut = story.log
        story.log, story.synced = story.log[:after], min(story.synced, after)
        self.wal.cut(after)
        story.cut, story.synced = [], after

    def snapshot(self) -> None:
        index = self.story.committed
        snapshot.save(self.files, index, b"state", LastEntry(self.wal.term_of(index)))
        self.wal.keep([], before=index, wanted=index - 2)


def assert_keeps(files: MemoryFiles, story: Story) -> None:
    """What is found is legal, and the files can go on from it, through another crash."""
    snapshot.clean(files)
    saved = snapshot.load(files)
    after, term = (saved.index, saved.last.term) if saved is not None else (0, 0)
    vote = VoteFile(files)
    assert (vote.term, vote.peer) in [story.votes[-1], story.voting]
    node = identity.load(files)
    assert node in [None, JOINED, MET]
    assert node is not None or len(story.log) == ALONE or not story.log
    wal, found = open_v2(files, after=after, term=term)
    there = records_of(wal, after + 1)
    end = wal.last_index
    legal = [log for log in (story.log, story.cut) if log[after:end] == there]
    assert legal, "these entries were never written like that, or were cut"
    assert end >= story.synced
    assert wal.commit_index <= max(story.committed, after)
    assert list(found.sizes) == [each.nbytes for each in there]
    assert [wal.term_of(each.index) for each in there] == [each.term for each in there]
    assert_goes_on(files, wal, vote, after, there)


def assert_goes_on(
    files: MemoryFiles, wal: Wal, vote: VoteFile, after: int, there: list[LogRecord]
) -> None:
    term = max(vote.term, wal.last_term) + 1
    vote.write(term, 1)
    keep = max(wal.commit_index, wal.last_index - 2)
    wal.cut(keep)
    there = there[: keep - after]
    more = [peer_record(keep + at, term, take=99) for at in (1, 2, 3)]
    wal.append(more, urgent=False)
    wal.sync()
    again_files = files.crash("none")
    assert (VoteFile(again_files).term, VoteFile(again_files).peer) == (term, 1)
    again, _ = open_v2(again_files, after=after, term=wal.term_of(after))
    assert records_of(again, after + 1) == [*there, *more]


def operations() -> int:
    files = MemoryFiles()
    story = Story()
    Life(files, story).live()
    assert story.cuts_over_borders >= 3
    return files.operations


def crashed_at(operation: int, *, late: bool) -> tuple[MemoryFiles, Story]:
    files, story = MemoryFiles(crash_at=operation, crash_late=late), Story()
    with pytest.raises(SimulatedCrash):
        Life(files, story).live()
    return files, story


def survivals(kind: str, operation: int) -> list[Random | Literal["none", "all"]]:
    """What becomes of what was not synced: nothing, all of it, or what chance says, several times."""
    match kind:
        case "none":
            return ["none"]
        case "all":
            return ["all"]
        case _:
            return [Random(operation * 1_000 + seed) for seed in range(SEEDS[kind])]


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", quickly(1, SURVIVALS))
def test_a_crash_at_any_operation_breaks_no_promise(kind, late):
    for operation in range(1, operations() + 1):
        files, story = crashed_at(operation, late=late)
        for survives in survivals(kind, operation):
            assert_keeps(files.crash(survives), story)


def test_a_killed_process_and_a_power_failure_after_it_break_no_promise():
    """The next process finds what was written and not synced; it must not take it for durable."""
    for operation in range(1, operations() + 1):
        files, story = crashed_at(operation, late=False)
        files.crash_at = None  # the process has ended, the machine has not
        assert_keeps(files, story)


@pytest.mark.parametrize("step", quickly(1, [5, 1]))
def test_a_crash_while_recovering_from_a_crash_breaks_no_promise_either(step):
    for operation in range(1, operations() + 1, step):
        files, story = crashed_at(operation, late=False)
        for second in range(1, 40):
            found = files.crash(Random(operation * 100 + second))
            found.crash_at = second
            try:
                recover(found)
            except SimulatedCrash:
                assert_keeps(found.crash(Random(second)), story)
            else:
                break


def recover(files: MemoryFiles) -> None:
    snapshot.clean(files)
    saved = snapshot.load(files)
    open_v2(files, after=saved.index if saved else 0, term=saved.last.term if saved else 0)


def test_the_life_has_in_it_what_it_says():
    files, story = MemoryFiles(), Story()
    life = Life(files, story)
    life.live()
    wal, _ = open_v2(files, after=life.wal.after, term=life.wal.term_of(life.wal.after))
    assert records_of(wal, wal.first_index) == story.log[wal.first_index - 1 :]
    assert wal.last_term == 6
    assert [vote for vote in story.votes if vote[0]] == [(1, 1), (2, 2), (4, None)]
    alone = MemoryFiles()
    old, _ = open_log(alone)
    fill(old, ALONE)
    old.close()
    assert_holds(*open_log(alone), [record(at) for at in range(1, ALONE + 1)])

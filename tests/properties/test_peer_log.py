"""The log of a node with peers, beside a list: whatever is cut, synced or lost, they agree."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quiver import limits
from quiver.errors import DiskFull
from quiver.storage import snapshot
from quiver.storage.frame import EntryOrigin, LogRecord
from quiver.storage.snapshot import LastEntry
from quiver.storage.vote import VoteFile
from quiver.storage.wal import PendingSync, Wal
from quiver.testing import MemoryFiles, SimulatedCrash

seeds = st.randoms(use_true_random=False)


class PeerLogMachine(RuleBasedStateMachine):
    """`log` is what the log has; `cut` what it had before a cut that was refused half-way."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.log: list[LogRecord] = []  # entry i at i - 1
        self.synced = self.committed = self.after = 0
        self.term = 1
        self.take = 0
        self.voted: tuple[int, int | None] = (0, None)
        self.pending: PendingSync | None = None
        self.recent_bytes = 0

    @initialize(recent_bytes=st.sampled_from([0, 700, limits.MIB]))
    def begin(self, recent_bytes: int) -> None:
        self.recent_bytes = recent_bytes
        self.open()

    def open(self) -> None:
        snapshot.clean(self.files)
        saved = snapshot.load(self.files)
        self.after = saved.index if saved is not None else 0
        last = saved.last if saved is not None else LastEntry(0)
        if saved is not None:
            assert last.term == self.log[self.after - 1].term
        self.wal = Wal.open(
            self.files,
            after=self.after,
            term=last.term,
            version=2,
            file_bytes=1_500,
            allocate_bytes=1_024,
            reserve_bytes=256,
            recent_bytes=self.recent_bytes,
        )
        found = self.wal.scan()
        assert self.synced <= self.wal.last_index <= len(self.log)
        del self.log[self.wal.last_index :]
        self.synced = self.wal.last_index
        assert self.wal.commit_index <= max(self.committed, self.after)
        self.committed = self.wal.commit_index
        assert list(found.sizes) == [each.nbytes for each in self.log[self.after :]]
        self.vote = VoteFile(self.files)
        assert (self.vote.term, self.vote.peer) == self.voted
        self.pending = None

    # -- what the node does ------------------------------------------------------------------------

    @rule(
        sizes=st.lists(st.just(0) | st.integers(0, 600), min_size=1, max_size=4),
        rise=st.integers(0, 1),
        urgent=st.booleans(),
    )
    def append(self, sizes: list[int], rise: int, urgent: bool) -> None:
        self.term += rise
        self.take += 1
        new = [
            LogRecord(
                len(self.log) + 1 + at,
                self.term,
                self.take,
                1,
                b"take %d" % self.take,
                b"%d" % self.take * (size // 3),
                EntryOrigin(1, 1, self.take),
                at,
            )
            for at, size in enumerate(sizes)
        ]
        try:
            self.wal.append(new, urgent=urgent)
        except DiskFull:
            assert self.files.capacity_bytes is not None
        else:
            self.log += new

    @rule()
    def sync(self) -> None:
        self.wal.sync()
        self.synced = self.wal.synced_index
        self.pending = None
        assert self.synced == len(self.log)

    @precondition(lambda self: self.pending is None)
    @rule()
    def start_sync(self) -> None:
        self.pending = self.wal.start_sync()
        assert self.pending.index == len(self.log)

    @precondition(lambda self: self.pending is not None)
    @rule()
    def finish_sync(self) -> None:
        assert self.pending is not None
        self.pending.wait()
        self.wal.finished(self.pending)
        self.pending = None
        self.synced = self.wal.synced_index

    @rule(chance=seeds)
    def commit(self, chance: Random) -> None:
        self.committed = chance.randint(self.committed, len(self.log))
        self.wal.commit(self.committed)

    @rule(chance=seeds)
    def cut(self, chance: Random) -> None:
        after = chance.randint(self.committed, len(self.log))
        gone = after < len(self.log)
        try:
            self.wal.cut(after)
        except DiskFull:
            assert self.files.capacity_bytes is not None
        else:
            del self.log[after:]
            self.term += 1
            assert not gone or self.wal.synced_index == after
        self.synced = min(self.wal.synced_index, len(self.log))

    @rule()
    def roll(self) -> None:
        self.wal.roll()
        self.synced = self.wal.synced_index

    @precondition(lambda self: min(self.committed, self.synced) > self.after)
    @rule(wanted=st.none() | st.integers(1, 60))
    def save(self, wanted: int | None) -> None:
        index = min(self.committed, self.synced)
        try:
            snapshot.save(self.files, index, b"state", LastEntry(self.wal.term_of(index)))
        except DiskFull:
            return
        before = self.wal.first_index
        self.wal.keep([], before=index, wanted=wanted)
        self.after = index
        assert self.wal.first_index <= index + 1
        if wanted is not None:
            assert self.wal.first_index <= max(wanted, before)

    @rule(peer=st.none() | st.integers(1, 3))
    def vote_again(self, peer: int | None) -> None:
        vote = (self.vote.term + 1, peer)
        try:
            self.vote.write(*vote)
        except DiskFull:
            assert self.files.capacity_bytes is not None
        self.voted = (self.vote.term, self.vote.peer)

    @rule(free=st.none() | st.integers(0, 3_000))
    def fill_or_free_the_disk(self, free: int | None) -> None:
        self.files.capacity_bytes = None if free is None else self.files.used_bytes + free

    # -- what happens to it ------------------------------------------------------------------------

    @rule(survives=st.sampled_from(["none", "all"]) | seeds)
    def crash(self, survives) -> None:
        self.files = self.files.crash(survives)
        self.files.capacity_bytes = None
        self.open()

    @rule(
        chance=seeds,
        operation=st.integers(1, 8),
        late=st.booleans(),
        survives=st.sampled_from(["none", "all"]) | seeds,
    )
    def crash_while_it_is_cut(self, chance: Random, operation: int, late: bool, survives) -> None:
        after = chance.randint(self.committed, len(self.log))
        self.files.capacity_bytes = None
        self.files.crash_at = self.files.operations + operation
        self.files.crash_late = late
        try:
            self.wal.cut(after)
        except SimulatedCrash:
            self.synced = min(self.synced, after)
            self.crash(survives)
        else:
            self.files.crash_at = None
            del self.log[after:]
            self.synced = min(self.wal.synced_index, after)

    @rule()
    def close_and_open(self) -> None:
        self.wal.close()
        self.vote.close()
        self.synced = len(self.log)
        self.open()

    # -- what is true at any time ------------------------------------------------------------------

    @invariant()
    def the_log_is_the_list(self) -> None:
        wal = self.wal
        assert wal.last_index == len(self.log)
        assert self.synced <= wal.synced_index <= wal.last_index
        first = wal.first_index
        assert first <= self.after + 1
        there = wal.entries(first, 1 << 30) if first <= wal.last_index else []
        assert there == self.log[first - 1 :]
        terms = [each.term for each in self.log[first - 1 :]]
        assert [wal.term_of(index) for index in range(first, wal.last_index + 1)] == terms
        if first > 1:
            assert wal.term_of(first - 1) == self.log[first - 2].term
        for each in self.log[self.after :]:
            if each.batch != b"":
                assert wal.read(each.index) == each.batch
            else:
                assert wal.file_of(each.index) is None


TestPeerLog = PeerLogMachine.TestCase
TestPeerLog.settings = settings(stateful_step_count=40)

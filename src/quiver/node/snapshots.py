"""Snapshots: when one is due, what it writes, and what it leaves where it is.

A snapshot takes the state at once and is saved by another thread. What stays of the messages goes
into segments before: those in log files that were complete at the snapshot before, so that what is
settled sooner is never written twice. When it is durable, the log lets go of what it has replaced.

    begin ──► save (any thread) ──► finish     durable: old files go
                     ├──────────► spare        something cannot be read: leave it there, begin again
                     ├──────────► put_off      the disk cannot be read: later
                     └──────────► drop         no room: later, and without segments
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import pyarrow as pa

from quiver import limits
from quiver.batches import sealed
from quiver.batches.output import Piece
from quiver.core.delivery import DeliveryCore
from quiver.errors import CorruptLog, CorruptSegment, ReadFailed
from quiver.node.cache import BatchCache
from quiver.node.garbage import without_gc
from quiver.node.segments import Plan, Write
from quiver.node.source import Locator, Source
from quiver.storage import codec, segment, snapshot
from quiver.storage.files import Files
from quiver.storage.ledger import LedgerFiles, LedgerPage
from quiver.storage.logfile import first_of
from quiver.storage.snapshot import LastEntry
from quiver.storage.wal import Wal


class LeftAlone:
    """What a snapshot does not write anew: log files by their first entry, and segments.

    `segments` is None until one was met; from then on letters astray are left alone as well.
    """

    def __init__(self) -> None:
        self.logs: set[int] = set()
        self.segments: set[str] | None = None

    def add_log(self, first: int) -> bool:
        """One more; whether it was not known."""
        known = first in self.logs
        self.logs.add(first)
        return not known

    def add_segments(self, names: set[str]) -> bool:
        """Some more; whether they were not known."""
        known = self.segments is not None and names <= self.segments
        self.segments = names | (self.segments or set())
        return not known

    def beside(self, other: "LeftAlone") -> set[str] | None:
        """The segments of both."""
        if self.segments is None or other.segments is None:
            return self.segments if other.segments is None else other.segments
        return self.segments | other.segments


class Snapshots:
    """Takes snapshots of a core. It is used by the thread that applies entries."""

    def __init__(
        self, files: Files, core: DeliveryCore, wal: Wal, ledger: LedgerFiles, locator: Locator
    ) -> None:
        self._files = files
        self._core = core
        self._wal = wal
        self._ledger = ledger
        self._locator = locator
        self.disk_is_full = False  # it has refused something since the last snapshot
        self._entries = core.index  # applied when the last snapshot was made
        self._state_bytes = 0  # of the last snapshot
        self._damaged = LeftAlone()
        self._unread = LeftAlone()  # until the next snapshot, which tries to read them again
        self._dead_bytes = 0  # of the log, when a snapshot was last tried on a full disk
        self._retry_bytes = 0  # how far the log must have grown before it is tried again

    @property
    def is_due(self) -> bool:
        """The log has grown enough to be worth the cost, or the disk is full and it would free some."""
        grown = self._wal.appended_bytes
        if self.disk_is_full:
            step = min(limits.WAL_ALLOCATE_BYTES, self._wal.size_bytes // 8)
            if self._dead() > self._dead_bytes + step:
                return True
        if grown < self._retry_bytes:
            return False
        if self._core.ledger.is_full:
            return True
        entries = self._core.index - self._entries
        return grown >= max(limits.SNAPSHOT_LOG_BYTES, 2 * self._state_bytes) or (
            entries >= limits.SNAPSHOT_LOG_ENTRIES and grown >= self._state_bytes
        )

    def _dead(self) -> int:
        """About how many bytes of the log nobody needs any more."""
        topics = self._core.topics.values()
        return self._wal.size_bytes - sum(p.nbytes for topic in topics for p in topic.partitions)

    def begin(self, woken: Sequence[int] = (), *, seal_all: bool = False) -> "Snapshot":
        """Plan the segments and take the state as bytes; everything in it was synced before.

        On a full disk nothing is sealed.
        """
        assert self._wal.synced_index >= self._core.index, "a snapshot holds what is durable"
        if self.disk_is_full:
            self._wal.lend()
        elif seal_all:
            self.disk_is_full = not self._wal.roll()
        complete = self._wal.complete(self._core.index if seal_all else self._entries)
        unreadable = self._damaged.logs | self._unread.logs
        leaving = {None, *complete} - unreadable if not self.disk_is_full else {None}
        with without_gc():
            plan = self._locator.segments.plan(
                self._core,
                lambda index: self._wal.file_of(index) not in leaving,
                lambda index: self._wal.file_of(index) is not None,
                write=not self.disk_is_full,
                spared=self._damaged.beside(self._unread),
            )
            state = codec.encode_state([self._core.dump(), self._wal.places(plan.logged)])
        self._entries = self._core.index
        self._state_bytes = len(state)
        cache = BatchCache(limits.SEAL_CACHE_BYTES_MAX)
        writes = [
            (write, self._locator.source(write.topic, write.parts, cache)) for write in plan.writes
        ]
        page = self._ledger.begin(self._core.ledger.take(), self._core.now_ms)
        index, wal = self._core.index, self._wal
        level = self._core.level
        last = LastEntry(wal.term_of(index), level=level) if wal.version > 1 else None
        return Snapshot(self._files, index, last, plan, writes, state, page, woken)

    def finish(self, made: "Snapshot") -> None:
        """The snapshot is durable: let the log go of what only older states needed."""
        self._ledger.finish(made.page)
        self._locator.segments = made.plan.segments
        self._wal.keep(made.plan.logged, before=made.index)
        self._locator.clean()
        self.disk_is_full = False
        self._dead_bytes = self._retry_bytes = 0
        self._unread = LeftAlone()

    def spare(self, made: "Snapshot", damage: Exception) -> bool:
        """Something that was to be written anew cannot be read: leave it where it is.

        Else what cannot be read would be dropped, and with it the file that a backup could mend.
        What is damaged is left from now on; what the disk could not read, by this snapshot.
        False if that is no help, because it was so already, or it is something else.
        """
        left, log = self._damaged, None
        match damage:
            case CorruptLog(file=int(first)):
                log = first
            case CorruptSegment():
                pass
            case ReadFailed():
                left, log = self._unread, first_of(PurePath(damage.path).name)
            case _:
                return False
        self._locator.clean()
        if log is not None:
            return left.add_log(log)
        doomed = {one.name for one in self._locator.segments} - {
            one.name for one in made.plan.segments
        }
        return left.add_segments(doomed)

    def put_off(self) -> None:
        """The disk could not be read: try again when the log has grown."""
        self._retry_bytes = self._wal.appended_bytes + limits.WAL_ALLOCATE_BYTES
        self._unread = LeftAlone()
        self._locator.clean()

    def drop(self) -> None:
        """There was no room for the snapshot: try again when it would free more."""
        self.disk_is_full = True
        self._dead_bytes = self._dead()
        self._retry_bytes = self._wal.appended_bytes + limits.WAL_ALLOCATE_BYTES
        self._wal.take_back()
        self._locator.clean()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state to be saved, by any thread, and the segments to be written before."""

    files: Files
    index: int
    last: LastEntry | None  # in a directory that has joined a cluster
    plan: Plan
    writes: list[tuple[Write, Source]]
    state: bytes
    page: LedgerPage
    woken: Sequence[int]  # topics where the sweep made room for others

    def save(self, rest: Callable[[], None] = lambda: None) -> None:
        """Write it; when this returns it is durable, and older snapshots are gone.

        The ledger goes first: what happened before the snapshot cannot be told from the log again.
        `rest` is called between steps of the long work, for others to get their turn.
        """
        self.page.save(rest)
        for write, source in self.writes:
            name = write.segment.name
            groups = _groups(source, rest)
            write.segment.blocks = segment.write(self.files, name, write.topic_name, groups, rest)
        if self.writes:
            self.files.sync_directory()
        payload = codec.encode_state([self.state, self.plan.segments.dump()])
        snapshot.save(self.files, self.index, payload, self.last)
        self.page.tidy(rest)


def _groups(source: Source, rest: Callable[[], None]) -> Iterator[pa.Table]:
    """The messages in row groups, with a `rest` now and then also where there are very many pieces."""
    done: list[pa.Table] = []
    gathered: list[Piece] = []
    nbytes = rows = 0
    for piece in source.pieces():
        rest()
        each = max(piece.batch.nbytes // piece.batch.num_rows, 1)
        at = 0
        while at < piece.part.count:
            room = max((limits.SEGMENT_GROUP_BYTES - nbytes) // each, 1)
            count = min(piece.part.count - at, room, limits.SEGMENT_GROUP_ROWS - rows)
            gathered.append(Piece(piece.batch, piece.at + at, piece.part.cut(at, count)))
            at += count
            rows += count
            nbytes += count * each
            full = nbytes >= limits.SEGMENT_GROUP_BYTES or rows >= limits.SEGMENT_GROUP_ROWS
            if full or len(gathered) == limits.SEAL_PIECES_MAX:
                done.append(sealed.seal(gathered))
                gathered = []
            if full:
                yield pa.concat_tables(done)
                done, nbytes, rows = [], 0, 0
    if gathered:
        done.append(sealed.seal(gathered))
    if done:
        yield pa.concat_tables(done)

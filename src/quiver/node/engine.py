"""Log and core together, a step at a time: what is proposed is written, applied, synced and answered.

The order is the promise. An entry is applied only after it was appended, and an answer is given
only after it was applied and, unless the sender asked for less, synced. The engine has no thread,
no clock and no chance of its own, so that a test can drive it, crash it and open it again.
"""

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import PurePath
from typing import Any, TypeAlias

import pyarrow as pa

from quiver import limits, notices
from quiver.batches import codec as batch_codec
from quiver.batches import sealed
from quiver.batches.codec import BytesLike
from quiver.batches.output import Piece
from quiver.core.delivery import Delivery
from quiver.core.delivery.offsets import Range
from quiver.errors import (
    CorruptLog,
    CorruptSegment,
    DiskFull,
    InvalidRequest,
    MessageTooLarge,
    QuiverError,
    ReadFailed,
    StorageError,
    UnreadableMessages,
)
from quiver.model.commands import (
    Command,
    CreateTopic,
    Entry,
    Found,
    Send,
    SetTime,
    Tick,
    Transact,
)
from quiver.model.replies import Outcome, Sealed, SealedFile, Slice
from quiver.model.stats import StorageStats
from quiver.node.cache import BatchCache
from quiver.node.clock import Jump
from quiver.node.segments import Plan, Segment, Segments, Write
from quiver.storage import codec, segment, snapshot
from quiver.storage.backup import Needed
from quiver.storage.files import Files
from quiver.storage.frame import Record
from quiver.storage.ledger import RETENTION_MS, LedgerFiles, Page, Reading
from quiver.storage.logfile import first_of
from quiver.storage.segment import SegmentFile
from quiver.storage.wal import Place, Wal

TERM = 1  # a group of one has had one election


class Proposal:
    """A command that shall become an entry, with the batch it sends; both encoded already.

    It is made by whoever asks, so that the thread that commits has less to do, and what cannot be
    encoded is the asker's error. The batch, or what makes it while the disk works, is kept for readers.
    """

    __slots__ = ("batch", "command", "command_bytes", "encoded", "kind")

    def __init__(
        self,
        command: Command,
        batch: pa.RecordBatch | Callable[[], pa.RecordBatch] | None = None,
        encoded: BytesLike = b"",
    ) -> None:
        try:
            self.kind, self.command_bytes = codec.encode(command)
        except (UnicodeEncodeError, OverflowError, TypeError) as error:
            raise InvalidRequest(
                f"the request has a value that cannot be stored: {error}"
            ) from error
        if (
            len(self.command_bytes) > limits.WAL_COMMAND_BYTES_MAX
            or len(encoded) > limits.WAL_BATCH_BYTES_MAX
        ):
            raise MessageTooLarge(
                f"the request takes {len(encoded) + len(self.command_bytes):,} bytes of the log, "
                "which is more than one entry may have; send it in parts"
            )
        self.command = command
        self.batch = batch
        self.encoded = encoded

    @property
    def urgent(self) -> bool:
        """Whether it may use the last reserve of a full disk: it stores nothing new."""
        match self.command:
            case Send() | CreateTopic():
                return False
            case Transact() as transact:
                return not transact.sends
            case _:
                return True


@contextmanager
def without_gc() -> Iterator[None]:
    """Around the making of many objects that stay, or go all at once.

    Python would look for cycles among them again and again, which takes most of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


Where: TypeAlias = pa.RecordBatch | Place | SegmentFile | list[SegmentFile] | StorageError


class Source:
    """Where the messages of some slices are: in memory, in the log, or in segments.

    Any thread may read it, also after the log or the table of segments has let go of the files.
    """

    def __init__(self, cache: BatchCache, parts: Sequence[tuple[Slice, Where]]) -> None:
        self._cache = cache
        self._parts = parts

    @property
    def at_hand(self) -> bool:
        """Whether all of them are in memory, so that reading them waits for no disk."""
        return all(isinstance(where, pa.RecordBatch) for _, where in self._parts)

    def pieces(self) -> Iterator[Piece]:
        """The messages, in order, and all of them, or what is wrong with them."""
        for part, where in self._parts:
            yield from self._read(part, where)

    def readable(self, *, some: bool) -> Iterator[Piece]:
        """The messages that can be read, and a warning if others cannot.

        Who must have `some` gets the error if there are none. A disk that could not be read is
        no reason to go past messages: who need not have some gets that error at once.
        """
        damage: CorruptSegment | CorruptLog | ReadFailed | None = None
        found = missing = 0
        try:
            for part, where in self._parts:
                before = found
                try:
                    for piece in self._read(part, where):
                        found += piece.part.count
                        yield piece
                except (CorruptSegment, CorruptLog, ReadFailed) as error:
                    if isinstance(error, ReadFailed) and not some:
                        raise
                    damage = error
                    missing += part.count - (found - before)
            if damage is not None and some and not found:
                raise damage
        finally:  # also for who has had enough before the end
            if missing and (found or not some):
                notices.warn(UnreadableMessages(
                    f"{missing:,} messages were left out, because they cannot be read: {damage}"
                ))  # fmt: skip

    def _read(self, part: Slice, where: Where) -> Iterator[Piece]:
        match where:
            case Place():
                batch = self._cached(part.index, lambda: batch_codec.decode(where.read()))
                yield Piece(batch, part.row, part)
            case SegmentFile():
                yield from self._sealed(part, where)
            case list():
                yield from self._astray(part, where)
            case StorageError():
                raise where
            case _:
                yield Piece(where, part.row, part)

    def _sealed(self, part: Slice, file: SegmentFile) -> Iterator[Piece]:
        done = 0
        while done < part.count:
            group = file.group_of(part.offset + done)
            at, count = file.position(group, part.offset + done, part.count - done)
            yield Piece(self._group(file, group), at, part.cut(done, count))
            done += count

    def _astray(self, part: Slice, files: list[SegmentFile]) -> Iterator[Piece]:
        """Messages that are in segments of another partition, found by entry and row."""
        end = part.row + part.count
        found = [(run, file) for file in files for run in file.find(part.index, part.row, end)]
        done = 0
        for run, file in sorted(found, key=lambda one: one[0].row):
            row = part.row + done
            known = row - run.row  # a message may be in several files
            if known < 0:
                break
            if known < run.length:
                count = run.length - known
                piece = part.cut(done, count)
                yield Piece(self._group(file, run.group), run.at + known, piece)
                done += count
        if done < part.count:
            raise CorruptSegment(f"message {part.index}-{part.row + done} is in no segment")

    def _group(self, file: SegmentFile, group: int) -> pa.RecordBatch:
        return self._cached((file.name, group), lambda: file.batch(group))

    def _cached(self, key: Hashable, read: Callable[[], pa.RecordBatch]) -> pa.RecordBatch:
        batch = self._cache.get(key)
        if batch is None:
            batch = read()
            self._cache.put(key, batch)
        return batch


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


class Engine:
    """One shard. Used by one thread; only `Source` may be used by others."""

    def __init__(self, files: Files, core: Delivery, wal: Wal, ledger: LedgerFiles) -> None:
        self.core = core
        self._ledger = ledger
        self.wal = wal
        self.segments = Segments({})
        self.cache = BatchCache()
        self._files = files
        self._opened = lru_cache(limits.SEGMENT_FILES_OPEN_MAX)(self._open_segment)
        self._entries = core.index  # applied when the last snapshot was made
        self._snapshot_bytes = 0
        self._damaged = LeftAlone()
        self._unread = LeftAlone()  # until the next snapshot, which tries to read them again
        self._full = False  # the disk has refused something since the last snapshot
        self._dead_bytes = 0  # of the log, when a snapshot was last tried on a full disk
        self.jump = Jump(0, 0)  # how far the clock was from the log when it was opened
        self._retry_bytes = 0  # how far the log must have grown before it is tried again

    @classmethod
    def open(
        cls, files: Files, *, now_ms: int, secret: bytes, ledger_ms: int = RETENTION_MS,
        **sizes: int,
    ) -> "Engine":  # fmt: skip
        """Recover what the directory holds; found a new log with `secret` if it holds nothing."""
        snapshot.clean(files)
        with without_gc():
            engine = cls.load(files, ledger_ms, **sizes)
            engine.replay(engine.wal.replay())
        engine.core.reasons.clear()  # what was counted before is not counted again
        engine._ledger.clean()
        engine._clean()
        if engine.core.index == 0:
            engine._demand(Proposal(Found(secret, now_ms)), now_ms)
        return engine

    @classmethod
    def load(cls, files: Files, ledger_ms: int = RETENTION_MS, **sizes: int) -> "Engine":
        """The state of the snapshot, which the log is to be replayed behind. Nothing is changed."""
        saved = snapshot.load(files)
        core, places, segments = Delivery(), [], []
        if saved is not None:
            state, segments = codec.decode_state(saved[1])
            dumped, places = codec.decode_state(state)
            core = Delivery.load(dumped)
        wal = Wal.open(files, after=core.index, places=places, **sizes)
        engine = cls(files, core, wal, LedgerFiles(files, core.index, ledger_ms))
        engine.segments = Segments.load(segments)
        return engine

    def follow_clock(self, now_ms: int, directory: str, *, accept: bool) -> None:
        """Compare the log's time with the clock's before anything is written.

        They must be near each other, unless somebody says that the clock is right: then the log's
        time follows it, back or forth.
        """
        self.jump = Jump(self.core.now_ms, now_ms)
        if not accept:
            self.jump.demand(directory)
        elif self.jump.is_back:
            self._demand(Proposal(SetTime(now_ms)), now_ms)
        elif self.jump.is_unlikely:
            self._demand(Proposal(Tick()), now_ms)  # from now on it is the last entry's time

    def _demand(self, proposal: Proposal, now_ms: int) -> None:
        """Do this, or raise why not."""
        (outcome,) = self.commit([proposal], now_ms=now_ms)
        if isinstance(outcome.reply, Exception):
            raise outcome.reply

    def replay(self, records: Iterable[Record]) -> None:
        """Apply entries that the log has already."""
        for record in records:
            command = codec.decode(record.kind, record.command)
            self.core.apply(Entry(record.index, record.now_ms, command))

    def commit(
        self, proposals: Sequence[Proposal], *, now_ms: int, sync: bool = True
    ) -> list[Outcome]:
        """Write all as entries, apply them in order, sync once. What the disk refuses is an outcome too.

        The disk works while they are applied (a lone send takes 60 µs less like that). A sync that
        fails leaves a state that knows too much; nobody is told of it, for nothing is answered any
        more.
        """
        now_ms = max(now_ms, self.core.now_ms)
        refused: QuiverError | None = None
        accepted = list(proposals)
        try:
            records = self._append(accepted, now_ms)
        except DiskFull as full:
            # A new error: the old one's traceback keeps log files open, and so their disk space.
            refused = DiskFull(str(full))
            self._full = True
            accepted = [proposal for proposal in proposals if proposal.urgent]
            try:
                records = self._append(accepted, now_ms) if accepted else []
            except DiskFull:
                accepted, records = [], []
        if sync and records:
            self.wal.begin_sync()
        outcomes = iter(
            [
                self._apply(record, proposal)
                for record, proposal in zip(records, accepted, strict=True)
            ]
        )
        if sync and records:
            self.wal.sync()
        if refused is None:
            return list(outcomes)
        kept = {id(proposal) for proposal in accepted}
        return [next(outcomes) if id(p) in kept else Outcome(refused) for p in proposals]

    def _append(self, proposals: Sequence[Proposal], now_ms: int) -> list[Record]:
        first = self.wal.last_index + 1
        records = [
            Record(at, TERM, now_ms, proposal.kind, proposal.command_bytes, proposal.encoded)
            for at, proposal in enumerate(proposals, first)
        ]
        self.wal.append(records, urgent=all(proposal.urgent for proposal in proposals))
        return records

    def _apply(self, record: Record, proposal: Proposal) -> Outcome:
        batch = proposal.batch
        if batch is not None:
            self.cache.put(record.index, batch() if callable(batch) else batch)
        return self.core.apply(Entry(record.index, record.now_ms, proposal.command))

    # -- where messages are ------------------------------------------------------------------------

    def source(
        self, topic: int, slices: Iterable[Slice], cache: BatchCache | None = None
    ) -> Source:
        """Hold on to where the messages of these slices are, so that they can be read later.

        Who reads very much does so with a `cache` of his own.
        """
        found: list[tuple[Slice, Where]] = []
        for part in slices:
            batch = self.cache.get(part.index) if cache is None else None
            if batch is not None:
                found.append((part, batch))
            elif self.wal.file_of(part.index) is not None:
                found.append((part, self._logged(part.index)))
            else:
                found += self._sealed(topic, part)
        return Source(cache or self.cache, found)

    def _logged(self, index: int) -> Where:
        try:
            return self.wal.locate(index)
        except StorageError as error:  # its file is damaged, or there are too many open ones
            return error

    def _sealed(self, topic: int, part: Slice) -> Iterator[tuple[Slice, Where]]:
        shelf = self.segments.shelf(topic, part.partition)
        for start, end, holder in shelf.split(part.offset, part.offset + part.count):
            piece = part.cut(start - part.offset, end - start)
            try:
                if holder is not None:
                    yield piece, self._opened(holder)
                else:
                    others = self.segments.with_entry(piece.index)
                    yield piece, [self._opened(one) for one in others]
            except StorageError as error:
                # Anything but a missing file, such as too many open ones, may be over soon.
                text = f"Offsets {start} to {end - 1} cannot be read: {error}"
                gone = holder is not None and self._is_gone(holder.name)
                yield piece, CorruptSegment(text) if gone else error

    def _is_gone(self, name: str) -> bool:
        try:
            return name not in self._files.names()
        except StorageError:
            return False

    def _open_segment(self, one: Segment) -> SegmentFile:
        assert one.blocks is not None
        return SegmentFile(self._files.open(one.name), one.blocks)

    def _clean(self) -> None:
        """Remove segments that a crash left over.

        What was sealed after the end of the log is of another history, of which somebody has put
        back a part; that is not ours to remove.
        """
        needed = {one.name for one in self.segments}
        over = [name for name in segment.names(self._files) if name not in needed]
        over = [name for name in over if segment.index_of(name) <= self.wal.last_index]
        for name in over:
            self._files.remove(name)
        if over:
            self._opened.cache_clear()  # an open file keeps its disk space
            self._files.sync_directory()

    # -- snapshots ---------------------------------------------------------------------------------

    @property
    def wants_snapshot(self) -> bool:
        """The log has grown enough to be worth the cost, or the disk is full and it would free some."""
        grown = self.wal.appended_bytes
        if self._full:
            step = min(limits.WAL_ALLOCATE_BYTES, self.wal.size_bytes // 8)
            if self._dead() > self._dead_bytes + step:
                return True
        if grown < self._retry_bytes:
            return False
        if self.core.ledger.is_full:
            return True
        entries = self.core.index - self._entries
        return grown >= max(limits.SNAPSHOT_LOG_BYTES, 2 * self._snapshot_bytes) or (
            entries >= limits.SNAPSHOT_LOG_ENTRIES and grown >= self._snapshot_bytes
        )

    @property
    def is_full(self) -> bool:
        """Whether the disk had no room lately: then nothing is sealed."""
        return self._full

    def _dead(self) -> int:
        """About how many bytes of the log nobody needs any more."""
        topics = self.core.topics.values()
        return self.wal.size_bytes - sum(p.nbytes for topic in topics for p in topic.partitions)

    def begin_snapshot(self, now_ms: int, *, seal_all: bool = False) -> "Snapshot":
        """Sweep, plan the segments, then take the state as bytes; everything in it is synced.

        What is in log files that were complete at the last snapshot already is sealed: what is
        settled sooner is never written twice. On a full disk nothing is.
        """
        (swept,) = self.commit([Proposal(Tick(sweep=True))], now_ms=now_ms)
        self.wal.sync()
        if self._full:
            self.wal.lend()
        elif seal_all:
            self._full = not self.wal.roll()
        complete = self.wal.complete(self.core.index if seal_all else self._entries)
        unreadable = self._damaged.logs | self._unread.logs
        leaving = {None, *complete} - unreadable if not self._full else {None}
        with without_gc():
            plan = self.segments.plan(
                self.core,
                lambda index: self.wal.file_of(index) not in leaving,
                lambda index: self.wal.file_of(index) is not None,
                write=not self._full,
                spared=self._damaged.beside(self._unread),
            )
            state = codec.encode_state([self.core.dump(), self.wal.places(plan.logged)])
        self._entries = self.core.index
        self._snapshot_bytes = len(state)
        cache = BatchCache(limits.SEAL_CACHE_BYTES_MAX)
        writes = [(write, self.source(write.topic, write.parts, cache)) for write in plan.writes]
        page = self._ledger.begin(self.core.ledger.take(), self.core.now_ms)
        return Snapshot(self._files, self.core.index, plan, writes, state, page, swept.woken)

    def finish_snapshot(self, made: "Snapshot") -> None:
        """The snapshot is durable: let the log go of what only older states needed."""
        self._ledger.finish(made.page)
        self.segments = made.plan.segments
        self.wal.keep(made.plan.logged, before=made.index)
        self._clean()
        self._full = False
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
        self._clean()
        if log is not None:
            return left.add_log(log)
        doomed = {one.name for one in self.segments} - {one.name for one in made.plan.segments}
        return left.add_segments(doomed)

    def put_off_snapshot(self) -> None:
        """The disk could not be read: try again when the log has grown."""
        self._retry_bytes = self.wal.appended_bytes + limits.WAL_ALLOCATE_BYTES
        self._unread = LeftAlone()
        self._clean()

    def drop_snapshot(self) -> None:
        """There was no room for the snapshot: try again when it would free more."""
        self._full = True
        self._dead_bytes = self._dead()
        self._retry_bytes = self.wal.appended_bytes + limits.WAL_ALLOCATE_BYTES
        self.wal.take_back()
        self._clean()

    def read_ledger(self) -> Reading:
        """What happened until now."""
        return self._ledger.reading(self.core.ledger.peek())

    def sealed(self, name: str) -> Sealed:
        """Which messages of a topic are in which files, and where the rest is."""
        topic = self.core.topic_named(name)
        files: list[SealedFile] = []
        rest: dict[int, tuple[Range, ...]] = {}
        for partition in topic.partitions:
            shelf = self.segments.shelf(topic.number, partition.number)
            live = partition.removed.gaps(partition.first, partition.end)
            found, others = shelf.share_out(live)
            rest[partition.number] = tuple(others)
            for one, ranges in found:
                path = self._files.path(one.name)
                files.append(
                    SealedFile(path, partition.number, one.count, one.nbytes, tuple(ranges))
                )
        return Sealed(tuple(files), rest)

    @property
    def directory(self) -> str:
        """Where the files are."""
        return self._files.path("")

    def needed_files(self) -> list[Needed]:
        """The files that hold the state of a replica as it is now, and how much of each."""
        after = self.wal.after
        names = [snapshot.name_of(after)] if after else []
        names += self._ledger.names
        segments = [
            Needed(one.name, None, partial(segment.demand_whole, one.name, one.blocks))
            for one in self.segments
            if one.blocks is not None
        ]
        return [*map(Needed, names), *segments, *self.wal.needed_files()]

    def find_ledger(self) -> None:
        """Look again for its files: whoever owns the directory makes few of many now and then."""
        self._ledger = LedgerFiles(self._files, self._entries, RETENTION_MS)

    def storage(self) -> StorageStats:
        """The files, as numbers."""
        disk_bytes, free_bytes = self._files.room()
        return StorageStats(
            log_bytes=self.wal.size_bytes,
            log_files=self.wal.files,
            segment_bytes=sum(one.nbytes for one in self.segments),
            segments=sum(1 for _ in self.segments),
            disk_bytes=disk_bytes,
            disk_free_bytes=free_bytes,
            sync_counts=tuple(self.wal.sync_times.counts),
            sync_seconds=self.wal.sync_times.total,
        )

    def digest_state(self) -> list[Any]:
        """The whole state as plain data, for comparing engines."""
        return self.core.dump()

    def close(self) -> None:
        """Sync what is written and let go of the files."""
        self._opened.cache_clear()
        self.wal.close()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state to be saved, by any thread, and the segments to be written before."""

    files: Files
    index: int
    plan: Plan
    writes: list[tuple[Write, Source]]
    state: bytes
    page: Page
    woken: Iterable[int]  # topics where the sweep made room for others

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
        snapshot.save(self.files, self.index, payload)
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

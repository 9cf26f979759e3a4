"""Log and core together, a step at a time: what is proposed is written, synced, applied and answered.

The order is the promise. An entry is applied only after it was appended, and an answer is given
only after it was applied and, unless the sender asked for less, synced. The engine has no thread,
no clock and no chance of its own, so that a test can drive it, crash it and open it again.
"""

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from quiver import limits
from quiver.batches import codec as batch_codec
from quiver.batches.codec import BytesLike
from quiver.core.delivery import Delivery
from quiver.errors import DiskFull, InvalidRequest, MessageTooLarge, QuiverError
from quiver.model.commands import Command, CreateTopic, Entry, Found, Send, Tick, Transact
from quiver.model.replies import Outcome, Slice
from quiver.model.topic import Compression
from quiver.node.cache import BatchCache
from quiver.storage import codec, snapshot
from quiver.storage.files import Files
from quiver.storage.frame import Record
from quiver.storage.wal import Place, Wal

TERM = 1  # a group of one has had one election


class Proposal:
    """A command that shall become an entry, with the batch it sends; both encoded already.

    It is made by whoever asks, so that the thread that commits has less to do, and what cannot be
    encoded is the asker's error.
    """

    __slots__ = ("batch", "command", "command_bytes", "encoded", "kind")

    def __init__(
        self, command: Command, batch: pa.RecordBatch | None = None, encoded: BytesLike = b""
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


def encode(batch: pa.RecordBatch, compression: Compression | None) -> pa.Buffer:
    """The bytes of a batch as an entry carries them, in memory of their own.

    Arrow's allocator has that memory at hand; for `bytes` of this size the system would give new
    pages each time, which costs more than all the copying.
    """
    header, payload = batch_codec.encode(batch, compression)
    buffer = pa.allocate_buffer(len(header) + payload.size)
    view = memoryview(buffer).cast("B")
    view[: len(header)] = header
    view[len(header) :] = memoryview(payload).cast("B")
    return buffer


class Source:
    """Where readers get the batches of some slices: from memory, or later from the log."""

    def __init__(
        self, cache: BatchCache, places: dict[int, pa.RecordBatch | BytesLike | Place]
    ) -> None:
        self._cache = cache
        self._places = places

    def pieces(self, slices: Iterable[Slice]) -> Iterator[tuple[pa.RecordBatch, Slice]]:
        """The batch of each slice; any thread may ask, also after the log let go of the file."""
        for piece in slices:
            found = self._places[piece.index]
            if not isinstance(found, pa.RecordBatch):
                encoded = found.read() if isinstance(found, Place) else found
                found = batch_codec.decode(encoded)
                self._cache.put(piece.index, found)
                self._places[piece.index] = found
            yield found, piece


class Engine:
    """One shard. Used by one thread; only `Source` may be used by others."""

    def __init__(self, files: Files, core: Delivery, wal: Wal) -> None:
        self.core = core
        self.wal = wal
        self.cache = BatchCache()
        self._files = files
        self._entries = core.index  # applied when the last snapshot was made
        self._snapshot_bytes = 0
        self._full = False  # the disk has refused something since the last snapshot
        self._dead_bytes = 0  # of the log, when a snapshot was last tried on a full disk

    @classmethod
    def open(cls, files: Files, *, now_ms: int, secret: bytes, **sizes: int) -> "Engine":
        """Recover what the directory holds; found a new log with `secret` if it holds nothing."""
        snapshot.clean(files)
        with without_gc():
            engine = cls._recover(files, **sizes)
        core = engine.core
        if core.index == 0:
            engine.commit([Proposal(Found(secret, now_ms))], now_ms=now_ms)
        return engine

    @classmethod
    def _recover(cls, files: Files, **sizes: int) -> "Engine":
        saved = snapshot.load(files)
        core, places = Delivery(), []
        if saved is not None:
            state, places = codec.decode_state(saved[1])
            core = Delivery.load(state)
        wal = Wal.open(files, after=core.index, places=places, **sizes)
        for record in wal.replay():
            core.apply(
                Entry(record.index, record.now_ms, codec.decode(record.kind, record.command))
            )
        return cls(files, core, wal)

    def commit(
        self, proposals: Sequence[Proposal], *, now_ms: int, sync: bool = True
    ) -> list[Outcome]:
        """Write all as entries, sync once, apply in order. What the disk refuses is an outcome too."""
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
            self.wal.sync()
        outcomes = iter(
            [
                self._apply(record, proposal)
                for record, proposal in zip(records, accepted, strict=True)
            ]
        )
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
        if proposal.batch is not None:
            self.cache.put(record.index, proposal.batch)
        return self.core.apply(Entry(record.index, record.now_ms, proposal.command))

    def source(self, slices: Iterable[Slice]) -> Source:
        """Hold on to the batches of these slices, so that they can be read later."""
        places: dict[int, pa.RecordBatch | BytesLike | Place] = {}
        for piece in slices:
            if piece.index not in places:
                places[piece.index] = self.cache.get(piece.index) or self.wal.locate(piece.index)
        return Source(self.cache, places)

    # -- snapshots ---------------------------------------------------------------------------------

    @property
    def wants_snapshot(self) -> bool:
        """The log has grown enough to be worth the cost, or the disk is full and it would free some."""
        if self._full:
            step = min(limits.WAL_ALLOCATE_BYTES, self.wal.size_bytes // 8)
            return self._dead() > self._dead_bytes + step
        grown = self.wal.appended_bytes
        entries = self.core.index - self._entries
        return grown >= max(limits.SNAPSHOT_LOG_BYTES, 2 * self._snapshot_bytes) or (
            entries >= limits.SNAPSHOT_LOG_ENTRIES and grown >= self._snapshot_bytes
        )

    def _dead(self) -> int:
        """About how many bytes of the log nobody needs any more."""
        topics = self.core.topics.values()
        return self.wal.size_bytes - sum(p.nbytes for topic in topics for p in topic.partitions)

    def begin_snapshot(self, now_ms: int) -> "Snapshot":
        """Sweep, then take the state as bytes; everything in it is synced."""
        self.commit([Proposal(Tick(sweep=True))], now_ms=now_ms)
        self.wal.sync()
        if self._full:
            self.wal.lend()
        live = self.core.live_indexes()
        with without_gc():
            payload = codec.encode_state([self.core.dump(), self.wal.places(live)])
        self._entries = self.core.index
        self._snapshot_bytes = len(payload)
        return Snapshot(self._files, self.core.index, live, payload)

    def finish_snapshot(self, made: "Snapshot") -> None:
        """The snapshot is durable: let the log go of what only older states needed."""
        self.wal.keep(made.live, before=made.index)
        self._full = False
        self._dead_bytes = 0

    def drop_snapshot(self) -> None:
        """There was no room for the snapshot: try again when it would free more."""
        self._full = True
        self._dead_bytes = self._dead()
        self.wal.take_back()

    def digest_state(self) -> list[Any]:
        """The whole state as plain data, for comparing engines."""
        return self.core.dump()

    def close(self) -> None:
        """Sync what is written and let go of the files."""
        self.wal.close()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state to be saved, by any thread."""

    files: Files
    index: int
    live: list[int]
    payload: bytes

    def save(self) -> None:
        """Write it; when this returns it is durable, and older snapshots are gone."""
        snapshot.save(self.files, self.index, self.payload)

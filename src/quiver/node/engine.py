"""Log and core together: entries are appended to one and applied to the other, each by a step of its own.

When which step may be done is not decided here but by the `Peer`. The engine has no thread, no
clock and no chance of its own, so that a test can drive it, crash it and open it again.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from quiver import limits
from quiver.batches.codec import BytesLike
from quiver.core.delivery import DeliveryCore
from quiver.errors import DiskFull, InvalidRequest, MessageTooLarge
from quiver.model.commands import (
    Command,
    CreateTopic,
    Entry,
    Send,
    Transact,
)
from quiver.model.ranges import Range
from quiver.model.replies import Outcome, Sealed, SealedFile, Slice
from quiver.model.stats import StorageStats
from quiver.node.cache import BatchCache
from quiver.node.clock import Jump
from quiver.node.segments import Segments
from quiver.node.snapshots import Snapshots
from quiver.node.source import Locator, Source
from quiver.storage import codec, segment, snapshot
from quiver.storage.backup import Needed
from quiver.storage.files import Files
from quiver.storage.frame import LogRecord
from quiver.storage.ledger import RETENTION_MS, LedgerFiles, Reading
from quiver.storage.wal import Wal


class Proposal:
    """A command that shall become an entry, with the batch it sends; both encoded already.

    It is made by whoever asks, so that the thread that commits has less to do, and what cannot be
    encoded is the asker's error. The batch, or what makes it while the disk works, is kept for readers.
    """

    __slots__ = ("batch", "command", "command_bytes", "encoded", "kind", "nbytes")

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
        self.nbytes = len(self.command_bytes) + len(encoded)  # of the log, but for the frame

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


class Engine:
    """One shard. Used by one thread; only `Source` may be used by others."""

    def __init__(self, files: Files, core: DeliveryCore, wal: Wal, ledger: LedgerFiles) -> None:
        self.core = core
        self.wal = wal
        self.locator = Locator(files, wal)
        self.snapshots = Snapshots(files, core, wal, ledger, self.locator)
        self.jump = Jump(0, 0)  # how far the clock was from the log when it was opened
        self._ledger = ledger
        self._files = files

    @classmethod
    def load(cls, files: Files, ledger_ms: int = RETENTION_MS, **sizes: int) -> "Engine":
        """The state of the snapshot, which the log is to be replayed behind. Nothing is changed."""
        saved = snapshot.load(files)
        core, places, segments, term = DeliveryCore(), [], [], 0
        if saved is not None:
            state, segments = codec.decode_state(saved.payload)
            dumped, places = codec.decode_state(state)
            core, term = DeliveryCore.load(dumped), saved.last.term
        wal = Wal.open(files, after=core.index, term=term, places=places, **sizes)
        engine = cls(files, core, wal, LedgerFiles(files, core.index, ledger_ms))
        engine.locator.segments = Segments.load(segments)
        return engine

    def replay(self, records: Iterable[LogRecord]) -> None:
        """Apply entries that the log has already."""
        for record in records:
            command = codec.decode(record.kind, record.command)
            self.core.apply(Entry(record.index, record.now_ms, command))

    def append(
        self, proposals: Sequence[Proposal], term: int, now_ms: int
    ) -> Sequence[LogRecord | DiskFull]:
        """For each proposal the record that was written, or why the full disk refused it."""
        try:
            return self._write(proposals, term, now_ms)
        except DiskFull as full:
            # A new error: the old one's traceback keeps log files open, and so their disk space.
            refusal = DiskFull(str(full))
        self.snapshots.disk_is_full = True
        urgent = [proposal for proposal in proposals if proposal.urgent]
        try:
            written = iter(self._write(urgent, term, now_ms) if urgent else ())
        except DiskFull:
            return [refusal] * len(proposals)
        return [next(written) if proposal.urgent else refusal for proposal in proposals]

    def _write(self, proposals: Sequence[Proposal], term: int, now_ms: int) -> list[LogRecord]:
        first = self.wal.last_index + 1
        records = [
            LogRecord(at, term, now_ms, proposal.kind, proposal.command_bytes, proposal.encoded)
            for at, proposal in enumerate(proposals, first)
        ]
        self.wal.append(records, urgent=all(proposal.urgent for proposal in proposals))
        return records

    def apply(self, record: LogRecord, proposal: Proposal) -> Outcome:
        """Let the core do what was appended; from now on readers find its batch in the cache."""
        batch = proposal.batch
        if batch is not None:
            self.locator.cache.put(record.index, batch() if callable(batch) else batch)
        return self.core.apply(Entry(record.index, record.now_ms, proposal.command))

    def tidy(self) -> None:
        """After an opening: what was counted before is not counted again, half-made files go."""
        self.core.reasons.clear()
        self._ledger.clean()
        self.locator.clean()

    def source(
        self, topic: int, slices: Iterable[Slice], cache: BatchCache | None = None
    ) -> Source:
        """Hold on to where the messages of these slices are; who reads much has a `cache` of his own."""
        return self.locator.source(topic, slices, cache)

    # -- snapshots, files, figures -----------------------------------------------------------------

    def read_ledger(self) -> Reading:
        """What happened until now."""
        return self._ledger.reading(self.core.ledger.peek())

    def sealed(self, name: str) -> Sealed:
        """Which messages of a topic are in which files, and where the rest is."""
        topic = self.core.topic_named(name)
        files: list[SealedFile] = []
        rest: dict[int, tuple[Range, ...]] = {}
        for partition in topic.partitions:
            shelf = self.locator.segments.shelf(topic.number, partition.number)
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
            for one in self.locator.segments
            if one.blocks is not None
        ]
        return [*map(Needed, names), *segments, *self.wal.needed_files()]

    def find_ledger(self) -> None:
        """Look again for its files: whoever owns the directory makes few of many now and then."""
        self._ledger = LedgerFiles(self._files, self.wal.after, RETENTION_MS)

    def storage(self) -> StorageStats:
        """The files, as numbers."""
        disk_bytes, free_bytes = self._files.room()
        return StorageStats(
            log_bytes=self.wal.size_bytes,
            log_files=self.wal.files,
            segment_bytes=sum(one.nbytes for one in self.locator.segments),
            segments=sum(1 for _ in self.locator.segments),
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
        self.locator.close()
        self.wal.close()

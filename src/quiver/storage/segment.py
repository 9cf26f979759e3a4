"""A segment: messages of one partition that have left the log, as an immutable Parquet file.

    orders@7.0-00000000000000001234-2.parquet
    topic, its number, partition, the snapshot that made it, and which one of those it is

In a cluster two nodes may make different files at the same entry: there the node that made it is in
the name, too, as in `-2.n3.parquet`.

The rows are in offset order (`batches.sealed` has the columns), in row groups of about a mebibyte,
so that one old message costs one group and not a file. Which segments count is written in the
snapshot, with the checksum of each row group and of the footer behind them; a file that no snapshot
names is what a crash left over.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quiver import limits
from quiver.batches import sealed
from quiver.batches.schema import NAMES
from quiver.errors import CorruptSegment, StorageError
from quiver.storage import parquet
from quiver.storage.parquet import Blocks, Readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from quiver.storage.files import File, Files

SUFFIX: Final = ".parquet"
_NAME: Final = re.compile(r".+@\d+\.\d+-\d{20}-\d+(\.n\d+)?\.parquet")
VERSION: Final = "1"
LEVEL: Final = 1  # of zstd: higher ones take the processor that foreground work needs
FEW_VALUES: Final = ["partition", "entry", "stored_at", "key", "priority", "created_at"]
STATISTICS: Final = ["offset", "entry", "row", "stored_at", "key", "priority"]
ANY_ROW: Final = (0, limits.BATCH_ROWS_MAX)
REMEDY: Final = "Restore the file from a backup; `quiver doctor` says which messages are in it."


def name_of(
    topic: str, number: int, partition: int, index: int, which: int, *, maker: int = 0
) -> str:
    """The name of a segment; long topic names are cut, their number tells them apart.

    `maker` is the number of the node, if it is one of a cluster.
    """
    shown = topic[: limits.SEGMENT_NAME_CHARS_MAX]
    tag = f".n{maker}" if maker else ""
    return f"{shown}@{number}.{partition}-{index:020}-{which}{tag}{SUFFIX}"


def index_of(name: str) -> int:
    """The entry of the snapshot that made a segment."""
    return int(name.rsplit("-", 2)[1])


def names(files: Files) -> list[str]:
    """All segments in a directory, needed or not."""
    return [name for name in files.names() if _NAME.fullmatch(name)]


class SegmentRun(NamedTuple):
    """Consecutive rows of an entry, from `row` on, at consecutive places of a row group."""

    row: int
    length: int
    group: int
    at: int


def demand_whole(name: str, blocks: Blocks, file: File) -> None:
    """Read all of the segment `name`, or of a copy of it: nothing is damaged."""
    try:
        for at in range(len(blocks.ends)):
            blocks.read(file, at)
    except OSError as error:
        raise _damaged(name, str(error)) from None


def write(
    files: Files, name: str, topic: str, groups: Iterable[pa.Table], rest: Callable[[], None]
) -> Blocks:
    """Make a segment of these row groups, complete under its name; the directory is not synced yet."""
    about = json.dumps({"version": VERSION, "topic": topic})
    schema = sealed.SCHEMA.with_metadata({"quiver": about})
    named = (group.replace_schema_metadata(schema.metadata) for group in groups)
    return parquet.write(
        files, name, named, schema, rest,
        compression="zstd", compression_level=LEVEL, use_dictionary=FEW_VALUES,
        write_statistics=STATISTICS,
    )  # fmt: skip


class SegmentFile:
    """An open segment. Any thread may read it, also after the file was removed."""

    def __init__(self, file: File, blocks: Blocks) -> None:
        self._file = file
        self._blocks = blocks
        self._lock = Lock()  # a Parquet reader serves one thread
        self._parquet: Any = None
        self._bounds: list[tuple[int, int]] = []  # first and last offset of each row group
        self._entries: list[tuple[int, int]] = []
        self._rows: list[tuple[int, int]] = []
        self._offsets: tuple[int, memoryview] = (-1, memoryview(b""))  # of the group read last

    @property
    def name(self) -> str:
        """The file's name."""
        return self._file.name

    def group_of(self, offset: int) -> int:
        """The row group that would hold this offset."""
        with self._lock:
            self._open()
            group = bisect_right(self._bounds, offset, key=lambda bound: bound[0]) - 1
        if group < 0 or offset > self._bounds[group][1]:
            raise self._damaged(f"offset {offset} is not where it should be")
        return group

    def batch(self, group: int) -> pa.RecordBatch:
        """The messages of a row group."""
        return sealed.unseal(self._read(group, list(NAMES)))

    def position(self, group: int, offset: int, count: int) -> tuple[int, int]:
        """Where in a row group `offset` is, and how many of the `count` from it on are in there."""
        _, last = self._bounds[group]
        offsets = self._offsets_of(group)
        at = bisect_left(offsets, offset)
        found = min(count, last + 1 - offset)
        if at + found > len(offsets) or offsets[at + found - 1] != offset + found - 1:
            raise self._damaged(f"messages {offset} to {offset + found - 1} are not all there")
        return at, found

    def find(self, entry: int, start: int, end: int) -> Iterator[SegmentRun]:
        """Those of the rows `start … end` of an entry that are here, in runs."""
        with self._lock:
            self._open()
        for group, bounds in enumerate(zip(self._entries, self._rows, strict=True)):
            (first, last), (low, high) = bounds
            if first <= entry <= last and low < end and start <= high:
                found = self._read(group, list(sealed.IDENTITY))
                ours = pc.equal(found["entry"], entry)
                rows = found["row"]
                wanted = pc.and_(pc.greater_equal(rows, start), pc.less(rows, end))
                yield from _runs(group, rows, pc.and_(ours, wanted))

    def verify(self) -> tuple[int, list[tuple[int, int]]]:
        """Read all of it, checksums and all: how many messages are good, and which are not.

        Those are given as first and last offsets. If nothing can be read it is `CorruptSegment`.
        """
        with self._lock:
            self._open()
        rows = 0
        bad: list[tuple[int, int]] = []
        for group, bound in enumerate(self._bounds):
            try:
                offsets = self._read(group, sealed.SCHEMA.names)["offset"].to_pylist()
            except CorruptSegment:
                bad.append(bound)
                continue
            if (offsets[0], offsets[-1]) != bound or offsets != sorted(set(offsets)):
                bad.append(bound)
            else:
                rows += len(offsets)
        return rows, bad

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _offsets_of(self, group: int) -> memoryview:
        known, view = self._offsets
        if known != group:
            values = self._read(group, ["offset"])["offset"].combine_chunks()
            values = values.chunk(0) if isinstance(values, pa.ChunkedArray) else values
            start = 8 * values.offset
            view = memoryview(values.buffers()[1])[start : start + 8 * len(values)].cast("q")
            self._offsets = (group, view)
        return view

    def _read(self, group: int, names: list[str]) -> pa.Table:
        with self._lock:
            self._open()
            try:
                return self._parquet.read_row_group(group, columns=names, use_threads=False)
            except (pa.ArrowException, OSError, ValueError, StorageError) as error:
                # Arrow keeps the error, which must not keep this file open.
                error.__traceback__ = None
                if isinstance(error, StorageError):
                    raise type(error)(*error.args) from None
                raise self._damaged(str(error)) from None

    def _open(self) -> None:
        if self._parquet is not None:
            return
        try:
            reading = Readable(self._file, self._blocks)
            # By itself Parquet reads more than the footer, and would meet damage that is not its.
            metadata = pq.read_metadata(pa.BufferReader(reading.footer()))
            # Read ahead by threads of Arrow's, it would need Python's lock in threads that Python
            # does not wait for at its end, and abort there.
            source = pa.PythonFile(reading, mode="r")
            file = pq.ParquetFile(source, metadata=metadata, pre_buffer=False)
            if not file.schema_arrow.equals(sealed.SCHEMA):
                raise self._damaged("it does not have the columns of a segment")
            columns = map(sealed.SCHEMA.get_field_index, ("offset", *sealed.IDENTITY))
            offset, entry, row = columns
            groups = [file.metadata.row_group(at) for at in range(file.num_row_groups)]
            self._bounds = [_bounds(group, offset) for group in groups]
            self._entries = [_bounds(group, entry) for group in groups]
            self._rows = [_bounds(group, row, ANY_ROW) for group in groups]
        except (pa.ArrowException, OSError, ValueError, AttributeError) as error:
            raise self._damaged(str(error)) from error
        self._parquet = file

    def _damaged(self, why: str) -> CorruptSegment:
        return _damaged(self.name, why)


def _damaged(name: str, why: str) -> CorruptSegment:
    return CorruptSegment(f"{name} is damaged: {why}. {REMEDY}")


def _runs(group: int, rows: pa.ChunkedArray, chosen: pa.ChunkedArray) -> Iterator[SegmentRun]:
    """The rows that were chosen of a row group; within a run, row and place grow together."""
    ahead = pc.subtract(rows.cast(pa.int64()), pa.arange(0, len(rows)))  # the same within a run
    runs = pc.run_end_encode(pc.if_else(chosen, ahead, None).combine_chunks())
    at = 0
    for end, row in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        if row is not None:
            yield SegmentRun(row + at, end - at, group, at)
        at = end


def _bounds(group: Any, column: int, unknown: tuple[int, int] | None = None) -> tuple[int, int]:
    """The least and the greatest value; what is `unknown` of files that do not tell it."""
    found = group.column(column).statistics
    return unknown if found is None and unknown is not None else (found.min, found.max)

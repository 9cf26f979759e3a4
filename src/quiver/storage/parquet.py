"""Parquet files through `File`s: written in small synced steps, read without threads of Arrow's.

A file is a sequence of blocks: its row groups, and the footer behind them. Whoever writes one gets
their checksums; whoever reads with them sees no block that is not what was written.
"""

from __future__ import annotations

import io
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from quiver import limits
from quiver.storage.files import publishing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Buffer

    from quiver.storage.files import File, Files


class Blocks(NamedTuple):
    """Where each block ends, and its CRC-32C."""

    ends: array[int]
    crcs: array[int]

    def dump(self) -> list[bytes]:
        """As plain data."""
        return [self.ends.tobytes(), self.crcs.tobytes()]

    @classmethod
    def load(cls, data: list[bytes]) -> Blocks:
        """What `dump` gave."""
        return cls(array("q", data[0]), array("q", data[1]))

    def read(self, file: File, at: int) -> bytes:
        """A block of the file; `OSError` if it is damaged, as Parquet readers expect it."""
        start, end = self.ends[at - 1] if at else 0, self.ends[at]
        data = file.read(start, end - start)
        if len(data) < end - start or crc32c(data) != self.crcs[at]:
            raise OSError(f"its bytes {start} to {end - 1} have changed or are missing")
        return data


def write(
    files: Files, name: str, groups: Iterable[pa.Table], schema: pa.Schema,
    rest: Callable[[], None], *, rows: int | None = None, **options: Any,
) -> Blocks:  # fmt: skip
    """Make a file of these row groups (of at most `rows` rows), complete under its name.

    The directory is not synced yet. The file is written and synced in steps with a `rest` between,
    so that syncs of the log do not have to wait for all of it.
    """
    with publishing(files, name) as file:
        sink = _Sink(file, rest)
        with pq.ParquetWriter(sink, schema, **options) as writer:
            for group in groups:
                writer.write_table(group, rows or max(len(group), 1))
                sink.end_block()
                rest()
        sink.end_block()
    return sink.blocks


class _Sink(io.RawIOBase):
    """What Arrow writes to. It keeps a block in memory: errors of the disk do not pass through Arrow."""

    def __init__(self, file: File, rest: Callable[[], None]) -> None:
        self.blocks = Blocks(array("q"), array("q"))
        self._file = file
        self._rest = rest
        self._written = 0
        self._block = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:
        view = memoryview(data).cast("B")
        self._block += view
        return view.nbytes

    def tell(self) -> int:
        return self._written + len(self._block)

    def end_block(self) -> None:
        """Put what was written since the last one into the file."""
        block, self._block = self._block, bytearray()
        for start in range(0, len(block), limits.SEAL_STEP_BYTES):
            if self._written:
                self._file.sync()
                self._rest()
            step = memoryview(block)[start : start + limits.SEAL_STEP_BYTES]
            self._file.write(self._written, [step])
            self._written += len(step)
        self.blocks.ends.append(self._written)
        self.blocks.crcs.append(crc32c(block))


class Readable(io.RawIOBase):
    """A `File` as Arrow reads files; with its `blocks`, each is checked before it is seen."""

    def __init__(self, file: File, blocks: Blocks | None = None) -> None:
        self._file = file
        self._blocks = blocks
        self._size = blocks.ends[-1] if blocks is not None else file.size()
        self._position = 0
        self._last: tuple[int, bytes] = (-1, b"")  # the block that was read last, and its start

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(self._size - self._position, 0)
        count = left if size < 0 else min(size, left)
        if self._blocks is None:
            data = self._file.read(self._position, count)
        else:
            data = self._checked(self._blocks, self._position, self._position + count)
        self._position += len(data)
        return data

    def footer(self) -> bytes:
        """The last block."""
        assert self._blocks is not None, "only those who have checksums know where it begins"
        return self._blocks.read(self._file, len(self._blocks.ends) - 1)

    def _checked(self, blocks: Blocks, start: int, end: int) -> bytes:
        pieces = []
        while start < end:
            at = bisect_right(blocks.ends, start)
            begin = blocks.ends[at - 1] if at else 0
            if self._last[0] != begin:
                self._last = (begin, blocks.read(self._file, at))
            piece = self._last[1][start - begin : end - begin]
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)

"""Arrow streams from outside, read within bounds, and streams for outside.

A stream can lie: see `quiver.batches.arrow_input`, which checks what it claims to be once it is
open. Before that, here: its messages are few and their heads small (a dictionary may be sent in a
million parts, each of which is joined to those before), and no buffer is compressed on its own
(its claimed size would be taken from memory before anybody can look). Compress the whole body
instead; `Content-Encoding` is undone within a bound.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from quiver import limits
from quiver.batches.arrow_input import accept
from quiver.errors import InvalidBatch, MessageTooLarge

# Places of fields in the tables of Arrow's Message.fbs.
_HEADER_TYPE: Final = 1
_HEADER: Final = 2
_BATCH: Final = 3  # as a header type
_DICTIONARY: Final = 2
_BATCH_COMPRESSION: Final = 3
_DICTIONARY_DATA: Final = 1


def read_batch(data: bytes) -> pa.RecordBatch:
    """The canonical batch of a stream from outside; what it says is checked."""
    if len(data) > limits.API_ARROW_BYTES_MAX:
        raise MessageTooLarge(
            f"a stream may have {limits.API_ARROW_BYTES_MAX:,} bytes; send several"
        )
    try:
        _check(data)
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            batches = list(reader)
            schema = reader.schema
        found: Any
        if len(batches) == 1:
            found = batches[0].replace_schema_metadata(None)
        else:
            found = pa.Table.from_batches(batches, schema).replace_schema_metadata(None)
        return accept(found)
    except (pa.ArrowException, OSError, EOFError, OverflowError, MemoryError) as error:
        raise InvalidBatch(f"the body is not an Arrow stream of messages: {error}") from None


def slim(table: pa.Table) -> pa.Table:
    """Messages without the columns in which none of them has a value."""
    columns = zip(table.column_names, table.columns, strict=True)
    kept = [name for name, values in columns if values.null_count < max(table.num_rows, 1)]
    return table.select(kept)


def whole(table: pa.Table, schema: pa.Schema) -> memoryview:
    """A table as a stream, in memory of Arrow's: there it is at hand, the system would clear it first."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        one = table.combine_chunks() if table.column(0).num_chunks > 1 else table
        writer.write_table(one.replace_schema_metadata(schema.metadata))
    return memoryview(sink.getvalue()).cast("B")


def pieces(reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[bytes]:
    """What a reader gives, as the pieces of a stream."""
    sink = _Pieces()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in reader:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
            yield sink.taken()
    yield sink.taken()


class _Pieces:
    """A file that is emptied as it is written."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def flush(self) -> None:
        """Nothing waits."""

    def taken(self) -> bytes:
        whole = b"".join(self._parts)
        self._parts.clear()
        return whole


def _check(data: bytes) -> None:
    """Refuse streams of too many messages, with heads too large, or with compressed buffers."""
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(data))
    for count, message in enumerate(reader, 1):
        head = message.metadata
        if count > limits.ARROW_MESSAGES_MAX or head.size > limits.ARROW_HEAD_BYTES_MAX:
            raise InvalidBatch(
                f"a stream may have {limits.ARROW_MESSAGES_MAX:,} parts with heads of "
                f"{limits.ARROW_HEAD_BYTES_MAX:,} bytes; send fewer and larger batches"
            )
        if compressed(head.to_pybytes()):
            raise InvalidBatch(
                "the stream has compressed buffers, whose size nobody can know beforehand; "
                "compress the whole body instead, with Content-Encoding: zstd"
            )


def compressed(head: bytes) -> bool:
    """Whether a message's head (a flatbuffer that Arrow has verified) names a compression."""
    try:
        message = _Table(head, struct.unpack_from("<I", head)[0])
        kind = message.byte(_HEADER_TYPE)
        content = message.table(_HEADER)
        if kind == _DICTIONARY and content is not None:
            content = content.table(_DICTIONARY_DATA)
        elif kind != _BATCH:
            return False
        return content is not None and content.table(_BATCH_COMPRESSION) is not None
    except (struct.error, IndexError) as error:
        raise InvalidBatch("the stream has a head that cannot be read") from error


class _Table:
    """A table of a flatbuffer: its fields are found through a list of their places."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._places = at - struct.unpack_from("<i", data, at)[0]

    def _place(self, field: int) -> int | None:
        if 4 + 2 * field >= struct.unpack_from("<H", self._data, self._places)[0]:
            return None
        found = struct.unpack_from("<H", self._data, self._places + 4 + 2 * field)[0]
        return self._at + found if found else None

    def byte(self, field: int) -> int:
        at = self._place(field)
        return 0 if at is None else self._data[at]

    def table(self, field: int) -> "_Table | None":
        at = self._place(field)
        return (
            None
            if at is None
            else _Table(self._data, at + struct.unpack_from("<I", self._data, at)[0])
        )

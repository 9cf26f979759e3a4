"""A batch as bytes, and back: a short header, then one Arrow IPC message without its schema.

    version u8 · codec u8 · columns u16 · rows u32 · raw_bytes u64      little-endian, 16 bytes
    the record-batch message of raw_bytes, or its compressed form

The columns' mask stands for the schema. The header is two words long, so that in an aligned frame
Arrow's buffers are aligned too, and `decode` of an uncompressed batch is a view of its input.

Checksums are the log's business. Still nothing here trusts the bytes: what the header claims is
held against the limits before memory is taken, and Arrow checks every offset before it is followed.
"""

import struct
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from quiver import limits
from quiver.batches import schema
from quiver.errors import CorruptLog, InvalidBatch, MessageTooLarge
from quiver.model.topic import Compression

BytesLike: TypeAlias = bytes | bytearray | memoryview | pa.Buffer

VERSION: Final = 1
HEADER: Final = struct.Struct("<BBHIQ")

# Raw LZ4 blocks, not frames: we know the size, and a frame takes ten times as long to decompress.
_ARROW_CODECS: Final = {0: None, 1: "lz4_raw", 2: "zstd"}
_NUMBERS: Final[dict[Compression, int]] = {"lz4": 1, "zstd": 2}
_ROW_BYTES_MIN: Final = 4  # the offset that every body has
_FIRST_MS: Final = -62_135_596_800_000  # the first of January of the year 1, where datetimes begin


class _Header(NamedTuple):
    version: int
    codec: int
    mask: int
    rows: int
    raw_bytes: int


def encode(
    batch: pa.RecordBatch, compression: Compression | None = None
) -> tuple[bytes, pa.Buffer]:
    """The batch as header and payload, to be written one after the other without joining them.

    A payload that compression does not make smaller is kept as it is. What `decode` would refuse
    for its size is refused here: it must never be stored.
    """
    payload = message = batch.serialize()
    if message.size > limits.ENCODED_BYTES_MAX:
        raise MessageTooLarge(
            f"a batch may take at most {limits.ENCODED_BYTES_MAX:,} bytes, not {message.size:,}: "
            "send several"
        )
    codec = 0
    if compression is not None:
        number = _NUMBERS[compression]
        compressed = pa.compress(message, codec=_ARROW_CODECS[number])
        if compressed.size < message.size:
            payload, codec = compressed, number
    mask = schema.mask_of(batch)
    return HEADER.pack(VERSION, codec, mask, batch.num_rows, message.size), payload


def encode_whole(batch: pa.RecordBatch, compression: Compression | None = None) -> pa.Buffer:
    """Header and payload in one piece, as an entry carries them, in memory of their own.

    Arrow's allocator has that memory at hand; for `bytes` of this size the system would give new
    pages each time, which costs more than all the copying.
    """
    header, payload = encode(batch, compression)
    buffer = pa.allocate_buffer(len(header) + payload.size)
    view = memoryview(buffer).cast("B")
    view[: len(header)] = header
    view[len(header) :] = memoryview(payload).cast("B")
    return buffer


def encode_one(body: bytes) -> bytes:
    """What `encode` makes of a message that has nothing but a short body, in one piece.

    All around the body depends on its length only: a message that is sent alone need not wait for Arrow.
    """
    before, after = _envelope(len(body))
    return b"%b%b%b" % (before, body, after)


@lru_cache(limits.ENVELOPE_BYTES_MAX + 1)
def _envelope(length: int) -> tuple[bytes, bytes]:
    body = b"\xff" * length
    header, payload = encode(schema.assemble({"body": pa.array([body], schema.BODY)}))
    whole = header + payload.to_pybytes()
    at = whole.rindex(body)
    return whole[:at], whole[at + length :]


def decode(data: BytesLike) -> pa.RecordBatch:
    """The batch in `data`, which is what `encode` made or raises CorruptLog."""
    header = _read_header(data)
    payload = pa.py_buffer(data)[HEADER.size :]
    codec = _ARROW_CODECS[header.codec]
    try:
        if codec is not None:
            payload = pa.decompress(payload, decompressed_size=header.raw_bytes, codec=codec)
        elif payload.size != header.raw_bytes:
            raise CorruptLog(f"a batch of {header.raw_bytes} bytes has {payload.size}")
        batch = pa.ipc.read_record_batch(payload, schema.schema_of(header.mask))
        batch.validate(full=True)
        _check_times(batch, header.mask)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise CorruptLog(f"a stored batch cannot be read: {error}") from error
    if batch.num_rows != header.rows or batch.column(0).null_count:
        raise CorruptLog(f"a stored batch does not have the {header.rows} bodies that it claims")
    return batch


def _check_times(batch: pa.RecordBatch, mask: int) -> None:
    """Arrow takes any number for a time; Python does not."""
    for place in _times(mask):
        low, high = pc.min_max(batch.column(place).view(pa.int64())).as_py().values()
        if low is not None and not _FIRST_MS <= low <= high <= limits.TIME_MS_MAX:
            raise CorruptLog(f"a stored batch has times from {low} to {high}, which cannot be")


@lru_cache(schema.MASK_ALL + 1)
def _times(mask: int) -> list[int]:
    return [place for place, kind in enumerate(schema.schema_of(mask).types) if kind == schema.TIME]


def outside(data: BytesLike) -> tuple[int, int]:
    """The rows and the columns that a batch claims which somebody else has encoded; InvalidBatch if it
    cannot be one, or is compressed: `decode` would take the memory that it claims."""
    try:
        header = _read_header(data)
    except CorruptLog as error:
        raise InvalidBatch(f"the payload is not a batch of messages: {error}") from None
    if header.codec or len(data) - HEADER.size != header.raw_bytes:
        raise InvalidBatch("a batch is sent as it is; compress the payload as a whole instead")
    return header.rows, header.mask


def peek(data: BytesLike) -> tuple[int, int]:
    """The rows and uncompressed bytes of an encoded batch, from its header alone."""
    header = _read_header(data)
    return header.rows, header.raw_bytes


def _read_header(data: BytesLike) -> _Header:
    try:
        header = _Header(*HEADER.unpack_from(data))
    except struct.error as error:
        raise CorruptLog("a stored batch is shorter than its header") from error
    if header.version != VERSION or header.codec not in _ARROW_CODECS:
        raise CorruptLog(f"a stored batch has an unknown format {header.version}.{header.codec}")
    if not header.mask & schema.MASK_BODY or header.mask > schema.MASK_ALL:
        raise CorruptLog(
            f"a stored batch has unknown columns {header.mask:#x}; is it of a newer Quiver?"
        )
    if not 0 < header.rows * _ROW_BYTES_MIN <= header.raw_bytes <= limits.ENCODED_BYTES_MAX:
        raise CorruptLog(
            f"a stored batch claims {header.rows} rows in {header.raw_bytes} bytes, which cannot be"
        )
    return header

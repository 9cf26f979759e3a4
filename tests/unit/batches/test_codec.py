"""Batches as bytes: the header, compression, and what damage leads to."""

from random import Random

import pyarrow as pa
import pytest

from quiver import limits
from quiver.batches import schema
from quiver.batches.codec import HEADER, decode, encode, encode_one, peek
from quiver.batches.rows import make_row, pack
from quiver.errors import CorruptLog, MessageTooLarge

NOW = 1_700_000_000_000
BATCH = pack([make_row(b"x" * 100, key=f"key-{number}") for number in range(100)], NOW)


def joined(batch, compression=None):
    return b"".join(map(bytes, encode(batch, compression)))


def header(*, version=1, codec=0, mask=1, rows=1, raw_bytes=100, payload=b""):
    return HEADER.pack(version, codec, mask, rows, raw_bytes) + payload


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_a_batch_survives(compression):
    data = joined(BATCH, compression)
    assert decode(data).equals(BATCH)
    assert peek(data) == (100, len(joined(BATCH)) - HEADER.size)
    assert (len(data) < len(joined(BATCH))) == (compression is not None)


@pytest.mark.parametrize(
    "body", [bytes([first]) * size for first in (0, 255) for size in range(70)]
)
def test_a_lone_message_has_the_bytes_of_its_batch(body):
    assert encode_one(body) == joined(pack([make_row(body)], NOW))


def test_the_header_is_the_format():
    assert HEADER.size == 16
    assert joined(BATCH)[:8] == bytes([1, 0, 0b11, 0, 100, 0, 0, 0])
    assert joined(BATCH, "lz4")[1] == 1
    assert joined(BATCH, "zstd")[1] == 2


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_what_does_not_shrink_is_not_compressed(compression):
    batch = pack([make_row(Random(1).randbytes(1_000_000))], NOW)
    assert joined(batch, compression) == joined(batch)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, pa.py_buffer])
def test_any_buffer_is_read_and_bodies_are_views_of_it(kind):
    data = kind(joined(BATCH))
    bodies = decode(data).column(0).buffers()[2]
    whole = pa.py_buffer(data)
    assert whole.address <= bodies.address < whole.address + whole.size
    assert peek(data)[0] == 100


def test_only_a_slices_own_rows_are_written():
    part = BATCH.slice(10, 5)
    assert len(joined(part)) < len(joined(BATCH)) / 10
    assert decode(joined(part)).equals(part)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "shorter than its header"),
        (bytes(15), "shorter than its header"),
        (bytes(16), "unknown format 0.0"),
        (header(version=2), "unknown format 2.0"),
        (header(codec=3), "unknown format 1.3"),
        (header(mask=2), "unknown columns 0x2"),
        (header(mask=0x101), "unknown columns 0x101"),
        (header(rows=0), "claims 0 rows"),
        (header(rows=2**32 - 1), "claims 4294967295 rows in 100 bytes, which cannot be"),
        (header(rows=26), "claims 26 rows in 100 bytes"),
        (header(raw_bytes=2**63), "claims 1 rows in 9223372036854775808 bytes"),
        (header(raw_bytes=99, payload=bytes(100)), "a batch of 99 bytes has 100"),
        (header(payload=bytes(100)), "a stored batch cannot be read"),
        (header(codec=1, payload=bytes(100)), "a stored batch cannot be read"),
        (header(codec=2, payload=bytes(100)), "a stored batch cannot be read"),
    ],
)
def test_damage_is_told(data, sentence):
    with pytest.raises(CorruptLog, match=sentence):
        decode(data)


def test_what_could_not_be_read_again_is_never_written(monkeypatch):
    size = peek(joined(BATCH))[1]
    monkeypatch.setattr(limits, "ENCODED_BYTES_MAX", size)
    assert decode(joined(BATCH, "lz4")).equals(BATCH)
    monkeypatch.setattr(limits, "ENCODED_BYTES_MAX", size - 1)
    with pytest.raises(MessageTooLarge, match=f"not {size:,}: send several"):
        encode(BATCH, "lz4")


def test_a_batch_without_the_claimed_rows_is_damage():
    data = bytearray(joined(BATCH))
    data[4] = 99
    with pytest.raises(CorruptLog, match="does not have the 99 bodies"):
        decode(data)


@pytest.mark.parametrize("name", ["deliver_at", "expires_at", "created_at"])
@pytest.mark.parametrize("time_ms", [limits.TIME_MS_MAX + 1, -62_135_596_800_001])
def test_a_time_that_no_datetime_can_say_is_damage(name, time_ms):
    times = pa.array([None, time_ms], schema.TIME)
    batch = schema.assemble({"body": pa.array([b"a", b"b"], schema.BODY), name: times})
    with pytest.raises(CorruptLog, match="which cannot be"):
        decode(joined(batch))


def test_a_null_body_is_damage():
    nulls = pa.record_batch([pa.array([b"a", None])], schema=BATCH.schema.remove(1))
    with pytest.raises(CorruptLog, match="does not have the 2 bodies"):
        decode(joined(nulls))


@pytest.mark.parametrize("codec", [1, 2])
def test_a_compressed_bomb_takes_no_memory(codec):
    before = pa.default_memory_pool().max_memory()
    for raw_bytes in (limits.ENCODED_BYTES_MAX + 1, 2**40, 2**64 - 1):
        with pytest.raises(CorruptLog, match="which cannot be"):
            decode(header(codec=codec, raw_bytes=raw_bytes, payload=bytes(100)))
    assert pa.default_memory_pool().max_memory() == before

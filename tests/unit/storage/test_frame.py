"""A record is the same after its way through bytes, and anything else is not a record."""

import pyarrow as pa
import pytest

from quiver import limits
from quiver.errors import LimitExceeded
from quiver.storage.frame import HEADER_BYTES, LogRecord, decode_header, encode

SALT = 0xC0FFEE
RECORD = LogRecord(index=7, term=3, now_ms=-5, kind=250, command=b"hello", batch=b"a batch")


def frame_of(record: LogRecord) -> bytes:
    return b"".join(encode(record, synced=6, salt=SALT))


def test_a_header_tells_everything_about_its_record():
    data = frame_of(RECORD)
    header = decode_header(data, salt=SALT)
    assert header is not None
    assert (header.index, header.term, header.now_ms, header.kind) == (7, 3, -5, 250)
    assert (header.synced, header.command_bytes, header.batch_bytes) == (6, 5, 7)
    assert data[HEADER_BYTES:].startswith(b"hello" + b"a batch")


@pytest.mark.parametrize("size", range(17))
def test_frames_are_aligned_whatever_they_hold(size):
    data = frame_of(LogRecord(1, 1, 1, 1, b"c" * size, b"b"))
    header = decode_header(data, salt=SALT)
    assert header is not None
    assert len(data) == header.frame_bytes
    assert len(data) % 8 == 0


def test_a_batch_is_not_copied():
    batch = pa.py_buffer(b"from arrow")
    pieces = encode(LogRecord(1, 1, 1, 1, b"", batch), synced=0, salt=SALT)
    assert pieces[2].obj is batch
    assert bytes(pieces[2]) == b"from arrow"


def test_a_frame_of_another_file_is_not_a_frame():
    assert decode_header(frame_of(RECORD), salt=SALT + 1) is None


def test_no_bit_of_a_header_can_change_unseen():
    for bit in range(HEADER_BYTES * 8):
        data = bytearray(frame_of(RECORD))
        data[bit // 8] ^= 1 << bit % 8
        assert decode_header(bytes(data), salt=SALT) is None


def test_a_short_header_is_no_header():
    for length in range(HEADER_BYTES):
        assert decode_header(frame_of(RECORD)[:length], salt=SALT) is None


def test_a_record_over_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr(limits, "WAL_BATCH_BYTES_MAX", 10)
    assert encode(LogRecord(1, 1, 1, 1, b"", b"x" * 10), synced=0, salt=SALT)
    with pytest.raises(LimitExceeded, match="11 of batch"):
        encode(LogRecord(1, 1, 1, 1, b"", b"x" * 11), synced=0, salt=SALT)


def test_a_length_over_the_limit_is_not_believed(monkeypatch):
    data = frame_of(RECORD)
    monkeypatch.setattr(limits, "WAL_COMMAND_BYTES_MAX", 4)
    assert decode_header(data, salt=SALT) is None

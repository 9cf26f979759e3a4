"""A record is the same after its way through bytes, and anything else is not a record."""

import pyarrow as pa
import pytest

from quiver import limits
from quiver.errors import LimitExceeded
from quiver.storage.frame import (
    HEADER_2_BYTES,
    HEADER_BYTES,
    EntryOrigin,
    LogRecord,
    decode_header,
    encode,
)

SALT = 0xC0FFEE
RECORD = LogRecord(index=7, term=3, now_ms=-5, kind=250, command=b"hello", batch=b"a batch")

OF_PEERS = LogRecord(7, 3, -5, 250, b"hello", b"a batch", EntryOrigin(65_535, 2, 2**32 - 1), 255)


def frame_of(record: LogRecord) -> bytes:
    return b"".join(encode(record, synced=6, salt=SALT))


def test_a_header_tells_everything_about_its_record():
    data = frame_of(RECORD)
    header = decode_header(data, salt=SALT)
    assert header is not None
    assert (header.index, header.term, header.now_ms, header.kind) == (7, 3, -5, 250)
    assert (header.synced, header.command_bytes, header.batch_bytes) == (6, 5, 7)
    assert data[HEADER_BYTES:].startswith(b"hello" + b"a batch")


def test_version_1_is_written_as_it_always_was():
    assert frame_of(RECORD).hex() == (
        "51566672fa000000050000004cbb719a07000000f5d1017b07000000000000000300000000000000fbffffff"
        "ffffffff0600000000000000000000003db34ba068656c6c6f6120626174636800000000"
    )


def test_version_2_says_who_proposed_the_entry_and_what_it_takes_to_apply_it():
    data = b"".join(encode(OF_PEERS, synced=6, salt=SALT, version=2))
    header = decode_header(data, salt=SALT, version=2)
    assert header is not None
    assert header.record(b"hello", b"a batch") == OF_PEERS
    assert len(data) == header.frame_bytes == header.nbytes == OF_PEERS.nbytes == 72 + 16
    assert data[HEADER_2_BYTES:] == b"hello" + b"a batch" + bytes(4)
    assert header.synced == 6


def test_what_a_record_takes_does_not_depend_on_the_version():
    header = decode_header(frame_of(RECORD), salt=SALT)
    assert header is not None
    assert (header.frame_bytes, header.nbytes, RECORD.nbytes) == (64 + 16, 72 + 16, 72 + 16)
    assert header.record(b"hello", b"a batch") == RECORD


@pytest.mark.parametrize("lost", [{"origin": EntryOrigin(1, 1, 1)}, {"level": 1}])
def test_version_1_refuses_what_it_has_no_room_for(lost):
    with pytest.raises(AssertionError, match="no room"):
        frame_of(LogRecord(1, 1, 1, 1, b"", **lost))


def test_no_bit_of_a_header_of_version_2_can_change_unseen():
    whole = b"".join(encode(OF_PEERS, synced=6, salt=SALT, version=2))
    for bit in range(HEADER_2_BYTES * 8):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        assert decode_header(bytes(data), salt=SALT, version=2) is None
    for length in range(HEADER_2_BYTES):
        assert decode_header(whole[:length], salt=SALT, version=2) is None


@pytest.mark.parametrize(("written", "read"), [(1, 2), (2, 1)])
def test_a_frame_of_another_version_is_no_frame(written, read):
    data = b"".join(encode(RECORD, synced=6, salt=SALT, version=written))
    assert decode_header(data, salt=SALT, version=read) is None


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

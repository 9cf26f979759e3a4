"""Frames: however bytes come in pieces, the same frames come out, and garbage takes no memory."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiver import limits
from quiver.errors import ProtocolError
from quiver.limits import KIB
from quiver.wire import frames
from quiver.wire.frames import HEADER, Flag, FrameReader, Verb, pack

BODIES = st.one_of(st.binary(max_size=40), st.integers(0, 200_000).map(bytes))
FRAMES = st.lists(
    st.tuples(
        st.sampled_from(Verb), st.integers(0, frames.IDS - 1), st.binary(max_size=40), BODIES
    ),
    max_size=6,
)


def written(*parts: tuple[bytes, memoryview | None]) -> bytes:
    return b"".join(bytes(one) for part in parts for one in part if one is not None)


def read(data: bytes, sizes: list[int], reader: FrameReader | None = None) -> list[tuple]:
    """The frames in `data`, which is received in pieces of at most these sizes, again and again."""
    reader = reader or FrameReader()
    found = []
    at = turn = 0
    while at < len(data):
        count = reader.fill(data[at : at + sizes[turn % len(sizes)]])
        found += [
            (frame.verb, frame.id, bytes(frame.head), bytes(frame.payload))
            for frame in reader.received(count)
        ]
        at, turn = at + count, turn + 1
    return found


@given(sent=FRAMES, sizes=st.lists(st.integers(1, 100_000), min_size=1, max_size=5))
def test_frames_come_out_as_they_went_in(sent, sizes):
    data = written(*(pack(verb, number, head, body) for verb, number, head, body in sent))
    reader = FrameReader()
    assert read(data, sizes, reader) == sent
    assert not reader.partial


@given(sent=FRAMES)
def test_the_frames_of_a_body_are_all_of_it(sent):
    data = written(*(pack(verb, number, head, body) for verb, number, head, body in sent))
    assert [one.verb for one in FrameReader().whole(data)] == [verb for verb, *_ in sent]
    if data:
        with pytest.raises(ProtocolError, match="in the middle"):
            FrameReader().whole(data[:-1])


@given(cut=st.integers(1, 60_000), body=st.integers(1, 200_000))
def test_a_cut_frame_is_noticed(cut, body):
    data = written(pack(Verb.SEND, 1, b"h", bytes(body)))
    reader = FrameReader()
    assert read(data[: -min(cut, len(data) - 1)], [7_000], reader) == []
    assert reader.partial


@given(data=st.binary(min_size=HEADER.size, max_size=400))
def test_garbage_is_refused_or_waited_for_and_takes_no_memory(data):
    reader = FrameReader(frame_bytes_max=1_000_000, head_bytes_max=10_000)
    try:
        read(data, [100], reader)
    except ProtocolError:
        return
    assert reader.held <= 1_000_000


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ((limits.FRAME_BYTES_MAX + 1, 0, 1, 0, 0, 1), "larger"),
        ((10, 11, 1, 0, 0, 1), "larger"),
        ((2**31, limits.FRAME_HEAD_BYTES_MAX + 1, 1, 0, 0, 1), "larger"),
        ((10, 0, 1, 0x80, 0, 1), "newer"),
        ((10, 0, 1, 0, 7, 1), "newer"),
    ],
)
def test_a_header_that_cannot_be_is_refused_before_memory_is_taken(header, why):
    reader = FrameReader()
    with pytest.raises(ProtocolError, match=why):
        read(HEADER.pack(*header), [100], reader)
    assert not reader.held


def test_a_payload_begins_where_arrow_wants_it():
    for length in range(20):
        start, rest = pack(Verb.BATCH, 1, bytes(length), b"x" * 100, Flag.SYNC)
        assert rest is None
        assert (len(start) - 100 - HEADER.size) % 8 == 0


def test_a_large_payload_is_not_copied():
    body = bytes(limits.FRAME_JOINED_BYTES_MAX + 1)
    start, rest = pack(Verb.BATCH, 1, b"head", body)
    assert rest is not None
    assert rest.obj is body
    assert len(start) == HEADER.size + 8


def test_frames_of_a_reader_stay_when_more_is_received():
    reader = FrameReader()
    one = written(pack(Verb.SEND, 1, b"one", b"first"))
    two = written(pack(Verb.SEND, 2, b"two", b"other"))
    kept: list[frames.Frame] = []
    for data in (one, two):
        reader.buffer()[: len(data)] = data
        kept += reader.received(len(data))
    assert [bytes(frame.payload) for frame in kept] == [b"first", b"other"]


@given(sent=FRAMES, sizes=st.lists(st.integers(1, 100_000), min_size=1, max_size=4))
def test_a_frame_that_is_too_large_for_its_verb_is_passed_over(sent, sizes):
    reader = FrameReader(bounds={Verb.SEND: 50, Verb.BATCH: 70_000})
    data = written(*(pack(verb, number, head, body) for verb, number, head, body in sent))
    found = read(data, sizes, reader)
    assert not reader.partial
    assert len(found) == len(sent)
    for (verb, number, head, body), got in zip(sent, found, strict=True):
        most = {Verb.SEND: 50, Verb.BATCH: 70_000}.get(verb, limits.FRAME_BYTES_MAX)
        nbytes = len(head) + (-len(head) % 8 + len(body) if body else 0)
        expected = (head, body) if nbytes <= most else (b"", b"")
        assert got == (verb, number, *expected)


@given(
    first=st.integers(1, 150_000),
    sizes=st.lists(st.integers(1, 100_000), min_size=1, max_size=3),
    sent=FRAMES,
)
def test_a_frame_may_be_dropped_while_it_comes(first, sizes, sent):
    reader = FrameReader()
    start, rest = pack(Verb.BATCH, 7, b"head", bytes(200_000))
    assert rest is not None
    data = start + bytes(rest)
    assert read(data[:first], [60_000], reader) == []
    if not reader.expected:
        return  # it is not known yet that it is large
    assert 0 <= reader.held <= first
    dropped = reader.drop()
    assert (dropped.verb, dropped.id, dropped.nbytes) == (Verb.BATCH, 7, 0)
    assert dropped.dropped == len(data) - HEADER.size
    assert reader.held == 0
    following = written(*(pack(*one) for one in sent))
    found = read(data[first:] + following, sizes, reader)
    assert found == [(verb, number, head, body) for verb, number, head, body in sent]


def test_a_buffer_is_as_large_as_what_comes():
    reader = FrameReader()
    ping = written(pack(Verb.PING, 1))
    assert len(reader.buffer()) == limits.FRAME_BUFFER_BYTES_MIN
    while len(reader.buffer()) < limits.FRAME_BUFFER_BYTES:
        size = len(reader.buffer())
        read(ping * (size // len(ping)), [size], reader)
        assert len(reader.buffer()) == 2 * size
    read(ping * (limits.FRAME_BUFFER_BYTES // len(ping)), [limits.FRAME_BUFFER_BYTES], reader)
    assert len(reader.buffer()) == limits.FRAME_BUFFER_BYTES
    for _ in range(10):
        read(ping, [len(ping)], reader)
    assert len(reader.buffer()) == limits.FRAME_BUFFER_BYTES_MIN


def test_what_is_silent_keeps_no_memory():
    data = written(*(pack(Verb.SEND, 1, b"head", bytes(1_000)) for _ in range(200)))
    large = written(pack(Verb.SEND, 1, b"head", bytes(100_000)))
    tracemalloc.start()
    try:
        readers = [FrameReader() for _ in range(100)]
        for reader in readers:
            read(data, [limits.FRAME_BUFFER_BYTES], reader)
            read(large, [limits.FRAME_BUFFER_BYTES], reader)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < len(readers) * KIB

"""Frames that are posted one by one, where nothing lets an upgrade through."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from quiver.batches.codec import decode
from quiver.errors import Forbidden, TopicNotFound
from quiver.model import commands, queries
from quiver.model.replies import Settled
from quiver.model.topic import TopicPolicy
from quiver.wire import values
from quiver.wire.frames import MEDIA_TYPE, PATH, Flag, Frame, FrameReader, Verb, pack
from quiver.wire.values import PlacedOut, ReceivedOut, ReceiveHead, SendHead, encode, named
from tests.server.auth.callers import TOPIC, Guarded
from tests.server.nodes import Node, until_waiting
from tests.server.raw import Raw
from tests.server.waiting import until
from tests.server.wire.frames_client import settle_of
from tests.server.wire.test_giving_back import BODY, COUNT, group_of

pytestmark = pytest.mark.process


def frame_of(verb: Verb, head: bytes = b"", payload: Any = b"", flags: int = 0) -> bytes:
    pieces = pack(verb, 1, head, payload, flags)
    return b"".join(bytes(piece) for piece in pieces if piece is not None)


def frames_in(body: bytes) -> list[Frame]:
    reader, view = FrameReader(), memoryview(body)
    found: list[Frame] = []
    while view:
        room = reader.buffer()
        count = min(len(room), len(view))
        room[:count] = view[:count]
        view = view[count:]
        found += reader.received(count)
    assert not reader.partial
    return found


def post(node: Node, body: bytes, **headers: str) -> list[Frame]:
    with Raw(node.port) as raw:
        answer = raw.ask("POST", PATH, body, content_type=MEDIA_TYPE, **headers)
        assert answer.status == 200, answer.body
        assert answer.headers["content-type"] == MEDIA_TYPE
        return frames_in(answer.body)


def value(frames: list[Frame], kind: Any) -> Any:
    (frame,) = frames
    head = values.head_of(frame)
    if frame.verb == Verb.ERROR:
        raise head.trouble.error()
    return values.Reader(kind)(head.value)


def test_a_message_comes_and_goes(node: Node):
    made = post(node, frame_of(Verb.PROPOSE, named(commands.CreateTopic("p", TopicPolicy()))))
    topic = value(made, values.answer_type(commands.CreateTopic)).topic
    placed = value(post(node, frame_of(Verb.SEND, encode(SendHead(topic)), b"x", 1)), PlacedOut)
    assert placed.offset == 0
    got = post(node, frame_of(Verb.RECEIVE, encode(ReceiveHead(topic, "g", 5, 60_000))))
    assert decode(got[0].payload).column("body").to_pylist() == [b"x"]
    received = value(got, ReceivedOut)
    settled = post(node, frame_of(Verb.SETTLE, encode(settle_of(received))))
    assert value(settled, Settled).count == 1


def test_errors_are_frames_too(node: Node):
    with pytest.raises(TopicNotFound):
        value(post(node, frame_of(Verb.SEND, encode(SendHead(9_999)), b"x")), PlacedOut)


def test_an_answer_in_parts(node: Node, wire):
    topic = wire.topic("parts")
    wire.send(topic, b"x")
    head = named(queries.ReadLedger("parts"))
    with Raw(node.port) as raw:
        raw.request("POST", PATH, frame_of(Verb.ASK, head), content_type=MEDIA_TYPE,
                    connection="close")  # fmt: skip
        head, _, body = raw.rest().partition(b"\r\n\r\n")
    if b"chunked" in head.lower():
        body = unchunked(body)
    found = frames_in(body)
    assert [bool(frame.flags & Flag.MORE) for frame in found] == [True] * (len(found) - 1) + [False]
    events = [
        event
        for frame in found
        if len(frame.payload)
        for event in pa.ipc.open_stream(pa.py_buffer(frame.payload)).read_all()["event"].to_pylist()
    ]
    assert "sent" in events


def unchunked(body: bytes) -> bytes:
    found = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        count = int(size, 16)
        found, body = found + body[:count], body[count + 2 :]
    return found


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"\xff" * 64, frame_of(Verb.PING), frame_of(Verb.CANCEL),
     frame_of(Verb.AUTHENTICATE, encode(values.AuthenticateHead("x"))),
     frame_of(Verb.ASK, named(queries.Ping())) * 2,
     frame_of(Verb.ASK, named(queries.Ping()))[:-1]],
)  # fmt: skip
def test_what_is_not_one_request_is_refused(node: Node, body: bytes):
    with Raw(node.port) as raw:
        answer = raw.ask("POST", PATH, body, content_type=MEDIA_TYPE)
        assert (answer.status, answer.problem["code"]) == (400, "protocol_error")
        assert raw.ask("GET", "/health/live").status == 200


def test_the_media_type_is_demanded(node: Node):
    with Raw(node.port) as raw:
        answer = raw.ask("POST", PATH, b"{}", content_type="application/json")
        assert (answer.status, MEDIA_TYPE in answer.problem["detail"]) == (400, True)


def test_whoever_goes_while_waiting_gets_nothing(node: Node, wire):
    topic = wire.topic("waits")
    with Raw(node.port) as raw:
        head = encode(ReceiveHead(topic, "g", 1, 600_000, 60_000))
        raw.request("POST", PATH, frame_of(Verb.RECEIVE, head), content_type=MEDIA_TYPE)
        until_waiting(node, 1)
    until_waiting(node, 0)
    wire.send(topic, b"x")
    assert wire.receive(topic)[1] == [b"x"]


def test_an_answer_that_is_not_read_is_given_back(node: Node, wire):
    topic = wire.topic("unread.post")
    wire.propose(commands.CreateGroup(topic, "g"))
    for _ in range(COUNT):
        wire.answer(wire.submit(topic, BODY, sync=False))
    with Raw(node.port) as raw:
        head = encode(ReceiveHead(topic, "g", COUNT, 600_000))
        raw.request("POST", PATH, frame_of(Verb.RECEIVE, head), content_type=MEDIA_TYPE)
        assert raw.socket.recv(1) == b"H"
    until(lambda: group_of(wire, topic).in_flight == 0)
    assert group_of(wire, topic).released == COUNT


# -- tokens ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    started = Guarded(tmp_path_factory.mktemp("guarded"))
    assert started("PUT", f"/v1/topics/{TOPIC}", {}, who="admin").status == 200
    yield started
    started.close()


@pytest.mark.parametrize("who", ["", "unknown", "expired"])
def test_a_stranger_is_answered_as_anywhere(guarded: Guarded, who: str):
    headers = {"Content-Type": MEDIA_TYPE}
    if who:
        headers["Authorization"] = f"Bearer {guarded.callers[who].token}"
    answer = guarded.send("POST", PATH, frame_of(Verb.ASK, named(queries.Ping())), headers)
    assert (answer.status, json.loads(answer.body)["code"]) == (401, "unauthenticated")


def test_rights_are_those_of_frames(guarded: Guarded):
    def posted(who: str) -> list[Frame]:
        headers = {"Content-Type": MEDIA_TYPE}
        headers["Authorization"] = f"Bearer {guarded.callers[who].token}"
        body = frame_of(Verb.ASK, named(queries.ReadStats(TOPIC)))
        answer = guarded.send("POST", PATH, body, headers)
        assert answer.status == 200
        return frames_in(answer.body)

    with pytest.raises(Forbidden):
        value(posted("only-send"), object)
    assert values.head_of(posted("only-observe")[0]).time_ms > time.time() * 1000 - 60_000

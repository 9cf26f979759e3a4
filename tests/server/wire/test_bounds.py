"""What a connection of frames may take up: requests, bytes, time."""

import json
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from quiver import limits
from quiver.errors import MessageTooLarge, Overloaded
from quiver.model import commands, queries
from quiver.wire import values
from quiver.wire.frames import HEADER, Verb, pack
from quiver.wire.values import BatchHead, SendHead, encode
from tests.server.nodes import Node, start_node, until_waiting
from tests.server.waiting import until
from tests.server.wire.frames_client import Wire
from tests.server.wire.test_giving_back import group_of

pytestmark = pytest.mark.process

REQUESTS = 20
HASTY = {
    "QUIVER_BOUNDS_HEAD_SECONDS": "1",
    "QUIVER_BOUNDS_BODY_PAUSE_SECONDS": "1",
    "QUIVER_BOUNDS_ANSWER_PAUSE_SECONDS": "1",
    "QUIVER_BOUNDS_IDLE_SECONDS": "1",
    "TEST_LIMITS": json.dumps(
        {
            "WIRE_REQUESTS_MAX": REQUESTS,
            "WIRE_UNREAD_BYTES_MAX": limits.MIB,
            "WIRE_OPEN_BYTES_MAX": limits.MIB,
        }
    ),
}
SMALL = {"QUIVER_BOUNDS_IN_FLIGHT_BYTES": str(2 * limits.MIB)}


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    path = tmp_path_factory.mktemp("hasty")
    with start_node(path, env=HASTY, module="tests.server.testing_node") as node:
        yield node
        assert not [line for line in node.lines if line["level"] == "error"], node.lines


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    path = tmp_path_factory.mktemp("small")
    with start_node(path, env=SMALL, module="tests.server.testing_node") as node:
        yield node
        assert not [line for line in node.lines if line["level"] == "error"], node.lines


# -- time ------------------------------------------------------------------------------------------


@pytest.mark.check
def test_an_idle_connection_stays(hasty: Node):
    with Wire(hasty.port) as wire:
        time.sleep(3)
        wire.ping()


@pytest.mark.parametrize("part", [b"\x20", pack(Verb.SEND, 1, b"", bytes(50_000))[0][:40]])
def test_a_frame_that_stops_in_the_middle_is_cut(hasty: Node, part: bytes):
    with Wire(hasty.port) as wire:
        wire.socket.sendall(part)
        frame = wire.frame()
        assert (frame.verb, frame.id) == (Verb.ERROR, 0)
        assert "took too long" in values.head_of(frame).trouble.detail
        assert wire.is_closed()


def test_a_frame_that_trickles_is_cut(hasty: Node):
    start = HEADER.pack(200_000, 0, Verb.SEND, 0, 0, 1)
    with Wire(hasty.port) as wire:
        begun = time.monotonic()
        wire.socket.sendall(start)
        with suppress(ConnectionError):
            while time.monotonic() - begun < 20:
                wire.socket.sendall(b"x" * 100)
                time.sleep(0.1)
        assert time.monotonic() - begun < 10


@pytest.mark.check
def test_a_frame_that_goes_on_is_waited_for(hasty: Node):
    with Wire(hasty.port) as wire:
        topic = wire.topic("slowly")
        start, rest = pack(Verb.SEND, 900, encode(SendHead(topic)), b"x" * 60_000)
        assert rest is not None
        wire.socket.sendall(start)
        for at in range(0, 60_000, 12_000):
            time.sleep(0.5)
            wire.socket.sendall(rest[at : at + 12_000])
        wire.value(900, values.PlacedOut)


def test_a_client_that_reads_nothing_is_cut_and_its_leases_given_back(hasty: Node):
    with Wire(hasty.port) as wire, Wire(hasty.port) as deaf:
        topic = wire.topic("deaf")
        wire.propose(commands.CreateGroup(topic, "g"))
        for _ in range(20):
            wire.answer(wire.submit(topic, b"x" * 1_000_000, sync=False))
        deaf.submit_receive(topic, count=20, lease_ms=600_000)
        until(lambda: group_of(wire, topic).in_flight == 20)
        until(lambda: group_of(wire, topic).in_flight == 0)
        assert group_of(wire, topic).released == 20


@pytest.mark.check
def test_a_client_that_only_trickles_is_cut(tmp_path: Path):
    env: dict[str, Any] = {
        **HASTY, "TEST_LIMITS": json.dumps({"ANSWER_BYTES_PER_SECOND_MIN": 20_000_000}),
    }  # fmt: skip
    with (
        start_node(tmp_path, env=env, module="tests.server.testing_node") as node,
        Wire(node.port) as wire,
    ):
        topic = wire.topic("t")
        for _ in range(4):
            wire.answer(wire.submit(topic, b"x" * 16_000_000, sync=False))
        wire.submit_receive(topic, count=4)
        count = 0
        with suppress(ConnectionError):
            while piece := wire.socket.recv(400_000):
                count += len(piece)
                time.sleep(0.1)
        assert count < 64_000_000


# -- requests and bytes ----------------------------------------------------------------------------


def test_so_many_requests_are_open_and_then_nothing_is_read(hasty: Node):
    with Wire(hasty.port) as wire, Wire(hasty.port) as other:
        topic = wire.topic("many")
        waiting = [wire.submit_receive(topic, wait_ms=60_000) for _ in range(REQUESTS)]
        wire.ping()  # a client that keeps to the bound is read
        until_waiting(hasty, REQUESTS)
        more = [wire.submit_receive(topic, wait_ms=60_000) for _ in range(3)]
        ping = wire.send_frame(Verb.PING)
        time.sleep(0.3)
        until_waiting(hasty, REQUESTS)
        for at in range(REQUESTS + 3):
            other.send(topic, b"%d" % at)
        found = [wire.received(number)[1] for number in (*waiting, *more)]
        assert sum(map(len, found)) == REQUESTS + 3
        assert wire.answer(ping).verb == Verb.PONG


def test_what_waits_behind_the_bound_can_be_cancelled(hasty: Node):
    with Wire(hasty.port) as wire, Wire(hasty.port) as other:
        topic = wire.topic("behind")
        pieces = []
        for number in range(1, REQUESTS + 3):
            head = encode(values.ReceiveHead(topic, "g", 1, 30_000, 60_000))
            pieces.append(pack(Verb.RECEIVE, 100 + number, head)[0])
        pieces.append(pack(Verb.CANCEL, 100 + REQUESTS + 2)[0])  # in the lane
        pieces.append(pack(Verb.CANCEL, 101)[0])
        wire.socket.sendall(b"".join(pieces))
        until_waiting(hasty, REQUESTS)
        for at in range(REQUESTS + 1):
            other.send(topic, b"%d" % at)
        found = [wire.received(100 + number)[1] for number in range(2, REQUESTS + 2)]
        assert len(found) == REQUESTS
        assert not wire.told.get(101)
        assert wire.receive(topic)[1]  # what nobody waited for


def test_answers_that_are_not_read_stop_the_reading(hasty: Node):
    with Wire(hasty.port) as wire, Wire(hasty.port) as other:
        topic = wire.topic("unread")
        wire.answer(wire.submit(topic, b"x" * 1_000_000))
        query = queries.ReadPage(topic, {0: 0}, {0: 1}, 10)
        numbers = [wire.send_frame(Verb.ASK, values.named(query)) for _ in range(40)]
        for number in numbers:  # none is lost, and none of them is made before there is room
            _, frame = wire.value(number, values.PageOut)
            assert len(frame.payload) > 1_000_000
        other.ping()


def test_a_frame_that_is_larger_than_its_kind_may_be_is_passed_over(connect, topic):
    wire = connect()
    for verb, nbytes in ((Verb.RECEIVE, 2_000_000), (Verb.SETTLE, 5_000_000),
                         (Verb.SEND, 25_000_000)):  # fmt: skip
        number = wire.send_frame(verb, b"", bytes(nbytes))
        with pytest.raises(MessageTooLarge):
            wire.value(number, object)
    assert wire.send(topic, b"x").offset == 0


def test_a_frame_that_no_kind_may_have_is_the_end(connect):
    for head in (0, 100):
        wire = connect()
        wire.socket.sendall(struct.pack("<IIBBHI", 2**32 - 1, head, Verb.BATCH, 0, 0, 1))
        assert wire.frame().verb == Verb.ERROR
        assert wire.is_closed()


def test_a_large_frame_needs_room_and_is_refused_by_itself(small: Node):
    with Wire(small.port) as wire, Wire(small.port) as full:
        topic = wire.topic("room")
        head = encode(BatchHead(topic))
        start, rest = pack(Verb.BATCH, 77, head, bytes(3_000_000))
        full.socket.sendall(start)
        assert rest is not None
        full.socket.sendall(rest)
        with pytest.raises(Overloaded):
            full.value(77, object)
        full.ping()  # what came of it is passed over, and the connection goes on
        assert full.send(topic, b"small").offset == 0
        full.value(full.submit(topic, b"x" * 500_000), values.PlacedOut)
        assert wire.send(topic, b"small").offset == 2


def test_who_only_announces_takes_no_room(small: Node):
    with Wire(small.port) as wire, Wire(small.port) as liar:
        topic = wire.topic("liar")
        liar.socket.sendall(HEADER.pack(100_000_000, 0, Verb.BATCH, 0, 0, 1))
        time.sleep(0.1)
        placed, _ = wire.value(wire.submit(topic, b"x" * 1_000_000), values.PlacedOut)
        assert placed.offset == 0


def test_nothing_is_counted_when_all_is_done(small: Node):
    """Room that was taken is given back, also for what was cancelled, cut and refused."""
    with Wire(small.port) as wire:
        topic = wire.topic("counted")
        for at in range(30):
            with Wire(small.port) as other:
                other.submit_receive(topic, wait_ms=60_000)
                start, rest = pack(Verb.SEND, 77, encode(SendHead(topic)), bytes(400_000))
                other.socket.sendall(start)
                if rest is not None and at % 2:
                    other.socket.sendall(rest[: 10_000 * at])

        def all_the_room_is_back() -> bool:
            with suppress(Overloaded):  # it may not have seen the end of the last one yet
                wire.value(wire.submit(topic, b"x" * 1_900_000), values.PlacedOut)
                return True
            return False

        until(all_the_room_is_back)

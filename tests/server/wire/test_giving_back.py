"""Messages that a receive got and that nobody has seen: they are given back, and no attempt is counted."""

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from quiver.batches.output import Piece
from quiver.model import commands, queries
from quiver.model.replies import Grant, Received, Slice
from quiver.model.topic import Guarantee, TopicPolicy
from quiver.server.wire.executor import Executor
from quiver.wire.frames import Verb
from quiver.wire.values import Messages, ReceivedOut, named
from tests.server.nodes import start_node, until_waiting
from tests.server.waiting import until
from tests.server.wire.frames_client import Wire

pytestmark = pytest.mark.process

BODY = b"x" * 1_000_000
COUNT = 24  # such messages are more than the system takes for a client that does not read


def group_of(wire: Wire, topic: int) -> Any:
    (name,) = wire.ask(queries.ListTopics((topic,)))
    return wire.ask(queries.ReadStats(name)).groups["g"]


def test_a_receive_that_is_cancelled_leases_nothing(wire, connect, topic):
    number = wire.submit_receive(topic, wait_ms=60_000)
    wire.ping()
    wire.cancel(number)
    wire.ping()
    connect().send(topic, b"x")
    assert wire.receive(topic)[1] == [b"x"]
    assert not wire.told.get(number)


def test_what_is_cancelled_just_now_is_given_back_or_told(wire, connect, topic):
    """A cancel crosses the answer, or the lease; in no case does the message stay with nobody."""
    sender = connect()
    for at in range(50):
        number = wire.submit_receive(topic, wait_ms=60_000, lease_ms=600_000)
        sent = sender.submit(topic, b"%d" % at, sync=False)
        if at % 3:
            time.sleep(at % 7 * 0.000_2)
        wire.cancel(number)
        sender.answer(sent)
        wire.ping()
        if wire.told.get(number):
            got, _ = wire.received(number)
            wire.settle(got)
        else:
            got, bodies = wire.receive(topic, wait_ms=5_000)
            assert bodies == [b"%d" % at]
            wire.settle(got)


def test_to_cancel_what_is_not_there_is_nothing(wire, topic):
    wire.cancel(12_345)
    wire.cancel(0)
    number = wire.submit(topic, b"x")
    wire.answer(number)
    wire.cancel(number)
    wire.ping()
    assert wire.send(topic, b"y").offset == 1  # what was cancelled too late is stored


def test_whoever_goes_while_waiting_gets_nothing(node, wire, connect, topic):
    waiting = connect()
    numbers = [waiting.submit_receive(topic, wait_ms=60_000) for _ in range(3)]
    waiting.ping()
    until_waiting(node, 3)
    waiting.close()
    until_waiting(node, 0)
    wire.send(topic, b"x")
    assert wire.receive(topic)[1] == [b"x"]
    assert numbers


@pytest.mark.parametrize("begin", [None, 1], ids=["begun", "reserved"])
def test_an_answer_that_nobody_reads_is_given_back(wire, connect, begin):
    topic = wire.topic(f"unread.{begin}", TopicPolicy(max_attempts=1, dead_letter="unread.dlq"))
    wire.propose(commands.CreateGroup(topic, "g"))
    for _ in range(COUNT):
        wire.answer(wire.submit(topic, BODY, sync=False))
    other = connect()
    other.submit_receive(topic, count=COUNT, lease_ms=600_000, begin=begin)
    assert other.socket.recv(1)  # the answer is on its way
    other.close()
    until(lambda: group_of(wire, topic).in_flight == 0)
    assert group_of(wire, topic).released == COUNT
    got, bodies = wire.receive(topic, count=COUNT)
    assert bodies == [BODY] * COUNT
    assert {part.attempt for part in got.slices} == {1}
    wire.settle(got)


def test_what_was_read_before_the_end_stays_leased(wire, connect, topic):
    wire.send_batch(topic, [b"x" * 100] * 10)
    other = connect()
    got, bodies = other.receive(topic, lease_ms=600_000)
    assert len(bodies) == 10
    other.close()
    time.sleep(0.3)
    assert group_of(wire, topic).in_flight == 10
    assert wire.settle(got).count == 10  # wherever it was received


def test_watches_end_with_their_connection(node, wire, connect, topic):
    wire.propose(commands.Join(topic, "m", "one", 60_000))
    other = connect()
    query = queries.FetchPage(topic, "m", "one", {0: 0}, 10)
    number = other.send_frame(Verb.WATCH, named(query, 60_000))
    other.ping()
    until_waiting(node, 1)
    other.cancel(number)
    until_waiting(node, 0)
    other.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        other.answer(number)


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_what_a_head_cannot_say_is_not_leased(tmp_path: Path, guarantee: Guarantee):
    """Each of these letters has a reason of its own, and a head has room for those of a few."""
    few = {"FRAME_HEAD_BYTES_MAX": 8_000, "WIRE_TOLD_BYTES_MAX": 3_500}
    env = {"TEST_LIMITS": json.dumps(few)}
    with (
        start_node(tmp_path, env=env, module="tests.server.testing_node") as node,
        Wire(node.port) as wire,
    ):
        topic = wire.topic("t", TopicPolicy(max_attempts=2, dead_letter="dead"))
        dead = wire.find("dead").number
        wire.propose(commands.CreateGroup(dead, "g", guarantee=guarantee))
        for at in range(10):
            wire.send(topic, b"%d" % at)
            wire.settle(wire.receive(topic)[0], "dead_letter", reason=f"{at}" * 1_000)
        found = []
        while bodies := wire.receive(dead, count=100)[1]:
            assert len(bodies) <= 3
            found += bodies
        assert found == [b"%d" % at for at in range(10)]
        group = group_of(wire, dead)
        assert (group.delivered, group.released) == (10, 0)


def test_a_slice_is_told_as_the_core_counted_it_wherever_its_messages_are():
    batch = pa.record_batch({"body": [b"x"] * 4})
    part = Slice(0, 7, 4, 1, 0, 0)
    source = Messages([part], batch)
    pieces = [Piece(batch, at, part.cut(at, 2)) for at in (0, 2)]  # as from two segments
    grant = Grant(Received(1, 2, 3, 4, (part,)), source, b"tag")
    value, _ = Executor._leased(grant, pieces)
    assert msgspec.msgpack.decode(value, type=ReceivedOut).received().slices == (part,)
    value, _ = Executor._leased(grant, pieces[:1])  # the other cannot be read
    assert msgspec.msgpack.decode(value, type=ReceivedOut).received().slices == (part.cut(0, 2),)

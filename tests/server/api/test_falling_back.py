"""What stands between client and node may speak HTTP only: then frames are posted, and that is said."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import quiver
from quiver import limits
from quiver.client.remote.address import Address
from quiver.wire.frames import Verb, pack
from quiver.wire.problems import Trouble
from quiver.wire.values import ErrorHead, encode
from tests.contract.doors import AsyncDoor, Blocking
from tests.server.api.proxies import Proxy, answer, plain_proxy
from tests.server.nodes import Node, start_node, until_waiting

pytestmark = pytest.mark.process

NO = encode(ErrorHead(1_700_000_000_000, Trouble("invalid_request", "no")))
WAYS = ["strips", "400", "404", "501", "page"]  # see plain.py


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with start_node(tmp_path_factory.mktemp("behind")) as started:
        yield started


@pytest.fixture(params=WAYS)
def plain(request: pytest.FixtureRequest, node: Node) -> Iterator[int]:
    """The port of a proxy that does not pass an upgrade on."""
    with plain_proxy(node.port, request.param) as port:
        yield port
    with quiver.connect(f"quiver://127.0.0.1:{node.port}") as queue:
        for topic in queue.topics():
            queue.delete_topic(topic)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "quiver"]


@pytest.mark.parametrize("loop", [False, True], ids=["threads", "loop"])
def test_a_queue_works_behind_a_proxy_that_speaks_http_only(plain, node, caplog, loop):
    url = f"quiver://127.0.0.1:{plain}"
    if loop:
        door = AsyncDoor()
        try:
            with Blocking(door._loop, quiver.connect_async(url)) as queue:
                use(queue, node)
        finally:
            door.end()
    else:
        with quiver.connect(url) as queue:
            use(queue, node)
    (said,) = warnings(caplog)  # once for the queue, whatever it does
    assert said.startswith(
        f"quiver://127.0.0.1:{plain} does not upgrade to the protocol of a queue"
    )
    assert "wire=never" in said


def use(queue: Any, node: Node) -> None:
    """All that a service does."""
    queue.create_topic("t", max_attempts=3, retention="forever")
    queue.create_group("t", "g")
    queue.send_batch("t", [str(at) for at in range(10)])
    queue.send("t", "10", dedup_id="ten")
    assert queue.send("t", "10", dedup_id="ten").duplicate
    with queue.producer("t") as out:
        for at in range(11, 30):
            out.send(str(at))
    got = queue.receive("t", "g", max_messages=100)
    assert [delivery.text for delivery in got] == [str(at) for at in range(30)]
    queue.ack(got)
    assert queue.groups("t")["g"].lag == 0
    with ThreadPoolExecutor(1) as pool:  # a long poll
        waiting = pool.submit(queue.receive, "t", "g", wait=60)
        until_waiting(node, 1)
        with queue.transaction() as tx:
            tx.send("t", "later")
        (late,) = waiting.result(30)
    late.ack()
    assert [record.text for record in queue.read("t")][-1] == "later"
    assert queue.sql("select count(*) as n from t").column("n").to_pylist() == [31]
    with pytest.raises(quiver.TopicNotFound):
        queue.send("none", "x")


def test_a_consumer_behind_such_a_proxy(node):
    with plain_proxy(node.port) as port, quiver.connect(f"quiver://127.0.0.1:{port}") as queue:
        queue.create_topic("t")
        queue.create_group("t", "g")
        queue.send_batch("t", [str(at) for at in range(20)])
        with queue.consumer("t", "g", prefetch=5) as inbox:
            for at in range(20):
                delivery = inbox.get(wait=30)
                assert delivery is not None
                assert delivery.text == str(at)
                delivery.ack()
        assert queue.groups("t")["g"].lag == 0
        queue.delete_topic("t")


def test_each_queue_says_it_once_and_who_asked_for_it_is_told_nothing(node, caplog):
    with plain_proxy(node.port) as port:
        for wired, lines in (("auto", 1), ("auto", 2), ("never", 2)):
            with quiver.connect(f"quiver://127.0.0.1:{port}?wire={wired}") as queue:
                assert queue.topics() == []
            assert len(warnings(caplog)) == lines
    with quiver.connect(f"quiver://127.0.0.1:{node.port}") as queue:
        queue.topics()
    assert len(warnings(caplog)) == 2


@pytest.mark.parametrize("how", WAYS)
def test_who_wants_frames_always_is_told_why_there_are_none(node, how):
    told = r"does not upgrade to the protocol of a queue \(status \d+ without an upgrade\)"
    with plain_proxy(node.port, how) as port:
        with pytest.raises(quiver.InvalidRequest, match=told):
            quiver.connect(f"quiver://127.0.0.1:{port}?wire=always")

        async def scenario() -> None:
            async with quiver.connect_async(f"quiver://127.0.0.1:{port}?wire=always"):
                raise AssertionError("it must not open")

        with pytest.raises(quiver.InvalidRequest, match=told):
            asyncio.run(scenario())


def test_a_proxy_whose_node_is_away_is_waited_for(tmp_path):
    """What it says for the node is no answer; the request did not get to the node, or perhaps it did."""
    with (
        start_node(tmp_path) as node,
        plain_proxy(node.port) as port,
        quiver.connect(f"quiver://127.0.0.1:{port}") as queue,
    ):
        queue.create_topic("t")
        queue.send("t", "first")
        node.kill()
        with pytest.raises(quiver.OutcomeUnknown, match="status 502"):
            queue.send("t", "lost")
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(queue.send, "t", "x", dedup_id="x")
            node.restart()
            sending.result(60)
        assert [one.text for one in queue.receive("t", max_messages=9)] == ["first", "x"]


FRAMES = "application/vnd.quiver.frames"
NONSENSE = [
    (answer("200 OK", b"\xff<html>"), "status 200, and not from a node"),
    (answer("200 OK", b"\xff" * 32, FRAMES), "not the protocol of a queue|is larger than"),
    (answer("200 OK", pack(Verb.ANSWER, 1, b"\xc1")[0], FRAMES), "MessagePack|head"),
    (answer("200 OK", pack(Verb.ERROR, 0, NO)[0], FRAMES), "refused what it was sent: no"),
    (answer("200 OK", pack(Verb.ANSWER, 1, b"x")[0][:-1], FRAMES), "in the middle of a frame"),
]


@pytest.mark.parametrize(("nonsense", "told"), NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_in_place_of_an_answer_says_nothing_about_what_was_sent(node, nonsense, told):
    with (
        Proxy(node.port) as proxy,
        quiver.connect(f"quiver://127.0.0.1:{proxy.port}?wire=never") as queue,
    ):
        queue.create_topic("t")
        proxy.lose, proxy.instead = {"SEND": 1}, nonsense
        with pytest.raises(quiver.OutcomeUnknown, match=told):
            queue.send("t", "x")
        assert queue.stats("t").depth == 1
        queue.delete_topic("t")


def test_a_refusal_before_the_door_is_the_nodes_word(node):
    """As a node has them that is too busy for HTTP: nothing was done, and it is tried again."""
    busy = json.dumps(
        {"title": "x", "status": 503, "code": "overloaded", "detail": "busy", "retryable": True}
    )
    with (
        Proxy(node.port) as proxy,
        quiver.connect(f"quiver://127.0.0.1:{proxy.port}?wire=never") as queue,
    ):
        queue.create_topic("t")
        refusal = answer("503 Service Unavailable", busy.encode(), "application/problem+json")
        proxy.drop_with = {"SEND": refusal}
        queue.send("t", "x")
        assert proxy.lost == 1
        assert queue.stats("t").depth == 1
        queue.delete_topic("t")


# -- connections that are dead, and nobody says so --------------------------------------------------


@pytest.mark.parametrize("loop", [False, True], ids=["threads", "loop"])
def test_a_connection_that_swallows_everything_is_left(node, monkeypatch, loop):
    """A firewall has forgotten it: after a silence the client asks for a sign of life."""
    monkeypatch.setattr(limits, "WIRE_PING_SECONDS", 0.2)
    monkeypatch.setattr(limits, "WIRE_PONG_SECONDS", 0.2)
    door = AsyncDoor() if loop else None
    with Proxy(node.port) as proxy:
        url = f"quiver://127.0.0.1:{proxy.port}"
        opening: Any = (
            Blocking(door._loop, quiver.connect_async(url)) if door else quiver.connect(url)
        )
        with opening as queue:
            queue.create_topic("t")
            proxy.swallow()
            assert queue.topics() == ["t"]  # over the next one
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(queue.receive, "t", wait=60)
                until_waiting(node, 1)
                proxy.swallow()
                proxy.await_request("RECEIVE", 2)
                with quiver.connect(f"quiver://127.0.0.1:{node.port}") as other:
                    other.send("t", "x")
                assert [delivery.text for delivery in waiting.result(60)] == ["x"]
            proxy.swallow()
            with pytest.raises(quiver.OutcomeUnknown, match="no sign of life"):
                queue.send("t", "y")
            queue.delete_topic("t")
    if door:
        door.end()


def test_a_post_that_nobody_answers_is_given_up(node, monkeypatch):
    monkeypatch.setattr(limits, "ANSWER_SECONDS_MAX", 0.5)
    with (
        Proxy(node.port) as proxy,
        quiver.connect(f"quiver://127.0.0.1:{proxy.port}?wire=never") as queue,
    ):
        queue.create_topic("t")
        queue.send("t", "x")
        proxy.swallow()
        assert queue.topics() == ["t"]
        proxy.swallow()
        with pytest.raises(quiver.OutcomeUnknown):
            queue.send("t", "y")
        queue.delete_topic("t")


# -- links that are slow ----------------------------------------------------------------------------


@pytest.mark.parametrize("wired", ["always", "never"])
def test_what_is_large_goes_both_ways_over_a_link_that_takes_little_at_a_time(
    node, wired, monkeypatch
):
    monkeypatch.setattr(Address, "local", True)
    large = [bytes([at]) * 2_000_000 for at in range(8)]
    with (
        Proxy(node.port, piece=5_000) as proxy,
        quiver.connect(f"quiver://127.0.0.1:{proxy.port}?wire={wired}") as queue,
    ):
        queue.create_topic("t")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda body: queue.send("t", body), large))
            received = partial(queue.receive, "t", max_messages=2, lease=600)
            got = [pool.submit(received) for _ in range(8)]
            bodies = sorted(one.body for some in got for one in some.result(60))
        assert bodies == large
        queue.delete_topic("t")

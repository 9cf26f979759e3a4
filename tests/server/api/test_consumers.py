"""Receiving ahead, from a directory and from a node: bounded, given back, kept."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quiver
from tests.server.nodes import start_node

pytestmark = pytest.mark.process
PATIENCE_SECONDS = 30


@pytest.fixture(scope="module", params=["directory", "node"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("consumed")
    if request.param == "directory":
        yield str(path / "data")
        return
    with start_node(path) as node:
        yield f"quiver://127.0.0.1:{node.port}"


@pytest.fixture
def queue(url: str) -> Iterator[quiver.Queue]:
    with quiver.connect(url) as made:
        made.create_topic("t")
        made.create_group("t", "default")
        yield made
        made.delete_topic("t")


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def test_messages_come_in_order_and_no_more_than_prefetch_wait(queue):
    queue.send_batch("t", [str(at) for at in range(50)])
    with queue.consumer("t", prefetch=10) as inbox:
        until(lambda: queue.groups("t")["default"].in_flight == 10)
        for at in range(50):
            delivery = inbox.get(wait=PATIENCE_SECONDS)
            assert delivery.text == str(at)
            assert queue.groups("t")["default"].in_flight <= 11
            delivery.ack()
        assert inbox.get(wait=0.05) is None
    assert queue.stats("t").depth == 0


def test_what_was_not_taken_is_given_back_when_it_is_closed(queue):
    queue.send_batch("t", ["a", "b", "c"])
    with queue.consumer("t") as inbox:
        inbox.get(wait=PATIENCE_SECONDS).ack()
        until(lambda: queue.groups("t")["default"].in_flight == 2)
    assert queue.groups("t")["default"].in_flight == 0
    got = queue.receive("t", max_messages=9)
    assert [(one.text, one.attempt) for one in got] == [("b", 2), ("c", 2)]


def test_iteration_ends_when_it_is_closed(queue):
    queue.send_batch("t", ["a", "b"])
    inbox = queue.consumer("t")
    found = []
    for delivery in inbox:
        found.append(delivery.text)
        delivery.ack()
        if len(found) == 2:
            inbox.close()
    assert found == ["a", "b"]


def test_a_kept_message_is_nobody_elses_however_long_it_takes(queue):
    queue.send("t", "slow")
    with queue.consumer("t", lease=0.6, keep=True) as inbox:
        delivery = inbox.get(wait=PATIENCE_SECONDS)
        assert queue.receive("t", wait=1.5) == []
        delivery.ack()
    assert queue.groups("t")["default"].timed_out == 0


def test_what_waited_longer_than_its_lease_is_not_handed_out(queue):
    queue.send("t", "stale")
    with queue.consumer("t", prefetch=1, lease=0.3) as inbox:
        until(lambda: queue.groups("t")["default"].timed_out)
        delivery = inbox.get(wait=PATIENCE_SECONDS)
        assert delivery.attempt >= 2
        delivery.ack()


def test_a_topic_that_is_deleted_meanwhile_is_told(queue):
    queue.create_topic("gone")
    with queue.consumer("gone") as inbox:
        queue.delete_topic("gone")
        with pytest.raises(quiver.TopicNotFound):
            inbox.get(wait=PATIENCE_SECONDS)


@pytest.mark.parametrize("wrong", [{"prefetch": 0}, {"lease": 0}, {"keep": 1}, {"group": ".."}])
def test_wrong_arguments(queue, wrong):
    with pytest.raises(quiver.InvalidRequest):
        queue.consumer("t", **wrong)


def test_a_topic_that_is_not_there(queue):
    with pytest.raises(quiver.TopicNotFound):
        queue.consumer("none")


def test_the_same_in_an_event_loop(url: str, tmp_path: Path):
    async def scenario() -> None:
        async with quiver.connect_async(url) as queue:
            await queue.create_topic("u")
            await queue.send_batch("u", [str(at) for at in range(20)])
            async with queue.consumer("u", prefetch=5, lease=0.6, keep=True) as inbox:
                found = []
                async for delivery in inbox:
                    found.append(delivery.text)
                    if delivery.text == "3":
                        await asyncio.sleep(1)  # longer than a lease
                    await delivery.ack()
                    if len(found) == 18:
                        break
                assert found == [str(at) for at in range(18)]
            stats = (await queue.stats("u")).groups["default"]
            assert (stats.in_flight, stats.timed_out, stats.lag) == (0, 0, 2)
            with pytest.raises(quiver.QueueClosed):
                await queue.consumer("u").get()
            await queue.delete_topic("u")

    asyncio.run(scenario())

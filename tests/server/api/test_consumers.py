"""Receiving ahead, from a directory and from a node: bounded, given back, kept."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import quiver
from tests.server.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.process


@pytest.fixture
def queue(url: str) -> Iterator[quiver.Queue]:
    with quiver.connect(url) as made:
        made.create_topic("t")
        made.create_group("t", "default")
        yield made
        made.delete_topic("t")


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
    assert [(one.text, one.attempt) for one in got] == [("b", 1), ("c", 1)]


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


@pytest.mark.slow
def test_a_kept_message_is_nobody_elses_however_long_it_takes(queue):
    queue.send("t", "slow")
    with queue.consumer("t", lease=8, keep=True) as inbox:
        delivery = inbox.get(wait=PATIENCE_SECONDS)
        assert queue.receive("t", wait=10) == []
        delivery.ack()
    assert queue.groups("t")["default"].timed_out == 0


def test_what_waited_longer_than_its_lease_is_not_handed_out(queue):
    queue.send("t", "stale")
    with queue.consumer("t", prefetch=1, lease=0.3) as inbox:
        until(lambda: queue.groups("t")["default"].released)
        delivery = inbox.get(wait=PATIENCE_SECONDS)
        assert delivery.attempt == 1
        with suppress(quiver.ReceiptExpired):
            delivery.ack()


@pytest.mark.parametrize("keep", [False, True])
def test_at_most_once_each_comes_once_however_short_the_lease(queue, keep):
    queue.create_group("t", "once", guarantee="at-most-once")
    queue.send_batch("t", [str(at) for at in range(10)])
    with queue.consumer("t", "once", prefetch=10, lease=0.2, keep=keep) as inbox:
        until(lambda: queue.groups("t")["once"].reserved == 10)
        until(lambda: queue.groups("t")["once"].reserved == 0)  # the leases have ended
        got = [inbox.get(wait=PATIENCE_SECONDS) for _ in range(10)]
        assert [one.text for one in got] == [str(at) for at in range(10)]
        assert inbox.get(wait=0.2) is None
    assert queue.groups("t")["once"].lag == 0


def test_at_most_once_nothing_is_lost_that_was_not_taken(queue):
    queue.create_group("t", "once", guarantee="at-most-once")
    queue.send_batch("t", [str(at) for at in range(20)])
    with queue.consumer("t", "once", prefetch=10) as inbox:
        taken = [inbox.get(wait=PATIENCE_SECONDS).text for _ in range(7)]
    taken += [one.text for one in inbox]  # what had begun, and cannot be given back
    rest = [one.text for one in queue.receive("t", "once", max_messages=20)]
    assert taken + rest == [str(at) for at in range(20)]
    assert rest


def test_what_waited_goes_with_its_topic(queue):
    queue.create_topic("gone")
    queue.send_batch("gone", ["a", "b"])
    with queue.consumer("gone") as inbox:
        until(lambda: "default" in queue.groups("gone"))
        until(lambda: queue.groups("gone")["default"].in_flight == 2)
        queue.delete_topic("gone")
    assert list(inbox) == []


def test_a_topic_that_is_deleted_meanwhile_is_told(queue):
    queue.create_topic("gone")
    with queue.consumer("gone") as inbox:
        queue.delete_topic("gone")
        with pytest.raises(quiver.TopicNotFound):
            inbox.get(wait=PATIENCE_SECONDS)


@pytest.mark.parametrize(
    "wrong",
    [{"prefetch": -1}, {"lease": 0}, {"keep": 1}, {"group": ".."}, {"give_up_after": "soon"}],
)
def test_wrong_arguments(queue, wrong):
    with pytest.raises(quiver.InvalidRequest):
        queue.consumer("t", **wrong)


def test_a_topic_that_is_not_there(queue):
    with pytest.raises(quiver.TopicNotFound):
        queue.consumer("none")


@pytest.mark.parametrize("pause", [0, pytest.param(10, marks=pytest.mark.slow)])
def test_the_same_in_an_event_loop(url: str, pause: int):
    async def scenario() -> None:
        async with quiver.connect_async(url) as queue:
            await queue.create_topic("u")
            await queue.send_batch("u", [str(at) for at in range(20)])
            async with queue.consumer("u", prefetch=5, lease=8, keep=True) as inbox:
                found = []
                async for delivery in inbox:
                    found.append(delivery.text)
                    if delivery.text == "3":
                        await asyncio.sleep(pause)  # perhaps longer than a lease
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


def test_in_an_event_loop_nothing_is_lost_at_most_once(url: str):
    async def scenario() -> None:
        async with quiver.connect_async(url) as queue:
            await queue.create_topic("u")
            await queue.create_group("u", "once", guarantee="at-most-once")
            await queue.send_batch("u", ["a", "b", "c"])
            async with queue.consumer("u", "once", prefetch=3, lease=0.2, keep=True) as inbox:
                first = await inbox.get(wait=PATIENCE_SECONDS)
                assert first is not None
                assert first.text == "a"
                await asyncio.sleep(0.6)  # longer than a lease
                second = await inbox.get(wait=PATIENCE_SECONDS)
                assert second is not None
                assert second.text == "b"
            assert [one.text async for one in inbox] == []
            (left,) = await queue.receive("u", "once", max_messages=9)
            assert left.text == "c"
            await queue.delete_topic("u")

    asyncio.run(scenario())


def test_a_close_that_is_cancelled_is_finished_by_the_next(url: str):
    async def scenario() -> None:
        async with quiver.connect_async(url) as queue:
            await queue.create_topic("u")
            await queue.send_batch("u", ["a", "b"])
            async with queue.consumer("u", prefetch=10, lease=600) as inbox:
                assert await inbox.get(wait=PATIENCE_SECONDS) is not None
                closing = asyncio.create_task(inbox.aclose())
                await asyncio.sleep(0)
                closing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await closing
            assert (await queue.groups("u"))["default"].in_flight == 1  # what was taken
            await queue.delete_topic("u")

    asyncio.run(scenario())


def test_an_opening_that_is_cancelled_leaves_nothing_open(url: str):
    """Threads and files that are left behind fail any test; a directory must be free, too."""
    begun, go_on = threading.Event(), threading.Event()
    queue = quiver.connect_async(url)
    really = queue._open

    def slowly(loop: Any) -> Any:
        begun.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return really(loop)

    async def scenario() -> None:
        queue._open = slowly
        opening = asyncio.create_task(queue.__aenter__())
        assert await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        go_on.set()

    asyncio.run(scenario())
    with quiver.connect(url) as other:
        assert other.topics() == []

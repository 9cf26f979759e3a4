"""What a busy consumer has received ahead an idle one may have; and receiving one at a time."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import quiver
from tests.server.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.process


@pytest.fixture
def queue(url: str) -> Iterator[quiver.Queue]:
    with quiver.connect(url) as made:
        made.create_topic("t", max_attempts=1)
        made.create_group("t", "g")
        yield made
        made.delete_topic("t")


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("order", ["none", "key"])
def test_an_idle_consumer_gets_what_a_busy_one_has_received_ahead(queue, keep, order):
    queue.create_topic("u", order=order, max_attempts=1)
    queue.send("u", "long", key="a")
    queue.send("u", "short", key="b")
    with (
        queue.consumer("u", "g", prefetch=10, lease=600, keep=keep) as busy,
        queue.consumer("u", "g", prefetch=10, lease=600, keep=keep) as idle,
    ):
        holders = {busy: idle, idle: busy}
        until(lambda: any(len(who._stock) == 2 for who in holders))
        first = next(who for who in holders if len(who._stock))
        long = first.get(wait=PATIENCE_SECONDS)
        short = holders[first].get(wait=PATIENCE_SECONDS)
        assert (long.text, short.text) == ("long", "short")
        assert long.epoch != short.epoch
        short.ack()
        long.ack()
        assert first.get(wait=0) is None
    stats = queue.groups("u")["g"]
    assert (stats.delivered, stats.redelivered, stats.lag) == (2, 0, 0), "each has begun once"
    queue.delete_topic("u")


def test_a_consumer_that_comes_back_does_not_hand_out_what_others_have(queue):
    queue.send_batch("t", [str(at) for at in range(6)])
    with queue.consumer("t", "g", prefetch=10, lease=600) as busy:
        assert busy.get(wait=PATIENCE_SECONDS).text == "0"
        until(lambda: queue.groups("t")["g"].reserved == 5)
        others = queue.receive("t", "g", max_messages=10, wait=PATIENCE_SECONDS)
        assert [one.text for one in others] == ["1", "2", "3"]
        assert [busy.get(wait=PATIENCE_SECONDS).text for _ in range(2)] == ["4", "5"]
        assert busy.get(wait=0) is None
    assert queue.groups("t")["g"].delivered == 6


def test_what_was_begun_ahead_and_is_not_taken_goes_back(queue):
    """A fast consumer begins several at once; when it stops taking, nobody waits for it for long."""
    count = 100
    queue.send_batch("t", [str(at) for at in range(count)])
    with queue.consumer("t", "g", prefetch=count, lease=600) as busy:
        taken = 0
        while not busy._stock._begun:  # more than one at a time by now
            busy.get(wait=PATIENCE_SECONDS)
            taken += 1
        until(lambda: queue.groups("t")["g"].in_flight == taken)
        assert queue.groups("t")["g"].lag == count
        got = queue.receive("t", "g", max_messages=count)
        assert [one.attempt for one in got] == [1] * (count - taken)


# -- one at a time ---------------------------------------------------------------------------------


def test_without_prefetch_nothing_is_received_before_it_is_asked_for(queue):
    queue.send_batch("t", ["0", "1", "2"])
    with queue.consumer("t", "g", prefetch=0) as inbox:
        assert queue.groups("t")["g"].in_flight == 0
        assert inbox.get(wait=0).text == "0"
        assert queue.groups("t")["g"].in_flight == 1
        (other,) = queue.receive("t", "g")
        assert other.text == "1"
        assert inbox.get(wait=PATIENCE_SECONDS).text == "2"
        assert inbox.get(wait=0) is None


def test_without_prefetch_a_waiting_get_ends_when_it_is_closed(queue):
    inbox = queue.consumer("t", "g", prefetch=0)
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(inbox.get()))
    waiting.start()
    inbox.close()
    waiting.join(PATIENCE_SECONDS)
    assert found == [None]


def test_without_prefetch_in_an_event_loop(url: str, queue):
    async def scenario() -> None:
        async with quiver.connect_async(url) as other:
            async with other.consumer("t", "g", prefetch=0) as inbox:
                assert await inbox.get(wait=0) is None
                await other.send("t", "0")
                first = await inbox.get(wait=PATIENCE_SECONDS)
                assert first is not None
                assert first.text == "0"
                assert (await other.groups("t"))["g"].in_flight == 1
                waiting = asyncio.create_task(inbox.get())
                await asyncio.sleep(0)
            assert await waiting is None

    if not url.startswith("quiver://"):
        pytest.skip("a directory has one owner, and `queue` is open")
    asyncio.run(scenario())


# -- leases that are kept --------------------------------------------------------------------------


@pytest.mark.check
@pytest.mark.parametrize("how", ["receive", "prefetch=0"])
def test_a_lease_that_is_kept_lasts_until_the_message_is_settled(queue, how):
    queue.send("t", "long")
    with queue.consumer("t", "g", prefetch=0, lease=1, keep=True) as inbox:
        if how == "receive":
            (held,) = queue.receive("t", "g", lease=1, keep=True)
        else:
            held = inbox.get(wait=PATIENCE_SECONDS)
        assert queue.receive("t", "g", wait=3) == []  # three times as long
        held.ack()
        stats = queue.groups("t")["g"]
        assert (stats.timed_out, stats.lag) == (0, 0)


@pytest.mark.check
def test_a_lease_that_is_kept_in_an_event_loop(url: str, queue):
    async def scenario() -> None:
        async with quiver.connect_async(url) as other:
            await other.send("t", "long")
            (held,) = await other.receive("t", "g", lease=1, keep=True)
            assert await other.receive("t", "g", wait=3) == []
            await held.ack()
            assert (await other.groups("t"))["g"].timed_out == 0

    if not url.startswith("quiver://"):
        pytest.skip("a directory has one owner, and `queue` is open")
    asyncio.run(scenario())


def test_what_is_settled_is_kept_no_longer_and_what_was_lost_is_told(queue):
    queue.send_batch("t", ["0", "1"])
    first, second = queue.receive("t", "g", max_messages=2, lease=0.3, keep=True)
    first.ack()
    assert queue._keeper is not None
    assert len(queue._keeper._kept) == 1
    queue.seek("t", "g", "latest")
    until(lambda: len(queue._keeper._kept) == 0)  # the next extension is refused
    with pytest.raises(quiver.ReceiptExpired):
        second.ack()


def test_no_more_leases_are_kept_than_there_may_be(queue):
    with pytest.raises(quiver.LimitExceeded):
        queue.receive("t", "g", max_messages=quiver.limits.KEPT_MAX + 1, keep=True)
    with pytest.raises(quiver.InvalidRequest):
        queue.receive("t", "g", keep="yes")

"""Acks that a consumer collects: stored soon, in order, told if refused, through all doors."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

import quiver
from quiver import limits
from tests.contract.doors import PATIENCE_SECONDS

pytestmark = pytest.mark.python
LEASE = 600


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acks are sent by what a test does, and not because they have waited for long enough."""
    monkeypatch.setattr(limits, "CONSUMER_ACK_LINGER_SECONDS", 3_600)


def consumer(queue: Any, **options: Any) -> Any:
    return queue.consumer("t", "g", **{"lease": LEASE, "acks": "background", **options})


def take(inbox: Any, count: int = 1) -> list[Any]:
    found = [inbox.get(wait=PATIENCE_SECONDS) for _ in range(count)]
    assert None not in found
    return found


def lag(queue: Any) -> int:
    return queue.groups("t")["g"].lag


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def settle_late(queue: Any, clock: Any, inbox: Any) -> Any:
    """A message that is acked when its lease has ended, and the consumer does not know it yet."""
    queue.send("t", "late")
    (late,) = take(inbox)
    clock.advance(LEASE + 1)
    assert queue.groups("t")["g"].timed_out == 1
    late.ack()
    return late


# -- when they are stored --------------------------------------------------------------------------


def test_flush_stores_them(queue, alone):
    queue.send_batch("t", ["0", "1", "2"])
    with consumer(queue) as inbox:
        for one in take(inbox, 2):
            one.ack()
        inbox.flush()
        assert lag(queue) == 1
        inbox.flush()


def test_close_stores_them_and_gives_the_others_back(queue, alone):
    queue.send_batch("t", ["0", "1", "2"])
    with consumer(queue) as inbox:
        for one in take(inbox, 2):
            one.ack()
    stats = queue.groups("t")["g"]
    assert (stats.lag, stats.in_flight) == (1, 0)


def test_so_does_a_block_that_fails(queue, alone):
    queue.send("t", "0")

    def fail() -> None:
        with consumer(queue) as inbox:
            take(inbox)[0].ack()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert lag(queue) == 0


def test_they_go_after_a_moment_by_themselves(queue):
    queue.send_batch("t", ["0", "1"])
    with consumer(queue) as inbox:
        take(inbox)[0].ack()
        until(lambda: lag(queue) == 1)


def test_they_go_with_the_next_request_for_messages(queue, alone):
    queue.send("t", "0")
    with consumer(queue) as inbox:
        take(inbox)[0].ack()
        assert inbox.get(wait=0.05) is None
        until(lambda: lag(queue) == 0)


@pytest.mark.parametrize("prefetch", [0, 10])
def test_all_are_stored_in_the_end(queue, prefetch):
    queue.send_batch("t", [str(at) for at in range(100)])
    with consumer(queue, prefetch=prefetch) as inbox:
        found = []
        for one in take(inbox, 100):
            found.append(one.text)
            one.ack()
    assert found == [str(at) for at in range(100)]
    stats = queue.groups("t")["g"]
    assert (stats.lag, stats.delivered, stats.redelivered) == (0, 100, 0)


def test_they_do_not_wait_when_a_third_of_the_lease_is_used(queue, clock, alone):
    queue.send_batch("t", ["0", "1"])
    with consumer(queue) as inbox:
        (first,) = take(inbox)
        clock.advance(LEASE / 2)
        assert lag(queue) == 2  # a client hears the time with each answer
        first.ack()
        until(lambda: lag(queue) == 1)


def test_no_more_are_collected_than_there_may_be(queue, alone, monkeypatch):
    monkeypatch.setattr(limits, "CONSUMER_ACKS_MIN", 3)
    queue.send_batch("t", [str(at) for at in range(20)])
    with consumer(queue, prefetch=0) as inbox:
        for at, one in enumerate(take(inbox, 20), 1):
            one.ack()
            assert lag(queue) <= 20 - at + 3


def test_without_being_asked_for_each_ack_waits(queue):
    queue.send_batch("t", ["0", "1"])
    with queue.consumer("t", "g", lease=LEASE) as inbox:
        take(inbox)[0].ack()
        assert lag(queue) == 1
        inbox.flush()


def test_what_receive_has_given_is_acked_at_once(queue, alone):
    queue.send("t", "0")
    with consumer(queue):
        pass
    (one,) = queue.receive("t", "g")
    one.ack()
    assert lag(queue) == 0


def test_after_closing_an_ack_waits(queue, alone):
    queue.send("t", "0")
    with consumer(queue) as inbox:
        (one,) = take(inbox)
    one.ack()
    assert lag(queue) == 0


@pytest.mark.parametrize("prefetch", [0, 10])
def test_after_its_queue_was_closed_nothing_is_waited_for(queue, prefetch):
    inbox = consumer(queue, prefetch=prefetch)
    queue.close()
    with pytest.raises(quiver.QueueClosed):
        inbox.get(wait=PATIENCE_SECONDS)


def test_at_most_once_there_is_nothing_to_ack(queue, alone):
    queue.create_group("t", "g", guarantee="at-most-once")
    queue.send("t", "0")
    with consumer(queue) as inbox:
        (one,) = take(inbox)
        assert lag(queue) == 0
        one.ack()
        inbox.flush()


def test_wrong_words(queue):
    with pytest.raises(quiver.InvalidRequest, match="acks must be one of 'wait', 'background'"):
        consumer(queue, acks="later")


# -- what was refused ------------------------------------------------------------------------------


def test_flush_tells_what_was_refused_and_the_consumer_goes_on(queue, clock, alone):
    with consumer(queue) as inbox:
        late = settle_late(queue, clock, inbox)
        with pytest.raises(quiver.ReceiptExpired, match="1 of 1 acks") as refusal:
            inbox.flush()
        assert [one.id for one in refusal.value.refused] == [late.id]
        (again,) = take(inbox)
        assert (again.text, again.attempt) == ("late", 2)
        again.ack()
        inbox.flush()
    assert lag(queue) == 0


def test_the_next_get_tells_it_before_it_hands_out_a_message(queue, clock):
    with consumer(queue, prefetch=1) as inbox:
        settle_late(queue, clock, inbox)
        until(lambda: refused_of(inbox))
        with pytest.raises(quiver.ReceiptExpired):
            inbox.get(wait=PATIENCE_SECONDS)
        (again,) = take(inbox)
        assert again.attempt == 2
        again.ack()


def test_so_does_an_iteration(queue, clock):
    with consumer(queue, prefetch=1) as inbox:
        settle_late(queue, clock, inbox)
        until(lambda: refused_of(inbox))
        with pytest.raises(quiver.ReceiptExpired):
            next_of(inbox)
        next_of(inbox).ack()


def test_and_close(queue, clock, alone):
    inbox = consumer(queue).__enter__()
    late = settle_late(queue, clock, inbox)
    with pytest.raises(quiver.ReceiptExpired) as refusal:
        inbox.close()
    assert [one.id for one in refusal.value.refused] == [late.id]
    inbox.close()


def test_what_is_gone_with_its_topic_is_refused(queue, alone):
    queue.create_topic("gone")
    queue.send("gone", "0")
    inbox = queue.consumer("gone", "g", acks="background", lease=LEASE).__enter__()
    take(inbox)[0].ack()
    queue.delete_topic("gone")
    with pytest.raises(quiver.ReceiptExpired):
        inbox.flush()
    with suppress(quiver.TopicNotFound):
        inbox.close()


def refused_of(inbox: Any) -> list[Any]:
    return getattr(inbox, "_inner", inbox)._stock.acks.refused


def next_of(inbox: Any) -> Any:
    return next(inbox) if hasattr(type(inbox), "__next__") else inbox.__anext__()


# -- together with other things --------------------------------------------------------------------


def test_what_else_is_said_of_a_message_comes_after_what_was_acked_before(queue, alone):
    queue.send_batch("t", ["0", "1", "2", "3"])
    with consumer(queue) as inbox:
        first, second, third, fourth = take(inbox, 4)
        first.ack()
        second.nack(delay=5)
        assert lag(queue) == 3
        third.ack()
        fourth.extend(LEASE)
        assert lag(queue) == 2


@pytest.mark.parametrize("action", ["nack", "dead_letter", "release", "extend"])
def test_nothing_else_can_be_done_with_what_was_acked(queue, alone, action):
    queue.send("t", "0")
    options = {"lease": LEASE} if action == "extend" else {}
    with consumer(queue) as inbox:
        (one,) = take(inbox)
        one.ack()
        with pytest.raises(quiver.InvalidRequest, match="acked already"):
            getattr(one, action)(**options)
        with pytest.raises(quiver.InvalidRequest, match="acked already"):
            getattr(queue, action)([one], **options)
    assert lag(queue) == 0


def test_to_ack_it_again_is_harmless(queue, alone):
    queue.send_batch("t", ["0", "1"])
    with consumer(queue) as inbox:
        first, second = take(inbox, 2)
        first.ack()
        first.ack()
        queue.ack([first, second])
        assert lag(queue) == 1
        inbox.flush()
        first.ack()
        assert lag(queue) == 0


def test_a_transaction_comes_after_what_was_acked_before(queue, alone):
    queue.create_topic("out")
    queue.send_batch("t", ["0", "1"])
    with consumer(queue) as inbox:
        first, second = take(inbox, 2)
        first.ack()
        with queue.transaction() as tx:
            tx.ack(second)
            tx.send("out", "done")
        assert lag(queue) == 0


def test_what_was_acked_cannot_be_in_a_transaction(queue, alone):
    queue.send("t", "0")
    with consumer(queue) as inbox:
        (one,) = take(inbox)
        one.ack()
        with (
            pytest.raises(quiver.InvalidRequest, match="acked already"),
            queue.transaction() as tx,
        ):
            tx.ack([one])
    assert lag(queue) == 0


# -- order -----------------------------------------------------------------------------------------


@pytest.fixture(params=["key", "partition"])
def ordered(queue: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    queue.create_topic("o", order=request.param, partitions=1)
    queue.send_batch("o", [quiver.Message(str(at), key="k") for at in range(20)])
    return queue


@pytest.mark.parametrize("prefetch", [0, 1, 10])
def test_what_holds_up_its_key_goes_when_the_next_is_wanted(ordered, alone, prefetch):
    with ordered.consumer("o", "g", prefetch=prefetch, lease=LEASE, acks="background") as inbox:
        for at in range(20):
            (one,) = take(inbox)
            assert one.text == str(at)
            one.ack()
    assert ordered.groups("o")["g"].lag == 0


def test_what_holds_up_its_key_goes_when_somebody_else_waits(world, ordered, alone):
    with ordered.consumer("o", "g", prefetch=1, lease=LEASE, acks="background") as inbox:
        (one,) = take(inbox)
        for at in range(1, 20):
            waiting = world.in_background(inbox.get, wait=PATIENCE_SECONDS)
            one.ack()
            one = waiting.result()
            assert one.text == str(at)


def test_two_consumers_share_the_work(queue):
    count = 400
    queue.send_batch("t", [str(at) for at in range(count)])

    def work(inbox: Any) -> list[str]:
        found = []
        while (one := inbox.get(wait=1)) is not None:
            found.append(one.text)
            one.ack()
        return found

    with (
        consumer(queue, prefetch=20) as first,
        consumer(queue, prefetch=20) as second,
        ThreadPoolExecutor(4) as pool,
    ):
        found = [one for got in pool.map(work, [first, second] * 2) for one in got]
    assert sorted(found, key=int) == [str(at) for at in range(count)]
    stats = queue.groups("t")["g"]
    assert (stats.lag, stats.in_flight, stats.redelivered) == (0, 0, 0)

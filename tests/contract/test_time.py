"""Delay and time to live."""

from datetime import timedelta

import pytest

import quiver
from tests.contract.verbs import bodies, drain, nothing, take


@pytest.mark.parametrize("delay", [30, 30.0, "30s", "0.5m", timedelta(seconds=30)])
def test_a_delayed_message_is_delivered_when_it_is_due(queue, clock, delay):
    queue.send("t", b"later", delay=delay)
    queue.send("t", b"now")
    assert drain(queue) == [b"now"]
    assert queue.stats("t").delayed == 1
    clock.advance(29.999)
    assert nothing(queue)
    clock.advance(0.001)
    assert take(queue).body == b"later"
    assert queue.stats("t").delayed == 0


def test_a_delay_may_be_years(queue, clock):
    queue.send("t", b"x", delay="3650d")
    clock.advance(3650 * 86_400 - 1)
    assert nothing(queue)
    clock.advance(1)
    assert take(queue).body == b"x"


def test_delayed_messages_come_in_the_order_they_are_due(queue, clock):
    for delay in (3, 1, 2):
        queue.send("t", str(delay), delay=delay)
    seen = []
    for _ in range(3):
        clock.advance(1)
        seen += drain(queue)
    assert seen == [b"1", b"2", b"3"]


def test_messages_of_one_batch_have_their_own_delays(queue, clock):
    queue.send_batch("t", [quiver.Message(b"later", delay=5), quiver.Message(b"now")])
    assert drain(queue) == [b"now"]
    clock.advance(5)
    assert drain(queue) == [b"later"]


def test_a_message_past_its_time_to_live_is_not_delivered(queue, clock):
    queue.send("t", b"short", ttl=10)
    queue.send("t", b"long", ttl="1h")
    queue.create_group("t", "g")
    clock.advance(10)
    assert drain(queue) == [b"long"]
    stats = queue.groups("t")["g"]
    assert (stats.expired, stats.lag) == (1, 0)


def test_a_message_leased_in_its_lifetime_may_be_acked_after_it(queue, clock):
    queue.send("t", b"x", ttl=10)
    got = take(queue, lease=60)
    clock.advance(20)
    got.ack()
    assert queue.groups("t")["g"].acked == 1


def test_a_message_given_back_after_its_lifetime_is_gone(queue, clock):
    queue.send("t", b"x", ttl=10)
    got = take(queue, lease=60)
    clock.advance(20)
    got.nack()
    assert nothing(queue)
    assert queue.stats("t").depth == 0


def test_a_message_that_expires_before_it_is_due_is_never_seen(queue, clock):
    queue.create_group("t", "g")
    queue.send("t", b"x", delay=20, ttl=10)
    clock.advance(30)
    assert nothing(queue)
    assert queue.stats("t").depth == 0


def test_a_blocked_key_goes_on_when_its_delayed_head_expires(queue, clock):
    queue.create_topic("k", order="key")
    queue.send("k", b"first", key="a", delay=100, ttl=10)
    queue.send("k", b"second", key="a")
    assert nothing(queue, "k")
    clock.advance(10)
    assert bodies(queue.receive("k", "g")) == [b"second"]

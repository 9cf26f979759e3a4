"""Durations may be a timedelta, moments a datetime, wherever one is taken."""

from datetime import timedelta

import pytest

import quiver
from tests.contract.verbs import bodies, drain, take

MINUTE = timedelta(minutes=1)


def test_the_settings_of_a_topic_take_a_timedelta(queue):
    queue.create_topic("s", retention=MINUTE, retry=MINUTE, dedup_window=MINUTE, max_attempts=2)
    policy = queue.policy("s")
    assert (policy.retention.time_ms, policy.dedup_window_ms) == (60_000, 60_000)
    assert (policy.retry.kind, policy.retry.base_ms) == ("fixed", 60_000)
    queue.alter_topic("s", retention=2 * MINUTE, retry=quiver.retry("linear", MINUTE, 2 * MINUTE))
    policy = queue.policy("s")
    assert policy.retention.time_ms == 120_000
    assert (policy.retry.base_ms, policy.retry.cap_ms) == (60_000, 120_000)


def test_sending_takes_a_timedelta(queue, clock):
    queue.send("t", b"a", delay=MINUTE)
    queue.send_batch(
        "t", [quiver.Message(b"b", delay=2 * MINUTE), quiver.Message(b"c", ttl=MINUTE)]
    )
    with queue.transaction() as tx:
        tx.send("t", b"d", delay=3 * MINUTE)
    seen = []
    for _ in range(3):
        clock.advance(60)
        seen += drain(queue)
    assert seen == [b"a", b"b", b"d"]


def test_leases_and_waits_take_a_timedelta(queue, clock):
    queue.send("t", b"x")
    delivery = take(queue, lease=MINUTE, wait=timedelta(0))
    delivery.extend(2 * MINUTE)
    clock.advance(119)
    assert not queue.receive("t", "g")
    delivery.nack(delay=MINUTE)
    clock.advance(60)
    assert take(queue).attempt == 2


@pytest.mark.python
def test_helpers_take_a_timedelta(queue):
    with queue.producer("t", linger=MINUTE) as out:
        out.send(b"x", ttl=MINUTE)
    queue.create_group("t", "m")
    with queue.join("t", "m", "one", session=MINUTE) as member:
        assert bodies(member.fetch(wait=MINUTE)) == [b"x"]


def test_positions_take_a_datetime(queue, clock):
    queue.send("t", b"old")
    clock.advance(60)
    queue.send("t", b"new")
    moment = next(record.created_at for record in queue.read("t") if record.body == b"new")
    assert bodies(queue.read("t", start=moment)) == [b"new"]
    assert bodies(queue.read("t", end=moment)) == [b"old"]
    queue.create_group("t", "g", start=moment)
    assert take(queue).body == b"new"
    queue.seek("t", "g", moment - MINUTE)
    assert take(queue).body == b"old"
    assert queue.ledger("t", start=moment).num_rows < queue.ledger("t").num_rows

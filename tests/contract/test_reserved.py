"""Reserved, begun, released: the same through every door."""

import pytest

import quiver
from quiver import limits

OWN_SECONDS = limits.RESERVED_MS_MIN / 1000


def figures(queue):
    stats = queue.groups("t")["g"]
    return stats.delivered, stats.in_flight, stats.reserved, stats.released


def test_what_is_reserved_is_no_attempt_before_it_begins(queue):
    queue.send_batch("t", ["0", "1", "2"])
    got = queue.receive("t", "g", max_messages=3, begin=1)
    assert [(one.text, one.attempt, one.reserved) for one in got] == [
        ("0", 1, False), ("1", 1, True), ("2", 1, True),
    ]  # fmt: skip
    assert figures(queue) == (1, 3, 2, 0)
    got[1].begin()
    assert figures(queue) == (2, 3, 1, 0)
    queue.release(got)
    assert figures(queue) == (2, 0, 0, 3)
    again = queue.receive("t", "g", max_messages=3)
    assert [(one.text, one.attempt) for one in again] == [("0", 1), ("1", 1), ("2", 1)]


def test_receipts_as_text_begin_and_release(queue):
    queue.send_batch("t", ["0", "1"])
    got = queue.receive("t", "g", max_messages=2, begin=0)
    texts = [one.receipt for one in got]
    queue.begin(texts, lease="1m")
    assert figures(queue) == (2, 2, 0, 0)
    queue.release(texts[1], delay="5m")
    assert queue.groups("t")["g"].delayed == 1
    queue.ack(texts[0])
    with pytest.raises(quiver.ReceiptExpired):
        queue.begin(texts)


def test_to_begin_may_hold_it_for_longer(queue, clock):
    queue.send("t", "0")
    (got,) = queue.receive("t", "g", lease=10, begin=0)
    clock.advance(9)
    got.begin(lease=10)
    clock.advance(9)
    got.ack()
    assert queue.groups("t")["g"].timed_out == 0


def test_who_waits_takes_over_what_others_have_not_begun(world, queue, clock):
    queue.send_batch("t", ["0", "1"])
    first, second = queue.receive("t", "g", max_messages=2, lease=600, begin=1)
    waiting = world.in_background(queue.receive, "t", "g", wait=60)
    clock.advance(OWN_SECONDS)
    (taken,) = waiting.result()
    assert (taken.text, taken.attempt) == ("1", 1)
    for action in (second.begin, second.ack):
        with pytest.raises(quiver.ReceiptExpired) as refusal:
            action()
        assert len(refusal.value.refused) == 1
    taken.ack()
    first.ack()
    assert figures(queue) == (2, 0, 0, 1)


def test_at_most_once_what_is_reserved_is_settled_when_it_begins(queue):
    queue.create_group("t", "g", guarantee="at-most-once")
    queue.send_batch("t", ["0", "1", "2"])
    _, second, third = queue.receive("t", "g", max_messages=3, begin=1)
    assert queue.groups("t")["g"].lag == 2
    second.begin()
    assert queue.groups("t")["g"].lag == 1
    third.release()
    (again,) = queue.receive("t", "g", max_messages=3)
    assert again.text == "2"
    assert queue.groups("t")["g"].lag == 0


@pytest.mark.parametrize("wish", [{"begin": -1}, {"begin": 0, "wait": 1}, {"begin": "all"}])
def test_wrong_arguments(queue, wish):
    with pytest.raises(quiver.InvalidRequest):
        queue.receive("t", "g", **wish)


@pytest.mark.python
def test_rows_of_a_table_begin_and_are_released(queue):
    queue.send_batch("t", ["0", "1", "2"])
    batch = queue.receive_arrow("t", "g", begin=1)
    assert (len(batch), batch.reserved) == (3, 2)
    batch.begin([False, True, False])
    assert figures(queue) == (2, 3, 1, 0)
    batch.ack([True, True, False])
    batch.release([False, False, True], delay=5)
    assert queue.groups("t")["g"].delayed == 1
    assert figures(queue) == (2, 0, 0, 1)


@pytest.mark.python
def test_the_story_of_what_was_taken_over(queue, clock):
    sent = queue.send("t", "0")
    queue.receive("t", "g", lease=600, begin=0, consumer="slow")
    clock.advance(OWN_SECONDS)
    (got,) = queue.receive("t", "g", consumer="idle")
    got.ack()
    rows = queue.trace(sent.id).to_pylist()
    assert [(row["event"], row["consumer"], row["attempt"]) for row in rows[1:]] == [
        ("reserved", "slow", None), ("released", "slow", None), ("leased", "idle", 1),
        ("acked", "idle", 1),
    ]  # fmt: skip

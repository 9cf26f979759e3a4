"""Send, receive, settle: one message's way, and what leases promise."""

import pytest

import quiver
from tests.contract.verbs import bodies, drain, nothing, take


def test_what_is_sent_is_received_and_gone_when_acked(queue):
    sent = queue.send("t", b"hello", key="k", headers={"v": "1"}, priority=3)
    got = take(queue)
    assert (got.topic, got.body, got.key, got.headers) == ("t", b"hello", "k", {"v": "1"})
    assert (got.id, got.partition, got.offset) == (sent.id, sent.partition, sent.offset)
    assert (got.attempt, got.priority, got.group, got.origin) == (1, 3, "g", None)
    got.ack()
    assert nothing(queue)
    assert queue.stats("t").depth == 0


def test_messages_come_in_the_order_they_were_sent(queue):
    for at in range(5):
        queue.send("t", str(at))
    queue.send_batch("t", [str(at) for at in range(5, 10)])
    assert drain(queue) == [str(at).encode() for at in range(10)]


def test_a_receive_gets_at_most_what_it_asks_for(queue):
    queue.send_batch("t", [b"x"] * 10)
    assert [len(queue.receive("t", "g", max_messages=4)) for _ in range(4)] == [4, 4, 2, 0]


def test_a_leased_message_is_not_given_to_another_consumer_of_the_group(queue):
    queue.send("t", b"x")
    take(queue, consumer="one")
    assert queue.receive("t", "g", consumer="two") == []


def test_a_message_whose_lease_ends_is_delivered_again_with_the_next_attempt(queue, clock):
    queue.send("t", b"x")
    assert take(queue, lease=10).attempt == 1
    clock.advance(9.999)
    assert nothing(queue)
    clock.advance(0.001)
    again = take(queue, lease="10s")
    assert (again.body, again.attempt) == (b"x", 2)
    assert queue.groups("t")["g"].timed_out == 1


def test_a_receipt_of_an_ended_lease_is_fenced_and_changes_nothing(queue, clock):
    queue.send("t", b"x")
    old = take(queue, lease=1)
    clock.advance(1)
    new = take(queue, lease=100)
    for refused in (old.ack, old.nack, lambda: old.extend(60)):
        with pytest.raises(quiver.ReceiptExpired, match="lease ended"):
            refused()
    assert old.epoch < new.epoch
    new.ack()
    assert queue.groups("t")["g"].acked == 1


def test_a_receipt_works_as_text_and_from_elsewhere(queue):
    queue.send_batch("t", [b"a", b"b"])
    receipts = [delivery.receipt for delivery in queue.receive("t", "g", max_messages=2)]
    queue.ack(receipts)
    assert queue.stats("t").depth == 0


def test_a_message_acked_twice_is_refused_the_second_time(queue):
    queue.send("t", b"x")
    got = take(queue)
    got.ack()
    with pytest.raises(quiver.ReceiptExpired, match="settled already"):
        got.ack()


def test_of_many_receipts_those_that_hold_are_settled_and_the_rest_is_reported(queue):
    queue.send_batch("t", [b"a", b"b", b"c"])
    got = queue.receive("t", "g", max_messages=3)
    got[1].ack()
    with pytest.raises(quiver.ReceiptExpired, match=r"1 of 3 .* other 2 were settled"):
        queue.ack(got)
    assert queue.stats("t").depth == 0


def test_deliveries_of_several_topics_and_groups_are_acked_in_one_call(queue):
    queue.create_topic("u")
    queue.create_group("t", "h")
    queue.send("t", b"x")
    queue.send("u", b"y")
    queue.ack([take(queue), take(queue, "u"), take(queue, "t", "h")])
    assert queue.stats("t").depth == queue.stats("u").depth == 0


def test_a_nacked_message_comes_back_at_once_without_a_retry_policy(queue):
    queue.send("t", b"x")
    take(queue).nack()
    assert take(queue).attempt == 2
    assert queue.groups("t")["g"].nacked == 1


def test_a_nack_with_a_delay_holds_the_message_back_that_long(queue, clock):
    queue.send("t", b"x")
    take(queue).nack(delay="5s", reason="not yet")
    assert queue.groups("t")["g"].delayed == 1
    clock.advance(4.999)
    assert nothing(queue)
    clock.advance(0.001)
    assert take(queue).attempt == 2


def test_extending_a_lease_counts_from_now(queue, clock):
    queue.send("t", b"x")
    got = take(queue, lease=10)
    clock.advance(8)
    got.extend(10)
    clock.advance(9)
    assert nothing(queue)
    clock.advance(1)
    assert take(queue).attempt == 2


def test_extending_may_also_shorten_a_lease(queue, clock):
    queue.send("t", b"x")
    take(queue, lease=1000).extend(1)
    clock.advance(1)
    assert take(queue).attempt == 2


def test_extending_some_of_a_lease_leaves_the_rest_as_it_was(queue, clock):
    queue.send_batch("t", [b"a", b"b", b"c"])
    got = queue.receive("t", "g", max_messages=3, lease=10)
    queue.extend([got[1]], 100)
    clock.advance(10)
    assert bodies(queue.receive("t", "g", max_messages=9)) == [b"a", b"c"]
    got[1].ack()


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        (quiver.retry("fixed", 2, jitter=False), [2, 2, 2, 2]),
        (quiver.retry("linear", 2, jitter=False), [2, 4, 6, 8]),
        (quiver.retry("exponential", 2, "10s", jitter=False), [2, 4, 8, 10]),
        (3, [3, 3, 3]),
        ("5s", [5, 5]),
    ],
)
def test_failed_messages_wait_as_the_retry_policy_says(queue, clock, policy, waits):
    queue.create_topic("r", retry=policy)
    queue.send("r", b"x")
    for attempt, wait in enumerate(waits, 1):
        got = take(queue, "r")
        assert got.attempt == attempt
        got.nack()
        clock.advance(wait - 0.001)
        assert nothing(queue, "r")
        clock.advance(0.001)


def test_a_jittered_retry_waits_between_half_of_the_step_and_all_of_it(queue, clock):
    queue.create_topic("r", retry=quiver.retry("fixed", 100, jitter=True))
    queue.send_batch("r", [str(at) for at in range(50)])
    for delivery in queue.receive("r", "g", max_messages=50):
        delivery.nack()
    clock.advance(49.999)
    assert nothing(queue, "r")
    clock.advance(25)
    early = len(queue.receive("r", "g", max_messages=50))
    clock.advance(25.001)
    late = len(queue.receive("r", "g", max_messages=50))
    assert early + late == 50
    assert early > 0
    assert late > 0


def test_the_delay_of_a_nack_goes_before_the_retry_policy(queue, clock):
    queue.create_topic("r", retry=100)
    queue.send("r", b"x")
    take(queue, "r").nack(delay=0)
    assert take(queue, "r").attempt == 2


def test_groups_are_independent(queue):
    queue.create_group("t", "two")
    queue.send("t", b"x")
    take(queue, "t", "one").ack()
    assert nothing(queue, "t", "one")
    assert take(queue, "t", "two").attempt == 1
    assert queue.stats("t").depth == 1


def test_a_message_goes_when_the_slowest_group_has_settled_it(queue):
    queue.create_group("t", "one")
    queue.create_group("t", "two")
    queue.send("t", b"x")
    take(queue, "t", "one").ack()
    assert queue.stats("t").stored == 1
    take(queue, "t", "two").ack()
    assert queue.stats("t").stored == 0


@pytest.mark.python
def test_an_at_most_once_group_settles_when_it_delivers(queue, clock):
    queue.create_group("t", "g", guarantee="at-most-once")
    queue.send("t", b"x")
    got = take(queue, lease=1)
    assert queue.stats("t").depth == 0
    clock.advance(2)
    assert nothing(queue)
    got.ack()  # nothing to do, and no error: the same consumer code serves both guarantees


def test_creating_the_same_topic_again_changes_nothing(queue):
    queue.create_topic("p", partitions=3)
    queue.send("p", b"x")
    queue.create_topic("p", partitions=3)
    assert queue.stats("p").depth == 1
    assert queue.policy("p").partitions == 3


def test_creating_a_topic_with_another_policy_is_refused(queue):
    with pytest.raises(quiver.TopicExists, match="another policy"):
        queue.create_topic("t", partitions=3)
    assert queue.policy("t").partitions == 1


def test_topics_are_listed_by_name(queue):
    queue.create_topic("a", max_attempts=1)
    assert queue.topics() == ["a", "a.dlq", "t"]

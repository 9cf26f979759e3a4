"""The promises that every door can make, SQS's too: said with what they have in common.

The other files of this folder say the rest through the doors that can express it.
"""

import pytest

import quiver


@pytest.fixture
def queue(world):
    world.queue.create_topic("t")
    return world.queue


def bodies(deliveries):
    return [delivery.body.decode() for delivery in deliveries]


def take(queue, topic="t", **wish):
    (delivery,) = queue.receive(topic, **wish)
    return delivery


def depth(queue, topic="t"):
    return queue.depth(topic) if hasattr(queue, "depth") else queue.stats(topic).depth


def test_what_is_sent_is_received_with_its_headers(queue):
    queue.send("t", "hello, wörld", headers={"v": "1"})
    got = take(queue)
    assert (got.body.decode(), got.headers, got.attempt) == ("hello, wörld", {"v": "1"}, 1)


def test_what_is_acked_is_gone(queue):
    queue.send("t", "x")
    take(queue).ack()
    assert queue.receive("t") == []
    assert depth(queue) == 0


def test_what_is_received_is_nobody_elses(queue):
    queue.send("t", "x")
    take(queue)
    assert queue.receive("t") == []


def test_what_is_not_acked_in_time_comes_again(queue, clock):
    queue.send("t", "x")
    take(queue, lease=10)
    clock.advance(9.9)
    assert queue.receive("t") == []
    clock.advance(0.1)
    assert take(queue).attempt == 2


def test_what_failed_comes_again_at_once(queue):
    queue.send("t", "x")
    take(queue).nack()
    assert take(queue).attempt == 2


def test_what_failed_comes_again_after_a_delay(queue, clock):
    queue.send("t", "x")
    take(queue).nack(delay=5)
    clock.advance(4)
    assert queue.receive("t") == []
    clock.advance(1)
    assert take(queue).attempt == 2


def test_a_lease_can_be_made_longer(queue, clock):
    queue.send("t", "x")
    got = take(queue, lease=10)
    clock.advance(8)
    got.extend(10)
    clock.advance(9)
    assert queue.receive("t") == []
    got.ack()
    assert depth(queue) == 0


def test_a_lease_can_be_made_shorter(queue, clock):
    queue.send("t", "x")
    take(queue, lease=1000).extend(1)
    clock.advance(1)
    assert take(queue).attempt == 2


def test_a_delayed_message_waits_for_its_time(queue, clock):
    queue.send("t", "later", delay=60)
    queue.send("t", "now")
    assert bodies(queue.receive("t", max_messages=5, lease=100)) == ["now"]
    assert depth(queue) == 2
    clock.advance(60)
    assert bodies(queue.receive("t", max_messages=5)) == ["later"]


def test_many_are_sent_received_and_acked_at_once(queue):
    queue.send_batch("t", [str(at) for at in range(25)])
    assert depth(queue) == 25
    found = []
    while got := queue.receive("t", max_messages=10):
        assert len(got) <= 10
        found += bodies(got)
        queue.ack(got)
    assert found == [str(at) for at in range(25)]
    assert depth(queue) == 0


def test_a_receive_gets_at_most_what_it_asks_for(queue):
    queue.send_batch("t", ["x"] * 5)
    assert [len(queue.receive("t", max_messages=2)) for _ in range(4)] == [2, 2, 1, 0]


def test_a_receive_waits_for_the_first_message(queue, world):
    waiting = world.in_background(queue.receive, "t", wait=20)
    queue.send("t", "x")
    assert bodies(waiting.result()) == ["x"]


def test_a_receive_that_waited_in_vain_gets_nothing(queue, world, clock):
    waiting = world.in_background(queue.receive, "t", wait=20)
    clock.advance(20)
    assert waiting.result() == []


def test_what_fails_too_often_is_a_dead_letter(queue):
    queue.create_topic("r", max_attempts=2, dead_letter="r-dead")
    queue.send("r", "poison")
    take(queue, "r").nack()
    take(queue, "r").nack()
    assert queue.receive("r") == []
    assert take(queue, "r-dead").body == b"poison"


def test_dead_letters_can_be_sent_back(queue):
    queue.create_topic("r", max_attempts=1, dead_letter="r-dead")
    queue.send("r", "poison")
    take(queue, "r").nack()
    assert queue.receive("r") == []
    assert depth(queue, "r-dead") == 1
    queue.redrive("r-dead")
    assert depth(queue, "r-dead") == 0
    assert take(queue, "r").body == b"poison"


def test_messages_of_a_key_come_in_order_one_at_a_time(queue):
    queue.create_topic("k", order="key")
    for key, body in [("ann", "a1"), ("ann", "a2"), ("bob", "b1")]:
        queue.send("k", body, key=key)
    first = take(queue, "k")
    assert first.body == b"a1"
    assert bodies(queue.receive("k")) == ["b1"]
    assert queue.receive("k") == []
    first.ack()
    assert bodies(queue.receive("k")) == ["a2"]


def test_a_failed_message_keeps_its_place_before_others_of_its_key(queue):
    queue.create_topic("k", order="key")
    queue.send("k", "a1", key="ann")
    queue.send("k", "a2", key="ann")
    take(queue, "k").nack()
    assert (take(queue, "k").body, queue.receive("k")) == (b"a1", [])


def test_a_dedup_id_is_stored_once(queue):
    queue.create_topic("k", order="key")
    for _ in range(3):
        queue.send("k", "x", key="ann", dedup_id="once")
    assert depth(queue, "k") == 1


def test_a_purged_topic_is_empty(queue):
    queue.send_batch("t", ["a", "b"])
    queue.purge("t")
    assert queue.receive("t") == []
    assert depth(queue) == 0


def test_topics_are_made_listed_and_deleted(queue):
    queue.create_topic("u")
    queue.create_topic("u")
    assert queue.topics() == ["t", "u"]
    queue.delete_topic("u")
    assert queue.topics() == ["t"]
    with pytest.raises(quiver.TopicNotFound):
        queue.send("u", "x")


def test_what_was_confirmed_is_there_after_a_restart(queue, world):
    queue.send_batch("t", ["a", "b"])
    take(queue).ack()
    queue = world.reopen()
    assert bodies(queue.receive("t", max_messages=5)) == ["b"]

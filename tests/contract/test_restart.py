"""A restart keeps everything, whether it comes from the log or from a snapshot."""

from dataclasses import replace

import pytest

import quiver
from quiver import Message
from tests.contract.verbs import bodies, drain, nothing, take


@pytest.fixture(params=["log", "snapshot"])
def restart(request, world):
    return world.reopen if request.param == "log" else world.snapshot_and_reopen


def test_topics_policies_and_messages_are_kept(world, queue, restart):
    policy = {
        "partitions": 3, "order": "key", "fair": True, "retention": "7d", "max_attempts": 4,
        "dead_letter": "graves", "retry": quiver.retry("linear", 2, 9), "dedup_window": 77,
        "max_backlog": 1_000, "compression": "zstd",
    }  # fmt: skip
    queue.create_topic("p", **policy)
    queue.create_topic("r", partitions=2, partition_by=["m"])
    before = {topic: queue.policy(topic) for topic in queue.topics()}
    queue.send_batch(
        "p", [Message(str(at), key=str(at % 3), headers={"n": "1"}) for at in range(9)]
    )
    queue = restart()
    assert {topic: queue.policy(topic) for topic in queue.topics()} == before
    queue.create_topic("p", **policy)
    assert sorted(drain(queue, "p")) == [str(at).encode() for at in range(9)]


def test_leases_and_their_receipts_are_kept(queue, clock, restart):
    queue.send_batch("t", [b"a", b"b", b"c"])
    got = queue.receive("t", "g", max_messages=2, lease=60)
    receipts = [x.receipt for x in got]
    queue = restart()
    clock.advance(30)
    assert take(queue).body == b"c"
    queue.ack(receipts[0])
    with pytest.raises(quiver.ReceiptExpired):
        queue.ack(receipts[0])
    clock.advance(30)
    again = queue.receive("t", "g", max_messages=9)
    assert [(x.body, x.attempt) for x in again] == [(b"b", 2), (b"c", 2)]
    with pytest.raises(quiver.ReceiptExpired):
        queue.ack(receipts[1])


def test_what_was_acked_is_not_delivered_again(queue, restart):
    queue.send_batch("t", [str(at) for at in range(10)])
    got = queue.receive("t", "g", max_messages=10)
    queue.ack(got[::2])
    queue.nack(got[1::2])
    queue = restart()
    assert drain(queue) == [b"1", b"3", b"5", b"7", b"9"]


def test_delays_lives_and_retries_are_kept(queue, clock, restart):
    queue.send("t", b"later", delay=100)
    queue.send("t", b"short", ttl=50)
    queue.send("t", b"failed")
    got = queue.receive("t", "g", max_messages=9)
    queue.nack(got, delay=60)
    queue = restart()
    clock.advance(59)
    assert nothing(queue)
    clock.advance(1)
    assert [(x.body, x.attempt) for x in queue.receive("t", "g", max_messages=9)] == [
        (b"failed", 2)
    ]
    clock.advance(40)
    assert b"later" in bodies(queue.receive("t", "g", max_messages=9))
    assert queue.groups("t")["g"].expired == 1


def test_attempts_go_on_counting_to_the_dead_letter(queue, restart):
    queue.create_topic("d", max_attempts=3)
    queue.send("d", b"x")
    take(queue, "d").nack()
    queue = restart()
    assert take(queue, "d").attempt == 2
    queue = restart()
    assert nothing(queue, "d")


def test_dead_letters_and_their_origin_are_kept(queue, clock, restart):
    queue.create_topic("d", max_attempts=1)
    queue.send("d", b"x", key="k")
    take(queue, "d").nack(reason="why")
    when = clock.now_ms()
    queue = restart()
    assert take(queue, "d.dlq").origin == quiver.Origin("d", 0, 0, "g", 1, "why", when)
    queue = restart()
    clock.advance(60)
    assert queue.redrive("d.dlq") == 1
    queue = restart()
    assert take(queue, "d").key == "k"


def test_the_dedup_window_is_kept_also_for_settled_messages(queue, clock, restart):
    first = queue.send("t", b"x", dedup_id="a")
    drain(queue)
    queue = restart()
    clock.advance(299)
    again = queue.send("t", b"x", dedup_id="a")
    assert (again.duplicate, again.id) == (True, first.id)
    clock.advance(1)
    queue = restart()
    assert not queue.send("t", b"x", dedup_id="a").duplicate


def test_named_producers_are_kept(queue, restart):
    with queue.producer("t", name="import") as out:
        out.send(b"0")
        out.send(b"1")
    queue = restart()
    with queue.producer("t", name="import") as out:
        assert out.sequence == 2
        out.send(b"2")
    assert drain(queue) == [b"0", b"1", b"2"]


def test_priorities_and_order_are_kept(queue, restart):
    queue.create_topic("k", order="key")
    for body, priority in (("a1", 1), ("a2", 9), ("b1", 5), ("c1", 7)):
        queue.send("k", body, key=body[0], priority=priority)
    first = take(queue, "k", max_messages=1)
    assert first.body == b"c1"
    queue = restart()
    assert drain(queue, "k") == [b"b1", b"a1", b"a2"]


def test_groups_their_position_guarantee_and_pause_are_kept(queue, restart):
    queue.create_group("t", "once", guarantee="at-most-once")
    queue.create_group("t", "late", start="latest")
    queue.create_group("t", "still")
    queue.send("t", b"x")
    queue.pause("t", "still")
    queue.create_group("t", "later", start="latest")
    before = queue.groups("t")
    queue = restart()
    assert queue.groups("t") == before
    assert queue.groups("t")["once"].guarantee == "at-most-once"
    assert nothing(queue, "t", "still")
    assert nothing(queue, "t", "later")
    assert drain(queue, "t", "late") == [b"x"]


def test_members_and_their_commits_are_kept(queue, clock, restart):
    queue.create_topic("p", partitions=2, partition_by=["m"])
    queue.send_batch("p", [Message(b"a", key="a"), Message(b"z", key="z")])
    member = queue.join("p", "g", "m1", session=60)
    member.fetch(max_messages=1)
    member.commit()
    queue = restart()
    assert queue.groups("p")["g"].members == 1
    back = queue.join("p", "g", "m1", session=60)
    assert back.partitions == [0, 1]
    assert len(back.fetch()) == 1
    clock.advance(61)
    assert queue.groups("p")["g"].members == 0


def test_stats_are_kept(queue, clock, restart):
    queue.create_topic("d", max_attempts=1)
    queue.send_batch("d", [b"a", b"b", b"c"])
    got = queue.receive("d", "g", max_messages=2)
    got[0].ack()
    got[1].nack()
    queue.send("d", b"x", dedup_id="i")
    queue.send("d", b"x", dedup_id="i")
    clock.advance(5)
    before = queue.stats("d")
    queue = restart()
    after = queue.stats("d")
    assert after.stored <= before.stored, "a snapshot lets go of what is settled"
    assert replace(after, stored=0, stored_bytes=0) == replace(before, stored=0, stored_bytes=0)


def test_a_deleted_topic_stays_deleted_and_its_receipts_invalid(queue, restart):
    queue.send("t", b"old")
    receipt = take(queue).receipt
    queue.delete_topic("t")
    queue = restart()
    assert queue.topics() == []
    queue.create_topic("t")
    queue.send("t", b"new")
    take(queue)
    with pytest.raises(quiver.ReceiptInvalid):
        queue.ack(receipt)


def test_transactions_are_kept_whole(queue, restart):
    queue.create_topic("out")
    queue.send("t", b"in")
    with queue.transaction() as transaction:
        transaction.ack(take(queue))
        transaction.send("out", b"1")
        transaction.send("out", b"2")
    queue = restart()
    assert nothing(queue)
    assert drain(queue, "out") == [b"1", b"2"]


def test_history_can_be_read(queue, clock, restart):
    queue.create_topic("h", retention="forever")
    for at in range(3):
        queue.send("h", str(at))
        clock.advance(1)
    drain(queue, "h")
    before = [(x.body, x.id, x.offset, x.created_at) for x in queue.read("h")]
    queue = restart()
    assert [(x.body, x.id, x.offset, x.created_at) for x in queue.read("h")] == before
    queue.seek("h", "g", 1)
    assert drain(queue, "h") == [b"1", b"2"]


def test_time_does_not_go_back(world, queue, clock):
    """A machine whose clock was set back must not end leases early, nor hold delays for years."""
    queue.send("t", b"x", delay=10)
    before = clock.now_ms()
    queue.close()
    world.clock._now_ms = before - 86_400_000
    world.queue = world.door.open(world.path, world.clock)
    assert world.clock.now_ms() >= before
    clock.advance(10)
    assert take(world.queue).body == b"x"


def test_a_purge_is_kept(queue, restart):
    queue.send_batch("t", [b"a", b"b"])
    queue.purge("t")
    queue.send("t", b"c")
    queue = restart()
    assert drain(queue) == [b"c"]


def test_a_queue_can_be_opened_many_times(world, queue):
    for at in range(10):
        world.queue.send("t", str(at))
        if at % 3 == 2:
            world.snapshot_and_reopen()
        else:
            world.reopen()
    assert drain(world.queue) == [str(at).encode() for at in range(10)]


def test_labels_are_kept_with_a_topic_and_can_be_changed(queue, restart):
    queue.create_topic("labelled", labels={"team": "billing", "cost": "µ"})
    queue.create_topic("labelled", labels={"cost": "µ", "team": "billing"})  # the same again
    with pytest.raises(quiver.TopicExists, match="change labels with alter_topic"):
        queue.create_topic("labelled")
    queue.alter_topic("labelled", labels={"team": "stock"})
    queue = restart()
    assert queue.policy("labelled").labels == {"team": "stock"}

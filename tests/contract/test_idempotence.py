"""Sending again without storing again: dedup ids and named producers."""

# ruff: noqa: PT012, SIM117  # what raises here is the end of a block

import pytest

import quiver
from quiver import Message
from tests.contract.verbs import bodies, drain, nothing, take


def test_the_same_dedup_id_is_stored_once(queue):
    first = queue.send("t", b"one", dedup_id="a")
    again = queue.send("t", b"two", dedup_id="a")
    assert (first.duplicate, again.duplicate) == (False, True)
    assert (again.id, again.partition, again.offset) == (first.id, first.partition, first.offset)
    assert drain(queue) == [b"one"]
    stats = queue.stats("t")
    assert (stats.sent, stats.duplicates) == (1, 1)


def test_who_sends_again_to_a_full_topic_is_told_that_it_is_stored(queue):
    queue.create_topic("small", max_backlog=2)
    assert not queue.send("small", b"x", dedup_id="a").duplicate
    queue.send("small", b"y")
    with pytest.raises(quiver.QueueFull):
        queue.send("small", b"z", dedup_id="b")
    assert queue.send("small", b"x", dedup_id="a").duplicate
    with pytest.raises(quiver.QueueFull):
        queue.send_batch("small", [Message(b"x", dedup_id="a"), Message(b"z", dedup_id="b")])
    assert queue.stats("small").sent == 2


def test_a_dedup_id_is_remembered_after_its_message_was_settled(queue):
    queue.send("t", b"x", dedup_id="a")
    assert drain(queue) == [b"x"]
    assert queue.send("t", b"x", dedup_id="a").duplicate
    assert nothing(queue)


def test_a_dedup_id_is_forgotten_after_its_window(queue, clock):
    queue.create_topic("d", dedup_window="60s")
    queue.send("d", b"one", dedup_id="a")
    clock.advance(59.999)
    assert queue.send("d", b"two", dedup_id="a").duplicate
    clock.advance(0.001)
    assert not queue.send("d", b"three", dedup_id="a").duplicate
    assert drain(queue, "d") == [b"one", b"three"]


def test_a_window_of_zero_remembers_nothing(queue):
    queue.create_topic("d", dedup_window=0)
    assert [queue.send("d", b"x", dedup_id="a").duplicate for _ in range(2)] == [False, False]
    assert queue.send_batch("d", [Message(at, dedup_id="b") for at in "123"]).duplicates == 0
    assert drain(queue, "d") == [b"x", b"x", b"1", b"2", b"3"]


def test_a_batch_may_repeat_ids_of_before_and_of_itself(queue):
    queue.send("t", b"0", dedup_id="a")
    sent = queue.send_batch(
        "t", [Message(str(at), dedup_id=dedup_id) for at, dedup_id in enumerate("abbc", 1)]
    )
    assert (sent.count, sent.duplicates) == (2, 2)
    assert drain(queue) == [b"0", b"2", b"4"]


def test_dedup_ids_of_different_topics_have_nothing_to_do_with_each_other(queue):
    queue.create_topic("u")
    assert not queue.send("t", b"x", dedup_id="a").duplicate
    assert not queue.send("u", b"x", dedup_id="a").duplicate


def test_a_purge_does_not_make_old_ids_new(queue):
    queue.send("t", b"x", dedup_id="a")
    queue.purge("t")
    assert queue.send("t", b"x", dedup_id="a").duplicate


@pytest.mark.python
def test_a_named_producer_goes_on_where_its_name_left_off(queue):
    with queue.producer("t", name="import") as out:
        assert out.sequence == 0
        for at in range(5):
            out.send(str(at))
    lines = [str(at) for at in range(8)]
    with queue.producer("t", name="import") as out:
        assert out.sequence == 5
        for line in lines[out.sequence :]:
            out.send(line)
        out.flush()
        assert (out.sequence, out.confirmed) == (8, 3)
    assert drain(queue) == [str(at).encode() for at in range(8)]


@pytest.mark.python
def test_a_newer_producer_of_the_name_fences_the_older(queue):
    with pytest.raises(quiver.ProducerFailed, match="another producer") as failed:
        with queue.producer("t", name="one") as old:
            old.send(b"before")
            old.flush()
            with queue.producer("t", name="one") as new:
                new.send(b"new")
            old.send(b"after")
    assert isinstance(failed.value.__cause__, quiver.ProducerFenced)
    assert [message.body for message in failed.value.unsent] == [b"after"]
    assert drain(queue) == [b"before", b"new"]


@pytest.mark.python
def test_producers_of_different_names_do_not_fence_each_other(queue):
    with queue.producer("t", name="one") as one, queue.producer("t", name="two") as two:
        one.send(b"1")
        two.send(b"2")
    assert sorted(drain(queue)) == [b"1", b"2"]


def test_a_pipeline_of_transactions_processes_each_message_exactly_once(queue, clock):
    """A consumer that dies between receive and commit, again and again, doubles and loses nothing."""
    queue.create_topic("in")
    queue.create_topic("out")
    queue.send_batch("in", [str(at) for at in range(30)])
    round_ = 0
    while queue.stats("in").depth:
        round_ += 1
        assert round_ < 100
        got = queue.receive("in", "g", max_messages=4, lease=1)
        if round_ % 3 == 0:  # it dies: no commit, and its lease ends
            clock.advance(1)
            with pytest.raises(quiver.ReceiptExpired, match="nothing of it was done"):
                with queue.transaction() as late:
                    late.ack(got)
                    late.send_batch("out", [b"late-" + x.body for x in got])
            continue
        with queue.transaction() as transaction:
            transaction.ack(got)
            transaction.send_batch("out", [b"done-" + x.body for x in got])
    assert sorted(drain(queue, "out")) == sorted(f"done-{at}".encode() for at in range(30))


def test_a_lost_reply_may_be_answered_by_sending_again(queue):
    """What a sender does who does not know whether its send arrived."""
    for _ in range(3):
        queue.send("t", b"order", dedup_id="order-17")
    assert bodies([take(queue)]) == [b"order"]
    assert nothing(queue)

"""Producers that batch behind your back: limits, back-pressure, and what was refused."""

# ruff: noqa: PT012, SIM117  # what raises here is the end of a block

import threading

import pytest

import quiver
from quiver import limits
from tests.contract.verbs import bodies, drain


def arrives(world, count=1, topic="t"):
    """What arrives by itself, without a flush."""
    found: list[bytes] = []
    while len(found) < count:
        got = world.queue.receive(topic, "g", max_messages=count)
        found += bodies(got)
        world.queue.ack(got)
    return found


def test_everything_is_stored_when_the_block_ends(queue):
    with queue.producer("t", linger=60) as out:
        for at in range(2_500):
            out.send(str(at), key="k", headers={"v": "1"}, priority=1)
    assert drain(queue) == [str(at).encode() for at in range(2_500)]


def test_flush_returns_when_all_is_stored(queue):
    with queue.producer("t", linger=60) as out:
        out.send(b"x")
        assert (out.sequence, out.confirmed) == (1, 0)
        out.flush()
        assert (out.sequence, out.confirmed) == (1, 1)
        assert queue.stats("t").depth == 1


def test_a_batch_goes_when_it_has_enough_messages(world, queue):
    with queue.producer("t", linger=60, max_messages=3) as out:
        for at in range(4):
            out.send(str(at))
        assert arrives(world, 3) == [b"0", b"1", b"2"]
        assert queue.stats("t").sent == 3


def test_a_batch_goes_when_it_has_enough_bytes(world, queue):
    with queue.producer("t", linger=60, max_bytes=1_000) as out:
        out.send(b"x" * 600)
        assert queue.stats("t").sent == 0
        out.send(b"y" * 600)
        assert len(arrives(world, 2)) == 2


def test_a_batch_goes_when_it_has_lingered(world, queue):
    with queue.producer("t", linger="1ms") as out:
        out.send(b"x")
        assert arrives(world) == [b"x"]


def test_a_producer_holds_no_more_than_its_bound_unconfirmed(queue, monkeypatch):
    monkeypatch.setattr(limits, "PRODUCER_PENDING_BYTES_MAX", 10_000)
    with queue.producer("t", linger=60, max_messages=1) as out:
        for _ in range(200):
            out.send(b"x" * 1_000)
            assert out.sequence - out.confirmed <= 11
    assert queue.stats("t").sent == 200


def test_what_was_refused_is_handed_back(queue):
    queue.create_topic("b", max_backlog=2)
    with pytest.raises(quiver.ProducerFailed, match="2 messages were not stored") as failed:
        with queue.producer("b", linger=60, max_messages=2) as out:
            for at in range(4):
                out.send(str(at), key="k", headers={"v": "1"}, priority=2, ttl=60, dedup_id=str(at))
    assert isinstance(failed.value.__cause__, quiver.QueueFull)
    assert failed.value.unsent == tuple(
        quiver.Message(str(at).encode(), "k", {"v": "1"}, 2, None, 60.0, str(at)) for at in (2, 3)
    )
    drain(queue, "b")
    assert queue.send_batch("b", failed.value.unsent).count == 2


def test_everything_that_was_refused_is_handed_back(queue):
    """Stored and handed back are together what was sent, however many batches were refused."""
    queue.create_topic("b", max_backlog=3)
    back = []
    with pytest.raises(quiver.ProducerFailed) as failed:
        with queue.producer("b", linger=60, max_messages=3) as out:
            for at in range(101):  # so that the last batch goes when the block ends
                try:
                    out.send(str(at))
                except quiver.ProducerFailed as before:
                    back += [message.body for message in before.unsent]
    back += [message.body for message in failed.value.unsent]
    assert (out.sequence, out.confirmed) == (3, 3)
    assert sorted(drain(queue, "b") + back, key=int) == [str(at).encode() for at in range(101)]


def test_a_message_whose_send_raises_was_taken_over(queue):
    """Whoever sends what was handed back, and goes on with the next, has sent each message once."""
    queue.create_topic("b", max_backlog=5)
    back = []
    with queue.producer("b", linger=60, max_messages=1) as out:
        for at in range(20):
            try:
                out.send(str(at))
                if at % 3 == 0:
                    out.flush()
            except quiver.ProducerFailed as failed:
                back += [message.body for message in failed.unsent]
        try:
            out.flush()
        except quiver.ProducerFailed as failed:
            back += [message.body for message in failed.unsent]
    assert sorted(drain(queue, "b") + back, key=int) == [str(at).encode() for at in range(20)]


def test_a_bad_message_is_refused_where_it_is_sent(queue):
    with queue.producer("t") as out:
        out.send(b"good")
        with pytest.raises(quiver.InvalidRequest, match="priority"):
            out.send(b"bad", priority=10)
        out.send(b"good")
    assert drain(queue) == [b"good", b"good"]


def test_a_producer_that_is_closed_takes_nothing(queue):
    with queue.producer("t") as out:
        out.send(b"x")
    with pytest.raises(quiver.QueueClosed, match="producer"):
        out.send(b"y")
    out.close()  # a second time does nothing
    assert drain(queue) == [b"x"]


def test_a_producer_of_a_closed_queue_hands_everything_back(queue, caplog):
    with pytest.raises(quiver.ProducerFailed, match="closed") as failed:
        with queue.producer("t", linger=60) as out, queue.producer("t") as empty:
            out.send(b"x")
            empty.send(b"y")
            empty.flush()
            queue.close()
    assert [message.body for message in failed.value.unsent] == [b"x"]
    (told,) = caplog.messages  # for those who do not ask
    assert told.startswith("1 messages of the producer")
    assert "closed before it" in told


@pytest.mark.python
def test_a_producer_that_nobody_closes_has_no_thread_when_its_queue_is_closed(queue):
    producers = [queue.producer("t", linger=60) for _ in range(3)]
    queue.close()
    for thread in threading.enumerate():
        if thread.name == "quiver-producer":
            thread.join(60)
            assert not thread.is_alive()
    del producers


def test_a_producer_says_what_its_durability_is_worth(queue):
    with queue.producer("t", durability="memory") as out:
        out.send(b"x")
    with pytest.raises(quiver.InvalidRequest, match="durability"):
        with queue.producer("t", durability="quorum"):
            pass
    assert drain(queue) == [b"x"]

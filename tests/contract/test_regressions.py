"""What reviewers broke once: each stays mended, through every door."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import quiver
from quiver import Message
from tests.contract.verbs import bodies, drain, nothing, take


def test_purging_an_empty_topic_again_does_not_swallow_what_comes(queue):
    queue.send_batch("t", [b"x"] * 1024)
    assert queue.purge("t") == 1024
    assert queue.purge("t") == 0
    queue.send_batch("t", [b"%d" % at for at in range(10)])
    assert len(queue.receive("t", "g", max_messages=100)) == 10


def test_a_time_in_the_far_future_does_not_stop_the_queue(queue):
    far = pa.array([datetime(9000, 1, 1, tzinfo=UTC)], pa.timestamp("ms", tz="UTC"))
    body = pa.array([b"x"], pa.binary())
    queue.send_batch("t", pa.record_batch({"body": body, "expires_at": far}))
    queue.send_batch("t", pa.record_batch({"body": body, "deliver_at": far}))
    assert bodies(queue.receive("t", "g", max_messages=9)) == [b"x"]
    assert queue.stats("t").depth == 2


def test_names_and_numbers_of_odd_types_are_taken_as_plain_ones(queue):
    class Name(str):
        __slots__ = ()

    class Number(int):
        pass

    queue.send("t", b"x")
    assert bodies(queue.receive(Name("t"), Name("g"), max_messages=Number(1))) == [b"x"]
    assert queue.stats("t").groups["g"].in_flight == 1


def test_an_expired_message_is_never_delivered_however_many_there_are(queue, clock):
    queue.create_group("t", "g")
    queue.send_batch("t", [Message(b"x", ttl=1)] * 30_000)
    clock.advance(2)
    assert nothing(queue)
    assert queue.stats("t").groups["g"].expired == 30_000


def test_discarding_a_delayed_message_lets_its_successor_go(world, queue):
    queue.create_topic("k", order="key")
    queue.send("k", b"later", key="a", delay=1000)
    queue.send("k", b"next", key="a")
    waiting = world.in_background(queue.receive, "k", "g", wait=600)
    assert queue.discard("k", where=lambda record: record.body == b"later") == 1
    assert bodies(waiting.result()) == [b"next"]


def test_in_strict_order_a_discarded_head_holds_nothing_up(queue):
    queue.create_topic("p", order="partition")
    queue.create_group("p", "g")
    queue.send("p", b"later", delay=1000)
    queue.send("p", b"next")
    assert queue.discard("p", where=lambda record: record.body == b"later") == 1
    assert bodies(queue.receive("p", "g")) == [b"next"]


def test_a_named_producer_goes_on_after_a_refusal(queue):
    queue.create_topic("small", max_backlog=2)
    with queue.producer("small", name="p", linger=60) as out:
        for at in range(3):
            out.send(b"%d" % at)
        with pytest.raises(quiver.ProducerFailed) as failed:
            out.flush()
        assert len(failed.value.unsent) == 3
        out.send(b"again")
        out.flush()
        assert (out.sequence, out.confirmed) == (1, 1)
    assert drain(queue, "small") == [b"again"]


def test_a_transaction_is_done_once(queue):
    with queue.transaction() as transaction:
        transaction.send("t", b"x")
    with pytest.raises(quiver.InvalidRequest, match="is over"), transaction:
        pass
    assert queue.stats("t").sent == 1


@pytest.mark.parametrize("single", [bytearray(b"abc"), memoryview(b"abc"), {"body": 1}])
def test_one_message_is_not_a_batch(queue, single):
    with pytest.raises(quiver.InvalidRequest, match="for one message use send"):
        queue.send_batch("t", single)


def test_a_receipt_with_junk_in_it_is_none(queue):
    queue.send("t", b"x")
    receipt = take(queue).receipt
    with pytest.raises(quiver.ReceiptInvalid):
        queue.ack(receipt[:10] + "!*" + receipt[10:])
    queue.ack(receipt)

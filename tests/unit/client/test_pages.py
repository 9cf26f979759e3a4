"""Messages as light objects: what they share, what becomes of it, and what settles them."""

import asyncio
import copy
import gc
import pickle
import weakref
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quiver
from quiver.node.receipts import parse
from tests.lengths import examples

SIZES = (5, 1, 1, 3, 1, 8)
COUNT = sum(SIZES)


@pytest.fixture(scope="module")
def got(tmp_path_factory):
    """Deliveries of two partitions and batches of several sizes, and the queue they came from."""
    with quiver.connect(tmp_path_factory.mktemp("queue")) as queue:
        queue.create_topic("t", partitions=2)
        for batch, size in enumerate(SIZES):
            queue.send_batch(
                "t",
                [
                    quiver.Message(b"%d" % at, key=f"{batch}-{at}", headers={"at": f"{at}"})
                    for at in range(size)
                ],
            )
        found = [
            one for most in (COUNT // 2, COUNT) for one in queue.receive("t", max_messages=most)
        ]
        assert len(found) == COUNT
        yield queue, found


@settings(max_examples=examples(100))
@given(chosen=st.lists(st.tuples(st.integers(0, COUNT - 1), st.booleans()), min_size=1))
def test_a_list_becomes_the_ranges_of_its_messages(got, chosen):
    queue, found = got
    items = [found[at].receipt if as_text else found[at] for at, as_text in chosen]
    (settle,) = queue._flows.settles("ack", items)
    held = {
        (one.partition, one.epoch, offset)
        for one in settle.command.held
        for start, end in one.ranges
        for offset in range(start, end)
    }
    receipts = [parse(found[at].receipt)[0] for at, _ in chosen]
    assert held == {(one.partition, one.epoch, one.offset) for one in receipts}
    places = [(one.partition, one.epoch) for one in settle.command.held]
    assert len(places) == len(set(places))  # and their ranges do not touch:
    assert all(a[1] < b[0] for one in settle.command.held for a, b in pairwise(one.ranges))


def test_batches_of_one_message_are_acked_as_one_range(tmp_path):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t")
        for at in range(20):
            queue.send("t", b"%d" % at)
        (settle,) = queue._flows.settles("ack", queue.receive("t", max_messages=20))
        (held,) = settle.command.held
        assert held.ranges == ((0, 20),)


FIELDS = (
    "body", "key", "headers", "priority", "topic", "partition", "offset", "origin", "id", "place",
    "created_at", "text",
)  # fmt: skip


def test_a_record_can_be_pickled_and_copied(tmp_path):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t")
        queue.send_batch("t", [b"plain"] * 3)
        queue.send_batch(
            "t", [quiver.Message(b"%d" % at, key=f"{at}", priority=at) for at in range(3)]
        )
        for record in queue.read("t"):
            for other in (
                pickle.loads(pickle.dumps(record)),
                copy.copy(record),
                copy.deepcopy(record),
            ):
                assert type(other) is quiver.Record
                assert [getattr(other, name) for name in FIELDS] == [
                    getattr(record, name) for name in FIELDS
                ]
                assert repr(other) == repr(record)


def test_what_is_pickled_is_that_message_alone(tmp_path):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t")
        queue.send_batch("t", [quiver.Message(b"", key="k" * 1_000) for _ in range(1_000)])
        first = next(iter(queue.read("t")))
        assert len(pickle.dumps(first)) < 2_000


def test_a_delivery_is_itself_and_no_other(got):
    _, found = got
    one, other = found[0], copy.copy(found[0])
    assert one != other
    assert len({one, one, other}) == 2
    with pytest.raises(TypeError, match="connect in each process"):  # it could settle nothing there
        pickle.dumps(one)
    with pytest.raises(AttributeError):
        one.colour = "red"


def test_a_closed_queue_is_forgotten_with_its_deliveries(tmp_path):
    def used() -> weakref.ref[quiver.Queue]:
        with quiver.connect(tmp_path) as queue:
            queue.create_topic("t")
            queue.send_batch("t", ["0"] * 100)
            queue.receive("t", "kept", max_messages=10, keep=True)
            with queue.consumer("t", "consumed") as consumer:
                assert consumer.get() is not None
            return weakref.ref(queue)

    queue = used()
    gc.collect()
    assert queue() is None


def test_so_is_an_asynchronous_one(tmp_path):
    async def used() -> weakref.ref[quiver.AsyncQueue]:
        async with quiver.connect_async(tmp_path) as queue:
            await queue.create_topic("t")
            await queue.send_batch("t", ["0"] * 100)
            await queue.receive("t", "kept", max_messages=10, keep=True)
            async with queue.consumer("t", "consumed") as consumer:
                assert await consumer.get() is not None
            return weakref.ref(queue)

    queue = asyncio.run(used())
    gc.collect()
    assert queue() is None

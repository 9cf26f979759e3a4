"""Which messages are in which files, and where the rest is: together all of them, and none twice."""

import errno
import os
from contextlib import suppress

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import quiver
from quiver.node.cache import BatchCache
from tests.inside import Inside

pytestmark = pytest.mark.python


def whole(queue, topic):
    """The ids of all messages, from the files and from the rest, by where they are."""
    sealed = queue.segments(topic)
    found: dict[tuple[int, int], str] = {}
    for file in sealed.files:
        table = pq.read_table(file.path)
        assert table.num_rows == file.rows
        for start, end in file.ranges:
            mask = pc.and_(pc.greater_equal(table["offset"], start), pc.less(table["offset"], end))
            rows = table.filter(mask).to_pylist()
            assert [row["offset"] for row in rows] == [*range(start, end)]
            assert {row["partition"] for row in rows} == {file.partition}
            places = {(row["partition"], row["offset"]): row for row in rows}
            assert not found.keys() & places.keys()
            found |= {place: f"{row['entry']}-{row['row']}" for place, row in places.items()}
    for partition, ranges in sealed.rest.items():
        for start, end in ranges:
            records = queue.read(topic, offset=start, end=end, partition=partition)
            places = {(record.partition, record.offset): record.id for record in records}
            assert not found.keys() & places.keys()
            found |= places
    return found


def there(queue, topic):
    return {(record.partition, record.offset): record.id for record in queue.read(topic)}


@pytest.fixture
def orders(queue):
    queue.create_topic("orders", partitions=3, max_attempts=1)
    send(queue, 30)
    return queue


def send(queue, count):
    queue.send_batch("orders", [quiver.Message(f"{at}", key=f"{at}") for at in range(count)])


def test_before_anything_is_sealed_all_is_rest(orders):
    assert orders.segments("orders").files == ()
    assert whole(orders, "orders") == there(orders, "orders")


def test_files_and_rest_are_all_messages_each_once(orders):
    orders.seal()
    sealed = orders.segments("orders")
    assert len(sealed.files) == 3
    assert sealed.rest == {0: (), 1: (), 2: ()}
    send(orders, 7)
    assert sum(map(len, orders.segments("orders").rest.values())) > 0
    assert len(whole(orders, "orders")) == 37
    assert whole(orders, "orders") == there(orders, "orders")


@pytest.mark.parametrize("most", [100, 2])
def test_what_is_settled_or_given_up_is_where_it_is_now(orders, monkeypatch, most):
    monkeypatch.setattr("quiver.limits.SEALED_RANGES_MAX", most)
    orders.seal()
    for turn in range(3):
        got = orders.receive("orders", "g", max_messages=10)
        orders.ack(got[::3])
        orders.dead_letter(got[1::3], reason="no")
        orders.nack(got[2::3])
        send(orders, 5)
        for topic in ("orders", "orders.dlq"):
            assert whole(orders, topic) == there(orders, topic)
            for file in orders.segments(topic).files:
                assert len(file.ranges) <= most
        if turn == 1:
            orders.seal()


def test_a_topic_that_is_not_there(queue):
    with pytest.raises(quiver.TopicNotFound):
        queue.segments("none")


def test_what_was_sealed_before_it_was_published_is_found_in_runs(world, queue):
    """Their bytes are in segments of another topic, where they are looked for by entry and row."""
    staged = [
        queue.stage(
            "t", [quiver.Message(f"{at}", key=f"{at % 7}") for at in range(start, start + 50)]
        )
        for start in (0, 50, 100)
    ]
    queue.seal()
    queue.unstage("t", staged[1:2])
    queue.publish("t", staged[::2], application="etl", batch=0)

    def look(engine):
        number = engine.core.topic_named("t").number
        slices, _ = engine.core.browse(number, {0: 0}, 1_000)
        return list(engine.source(number, slices, BatchCache()).pieces())

    assert len(world.door.shard.ask(Inside(look)).wait()) == 2
    expected = [f"{at}".encode() for at in (*range(50), *range(100, 150))]
    assert [record.body for record in queue.read("t")] == expected
    queue.seal()
    assert [record.body for record in queue.read("t")] == expected


def test_sealing_needs_no_room_for_what_is_sent_later(tmp_path, monkeypatch):
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t", retention="forever")
        queue.send("t", b"x")
        monkeypatch.setattr(os, "posix_fallocate", full)
        queue.seal()
        assert len(queue.segments("t").files) == 1


def test_who_seals_without_any_room_is_told_and_everything_goes_on(tmp_path, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise quiver.DiskFull("no")

    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t", retention="forever")
        queue.send("t", b"x")
        monkeypatch.setattr("quiver.storage.logfile.publish", refused)
        with pytest.raises(quiver.DiskFull, match="no room for segments"):
            queue.seal()
        monkeypatch.undo()
        queue.send("t", b"y")
        while not queue.segments("t").files:
            with suppress(quiver.DiskFull):  # until it has noticed that there is room again
                queue.seal()
        assert [record.body for record in queue.read("t")] == [b"x", b"y"]

"""Files by Spark's reader and the rest by the source are one data frame: no gap, no overlap."""

import pytest

import quiver
import quiver.spark
from tests.spark.frames import assert_same, expected, load, varied


@pytest.fixture
def holey(tmp_path):
    """A directory with a topic of which parts are sealed, settled or neither, in a path like a pattern."""
    with quiver.connect(tmp_path / "da{t,a}[1] *") as owner:
        owner.create_topic("t", retention="settled", partitions=3)
        owner.create_group("t", "g")
        owner.send_batch("t", varied(300))
        owner.seal()
        owner.ack(owner.receive("t", "g", max_messages=40))
        owner.send_batch("t", varied(200, first=300))
        owner.seal()
        owner.send_batch("t", varied(100, first=500))
        batch = owner.receive_arrow("t", "g", max_messages=150)
        batch.ack([number % 2 == 0 for number in range(batch.table.num_rows)])
        yield owner


def test_history_and_the_rest_are_one_frame(spark, holey, tmp_path):
    directory = str(tmp_path / "da{t,a}[1] *")
    sealed = holey.segments("t")
    assert sealed.files
    assert any(sealed.rest.values())
    frame = quiver.spark.read(spark, directory, "t")
    assert frame.columns == load(spark, directory, "t").columns
    assert_same(frame.toArrow(), expected(holey, "t"))
    part = quiver.spark.read(spark, directory, "t", start={0: 60, 1: 90}, end=120)
    assert_same(
        part.toArrow(),
        in_range(expected(holey, "t"), {0: (60, 120), 1: (90, 120), 2: (0, 120)}),
    )
    assert quiver.spark.read(spark, directory, "t", start="latest").count() == 0


def in_range(table, bounds):
    import pyarrow.compute as pc

    masks = [
        pc.and_(
            pc.equal(table["partition"], number),
            pc.and_(pc.greater_equal(table["offset"], low), pc.less(table["offset"], high)),
        )
        for number, (low, high) in bounds.items()
    ]
    wanted = masks[0]
    for mask in masks[1:]:
        wanted = pc.or_(wanted, mask)
    return table.filter(wanted)


def test_the_files_of_a_node_are_read_by_spark_too(spark, queue, url, topic):
    queue.create_topic(topic, retention="forever", partitions=2)
    queue.send_batch(topic, varied(100))
    queue.seal()
    queue.send_batch(topic, varied(50, first=100))
    frame = quiver.spark.read(spark, url, topic)
    assert_same(frame.toArrow(), expected(queue, topic))
    plan = frame.where("key = 'k1/ñ'").select("body")._jdf.queryExecution().toString()
    assert "PushedFilters: [IsNotNull(key), EqualTo(key,k1/ñ)]" in plan
    assert "ReadSchema: struct<key:string,body:binary>" in plan

"""Writing into topics: what goes in comes out, once."""

import os
import time
from datetime import UTC, datetime, timedelta
from threading import Timer

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.functions import col, when
from pyspark.sql.types import BinaryType, StructField, StructType

import quiver
from quiver import limits
from quiver.errors import DirectoryInUse, QueueFull
from quiver.spark.options import FULL, Options
from quiver.spark.writing import BatchWriter, owned
from tests.spark.dying import STEPS, DyingSource, die

SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)


@pytest.fixture(params=["node", "directory"])
def place(request, url, tmp_path):
    """The address of a queue."""
    return url if request.param == "node" else str(tmp_path / "data")


@pytest.fixture
def made(place, topic):
    """A topic, and what says which bodies are in it."""
    with quiver.connect(place) as queue:
        queue.create_topic(topic, partitions=2)

    def bodies():
        with quiver.connect(place) as queue:
            return sorted(message.body.decode() for message in queue.read(topic))

    return bodies


def write(frame, url, topic, **options):
    frame.write.format("quiver").mode("append").options(url=url, topic=topic, **options).save()


def numbers(spark, start, end):
    return spark.range(start, end, 1, 2).select(col("id").cast("string").alias("body"))


def texts(start, end):
    return sorted(str(number) for number in range(start, end))


def test_what_is_written_is_what_is_read(spark, place, topic):
    with quiver.connect(place) as queue:
        queue.create_topic(topic)
    rows = [
        ("plain", None, None, None, None, None, None),
        ("größe", "ann", {"v": "1", "": "empty"}, 9, SOON, SOON + timedelta(days=1), "a1"),
        ("", "ann", {}, 0, None, None, "a1"),
    ]
    schema = (
        "body string, key string, headers map<string,string>, priority int, deliver_at timestamp, "
        "expires_at timestamp, dedup_id string"
    )
    write(spark.createDataFrame(rows, schema).coalesce(1), place, topic)
    with quiver.connect(place) as queue:
        (table,) = queue.read_arrow(topic)
    assert table["body"].to_pylist() == [row[0].encode() for row in rows]
    assert table["key"].to_pylist() == [row[1] for row in rows]
    assert [dict(one or {}) for one in table["headers"].to_pylist()] == [
        row[2] or {} for row in rows
    ]
    assert table["priority"].to_pylist() == [row[3] or 0 for row in rows]
    assert table["deliver_at"].to_pylist() == [row[4] for row in rows]
    assert table["expires_at"].to_pylist() == [row[5] for row in rows]
    assert table["dedup_id"].to_pylist() == [row[6] for row in rows]


def test_rows_that_were_read_can_be_written_as_they_are(spark, url, queue, topic):
    queue.create_topic(topic)
    queue.create_topic(f"{topic}.copy")
    queue.send(topic, b"1", key="ann", headers={"v": "1"}, priority=3)
    write(spark.read.format("quiver").options(url=url, topic=topic).load(), url, f"{topic}.copy")
    (copy,) = queue.read(f"{topic}.copy")
    assert (copy.body, copy.key, dict(copy.headers), copy.priority) == (b"1", "ann", {"v": "1"}, 3)


def test_nobody_sees_half_of_a_dataframe(spark, url, queue, topic):
    queue.create_topic(topic)
    bad = numbers(spark, 0, 1_000).withColumn(
        "priority", when(col("body") == "999", 77).otherwise(1)
    )
    with pytest.raises(PySparkException, match=r"priority of row .* must be 0 to 9"):
        write(bad, url, topic)
    assert not list(queue.read(topic))


def test_an_application_writes_a_batch_once(spark, place, topic, made):
    write(numbers(spark, 0, 10), place, topic, application="etl", batch="1")
    write(numbers(spark, 0, 10), place, topic, application="etl", batch="1")
    write(numbers(spark, 10, 20), place, topic, application="etl", batch="2")
    write(numbers(spark, 0, 10), place, topic, application="etl", batch="1")
    assert made() == texts(0, 20)


def test_without_a_batch_the_same_again_is_nothing_and_something_else_is_refused(
    spark, place, topic, made
):
    write(numbers(spark, 0, 10), place, topic, application="etl")
    write(numbers(spark, 0, 10).repartition(3), place, topic, application="etl")
    with pytest.raises(PySparkException, match="option batch"):
        write(numbers(spark, 10, 20), place, topic, application="etl")  # as many and as long
    assert made() == texts(0, 10)


def test_without_an_application_every_write_is_a_new_one(spark, url, queue, topic):
    queue.create_topic(topic)
    for _ in range(2):
        write(numbers(spark, 0, 10), url, topic)
    assert len(list(queue.read(topic))) == 20


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("id long", {}, "no column 'id'"),
        ("key string", {}, "needs a column body"),
        ("body long", {}, "column body must be binary, not int64"),
        ("body string, priority string", {}, "column priority must be int8"),
        ("body string", {"url": "no/such/queue"}, "there is no queue in"),
        ("body string", {"batch": "seven"}, "batch is a whole number"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_done(
    spark, url, schema, options, message
):
    frame = spark.createDataFrame([], StructType.fromDDL(schema))
    with pytest.raises(PySparkException, match=message):
        write(frame, **{"url": url, "topic": "nobody-made-this", **options})


def test_a_topic_is_not_overwritten(spark, url, topic):
    frame = numbers(spark, 0, 1)
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        frame.write.format("quiver").mode("overwrite").options(url=url, topic=topic).save()


def test_a_topic_that_is_not_there_is_said_to_be_missing(spark, url):
    with pytest.raises(PySparkException, match=r"TopicNotFound.*nobody-made-this"):
        write(numbers(spark, 0, 1), url, "nobody-made-this")


def test_a_directory_in_use_is_waited_for_and_then_named(tmp_path, monkeypatch):
    with quiver.connect(tmp_path) as queue:
        monkeypatch.setattr(limits, "SPARK_OWN_SECONDS", 0.2)
        with pytest.raises(DirectoryInUse, match="is in use by process"):
            owned(tmp_path)
        monkeypatch.setattr(limits, "SPARK_OWN_SECONDS", 30.0)
        Timer(0.2, queue.close).start()
        owned(tmp_path).close()


def test_room_in_a_full_topic_is_waited_for(url, queue, topic, here):
    queue.create_topic(topic, max_backlog=2)
    queue.create_group(topic, "g")
    queue.send_batch(topic, [b"a", b"b"])
    kind = StructType([StructField("body", BinaryType())])
    hasty, writer = (
        BatchWriter(Options.of({"url": url, "topic": topic, **more}), kind, overwrite=False)
        for more in ({FULL: "0"}, {})
    )
    rows = pa.record_batch({"body": [b"c", b"d"]})
    staged: list[WriterCommitMessage | None] = [hasty.write(iter([rows]))]
    with pytest.raises(QueueFull):
        hasty.commit(staged)
    Timer(0.2, lambda: queue.receive_arrow(topic, "g", max_messages=2).ack()).start()
    writer.commit(staged)
    assert [one.body for one in queue.receive(topic, "g", max_messages=9)] == [b"c", b"d"]


def test_what_nobody_took_is_swept_from_a_directory_after_a_day(spark, tmp_path):
    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("orders")
    folder = tmp_path / "data" / "staging"
    folder.mkdir()
    for name, age in (("old.arrow", limits.STAGED_SECONDS_MAX + 60), ("new.arrow", 60)):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - age,) * 2)
    write(numbers(spark, 0, 1), str(tmp_path / "data"), "orders")
    assert [path.name for path in folder.iterdir()] == ["new.arrow"]


# -- streams ---------------------------------------------------------------------------------------


class Stream:
    """A query from text files, one a batch, to a topic."""

    def __init__(self, spark, folder, url, topic, kind="quiver", **options):
        self.spark, self.folder, self.kind = spark, folder, kind
        self.options = {"url": url, "topic": topic, **options}
        self.files = 0
        (folder / "in").mkdir()

    def add(self, start, end):
        (self.folder / f"{self.files}.tmp").write_text(
            "".join(f"{one}\n" for one in range(start, end))
        )
        (self.folder / f"{self.files}.tmp").rename(self.folder / "in" / f"{self.files}.txt")
        self.files += 1

    def run(self, checkpoint="checkpoint"):
        frame = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.folder / "in"))
        query = (
            frame.withColumnRenamed("value", "body")
            .writeStream.format(self.kind)
            .options(**self.options)
            .option("checkpointLocation", str(self.folder / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query


def test_a_stream_goes_on_where_it_was(spark, place, topic, made, tmp_path):
    stream = Stream(spark, tmp_path, place, topic)
    stream.add(0, 10)
    stream.add(10, 20)
    query = stream.run()
    stream.add(20, 30)
    stream.run()
    assert made() == texts(0, 30)
    with quiver.connect(place) as queue:  # the names that Spark has inside are still these
        assert queue.published(topic, str(query.id)) == 2
        assert queue.stats(topic).staged == 0


def test_a_stream_without_its_checkpoint_is_not_taken_for_the_other(
    spark, place, topic, made, tmp_path
):
    stream = Stream(spark, tmp_path, place, topic, application="etl")
    stream.add(0, 10)
    stream.run()
    with pytest.raises(PySparkException, match="application 'etl' has published"):
        stream.run(checkpoint="another")
    assert made() == texts(0, 10)


def test_a_stream_that_fails_at_any_step_writes_each_row_once(spark, place, topic, made, tmp_path):
    spark.dataSource.register(DyingSource)
    order = tmp_path / "order"
    stream = Stream(spark, tmp_path, place, topic, kind="dying", path=str(order))
    for number, step in enumerate(STEPS):
        stream.add(number * 10, number * 10 + 10)
        die(order, step)
        with pytest.raises(PySparkException, match=f"Died: {step}"):
            stream.run()
    stream.run()
    assert made() == texts(0, len(STEPS) * 10)


def test_in_foreach_batch_an_application_writes_each_batch_once(spark, url, queue, topic, tmp_path):
    queue.create_topic(topic)
    failures = [True]

    def load(frame, batch):
        write(frame.withColumnRenamed("value", "body"), url, topic, application="etl")
        if failures:
            failures.pop()
            raise RuntimeError("after it was written")

    def run():
        query = (
            spark.readStream.text(str(tmp_path / "in"))
            .writeStream.foreachBatch(load)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("0\n1\n2\n")
    with pytest.raises(PySparkException, match="after it was written"):
        run()
    run()
    assert sorted(message.text for message in queue.read(topic)) == texts(0, 3)


def test_the_batches_of_a_stream_have_their_numbers_from_spark(spark, url, topic, tmp_path):
    stream = Stream(spark, tmp_path, url, topic, batch="1")
    stream.add(0, 1)
    with pytest.raises(PySparkException, match="numbered by Spark"):
        stream.run()

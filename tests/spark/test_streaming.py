"""A stream reads a topic from where it begins, each message once, through restarts."""

import json

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable

import quiver
from quiver.spark import rows
from quiver.spark.options import Options
from quiver.spark.streaming import MessagesStream, lag
from tests.spark.frames import stream, varied

SECONDS = 60


def run(frame, checkpoint, into, **trigger):
    """Run a query into a table in memory until it ends; its progress, batch by batch."""
    query = (
        frame.select("partition", "offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .option("path", str(into))
        .trigger(**trigger or {"availableNow": True})
        .start()
    )
    try:
        assert query.awaitTermination(SECONDS)
    finally:
        query.stop()
    return [progress for progress in query.recentProgress if progress.numInputRows]


def places(spark, into):
    return sorted(map(tuple, spark.read.parquet(str(into)).collect()))


def test_what_is_there_is_read_in_bounded_batches_and_once(spark, queue, url, topic, tmp_path):
    queue.create_topic(topic, retention="forever", partitions=2)
    queue.send_batch(topic, varied(50))
    frame = stream(spark, url, topic, maxRowsPerTrigger=20)
    first = run(frame, tmp_path / "check", tmp_path / "out")
    assert [progress.numInputRows for progress in first] == [20, 20, 10]
    assert lag(first[0]) == 30
    queue.send_batch(topic, varied(7, first=50))
    again = run(frame, tmp_path / "check", tmp_path / "out")
    assert [progress.numInputRows for progress in again] == [7]
    everything = [(row.partition, row.offset) for row in queue.read(topic)]
    assert places(spark, tmp_path / "out") == sorted(everything)


def test_a_running_query_gets_what_is_sent(spark, queue, url, topic, tmp_path):
    queue.create_topic(topic, retention="forever", partitions=2)
    queue.send_batch(topic, varied(5))
    frame = stream(spark, url, topic, start="latest")
    query = (
        frame.select("offset")
        .writeStream.format("memory")
        .queryName("running")
        .option("checkpointLocation", str(tmp_path / "check"))
        .start()
    )
    try:
        query.processAllAvailable()
        for first in (5, 10):
            queue.send_batch(topic, varied(5, first))
            query.processAllAvailable()
        assert spark.table("running").count() == 10
    finally:
        query.stop()


def test_a_directory_is_streamed_while_somebody_owns_it(spark, topic, tmp_path):
    with quiver.connect(tmp_path / "data") as owner:
        owner.create_topic(topic, retention="forever", partitions=2)
        frame = stream(spark, str(tmp_path / "data"), topic)
        for first in (0, 30):
            owner.send_batch(topic, varied(30, first))
            owner.seal()
            run(frame, tmp_path / "check", tmp_path / "out")
        wanted = sorted((row.partition, row.offset) for row in owner.read(topic))
    assert places(spark, tmp_path / "out") == wanted


def test_what_retention_took_before_it_was_read_is_reported(spark, queue, url, topic, tmp_path):
    queue.create_topic(topic, retention="forever")
    queue.send_batch(topic, [b"x"] * 10)
    frame = stream(spark, url, topic, maxRowsPerTrigger=100)
    run(frame, tmp_path / "check", tmp_path / "out")
    queue.send_batch(topic, [b"x" * 1_000_000] * 5)
    queue.alter_topic(topic, retention="2MB", keep_unsettled=False)
    queue.send_batch(topic, [b"y"] * 3)
    kept = [(row.partition, row.offset) for row in queue.read(topic)]
    assert kept[0][1] > 10, "retention has taken some that the query has not seen"
    progress = run(frame, tmp_path / "check", tmp_path / "out")
    assert json.loads(progress[-1].sources[0].endOffset)["lost"] == kept[0][1] - 10
    assert places(spark, tmp_path / "out") == [(0, at) for at in range(10)] + kept


def test_a_topic_made_anew_is_refused(spark, queue, url, topic, tmp_path):
    queue.create_topic(topic, retention="forever")
    queue.send_batch(topic, varied(5))
    run(stream(spark, url, topic), tmp_path / "check", tmp_path / "out")
    queue.delete_topic(topic)
    queue.create_topic(topic, retention="forever")
    queue.send_batch(topic, varied(9))  # more than the query has read of the other
    with pytest.raises(StreamingQueryException, match="another topic"):
        run(stream(spark, url, topic), tmp_path / "check", tmp_path / "out")


def test_a_topic_that_was_made_anew_with_fewer_partitions_is_said(queue, url, topic, here):
    queue.create_topic(topic, retention="forever", partitions=2)
    source = MessagesStream(
        Options.of({"url": url, "topic": topic}), rows.wanted(rows.MESSAGES, "messages")
    )
    read = {"0": 3, "1": 3}
    queue.delete_topic(topic)
    queue.create_topic(topic, retention="forever")
    queue.send_batch(topic, varied(5))
    with pytest.raises(quiver.InvalidRequest, match="another topic"):
        source.latestOffset(read, ReadAllAvailable())

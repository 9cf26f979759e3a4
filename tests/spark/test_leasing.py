"""Queue mode: a stream leases rows for a group, and acks them when their batch is committed."""

import time

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadMaxRows

import quiver
from quiver.errors import InvalidRequest
from quiver.spark import rows
from quiver.spark.leasing import LeasingReader
from quiver.spark.options import Options
from tests.server.nodes import start_node
from tests.spark.cluster import until


class Stream:
    """A query that collects bodies, batch by batch, and fails when it is told to."""

    def __init__(self, spark, folder, url, topic, **options):
        self.spark, self.folder = spark, folder
        self.options = {"url": url, "topic": topic, "group": "spark", **options}
        self.batches: list[list[tuple[str, int]]] = []
        self.fails = False

    def start(self, **trigger):
        return (
            self.spark.readStream.format("quiver")
            .options(**self.options)
            .load()
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    def run(self):
        query = self.start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def _take(self, frame, _number):
        rows = frame.selectExpr("cast(body as string) as body", "attempt").collect()
        if self.fails:
            raise RuntimeError("as it was told")
        self.batches.append([(row.body, row.attempt) for row in rows])

    @property
    def bodies(self):
        return sorted(body for batch in self.batches for body, _ in batch)


def fill(queue, topic, count=10, **policy):
    queue.create_topic(topic, **policy)
    if count:
        queue.send_batch(topic, [str(number) for number in range(count)])
    queue.create_group(topic, "spark")


def texts(count=10):
    return sorted(str(number) for number in range(count))


def test_rows_are_acked_when_their_batch_is_committed(spark, url, queue, topic, tmp_path):
    fill(queue, topic, partitions=2)
    stream = Stream(spark, tmp_path, url, topic, maxRowsPerTrigger="4")
    stream.run()
    assert [len(batch) for batch in stream.batches] == [4, 4, 2]
    assert stream.bodies == texts()
    assert all(attempt == 1 for batch in stream.batches for _, attempt in batch)
    group = queue.groups(topic)["spark"]
    assert (group.acked, group.lag, group.in_flight) == (10, 0, 0)


def test_a_batch_that_failed_is_not_acked_and_runs_again(spark, url, queue, topic, tmp_path):
    fill(queue, topic)
    stream = Stream(spark, tmp_path, url, topic)
    stream.fails = True
    with pytest.raises(PySparkException, match="as it was told"):
        stream.run()
    group = queue.groups(topic)["spark"]
    assert (group.acked, group.in_flight) == (0, 10)
    stream.fails = False
    stream.run()
    assert stream.bodies == texts()
    assert queue.groups(topic)["spark"].acked == 10


def test_a_group_is_shared_with_ordinary_workers(spark, url, queue, topic, tmp_path):
    fill(queue, topic)
    held = queue.receive(topic, "spark", max_messages=3, lease=600)
    stream = Stream(spark, tmp_path, url, topic)
    stream.run()
    assert sorted([*stream.bodies, *(one.text for one in held)]) == texts()
    held[0].nack(delay=0)
    queue.ack(held[1:])
    stream.run()
    assert stream.batches[-1] == [(held[0].text, 2)]
    assert queue.groups(topic)["spark"].lag == 0


def test_what_was_committed_and_comes_again_is_not_processed_again(
    spark, url, queue, topic, tmp_path
):
    fill(queue, topic)
    stream = Stream(spark, tmp_path, url, topic, lease="5s")
    query = stream.start(processingTime="10 minutes")  # so that nobody asks for the next batch
    try:
        until(lambda: query.lastProgress, "no batch")
    finally:
        query.stop()
    assert queue.groups(topic)["spark"].acked == 0
    until(lambda: not queue.groups(topic)["spark"].in_flight, "the lease never ended")
    queue.send(topic, b"more")
    stream.run()
    assert stream.bodies == sorted([*texts(), "more"])
    assert queue.groups(topic)["spark"].lag == 0


def test_what_a_group_was_put_back_to_is_processed_again(url, queue, topic, here):
    fill(queue, topic, count=2, retention="forever")
    options = Options.of({"url": url, "topic": topic, "group": "spark"})
    reader = LeasingReader(options, rows.wanted(rows.MESSAGES, "messages"))
    try:
        first = reader.latestOffset({"leases": 0}, ReadMaxRows(10))
        queue.seek(topic, "spark", "earliest")
        second = reader.latestOffset(first, ReadMaxRows(10))
        assert second["runs"] == first["runs"]
        assert queue.groups(topic)["spark"].acked == 0
    finally:
        reader.stop()


def test_a_topic_that_was_made_anew_is_said(url, queue, topic, here):
    fill(queue, topic, count=2)
    options = Options.of({"url": url, "topic": topic, "group": "spark"})
    reader, later = (LeasingReader(options, rows.wanted(rows.MESSAGES, "messages")) for _ in "ab")
    try:
        leased = reader.latestOffset({"leases": 0}, ReadMaxRows(10))
        queue.delete_topic(topic)
        fill(queue, topic, count=2)
        with pytest.raises(InvalidRequest, match="new checkpoint"):  # its rows are others now
            later.partitions({"leases": 0}, leased)
        with pytest.raises(InvalidRequest, match="new checkpoint"):
            reader.latestOffset(leased, ReadMaxRows(10))
        assert queue.groups(topic)["spark"].ready == 2
    finally:
        reader.stop()


def test_rows_that_cannot_be_read_are_not_acked(tmp_path, here):
    with quiver.connect(tmp_path / "data") as owner:
        fill(owner, "t", count=0)
        for body in (b"a", b"b", b"c"):
            owner.send("t", body)
            owner.seal()
    damaged = sorted(tmp_path.glob("data/t@*.parquet"))[1]
    content = damaged.read_bytes()
    with start_node(tmp_path) as node, quiver.connect(f"quiver://127.0.0.1:{node.port}") as queue:
        url = f"quiver://127.0.0.1:{node.port}"
        options = Options.of({"url": url, "topic": "t", "group": "spark"})
        reader = LeasingReader(options, rows.wanted(rows.MESSAGES, "messages"))
        leased = reader.latestOffset({"leases": 0}, ReadMaxRows(10))
        (task,) = reader.partitions({"leases": 0}, leased)
        reader.stop()
        node.kill()
        damaged.write_bytes(b"PAR1" + bytes(len(content) - 4))
        node.restart()
        with pytest.raises(quiver.CorruptSegment, match="1 messages were left out"):
            list(reader.read(task))
        assert queue.groups("t")["spark"].acked == 0


@pytest.mark.slow
def test_a_lease_is_held_for_as_long_as_its_batch_takes(spark, url, queue, topic, tmp_path):
    given = []

    class Slow(Stream):
        def _take(self, frame, number):
            end = time.monotonic() + 15
            while time.monotonic() < end:
                given.extend(queue.receive(topic, "spark", max_messages=10, wait=0.2))
            super()._take(frame, number)

    fill(queue, topic)
    stream = Slow(spark, tmp_path, url, topic, lease="10s")
    stream.run()
    assert not given
    assert stream.bodies == texts()
    assert queue.groups(topic)["spark"].redelivered == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "data"}, "can be leased from a node only"),
        ({"start": "earliest"}, "leave out start and end"),
        ({"maxBytesPerTrigger": "1MB"}, "use maxRowsPerTrigger"),
    ],
)
def test_what_makes_no_sense_with_a_group_is_refused(spark, url, tmp_path, options, message):
    stream = Stream(spark, tmp_path, url, "any")
    stream.options |= options
    with pytest.raises(PySparkException, match=message):
        stream.run()

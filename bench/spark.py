"""Quiver in Spark: rows in and out, next to Parquet, to Spark's own sources and to a plain client."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import quiver
from bench.brokers.node import node
from bench.content import BODY_BYTES, bodies
from bench.measure import ROUNDS_MIN, Row, Run, Target, times

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[1]
UNIT = "rows/s"
TOPIC = "orders"
PARTITIONS = 4
SENT = 10_000  # in a batch: what Spark takes at a time, too
BATCHES_MADE = 10
CORES = 2
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.log.level": "FATAL",  # a query that is stopped calls that an error
}
BATCHES = 25  # of one row, for what a micro-batch costs
BATCHES_STREAMED = 5  # of many, and one before them
STREAM_SECONDS_MAX = 120.0  # for one stream of the bench
LOOK_SECONDS = 0.05


def spark(run: Run) -> Iterator[Row]:
    """One session, one node, the same rows in each form."""
    if find_spec("pyspark") is None:
        run.skipped["spark"] = "Spark is not installed: pip install -e '.[spark]'"
        return
    rows = 200_000 if run.quick else 1_000_000
    with node(run.folder("node")) as server:
        bench = Bench(run, f"quiver://127.0.0.1:{server.port}", rows)
        with session(CORES) as bench.spark:
            bench.prepare()
            yield from bench.history()
            yield from bench.tail()
            yield from bench.write()
            yield from bench.streams()
            yield from bench.overhead()
        yield from bench.cores()


@contextmanager
def session(cores: int) -> Iterator["SparkSession"]:
    from bench.bare_source import BareSource
    from quiver.spark.session import start_session

    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # workers import the bare source, too
    started = start_session("bench", {**SETTINGS, "spark.master": f"local[{cores}]"})
    started.dataSource.register(BareSource)
    try:
        yield started
    finally:
        started.stop()


class Bench:
    """The same rows on a node, in a directory of sealed files, in Parquet, and as an Arrow file."""

    def __init__(self, run: Run, url: str, rows: int) -> None:
        self.spark: Any = None
        self._run = run
        self._url = url
        self._rows = rows
        self._directory = run.folder("sealed")
        scratch = run.folder("spark")
        self._parquet = str(scratch / "parquet")
        self._arrow = str(scratch / "rows.arrow")
        self._checkpoints = scratch / "checkpoints"
        self._numbers = count()
        self._said = f"{rows:,} messages with a key and {BODY_BYTES} B"

    def prepare(self) -> None:
        for where in (self._url, self._directory):
            with quiver.connect(where) as queue:
                queue.create_topic(TOPIC, partitions=PARTITIONS, retention="1d")
                for at in range(0, self._rows, SENT):
                    queue.send_batch(TOPIC, content(at))
                if where is self._directory:
                    queue.seal()
        self._tail().write.parquet(self._parquet)
        table = self._tail().toArrow()
        with (
            pa.OSFile(self._arrow, "wb") as file,
            pa.ipc.new_file(file, table.schema) as writer,
        ):
            writer.write_table(table, max_chunksize=SENT)

    # -- what is measured --------------------------------------------------------------------------

    def history(self) -> Iterator[Row]:
        ours, theirs = times(
            self._run,
            lambda: self._drained(self._sealed()),
            lambda: self._drained(self.spark.read.parquet(self._parquet)),
        )
        yield Row(
            "read of history", ours, "spark.read.parquet", theirs, UNIT,
            f"quiver.spark.read of {self._said} that are sealed, all columns, into Spark's noop sink, "
            "planning included; against Parquet files of the same rows that Spark has written.",
            Target(">=", 0.7),
        )  # fmt: skip

    def tail(self) -> Iterator[Row]:
        tasks = self._tail().rdd.getNumPartitions()
        bare = self.spark.read.format("bare").option("path", self._arrow).option("tasks", tasks)
        ours, theirs, client = times(
            self._run,
            lambda: self._drained(self._tail()),
            lambda: self._drained(bare.load()),
            self._client_reads,
        )
        how = (
            f'format("quiver") on a node with {self._said}, {tasks} tasks, into Spark\'s noop sink'
        )
        yield Row(
            "read from a node", ours, "a bare Python source", theirs, UNIT,
            f"{how}; against a source that hands over the same Arrow batches from memory.",
            Target(">=", 0.7),
        )  # fmt: skip
        yield Row(
            "read from a node", ours, "read_arrow, one process", client, UNIT,
            f"{how}; against queue.read_arrow of the same node in a plain program.",
        )  # fmt: skip

    def write(self) -> Iterator[Row]:
        frame = self.spark.read.parquet(self._parquet).select("key", "body")
        with quiver.connect(self._url) as queue:
            for name in ("spark", "batches", "producer"):
                queue.create_topic(name, partitions=PARTITIONS, retention="1GB")
            ours, batches, producer = times(
                self._run,
                lambda: self._written(frame),
                lambda: self._rate(lambda: self._client_sends(queue)),
                lambda: self._rate(lambda: self._producer_sends(queue)),
            )
        how = (
            f"{self._said} from Parquet to a node, staged by the tasks and published at once, with an "
            "application, and so exactly once"
        )
        yield Row(
            "write to a node", ours, "producer", producer, UNIT,
            f"{how}; against queue.producer in a plain program, message by message.",
            Target(">=", 0.5),
        )  # fmt: skip
        yield Row(
            "write to a node", ours, "send_batch, Arrow", batches, UNIT,
            f"{how}; against queue.send_batch of {SENT:,} in a plain program, batches made before.",
        )  # fmt: skip

    def streams(self) -> Iterator[Row]:
        size = self._rows // (BATCHES_STREAMED + 1)
        ours, theirs = times(
            self._run,
            lambda: self._streamed(self._stream(size), size),
            lambda: self._streamed(self._rate_source(size), size),
        )
        yield Row(
            "stream from a node", ours, "rate-micro-batch", theirs, UNIT,
            f"Micro-batches of {size:,} rows into Spark's noop sink, the first of a query not counted; "
            "against Spark's source that makes up two numbers a row in the same process.",
        )  # fmt: skip

    def overhead(self) -> Iterator[Row]:
        ours, theirs = times(
            self._run,
            lambda: median(self._durations(self._stream(1), BATCHES)),
            lambda: median(self._durations(self._rate_source(1), BATCHES)),
        )
        yield Row(
            "a micro-batch", ours, "rate-micro-batch", theirs, "ms",
            f"Time of a trigger with one row, median of {BATCHES} into Spark's noop sink.",
        )  # fmt: skip

    def cores(self) -> Iterator[Row]:
        """Sessions cannot take turns within a process, so each round starts one of each kind."""
        reads: dict[str, Callable[[], DataFrame]] = {
            "of history": self._sealed,
            "from a node": self._tail,
        }
        figures: dict[tuple[str, int], list[float]] = {}
        for _ in range(ROUNDS_MIN):
            for cores in (2, 1):
                with session(cores) as self.spark:
                    for name, read in reads.items():
                        self._drained(read())
                        figures.setdefault((name, cores), []).append(self._drained(read()))
        for name in reads:
            yield Row(
                f"read {name}, local[2]", figures[name, 2], "local[1]", figures[name, 1], UNIT,
                f"The reads above of {self._said} in sessions with two cores and with one, each after a "
                "read that does not count. Spark's Python workers and the node need a core, too.",
            )  # fmt: skip

    # -- its sides ---------------------------------------------------------------------------------

    def _sealed(self) -> "DataFrame":
        import quiver.spark

        return quiver.spark.read(self.spark, str(self._directory), TOPIC)

    def _tail(self) -> "DataFrame":
        reader = self.spark.read.format("quiver").option("url", self._url)
        return reader.option("topic", TOPIC).load()

    def _stream(self, size: int) -> "DataFrame":
        reader = self.spark.readStream.format("quiver").option("url", self._url)
        bounded = reader.option("start", "earliest").option("maxRowsPerTrigger", size)
        return bounded.option("topic", TOPIC).load()

    def _rate_source(self, size: int) -> "DataFrame":
        reader = self.spark.readStream.format("rate-micro-batch")
        return reader.option("rowsPerBatch", size).option("numPartitions", CORES).load()

    def _drained(self, frame: "DataFrame") -> float:
        return self._rate(lambda: frame.write.format("noop").mode("overwrite").save())

    def _written(self, frame: "DataFrame") -> float:
        writer = frame.write.format("quiver").mode("append").option("url", self._url)
        named = writer.option("application", "bench").option("batch", next(self._numbers))
        return self._rate(named.option("topic", "spark").save)

    def _client_reads(self) -> float:
        with quiver.connect(self._url) as queue:
            start = time.perf_counter()
            found = sum(table.num_rows for table in queue.read_arrow(TOPIC))
            seconds = time.perf_counter() - start
        assert found == self._rows, "messages that were sent are missing"
        return found / seconds

    def _client_sends(self, queue: quiver.Queue) -> None:
        for at in range(0, self._rows, SENT):
            queue.send_batch("batches", content(at))

    def _producer_sends(self, queue: quiver.Queue) -> None:
        rows = content(0).to_pylist()
        with queue.producer("producer") as producer:
            for _ in range(0, self._rows, SENT):
                for row in rows:
                    producer.send(row["body"], key=row["key"])

    def _rate(self, work: Callable[[], object]) -> float:
        start = time.perf_counter()
        work()
        return self._rows / (time.perf_counter() - start)

    def _streamed(self, frame: "DataFrame", size: int) -> float:
        durations = self._durations(frame, BATCHES_STREAMED)
        return size * 1000 / median(durations)

    def _durations(self, frame: "DataFrame", batches: int) -> list[float]:
        """Milliseconds of so many micro-batches of a new query, without its first."""
        checkpoint = str(self._checkpoints / str(next(self._numbers)))
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            until = time.monotonic() + STREAM_SECONDS_MAX
            while (
                len(done := [each for each in query.recentProgress if each.numInputRows]) <= batches
            ):
                assert query.isActive, query.exception()
                assert time.monotonic() < until, (
                    f"no {batches} micro-batches in time: {query.status}"
                )
                time.sleep(LOOK_SECONDS)
        finally:
            query.stop()
        return [float(each.durationMs["triggerExecution"]) for each in done[1 : batches + 1]]


def content(at: int) -> pa.RecordBatch:
    """The batch of messages that begins with number `at`; after a hundred thousand they repeat."""
    return _batches()[at // SENT % BATCHES_MADE]


@cache
def _batches() -> list[pa.RecordBatch]:
    made = bodies(BATCHES_MADE * SENT)
    return [
        pa.record_batch(
            {
                "key": [f"c-{row % 5_000}" for row in range(at, at + SENT)],
                "body": pa.array(made[at : at + SENT], pa.binary()),
            }
        )
        for at in range(0, len(made), SENT)
    ]

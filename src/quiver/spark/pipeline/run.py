"""EXTRACT to LOAD as one streaming query, that can be stopped and killed at any time."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

import quiver.spark
from quiver import limits
from quiver.client.connect import connect
from quiver.errors import InvalidRequest, QuiverError, TopicNotFound
from quiver.model.units import milliseconds
from quiver.spark.options import FULL
from quiver.spark.pipeline.causes import cause
from quiver.spark.pipeline.clock import Checkpoint
from quiver.spark.pipeline.config import Config
from quiver.spark.pipeline.enriching import enrich
from quiver.spark.pipeline.expressions import demand_columns
from quiver.spark.pipeline.figures import Batch, Loaded, combined
from quiver.spark.pipeline.folder import Folder
from quiver.spark.pipeline.loading import dead_letters, good, packed, results
from quiver.spark.pipeline.transforming import transform


class Pipeline:
    """Topics, through transformations, into files and topics; every message once.

    A batch that failed, or whose process ended, is done again by the next run, with the same messages;
    what of it was loaded already is not loaded again. The checkpoint and the targets know how far it is.
    """

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._config = config
        self._spark = _session(spark)
        self._stopping = threading.Event()
        self._loading = -1  # the last batch that was begun
        self._loaded: dict[int, Loaded] = {}  # what we know of batches that Spark has not reported
        self._seen = -1  # the last batch that was reported
        self._folder: Folder | None = None
        self._remembers = config.enrich.dedup is not None or config.enrich.stream is not None
        self._added_ms = 0  # to the clock

    def rows(self) -> DataFrame:
        """The stream of rows, good and bad, that is loaded."""
        config = self._config
        messages = reduce(DataFrame.unionByName, map(self._messages, config.extract.topics))
        rows = transform(messages, config.transform)
        if self._remembers:
            self._added_ms = self._checkpoint().behind_ms()
        rows = enrich(rows, config.enrich, self._messages, added_ms=self._added_ms)
        return packed(rows, config.load.topic)

    def run(self, *, once: bool = False) -> Iterator[Batch]:
        """Run until `stop`, or with `once` until all that is there now is done; gives each batch done."""
        try:
            yield from self._run(once=once)
        except (PySparkException, Py4JError, ConnectionError) as error:
            raise cause(error) from error
        finally:
            self._stopping.clear()

    def stop(self) -> None:
        """Let `run` end when the batch that is being loaded is done. May be called from anywhere."""
        self._stopping.set()

    # -- one run -----------------------------------------------------------------------------------

    def _run(self, *, once: bool) -> Iterator[Batch]:
        self._loading = -1
        try:
            rows = self.rows()
            self._prepare(rows)
            query = self._start(rows, once=once)
        except (PySparkException, Py4JError) as error:
            raise cause(error, "Spark cannot begin") from error
        try:
            while not self._has_ended(query):
                yield from self._news(query)
                if self._stopping.is_set():
                    self._settle(query)
                    break
        finally:
            query.stop()
        yield from self._news(query)
        if (failure := query.exception()) is not None:
            raise failure

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(self._spark, self._config.checkpoint)

    def _messages(self, topic: str) -> DataFrame:
        extract = self._config.extract
        options: dict[str, Any] = {"url": extract.url, "topic": topic, "start": extract.start,
                   "maxRowsPerTrigger": extract.max_rows,
                   "maxBytesPerTrigger": extract.max_bytes}  # fmt: skip
        return self._spark.readStream.format("quiver").options(**options).load()

    def _prepare(self, rows: DataFrame) -> None:
        """What must be there, and what can be known to be wrong, before anything is read."""
        config = self._config
        _make_topic(config.extract.url, config.dead_topic)
        if config.load.topic is not None:
            _make_topic(config.load.topic.url or config.extract.url, config.load.topic.topic)
        if config.load.parquet is not None:
            by = config.load.parquet.partition_by
            demand_columns(rows, by, "load.parquet.partition_by")
            if not set(good(rows).columns) - set(by):
                raise InvalidRequest("load.parquet.partition_by: leave a column for the files")
            self._folder = Folder(self._spark, config.load.parquet.path, config.name)
            self._folder.demand_same_types(good(rows), by)

    def _start(self, rows: DataFrame, *, once: bool) -> Any:
        every = f"{milliseconds(self._config.every, 'every')} milliseconds"
        trigger = {"availableNow": True} if once else {"processingTime": every}
        writer = rows.writeStream.queryName(self._config.name).trigger(**trigger)
        return (
            writer.option("checkpointLocation", self._config.checkpoint)
            .foreachBatch(self._load)
            .start()
        )

    @staticmethod
    def _has_ended(query: Any) -> bool:
        """Whether there is nothing more to do, or it failed."""
        try:
            return bool(query.awaitTermination(limits.PIPELINE_POLL_SECONDS))
        except PySparkException:
            return True

    def _news(self, query: Any) -> Iterator[Batch]:
        """Batches that Spark has committed since the last time."""
        for progress in query.recentProgress:
            number = progress.batchId
            if number > self._seen and number in self._loaded:
                self._seen = number
                batch = combined(self._loaded.pop(number), progress)
                if not batch.is_empty:  # Spark makes some only to forget what is too old
                    yield batch

    def _settle(self, query: Any) -> None:
        """Wait until the batch that is being loaded is committed; the next one will not begin."""
        deadline = time.monotonic() + limits.PIPELINE_STOP_SECONDS_MAX
        while query.isActive and time.monotonic() < deadline:
            last = query.lastProgress
            if self._loading < 0 or (last is not None and last.batchId >= self._loading):
                return
            time.sleep(limits.PIPELINE_POLL_SECONDS)

    # -- one batch ---------------------------------------------------------------------------------

    def _load(self, rows: DataFrame, number: int) -> None:
        """What Spark calls with each batch, and calls again with one that it has not committed."""
        self._loading = number  # before the question, so that `_settle` knows of each that is begun
        if self._stopping.is_set():
            self._hold()
        if self._remembers:
            self._checkpoint().demand_time(number, self._added_ms)
        seconds: dict[str, float] = {}
        rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            counted = self._timed(seconds, "compute", lambda: _counted(rows))
            for name, load in self._loads(rows, number, counted):
                self._timed(seconds, name, load)
        finally:
            rows.unpersist()
        self._loaded[number] = Loaded(counted, seconds)
        self._loaded.pop(number - limits.PIPELINE_BATCHES_KEPT, None)

    def _hold(self) -> None:
        """Do nothing more of a batch until `run` stops the query, which interrupts this.

        It waits in Java: only what Java itself interrupts is, for Spark, an end and not a failure. Spark
        looks for that in the error's text, with a pattern that overflows where the text is long.
        """
        self._loading = -1
        gateway: Any = self._spark.sparkContext._gateway
        lang = gateway.jvm.java.lang
        try:
            lang.Thread.sleep(int(1000 * limits.PIPELINE_STOP_SECONDS_MAX))
        except Py4JJavaError as error:
            error.java_exception.setStackTrace(gateway.new_array(lang.StackTraceElement, 0))
            raise
        raise InterruptedError("the pipeline was asked to stop, and did not")

    def _loads(
        self, rows: DataFrame, number: int, counted: dict[str | None, int]
    ) -> Iterator[tuple[str, Callable[[], None]]]:
        """What is to be done for a batch."""
        config = self._config
        url = config.extract.url
        if counted.get(None):
            if config.load.parquet is not None and self._folder is not None:
                folder, by = self._folder, config.load.parquet.partition_by
                run = str(rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
                yield "parquet", lambda: folder.add(good(rows), by, number, run)
            if (to := config.load.topic) is not None:
                send = self._sender(results(rows), to.url or url, to.topic, number)
                yield "topic", lambda: self._patiently(send)
        if sum(counted.values()) > counted.get(None, 0):
            letters = dead_letters(rows, config.name)
            bury = self._sender(letters, url, config.dead_topic, number)
            yield "dead letters", lambda: self._patiently(bury)

    def _sender(self, messages: DataFrame, url: str, topic: str, number: int) -> Callable[[], None]:
        options: dict[str, Any] = {
            "url": url,
            "topic": topic,
            "application": self._config.name,
            "batch": number,
            FULL: limits.PIPELINE_FULL_SECONDS,
        }
        writer = messages.write.format("quiver").options(**options).mode("append")
        return writer.save

    def _patiently(self, send: Callable[[], None]) -> None:
        """Wait for a topic that is full and for a node that is away: meanwhile nothing more is read."""
        deadline = time.monotonic() + limits.PIPELINE_PATIENCE_SECONDS
        while True:
            try:
                return send()
            except (PySparkException, QuiverError) as error:
                if not cause(error).retryable or time.monotonic() > deadline:
                    raise
            if self._stopping.wait(limits.PIPELINE_PAUSE_SECONDS):
                self._hold()

    @staticmethod
    def _timed(seconds: dict[str, float], name: str, step: Callable[[], Any]) -> Any:
        began = time.monotonic()
        try:
            return step()
        finally:
            seconds[name] = round(time.monotonic() - began, 3)


def _session(spark: SparkSession) -> SparkSession:
    """A session of the pipeline's own, in which a value that cannot be computed is null, not the end."""
    quiver.spark.register(spark)
    known: Any = spark
    own = SparkSession(spark.sparkContext, known._jsparkSession.cloneSession())
    own.conf.set("spark.sql.ansi.enabled", "false")
    own.conf.set("spark.sql.caseSensitive", "true")  # as JSON is
    own.conf.set("spark.sql.session.timeZone", "UTC")
    return own


def _counted(rows: DataFrame) -> dict[str | None, int]:
    return dict(rows.groupBy("_stage").count().collect())


def _make_topic(url: str, name: str) -> None:
    with connect(url) as queue:
        try:
            queue.policy(name)
        except TopicNotFound:
            queue.create_topic(name)

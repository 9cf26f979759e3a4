"""Writing: tasks stage rows, and the driver publishes what they have staged, each batch once.

1. `write`, in a task: the rows are stored where nobody sees them. What it returns says where. A task that
   is tried again, or runs twice at a time, stages its rows again; Spark tells the driver of one of them.
2. `commit`, at the driver: all that the tasks have staged is published in one step, under the name of an
   application and the number of a batch. If that batch was published before, nothing is done: so a
   driver that starts again, and one that was believed dead, do no harm.
3. `abort`: what was staged is dropped. What was published is no longer staged, so an `abort` after a
   `commit` that failed late undoes nothing.

Writers are made anew for each step, and share nothing but what Spark carries between them.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quiver import limits
from quiver.batches.arrow_input import check_schema
from quiver.client.connect import connect
from quiver.client.remote.address import is_address
from quiver.client.sync import Queue
from quiver.errors import AnotherRun, DirectoryInUse, InvalidRequest, QueueFull, QuiverError
from quiver.model.commands import UNNAMED
from quiver.model.replies import Published, Staged
from quiver.node.clock import SystemClock
from quiver.spark import connections
from quiver.spark.options import Options
from quiver.spark.rows import MESSAGES
from quiver.storage import staging

# What the queue says of a message, and nobody else: rows that were read can be written as they are.
GIVEN: Final = ("topic", "partition", "offset", "created_at", "attempt", "id", "origin")
# Names that Spark uses inside, which a test watches.
QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
DIGESTS: Final = 2**64  # that there are


class Target(Protocol):
    """Where rows are staged and published. A part is whatever it says of rows that it has staged."""

    def stage(self, batches: Iterator[pa.RecordBatch]) -> list[Any]:
        """Store rows where nobody sees them."""

    def publish(self, parts: list[Any], application: str, batch: int, run: str) -> Published:
        """Let everybody see them, at once."""

    def drop(self, parts: list[Any]) -> None:
        """They will not be published, or are."""


@dataclass(frozen=True)
class NodeTarget:
    """A topic of a node, which everybody can reach."""

    url: str
    topic: str
    full_seconds: float

    def stage(self, batches: Iterator[pa.RecordBatch]) -> list[Staged]:
        """Store rows at the node."""
        return staged(connections.node(self.url), self.topic, batches)

    def publish(self, parts: list[Staged], application: str, batch: int, run: str) -> Published:
        """Append them to the topic, by reference, as soon as there is room."""
        queue = connections.node(self.url)
        until = time.monotonic() + self.full_seconds
        while True:
            try:
                return queue.publish(
                    self.topic, parts, application=application, batch=batch, run=run
                )
            except QueueFull:  # its consumers will make room
                if time.monotonic() > until:
                    raise
            time.sleep(limits.SPARK_POLL_SECONDS)

    def drop(self, parts: list[Staged]) -> None:
        """Drop what is still staged."""
        connections.node(self.url).unstage(self.topic, parts)


@dataclass(frozen=True)
class DirectoryTarget:
    """A topic of a directory: tasks leave files in it, and the driver owns it while it takes them."""

    path: Path
    topic: str

    def stage(self, batches: Iterator[pa.RecordBatch]) -> list[str]:
        """Leave a file."""
        name = staging.write(self.path, batches)
        return [] if name is None else [name]

    def publish(self, parts: list[str], application: str, batch: int, run: str) -> Published:
        """Take the files, and send what is in them."""
        rows = (batch for name in parts for batch in staging.read(self.path, name))
        with owned(self.path) as queue:
            found = staged(queue, self.topic, rows)
            try:
                done = queue.publish(
                    self.topic, found, application=application, batch=batch, run=run
                )
            finally:
                queue.unstage(self.topic, found)  # what is not published now never will be
        staging.sweep(self.path, SystemClock().now_ms() / 1000 - limits.STAGED_SECONDS_MAX)
        self.drop(parts)
        return done

    def drop(self, parts: list[str]) -> None:
        """Remove the files."""
        staging.remove(self.path, parts)


@dataclass
class Written(WriterCommitMessage):
    """What a task has staged, and in which batch of which query it ran, if in any."""

    parts: tuple[Any, ...]
    query: str | None
    batch: int | None
    digest: int  # of the rows, if that is all that tells one DataFrame from another


class Writer:
    """What the writers of streams and of single DataFrames have in common."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise InvalidRequest(
                'a topic cannot be overwritten: write with mode("append"), and queue.purge(topic) first if '
                "its messages are not wanted"
            )
        self._columns = columns_of(schema)
        self._target = target_of(options)
        self._application = options.application
        self._batch = options.batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage the rows of a task."""
        context = TaskContext.get()
        query = batch = None
        if context is not None:
            query = context.getLocalProperty(QUERY_PROPERTY)
            batch = context.getLocalProperty(BATCH_PROPERTY)
        digest = Digest() if self._application and self._batch is None and batch is None else None
        chosen = (batch.select(self._columns) for batch in iterator if batch.num_rows)
        parts = self._target.stage(chosen if digest is None else digest.taken(chosen))
        return Written(
            tuple(parts), query, None if batch is None else int(batch), digest.sum if digest else 0
        )

    def _publish(
        self, messages: Sequence[WriterCommitMessage | None], application: str, batch: int, run: str
    ) -> None:
        """Publish what tasks have staged, unless they all had nothing."""
        parts = staged_by(messages)
        if not parts:
            return
        if self._target.publish(parts, application, batch, run).duplicate:
            self._drop(parts)

    def _drop(self, parts: list[Any]) -> None:
        with suppress(QuiverError):  # if it cannot be done now, it is done in a day
            self._target.drop(parts)


class StreamWriter(Writer, DataSourceStreamArrowWriter):
    """The sink of a streaming query, whose batches Spark has numbered."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite=overwrite)
        if options.batch is not None:
            raise InvalidRequest(
                "the batches of a stream are numbered by Spark: leave out option batch"
            )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish a batch."""
        if not staged_by(messages):
            return
        query = next((one.query for one in messages if isinstance(one, Written)), None)
        if query is None:
            raise InvalidRequest(
                "this Spark does not tell its tasks which query they belong to; write in foreachBatch, "
                "with the options application and batch"
            )
        self._publish(messages, self._application or query, batchId, query)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop what was staged for a batch that failed."""
        self._drop(staged_by(messages))


class BatchWriter(Writer, DataSourceArrowWriter):
    """Writes one DataFrame. With an application, and in `foreachBatch` or with a batch, only once."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite=overwrite)
        self._name = self._application or f"{UNNAMED}{token_hex(8)}"

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the DataFrame."""
        written = [one for one in messages if isinstance(one, Written)]
        named = [self._batch, *(one.batch for one in written)]
        batch = next((one for one in named if one is not None), None)
        run = next((one.query for one in written if one.query is not None), "")
        if batch is None and self._application:  # the same rows are the same DataFrame
            run = f"rows-{sum(one.digest for one in written) % DIGESTS:016x}"
        try:
            self._publish(messages, self._name, batch or 0, run)
        except AnotherRun:
            if batch is not None:
                raise
            raise InvalidRequest(
                f"application {self._name!r} has written other rows before, and these were not written: "
                "take another name for the application and give each DataFrame a number with option "
                "batch, or leave out application"
            ) from None

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what was staged."""
        self._drop(staged_by(messages))


class Digest:
    """A sum over rows, the same in whichever order and batches they come."""

    def __init__(self) -> None:
        self.sum = 0

    def taken(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, as they pass."""
        for batch in batches:
            names = sorted(batch.schema.names)
            columns = [_plain(batch.column(name)).to_pylist() for name in names]
            for row in zip(*columns, strict=True):
                said = [(name, value) for name, value in zip(names, row, strict=True) if value]
                one = blake2b(repr(said).encode(), digest_size=8)
                self.sum += int.from_bytes(one.digest(), "little")
            yield batch


def _plain(values: pa.Array) -> pa.Array:
    """Times as numbers, which are the same in every zone."""
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def staged(queue: Queue, topic: str, batches: Iterable[pa.RecordBatch]) -> list[Staged]:
    """Stage all of the batches, or none of them."""
    found: list[Staged] = []
    try:
        for portion in portions(batches):
            found.append(queue.stage(topic, portion))  # noqa: PERF401 - it may fail half-way
    except Exception:
        with suppress(QuiverError):  # if it cannot be done now, it is done in a day
            queue.unstage(topic, found)
        raise
    return found


def portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in tables that one request can carry."""
    waiting: list[pa.RecordBatch] = []
    rows = nbytes = 0
    for piece in (piece for batch in batches for piece in split(batch)):
        full = (
            nbytes + piece.nbytes > limits.SPARK_STAGE_BYTES
            or rows + piece.num_rows > limits.BATCH_ROWS_MAX
        )
        if waiting and full:
            yield pa.Table.from_batches(waiting)
            waiting, rows, nbytes = [], 0, 0
        waiting.append(piece)
        rows += piece.num_rows
        nbytes += piece.nbytes
    if waiting:
        yield pa.Table.from_batches(waiting)


def split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in halves of halves, until they are small enough or one row."""
    small = batch.nbytes <= limits.SPARK_STAGE_BYTES and batch.num_rows <= limits.BATCH_ROWS_MAX
    if small or batch.num_rows <= 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from split(batch.slice(0, middle))
    yield from split(batch.slice(middle))


def columns_of(schema: StructType) -> list[str]:
    """The columns that are sent, without what the queue gave; rows that are no messages are refused."""
    sent = StructType(
        [x for x in schema if x.name not in GIVEN or x.dataType != MESSAGES[x.name].dataType]
    )
    check_schema(to_arrow_schema(sent, timezone="UTC"))
    names: list[str] = sent.names
    return names


def target_of(options: Options) -> Target:
    """Where the options say that rows go."""
    if is_address(options.url):
        return NodeTarget(options.url, options.topic_name, options.full_seconds)
    path = Path(options.url)
    if not path.is_dir():
        raise InvalidRequest(
            f"there is no queue in {path}: connect to it and create the topic first"
        )
    return DirectoryTarget(path, options.topic_name)


def staged_by(messages: Iterable[WriterCommitMessage | None]) -> list[Any]:
    """All parts, in the order of the tasks; of a task that failed there is no message."""
    return [part for one in messages if isinstance(one, Written) for part in one.parts]


def owned(path: Path) -> Queue:
    """The queue of a directory, as soon as nobody else has it."""
    until = time.monotonic() + limits.SPARK_OWN_SECONDS
    while True:
        try:
            return connect(path)
        except DirectoryInUse:
            if time.monotonic() > until:
                raise
        time.sleep(limits.BACKOFF_SECONDS_MIN)

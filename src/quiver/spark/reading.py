"""Batch reads: a plan of offsets made at one moment, and tasks that replay them."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from quiver.client.sync import Queue
from quiver.spark import connections, rows, spans
from quiver.spark.options import Options, Spot
from quiver.spark.spans import Bounds, Span


class MessagesReader(DataSourceReader):
    """The messages of a topic from `start` to `end`."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        queue, topic = connections.reading(self._options.url), self._options.topic_name
        held = queue.offsets(topic)
        starts = edges(queue, topic, self._options.start, held, last=False)
        ends = edges(queue, topic, self._options.end, held, last=True)
        found = [Span(number, starts[number], ends[number]) for number in held]
        return spans.split(found, bytes_per_offset(queue, topic, held)) or [spans.NOTHING]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        return replay(self._options, self._schema, partition)


class LedgerReader(DataSourceReader):
    """What happened to the messages of a topic, or of all."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        queue = connections.reading(options.url)
        for batch in queue.ledger_reader(options.topic, start=options.start, end=options.end):
            yield rows.converted(pa.Table.from_batches([batch]), self._schema)


def replay(options: Options, schema: pa.Schema, span: Span) -> Iterator[pa.RecordBatch]:
    """The messages of a span that are still there."""
    if not span.size:
        return
    queue, topic = connections.reading(options.url), options.topic_name
    tables = queue.read_arrow(topic, offset=span.start, end=span.end, partition=span.partition)
    for table in tables:
        yield rows.converted(table, schema, topic)


def edges(
    queue: Queue, topic: str, spot: Spot | None, held: Bounds, *, last: bool
) -> dict[int, int]:
    """The offset that an option means in each partition of a topic, within what it holds."""
    usual = {number: bounds[last] for number, bounds in held.items()}
    match spot:
        case None:
            return usual
        case "earliest" | "latest":
            return {number: bounds[spot == "latest"] for number, bounds in held.items()}
        case str():
            asked = {number: at for number, (at, _) in queue.offsets(topic, start=spot).items()}
        case int():
            asked = dict.fromkeys(held, spot)
        case _:
            asked = spot
    within = {**usual, **asked}
    return {number: min(max(within[number], held[number][0]), held[number][1]) for number in held}


def bytes_per_offset(queue: Queue, topic: str, held: Bounds) -> float:
    """How much there is to read for an offset, on average, gaps included."""
    offsets = sum(end - start for start, end in held.values())
    return queue.stats(topic).stored_bytes / offsets if offsets else 0.0

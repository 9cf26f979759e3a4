"""Batch reads: a plan of offsets made at one moment, and tasks that replay them."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from quiver import notices
from quiver.client.scanning import Scan
from quiver.client.sync import Queue, flows_of, tables_of
from quiver.client.threads import run
from quiver.errors import CorruptSegment, InvalidRequest, UnreadableMessages
from quiver.spark import connections, rows, spans
from quiver.spark.options import Options, Spot
from quiver.spark.spans import Bounds, Share, Span


class MessagesReader(DataSourceReader):
    """The messages of a topic from `start` to `end`.

    There is no `pushFilters` on purpose: Spark keeps one plan for all uses of a data frame, so that the
    conditions of one use would take rows from another (seen in 4.3; a test guards it).
    """

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        queue, topic = connections.reading(options.url), options.topic_name
        number, held = found(queue, topic)
        if options.ranges is not None:
            number, ranges = options.ranges
            wanted = [Span(*one) for one in ranges]
        else:
            bounds = bounded(queue, topic, options, held)
            wanted = [Span(part, *bounds[part]) for part in held]
        made = spans.shares(number, wanted, bytes_per_offset(queue, topic, held))
        nothing = Share(number, ())  # of no task at all, Spark would make one that we do not know
        return made or [nothing]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        return replay(self._options, self._schema, partition)


class LedgerReader(DataSourceReader):
    """What happened to the messages of a topic, or of all; `start` and `end` are times."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._start = _time(options.start, "start", "earliest")
        self._end = _time(options.end, "end", "latest")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        queue = connections.reading(self._options.url)
        found = queue.ledger_reader(self._options.topic, start=self._start, end=self._end)
        for batch in found:
            yield rows.converted(pa.Table.from_batches([batch]), self._schema)


def _time(spot: Spot | None, option: str, nothing: str) -> str | None:
    if spot is None or spot == nothing:
        return None
    if not isinstance(spot, str) or spot in ("earliest", "latest"):
        raise InvalidRequest(f"{option} of the ledger is {nothing!r} or a time, not {spot!r}")
    return spot


def replay(options: Options, schema: pa.Schema, share: Share) -> Iterator[pa.RecordBatch]:
    """The messages of a share. Nobody sees a task's warnings: what it cannot read is an error."""
    queue, topic = connections.reading(options.url), options.topic_name
    for span in share.spans:
        for table in whole(_tables(queue, topic, share.topic, span)):
            yield rows.converted(table, schema, topic)


def _tables(queue: Queue, topic: str, number: int, span: Span) -> Iterator[pa.Table]:
    flows = flows_of(queue)
    part, start, end = span
    there, _, ends = run(flows.read_start(topic, end=end, partition=part))
    if there != number or ends[part] < end:
        raise InvalidRequest(
            f"topic {topic!r} was made anew, or put back from a copy, since this job was planned: run it "
            "again"
        )
    return tables_of(Scan(flows, number, {part: start}, ends))


def whole(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The tables; where a read leaves out what is damaged, or gone since the job was planned, an error."""
    while True:
        with notices.collected() as told:
            table = next(tables, None)
        for notice in told:
            if isinstance(notice, UnreadableMessages):
                raise CorruptSegment(str(notice))
            raise InvalidRequest(
                f"retention was faster than this job: {notice}. Run it again, and keep messages longer"
            )
        if table is None:
            return
        yield table


def found(queue: Queue, topic: str) -> tuple[int, Bounds]:
    """The number of a topic, and what it holds."""
    number, starts, ends = run(flows_of(queue).read_start(topic))
    return number, {part: (starts[part], ends[part]) for part in starts}


def bounded(queue: Queue, topic: str, options: Options, held: Bounds) -> Bounds:
    """What of a topic the options ask for."""
    starts = started(queue, topic, options.start, held)
    ends = edges(queue, topic, options.end, held, last=True)
    return {number: (starts[number], ends[number]) for number in held}


def started(queue: Queue, topic: str, spot: Spot | None, held: Bounds) -> dict[int, int]:
    """Where a read begins in each partition; a warning says what of it retention has taken."""
    if isinstance(spot, int):
        spot = dict.fromkeys(held, spot)
    if isinstance(spot, dict):
        lost(queue, topic, spot, held)
    return edges(queue, topic, spot, held, last=False)


def lost(queue: Queue, topic: str, at: Mapping[int, int], held: Bounds) -> int:
    """How many offsets from `at` on retention took; a warning says so. What was settled is not lost."""
    count = 0
    for number, (first, _) in held.items():
        if at.get(number, first) < first:
            with notices.collected() as told:
                queue.offsets(topic, offset=at[number], partition=number)
            for notice in told:
                notices.warn(notice)
            count += first - at[number] if told else 0
    return count


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

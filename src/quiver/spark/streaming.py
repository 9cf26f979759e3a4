"""Streaming reads: the checkpoint has the offset up to which each partition was read.

An offset of Spark is a map, `{"0": 17, "1": 23, "topic": 4}`: by partition, as the option `start` takes
it, with the number of the topic, which another one of its name does not have. Once retention has dropped
messages before the query came to them, it also says how many offsets were skipped: "lost".
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from quiver import limits
from quiver.errors import InvalidRequest
from quiver.spark import connections, reading, spans
from quiver.spark.options import LOST, TOPIC, Options
from quiver.spark.reading import bytes_per_offset, replay
from quiver.spark.spans import Bounds, Share, Span


class MessagesStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The messages of a topic, from `start` on."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        if options.end is not None:
            raise InvalidRequest(
                "a stream has no end; leave out the option, or read once what is there with "
                "trigger(availableNow=True)"
            )
        self._options = options
        self._schema = schema
        self._until: dict[int, int] | None = None  # where a query that reads what is there ends
        self._known: Bounds = {}  # what the topic held when it was asked last
        self._number = 0  # of the topic
        self._missed = 0  # offsets that retention took from a batch after it was begun

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name, as all of these
        queue, topic = connections.reading(self._options.url), self._options.topic_name
        return self._written(reading.started(queue, topic, self._options.start, self._held()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = {number: end for number, (_, end) in self._held().items()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Where the next batch ends; an idle query asks all the time, and is made to wait a little."""
        at, lost = _read(start), start.get(LOST, 0) + self._missed
        self._missed = 0
        held = self._held()
        if self._until is None and all(at.get(part) == end for part, (_, end) in held.items()):
            time.sleep(limits.SPARK_IDLE_SECONDS)
            held = self._held()
        self._demand_same(start, held)
        begin = {number: max(at.get(number, first), first) for number, (first, _) in held.items()}
        ends = {number: end for number, (_, end) in held.items()}
        if self._until is not None:
            ends = {number: max(begin[number], self._until.get(number, 0)) for number in ends}
        most = None if isinstance(limit, ReadAllAvailable) else self._most(held)
        queue, topic = connections.reading(self._options.url), self._options.topic_name
        lost += reading.lost(queue, topic, at, held)
        return self._written(spans.advanced(begin, ends, most), lost)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        held = self._known or self._held()
        return self._written({number: end for number, (_, end) in held.items()})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        queue, topic = connections.reading(self._options.url), self._options.topic_name
        begin, until = _read(start), _read(end)
        held = self._known or self._held()
        self._demand_same(end, held)
        counted = end.get(LOST, 0) - start.get(LOST, 0)
        self._missed = max(reading.lost(queue, topic, begin, held) - counted, 0)
        wanted = [
            Span(number, max(begin.get(number, 0), first), until.get(number, first))
            for number, (first, _) in held.items()
        ]
        return spans.shares(self._number, wanted, bytes_per_offset(queue, topic, held))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        return replay(self._options, self._schema, partition)

    def _held(self) -> Bounds:
        queue = connections.reading(self._options.url)
        self._number, self._known = reading.found(queue, self._options.topic_name)
        return self._known

    def _most(self, held: Bounds) -> int | None:
        """How many offsets a batch may have."""
        options = self._options
        bounds = [] if options.max_rows is None else [options.max_rows]
        if options.max_bytes is not None:
            queue = connections.reading(options.url)
            density = bytes_per_offset(queue, options.topic_name, held)
            bounds.append(max(int(options.max_bytes / max(density, 1)), 1))
        return min(bounds, default=None)

    def _demand_same(self, offset: Mapping[str, int], held: Bounds) -> None:
        """Spark would read a topic that was made anew from wherever its checkpoint is."""
        anew = offset.get(TOPIC, self._number) != self._number
        if anew or any(at > held.get(number, (0, 0))[1] for number, at in _read(offset).items()):
            raise InvalidRequest(
                f"the query has read another topic {self._options.topic!r}, before this one was made or "
                "put back from a copy: give the query a new checkpoint"
            )

    def _written(self, offsets: Mapping[int, int], lost: int = 0) -> dict[str, int]:
        made = {str(number): at for number, at in sorted(offsets.items())}
        return {**made, TOPIC: self._number, **({LOST: lost} if lost else {})}


def lag(progress: Any) -> int | None:
    """How many offsets a query was behind, from its `lastProgress`; None where Spark does not say."""
    count = 0
    for source in json.loads(progress.json)["sources"]:
        if not source.get("latestOffset"):
            return None
        latest, reached = _read(source["latestOffset"]), _read(source["endOffset"])
        count += sum(end - reached.get(number, 0) for number, end in latest.items())
    return count


def _read(offset: Mapping[str, int]) -> dict[int, int]:
    """The places in partitions."""
    return {int(name): at for name, at in offset.items() if name.isdecimal()}

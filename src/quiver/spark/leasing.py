"""Streaming reads in queue mode: rows are leased for a group, as workers do, and acked afterwards.

What is leased is in the offset that goes into the checkpoint, with what proves the lease. Spark asks for
the next offset only when the batch before is committed; that is when its rows are acked. Until then a
thread of the driver makes the lease longer. If the driver dies it ends by itself, and the next run, or
anybody else in the group, gets the rows again: at least once.

A batch that had begun runs again after a restart, whoever has its rows by then. Of one that was committed,
but not acked in time, rows that come again are acked without another look at them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from quiver import limits
from quiver.client.remote.address import is_address
from quiver.client.results import DeliveryBatch, GrantedLease
from quiver.client.sync import Queue, flows_of
from quiver.client.threads import run
from quiver.errors import InvalidRequest, QuiverError, ReceiptExpired, ReceiptInvalid
from quiver.spark import connections, reading, rows
from quiver.spark.options import Options

Offset: TypeAlias = dict[str, Any]  # how many leases there were, and the last of them
Place: TypeAlias = tuple[int, int]  # partition and offset
Run: TypeAlias = tuple[
    int, int, int
]  # of rows: the first offset, the one after the last, their attempt

NOTHING: Offset = {"leases": 0}


@dataclass(frozen=True)
class LeasedRows(InputPartition):
    """Rows of a topic's partition that one task reads."""

    partition: int
    runs: tuple[Run, ...]


class LeasingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The messages of a topic that a group is given."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        check(options)
        self._options = options
        self._schema = schema
        self._settled = 0  # the lease that was acked last, by its number
        self._done: dict[Place, int] = {}  # rows of it that could not be acked, and their attempts
        self._left: int | None = None  # rows to be leased yet, if only those that are there now
        self._keeper: LeaseKeeper | None = None

    # -- at the driver -----------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802
        """Nothing is leased."""
        return NOTHING

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How many rows a batch may have."""
        return ReadMaxRows(self._options.max_rows or limits.SPARK_LEASE_ROWS)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Lease no more rows than are ready now."""
        stats = self._queue.stats(self._options.topic_name)
        group = stats.groups.get(self._group)
        self._left = stats.stored if group is None else group.ready

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Ack the batch that ended with `start`, and lease another one."""
        self._settle(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else limits.SPARK_LEASE_ROWS
        wait = limits.SPARK_POLL_SECONDS if self._left is None else 0
        while self._left is None or self._left > 0:
            most = min(most, limits.RECEIVE_MESSAGES_MAX, self._left or most)
            got = self._queue.receive_arrow(
                self._options.topic_name, self._group, max_messages=most, lease=self._options.lease,
                wait=wait, consumer="spark",
            )  # fmt: skip
            if not len(got):
                break
            if self._left is not None:
                self._left -= len(got)
            table = self._new(got)
            if table.num_rows:
                held = describe(got.lease, table)
                self._keep(held)
                return {"leases": start["leases"] + 1, **held}
        return start

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """A task for each partition of the topic. After a restart, hold what is held yet."""
        if self._keeper is None:
            if reading.found(self._queue, self._options.topic_name)[0] != end["topic"]:
                raise self._made_anew()
            self._keep(end).extend()
        return [
            LeasedRows(int(part), tuple(map(tuple, runs))) for part, runs in end["runs"].items()
        ]

    def commit(self, end: Offset) -> None:
        """Nothing: it comes when the next batch is planned, and by then its rows are acked."""

    def stop(self) -> None:
        """Make no lease longer any more."""
        if self._keeper is not None:
            self._keeper.stop()

    # -- in a task ---------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows as they are in the topic, with the attempts that the lease has counted."""
        assert isinstance(partition, LeasedRows)
        topic, runs = self._options.topic_name, partition.runs
        offsets = pa.array([at for start, end, _ in runs for at in range(start, end)], pa.int64())
        attempts = pa.array([run[2] for run in runs for _ in range(run[0], run[1])], pa.int32())
        for start, end in stretches(runs):
            tables = self._queue.read_arrow(
                topic, offset=start, end=end, partition=partition.partition
            )
            for table in reading.whole(tables):  # what cannot be read must not be acked
                places = pc.index_in(table["offset"], value_set=offsets)
                place = table.schema.get_field_index("attempt")
                counted = table.set_column(place, "attempt", attempts.take(places.combine_chunks()))
                found = counted.filter(pc.is_valid(places))
                if found.num_rows:
                    yield rows.converted(found, self._schema, topic)

    # -- leases ------------------------------------------------------------------------------------

    @property
    def _queue(self) -> Queue:
        return connections.node(self._options.url)

    @property
    def _group(self) -> str:
        assert self._options.group is not None
        return self._options.group

    def _settle(self, done: Offset) -> None:
        """Spark has committed the batch that ended there."""
        if self._settled == done["leases"]:
            return
        self._settled = done["leases"]
        self.stop()
        self._done = {}
        try:
            leased(self._queue, self._options, done).ack()
        except ReceiptExpired as error:
            attempts = {
                (int(part), at): attempt
                for part, runs in done["runs"].items()
                for start, end, attempt in runs
                for at in range(start, end)
            }
            self._done = {place: attempts[place] for place in error.refused}
        except ReceiptInvalid:
            raise self._made_anew() from None

    def _made_anew(self) -> InvalidRequest:
        return InvalidRequest(
            f"topic {self._options.topic!r} or group {self._group!r} was made anew since the query "
            "leased its last rows: give the query a new checkpoint"
        )

    def _new(self, got: DeliveryBatch) -> pa.Table:
        """What is to be processed of what was received: all, but for what has been.

        That comes with another attempt; if attempts begin anew, a `seek` wants it to be processed again.
        """
        table = got.table
        if self._done:
            columns = (table[name].to_pylist() for name in ("partition", "offset", "attempt"))
            known = pa.array(
                [
                    self._done.get((partition, offset), attempt) < attempt
                    for partition, offset, attempt in zip(*columns, strict=True)
                ]
            )
            with suppress(ReceiptExpired):
                got.ack(known)
            table = table.filter(pc.invert(known))
        return table

    def _keep(self, held: Offset) -> "LeaseKeeper":
        self.stop()
        self._keeper = LeaseKeeper(leased(self._queue, self._options, held), self._options.lease)
        return self._keeper


class LeaseKeeper(Thread):
    """Makes a lease longer, again and again, until it is told to stop."""

    def __init__(self, held: DeliveryBatch, lease_seconds: float) -> None:
        super().__init__(name="quiver-keeper", daemon=True)
        self._held = held
        self._lease_seconds = lease_seconds
        self._stopped = Event()
        self.start()

    def run(self) -> None:
        """Extend in time, and some time before it."""
        while not self._stopped.wait(self._lease_seconds / 3):
            self.extend()

    def extend(self) -> None:
        """Hold it for as long again, or whatever of it is still ours."""
        with suppress(QuiverError):  # the batch goes on, whatever happens to its lease
            self._held.extend(self._lease_seconds)

    def stop(self) -> None:
        """Let it end by itself, or be acked."""
        self._stopped.set()
        self.join()


def check(options: Options) -> None:
    """Refuse what has no meaning in queue mode."""
    if not is_address(options.url):
        raise InvalidRequest(
            "rows can be leased from a node only: start one with `quiver serve` and give its address as "
            "url, or leave out option group"
        )
    if options.start is not None or options.end is not None:
        raise InvalidRequest(
            "where a group goes on is known by the queue: leave out start and end, and use queue.seek"
        )
    if options.max_bytes is not None:
        raise InvalidRequest("leases are counted in rows: use maxRowsPerTrigger")


def describe(lease: GrantedLease, table: pa.Table) -> Offset:
    """A lease as text: what holds it, and which rows."""
    runs: dict[str, list[Run]] = {}
    ordered = table.select(["partition", "offset", "attempt"]).sort_by(
        [("partition", "ascending"), ("offset", "ascending")]
    )
    for partition, offset, attempt in zip(*ordered.to_pydict().values(), strict=True):
        found = runs.setdefault(str(partition), [])
        if found and found[-1][1] == offset and found[-1][2] == attempt:
            found[-1] = (found[-1][0], offset + 1, attempt)
        else:
            found.append((offset, offset + 1, attempt))
    return {
        "topic": lease.topic_number,
        "group": lease.group_number,
        "epoch": lease.epoch,
        "until": lease.deadline_ms,
        "settled": lease.settled,
        "tag": lease.tag.hex(),
        "runs": runs,
    }


def leased(queue: Queue, options: Options, held: Mapping[str, Any]) -> DeliveryBatch:
    """What a text says is leased, to be settled."""
    lease = GrantedLease(
        options.topic_name, held["topic"], options.group or "", held["group"], held["epoch"],
        held["until"], held["settled"], bytes.fromhex(held["tag"]),
    )  # fmt: skip
    ranges = {
        int(partition): [(start, end) for start, end, _ in runs]
        for partition, runs in held["runs"].items()
    }

    def settle(*args: Any, **options: Any) -> None:
        run(flows_of(queue).settle_table(*args, **options))

    return DeliveryBatch(settle, lease, pa.table({}), ranges)


def stretches(runs: Iterable[Run]) -> list[tuple[int, int]]:
    """What is read at a time: rows that are near to each other, with what is between them."""
    found: list[tuple[int, int]] = []
    for start, end, _ in runs:
        if found and start - found[-1][1] <= limits.READ_MESSAGES_MAX:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found

"""What the audit and the report look at: the ledger, and which messages are there, from one moment.

A queue goes on while it is looked at. So first the ledger is copied, then history is read, then what
the ledger has got meanwhile. A message that came before the first copy and is gone from history must
have an ending in the ledger by then: whatever ended it happened before history was read.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quiver.client.sync import Queue, flows_of
from quiver.errors import TopicNotFound
from quiver.spark.analytics import pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quiver.model.stats import TopicStats
    from quiver.model.topic import TopicPolicy

MESSAGES: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("nbytes", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Evidence:
    """The ledger and history of a queue, copied."""

    ledger: "DataFrame"  # its columns are those of `queue.ledger()`
    messages: "DataFrame"  # all that are stored: topic, partition, offset, key, nbytes
    policies: "dict[str, TopicPolicy]"  # of the topics whose messages these are
    stats: "dict[str, TopicStats]"
    when: datetime  # by the queue's clock
    complete_until: int  # `messages` lacks nothing that came up to this entry, unless it had an end

    @cached_property
    def happened(self) -> "DataFrame":
        """What happened to messages, and which are there: see `pieces.happenings`."""
        return pieces.happenings(self.ledger, pieces.runs(self.messages)).localCheckpoint()

    @cached_property
    def pieces(self) -> "DataFrame":
        """The same, cut into pieces."""
        return pieces.cut(self.happened).localCheckpoint()


def gather(spark: "SparkSession", queue: Queue, into: Path) -> Evidence:
    """Copy what is needed of a queue to the directory `into`, which all of Spark's processes can read."""
    last, when = _copy_ledger(queue, into / "ledger-1.parquet", 0, None)
    policies, stats = {}, {}
    with pq.ParquetWriter(into / "messages.parquet", MESSAGES) as writer:
        for topic in queue.topics():
            with suppress(TopicNotFound):  # deleted meanwhile
                _copy_messages(queue, topic, writer)
                policies[topic], stats[topic] = queue.policy(topic), queue.stats(topic)
    _copy_ledger(queue, into / "ledger-2.parquet", last, when)
    return Evidence(
        spark.read.parquet(*[str(into / f"ledger-{part}.parquet") for part in (1, 2)]),
        spark.read.parquet(str(into / "messages.parquet")),
        policies,
        stats,
        datetime.fromtimestamp(flows_of(queue).now_ms() / 1000, UTC),
        last,
    )


def _copy_ledger(
    queue: Queue, path: Path, after: int, start: datetime | None
) -> tuple[int, datetime | None]:
    """Copy the rows of entries behind `after`; return the last entry and its time."""
    reader = queue.ledger_reader(start=start)
    when = start
    with pq.ParquetWriter(path, reader.schema) as writer:
        for batch in reader:
            fresh = batch.filter(pc.field("entry") > after)
            if fresh.num_rows:
                writer.write_batch(fresh)
                last = pc.max(fresh["entry"]).as_py()
                when = pc.max(fresh["time"]).as_py()
                after = max(after, last)
    return after, when


def _copy_messages(queue: Queue, topic: str, writer: pq.ParquetWriter) -> None:
    """Copy which messages a topic has."""
    for table in queue.read_arrow(topic):
        columns = {
            "topic": pa.repeat(topic, table.num_rows),
            "partition": table["partition"],
            "offset": table["offset"],
            "key": table["key"],
            "nbytes": pc.binary_length(table["body"]),
        }
        rows = [columns[field.name].cast(field.type) for field in MESSAGES]
        writer.write_table(pa.table(rows, schema=MESSAGES))

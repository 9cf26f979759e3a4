"""Rows of the ledger cut so that two of them are about the same messages or about none in common.

A row of the ledger is about a range of offsets: a million messages that were sent together are one row,
and each ack of them is another. To put together what happened to a message, ranges are cut at each
other's ends. What is left is a *piece*: messages next to each other with one and the same story. It costs
as much as there are pieces, and there are as many as there are messages only where each was handled alone.

Three numbers tell stories apart that are about the same offset. A topic that was deleted and made
again has another `life`; a group that was deleted and made again, another `group_life`; and
with each seek a group begins another `era`, because it is given the same messages again.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKET: Final = 256  # offsets; ranges are cut there first, so that no task has a whole partition

ARRIVED: Final = "arrived"  # not an event of the ledger: the other end of a move
STORED: Final = "stored"  # nor is this: it is there, as history shows
ARRIVALS: Final = ("sent", ARRIVED)
MOVES: Final = ("dead_lettered", "redriven", "published")
TAKEN: Final = ("leased", "delivered")
FREED: Final = ("nacked", "timed_out")
SETTLED: Final = ("acked", "delivered", "dead_lettered", "expired", "lost")
STEPS: Final = ("leased", *FREED, "released", *SETTLED)  # a release is no failure
REMOVED: Final = ("redriven", "published", "discarded", "purged", "compacted", "dropped")

# Of what happens to one message in one entry: time passes first, then the command does its work.
_ORDER: Final = (
    ("sent", ARRIVED), ("timed_out", "released"), ("reserved", "leased", "delivered"),
    ("nacked", "extended", "acked"), ("dead_lettered", "expired"), ("lost",), REMOVED,
)  # fmt: skip

_AFTER_ALL: Final = 2**62  # an entry that no log will ever have

PLACE: Final = ("topic", "life", "partition", "offset")


def happenings(ledger: "DataFrame", stored: "DataFrame | None" = None) -> "DataFrame":
    """What happened to messages, with `life`, `group_life`, `era` and `rank`; a move arrives, too.

    `is_last_life` and the like say that nothing has ended it since. `stored` (topic, partition, offset,
    count) is there after all that happened.
    """
    about = ledger.where(f.col("partition").isNotNull() & (f.col("count") > 0))
    about = about.where(f.col("event") != "duplicate")
    here = about.withColumn("by", f.col("event")).withColumn(
        "group", f.when(~f.col("event").isin("redriven", "published"), f.col("group"))
    )
    there = about.where(f.col("to_topic").isNotNull()).select(
        "time", "entry", f.lit(ARRIVED).alias("event"), f.col("to_topic").alias("topic"),
        f.col("to_partition").alias("partition"), f.col("to_offset").alias("offset"), "count",
        f.when(f.col("event") == "redriven", f.col("group")).alias("group"),
        *[f.lit(None).cast(about.schema[name].dataType).alias(name) for name in
          ("consumer", "attempt", "reason", "until", "to_topic", "to_partition", "to_offset", "row")],
        f.col("event").alias("by"),
    )  # fmt: skip
    rows = here.unionByName(there)
    if stored is not None:
        now = stored.withColumns(
            {"event": f.lit(STORED), "by": f.lit(STORED), "entry": f.lit(_AFTER_ALL)}
        )
        rows = rows.unionByName(now, allowMissingColumns=True)
    return _numbered(rows, ledger).withColumn("rank", _rank())


def runs(messages: "DataFrame") -> "DataFrame":
    """Stored messages as ranges: topic, partition, offset, count."""
    bucket = f.floor(f.col("offset") / BUCKET)
    order = Window.partitionBy("topic", "partition", bucket).orderBy("offset")
    return (
        messages.withColumn("_run", f.col("offset") - f.row_number().over(order))
        .groupBy("topic", "partition", bucket.alias("_bucket"), "_run")
        .agg(f.min("offset").alias("offset"), f.count("*").alias("count"))
        .drop("_bucket", "_run")
    )


def _rank() -> "Column":
    ranks = {event: place for place, events in enumerate(_ORDER) for event in events}
    found = f.lit(None).cast("int")
    for event, place in ranks.items():
        found = f.when(f.col("event") == event, place).otherwise(found)
    return f.coalesce(found, f.lit(len(_ORDER)))


def _numbered(rows: "DataFrame", ledger: "DataFrame") -> "DataFrame":
    rows = _counted(rows, ledger.where("event = 'topic_deleted'"), ["topic"], "life")
    deleted = ledger.where("event = 'group_deleted'")
    rows = _counted(rows, deleted, ["topic", "group"], "group_life")
    sought = ledger.where("event = 'sought'")
    return _counted(rows, sought, ["topic", "group", "partition"], "era")


def _counted(rows: "DataFrame", ends: "DataFrame", of: list[str], name: str) -> "DataFrame":
    """How many of `ends` a row has behind it, as `name`; and whether it has all of them."""
    found = ends.groupBy(*of).agg(f.collect_set("entry").alias("_ends"))
    before = f.size(f.filter("_ends", lambda end: end < f.col("entry")))
    return (
        rows.join(f.broadcast(found), of, "left")
        .withColumn(name, f.when(f.col("_ends").isNull(), 0).otherwise(before))
        .withColumn(f"is_last_{name}", f.coalesce(f.size("_ends") == f.col(name), f.lit(True)))
        .drop("_ends")
    )


def cut(rows: "DataFrame") -> "DataFrame":
    """The rows as pieces: `offset` and `count` of any two of a partition are equal or apart."""
    key = ["topic", "life", "partition", "_bucket"]
    low, high = f.col("offset"), f.col("offset") + f.col("count")
    begin, end = f.col("_begin"), f.col("_end")
    first, last = f.floor(low / BUCKET), f.floor((high - 1) / BUCKET)
    parts = rows.withColumn("_bucket", f.explode(f.sequence(first, last)))
    parts = parts.withColumn("_begin", f.greatest(low, f.col("_bucket") * BUCKET))
    parts = parts.withColumn("_end", f.least(high, (f.col("_bucket") + 1) * BUCKET))
    edges = (
        parts.select(*key, f.explode(f.array("_begin", "_end")).alias("_edge"))
        .groupBy(*key)
        .agg(f.sort_array(f.collect_set("_edge")).alias("_edges"))
    )
    inside = f.filter("_edges", lambda edge: (edge > begin) & (edge < end))
    cuts = f.when(end - begin == 1, f.array(begin)).otherwise(f.concat(f.array(begin), inside))
    parts = parts.join(edges, key).withColumn("_cuts", cuts)
    parts = parts.withColumn(
        "_next", f.concat(f.slice("_cuts", 2, f.size("_cuts")), f.array("_end"))
    )
    parts = parts.withColumn("_piece", f.explode(f.arrays_zip("_cuts", "_next")))
    start, stop = f.col("_piece._cuts"), f.col("_piece._next")
    return (
        parts.withColumn("row", (f.col("row") + start - low).cast("int"))
        .withColumn("to_offset", f.col("to_offset") + start - low)
        .withColumn("count", stop - start)
        .withColumn("offset", start)
        .drop("_bucket", "_begin", "_end", "_edges", "_cuts", "_next", "_piece")
    )

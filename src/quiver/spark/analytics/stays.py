"""How long messages were where, and in whose hands: what figures are made of."""

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from quiver.spark.analytics import pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stays(cut: "DataFrame") -> "DataFrame":
    """Messages in a topic, for each group that was to get them, and when they were done with.

    Columns: topic, partition, offset, count, group, arrived (when it could be delivered), given (first),
    left (null: not yet), how (the event that ended it), attempts, failures, reason (the last).
    """
    cut = cut.where("is_last_life")
    due = f.greatest("time", f.when(f.col("event") == "sent", f.col("until")))
    arrived = cut.where(f.col("event").isin(*pieces.ARRIVALS)).select(
        *pieces.PLACE, "count", "entry", due.alias("arrived"), f.col("group").alias("_alone")
    )
    steps = cut.where(f.col("group").isNotNull() & f.col("event").isin(*pieces.STEPS))
    began = steps.groupBy("topic", "life", "group").agg(f.min("entry").alias("_since"))
    lowest = steps.groupBy("topic", "life", "group", "partition").agg(
        f.min("offset").alias("_from")
    )
    settled = f.col("event").isin(*pieces.SETTLED)
    told = steps.groupBy(*pieces.PLACE, "group").agg(
        f.min(f.when(f.col("event").isin(*pieces.TAKEN), f.col("time"))).alias("given"),
        f.min(f.when(settled, f.struct("time", "event"))).alias("_settled"),
        f.max("attempt").alias("attempts"),
        f.sum(f.col("event").isin(*pieces.FREED).cast("int")).alias("failures"),
        f.max_by("reason", f.when(f.col("reason").isNotNull(), f.col("entry"))).alias("reason"),
    )
    over = f.col("event").isin(*pieces.REMOVED)
    over |= (f.col("event") == "expired") & f.col("group").isNull()
    removed = (
        cut.where(over)
        .groupBy(*pieces.PLACE)
        .agg(f.min(f.struct("time", "event")).alias("_removed"))
    )
    meant = f.col("_alone").isNull() | (f.col("_alone") == f.col("group"))
    meant &= (f.col("entry") > f.col("_since")) | (f.col("offset") >= f.col("_from"))
    end = f.coalesce("_settled", "_removed")
    return (
        arrived.join(f.broadcast(began), ["topic", "life"])
        .join(f.broadcast(lowest), ["topic", "life", "group", "partition"], "left")
        .where(meant)
        .join(told, [*pieces.PLACE, "group"], "left")
        .join(removed, list(pieces.PLACE), "left")
        .select(
            "topic", "partition", "offset", "count", "group", "arrived", "given",
            end["time"].alias("left"), end["event"].alias("how"), "attempts",
            f.coalesce("failures", f.lit(0)).alias("failures"), "reason",
        )
    )  # fmt: skip


def services(cut: "DataFrame") -> "DataFrame":
    """Leases that have ended: topic, partition, offset, count, group, consumer, time, seconds, outcome."""
    story = [*pieces.PLACE, "group", "group_life", "era"]
    order = Window.partitionBy(*story).orderBy("entry", "rank")
    steps = cut.where(f.col("group").isNotNull() & f.col("event").isin(*pieces.STEPS))
    steps = steps.withColumn("_next", f.lead(f.struct("time", "event")).over(order))
    return steps.where("event = 'leased' and _next is not null").select(
        "topic", "partition", "offset", "count", "group", "consumer", "time",
        (f.unix_millis("_next.time") - f.unix_millis("time")).alias("ms"),
        f.col("_next.event").alias("outcome"),
    )  # fmt: skip

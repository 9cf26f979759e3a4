"""The figures of a queue, as DataFrames: flow, delay, failure, cost, and what is to come.

Times are in seconds. A figure about messages counts each message, however few rows of the ledger it took.
"""

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from quiver.spark.analytics import pieces
from quiver.spark.analytics.auditing import between
from quiver.spark.analytics.evidence import Evidence
from quiver.spark.analytics.stays import services, stays

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WINDOWS: Final = 60  # at most so many, in a report of any length
WIDTHS: Final = (1, 5, 10, 30, 60, 300, 900, 3_600, 10_800, 21_600, 86_400, 604_800, 2_592_000)
PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
FLOW: Final = ("sent", "published", "redriven", "leased", "delivered", "acked", "nacked", "timed_out",
               "dead_lettered", "expired", "lost")  # fmt: skip
TOP: Final = 20  # keys of a topic
WORST: Final = 100  # poison messages
POISON_FAILURES: Final = 3
IDLE_SECONDS: Final = 60  # without a delivery, while messages are ready: nobody works there
REASON_CHARS: Final = 200
# What differs between two failures of one kind, and what stands for it; in this order.
VARYING: Final = (
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "<id>"),
    (r"'[^']*'|\"[^\"]*\"", "<text>"),
    (r"\b0x[0-9a-fA-F]+\b|\b(?=[a-f]*[0-9])[0-9a-f]{8,}\b", "<hex>"),
    (r"\d+([.,:]\d+)*", "<n>"),
    (r"\s+", " "),
)


def figures(
    evidence: Evidence, start: Any = None, end: Any = None, width: int | None = None
) -> "dict[str, DataFrame]":
    """All figures by name, of what happened from `start` up to `end`, in windows of `width` seconds."""
    ledger = evidence.ledger
    chosen = between(ledger, start, end)
    first, last = chosen.agg(f.min("time"), f.max("time")).first() or (None, None)
    width = width or _width(0.0 if first is None else (last - first).total_seconds())
    cut = evidence.pieces
    stayed = stays(cut).localCheckpoint()
    served = between(services(cut), start, end).localCheckpoint()
    waiting = between(_waiting(stayed, ledger, width), start, end).localCheckpoint()
    return {
        "throughput": _throughput(chosen, width),
        "latency": between(_latency(stayed, width), start, end),
        "waiting": waiting,
        "service": _service(served),
        "service_times": _service_times(served),
        "causes": _causes(chosen),
        "keys": _keys(evidence.messages),
        "partitions": _partitions(chosen),
        "poison": _poison(stayed, start, end),
        "cost": _cost(chosen, served, evidence),
        "forecast": _forecast(waiting, evidence),
        "unattended": _unattended(evidence),
    }


def _width(seconds: float) -> int:
    return next((width for width in WIDTHS if seconds / width <= WINDOWS), WIDTHS[-1])


def _window(column: "str | Column", width: int) -> "Column":
    """The beginning of the window that a time is in."""
    whole = f.floor(f.unix_millis(column) / (1_000 * width)) * (1_000 * width)
    return f.timestamp_millis(whole)


def _seconds(start: str, end: str) -> "Column":
    return (f.unix_millis(end) - f.unix_millis(start)) / 1_000


def _percentiles(seconds: "Column") -> list["Column"]:
    return [
        f.percentile(seconds, share, f.col("count")).alias(name)
        for name, share in PERCENTILES.items()
    ]


def _throughput(ledger: "DataFrame", width: int) -> "DataFrame":
    """How many messages what happened to, in each window, by the topic where it happened."""
    where = f.when(f.col("event").isin("redriven", "published"), f.col("to_topic"))
    rows = ledger.where(f.col("event").isin(*FLOW)).withColumn(
        "topic", f.coalesce(where, f.col("topic"))
    )
    counts = (
        rows.groupBy(_window("time", width).alias("time"), "topic")
        .pivot("event", list(FLOW))
        .agg(f.sum("count"))
        .na.fill(0, list(FLOW))
    )
    return counts.withColumn("seconds", f.lit(width)).orderBy("time", "topic")


def _latency(stayed: "DataFrame", width: int) -> "DataFrame":
    """From arrival to ack, for what was acked in each window; and how much of it was waiting."""
    done = stayed.where(f.col("how").isin("acked", "delivered"))
    rows = done.groupBy(_window("left", width).alias("time"), "topic", "group").agg(
        f.sum("count").alias("messages"),
        *_percentiles(_seconds("arrived", "left")),
        f.percentile(_seconds("arrived", "given"), 0.5, f.col("count")).alias("wait_p50"),
    )
    return rows.orderBy("time", "topic", "group")


def _waiting(stayed: "DataFrame", ledger: "DataFrame", width: int) -> "DataFrame":
    """What a group had before it: at each window's end (lag), and on average, beside arrivals times stay.

    Little's law says that the average number there (`present`) is the rate of arrivals times the
    average stay (`expected`), as long as as much comes as goes.
    """
    now = ledger.agg(f.max("time").alias("_now"))
    rows = stayed.crossJoin(f.broadcast(now)).withColumn("_end", f.coalesce("left", "_now"))
    rows = rows.where(f.col("_end") >= f.col("arrived"))
    first, last = (f.floor(f.unix_millis(name) / (1_000 * width)) for name in ("arrived", "_end"))
    rows = rows.withColumn("_at", f.explode(f.sequence(first, last)))
    begins = f.col("_at") * (1_000 * width)
    ends = begins + 1_000 * width
    inside = f.least(f.unix_millis("_end"), ends) - f.greatest(f.unix_millis("arrived"), begins)
    came, went = f.col("_at") == first, f.col("left").isNotNull() & (f.col("_at") == last)
    rows = rows.groupBy("_at", "topic", "group").agg(
        f.sum(f.when(~went, f.col("count")).otherwise(0)).alias("lag"),
        f.sum(f.when(came, f.col("count")).otherwise(0)).alias("came"),
        f.sum(f.when(went, f.col("count")).otherwise(0)).alias("went"),
        (f.sum(inside * f.col("count")) / (1_000 * width)).alias("present"),
        f.try_divide(
            f.sum(f.when(went, _seconds("arrived", "left") * f.col("count"))),
            f.sum(f.when(went, f.col("count"))),
        ).alias("stay"),
    )
    return rows.select(
        f.timestamp_millis(begins).alias("time"), "topic", "group", "lag", "came", "went", "present",
        (f.col("came") / width * f.col("stay")).alias("expected"), "stay",
        f.lit(width).alias("seconds"),
    ).orderBy("time", "topic", "group")  # fmt: skip


def _service(served: "DataFrame") -> "DataFrame":
    """How long leases lasted, by how they ended."""
    seconds = f.col("ms") / 1_000
    return (
        served.groupBy("topic", "group", "outcome")
        .agg(
            f.sum("count").alias("leases"),
            *_percentiles(seconds),
            f.sum(seconds * f.col("count")).alias("total"),
        )
        .orderBy("topic", "group", "outcome")
    )


def _service_times(served: "DataFrame") -> "DataFrame":
    """The distribution of service times: leases that lasted up to `seconds`, in powers of two."""
    upper = f.pow(f.lit(2.0), f.ceil(f.log2(f.greatest("ms", f.lit(1))))) / 1_000
    return (
        served.groupBy("topic", "group", upper.alias("seconds"))
        .agg(f.sum("count").alias("leases"))
        .orderBy("topic", "group", "seconds")
    )


def normalised(reason: "Column") -> "Column":
    """A reason without what differs between two failures of one kind."""
    for pattern, instead in VARYING:
        reason = f.regexp_replace(reason, pattern, instead)
    return f.substring(f.trim(reason), 1, REASON_CHARS)


def _causes(ledger: "DataFrame") -> "DataFrame":
    """Why messages failed, alike reasons together; the most frequent first."""
    failed = ledger.where(f.col("event").isin("nacked", "timed_out", "dead_lettered"))
    said = f.coalesce("reason", f.when(f.col("event") == "timed_out", "lease expired"), f.lit(""))
    return (
        failed.withColumn("cause", normalised(said))
        .groupBy("topic", "event", "cause")
        .agg(
            f.sum("count").alias("messages"),
            f.count_distinct(said).alias("variants"),
            f.min("reason").alias("example"),
            f.min("time").alias("first"),
            f.max("time").alias("last"),
        )
        .orderBy(f.desc("messages"), "topic", "event", "cause")
    )


def _keys(messages: "DataFrame") -> "DataFrame":
    """The keys with most messages among those that are stored, and their share of the topic."""
    keyed = messages.where(f.col("key").isNotNull())
    counts = keyed.groupBy("topic", "key").agg(
        f.count("*").alias("messages"), f.sum("nbytes").alias("nbytes")
    )
    topic = Window.partitionBy("topic")
    counts = counts.withColumn("share", f.col("messages") / f.sum("messages").over(topic))
    counts = counts.withColumn("keys", f.count("*").over(topic))
    place = f.row_number().over(topic.orderBy(f.desc("messages"), "key"))
    top = counts.withColumn("_place", place).where(f.col("_place") <= TOP).drop("_place")
    return top.orderBy("topic", f.desc("messages"), "key")


def _partitions(ledger: "DataFrame") -> "DataFrame":
    """How arrivals are spread over partitions; `skew` 1 is an even share."""
    here = ledger.where("event = 'sent'").select("topic", "partition", "count")
    there = ledger.where("event = 'published'").select(
        f.col("to_topic").alias("topic"), f.col("to_partition").alias("partition"), "count"
    )
    counts = (
        here.unionByName(there).groupBy("topic", "partition").agg(f.sum("count").alias("messages"))
    )
    topic = Window.partitionBy("topic")
    skew = f.col("messages") / f.avg("messages").over(topic)
    return counts.withColumn("skew", skew).orderBy("topic", "partition")


def _poison(stayed: "DataFrame", start: Any, end: Any) -> "DataFrame":
    """Messages that failed again and again, or were given up; the worst first."""
    bad = stayed.where((f.col("failures") >= POISON_FAILURES) | (f.col("how") == "dead_lettered"))
    bad = between(bad.withColumn("time", f.coalesce("left", "given", "arrived")), start, end)
    return (
        bad.select("topic", "partition", "offset", "count", "group", "time", "attempts", "failures",
                   "how", "reason")
        .orderBy(f.desc("failures"), f.desc("attempts"), "topic", "partition", "offset")
        .limit(WORST)
    )  # fmt: skip


def _cost(ledger: "DataFrame", served: "DataFrame", evidence: Evidence) -> "DataFrame":
    """What a topic takes: deliveries for each message, workers' time, how much in vain, and room."""
    counts = ledger.groupBy("topic").agg(
        f.sum(f.when(f.col("event") == "sent", f.col("count")).otherwise(0)).alias("sent"),
        f.sum(f.when(f.col("event").isin(*pieces.TAKEN), f.col("count")).otherwise(0)).alias(
            "deliveries"
        ),
        f.sum(f.when(f.col("event") == "dead_lettered", f.col("count")).otherwise(0)).alias(
            "dead_lettered"
        ),
    )
    seconds = f.col("ms") / 1_000 * f.col("count")
    work = served.groupBy("topic").agg(
        f.sum(seconds).alias("worker_seconds"),
        f.sum(f.when(f.col("outcome") != "acked", seconds).otherwise(0)).alias("wasted_seconds"),
    )
    room = [(topic, stats.stored, stats.stored_bytes) for topic, stats in evidence.stats.items()]
    stored = ledger.sparkSession.createDataFrame(
        room, "topic string, stored bigint, stored_bytes bigint"
    )
    return (
        counts.join(work, ["topic"], "left")
        .join(f.broadcast(stored), ["topic"], "left")
        .withColumn("deliveries_per_message", f.try_divide("deliveries", "sent"))
        .orderBy(f.desc("worker_seconds"), "topic")
    )


def _forecast(waiting: "DataFrame", evidence: Evidence) -> "DataFrame":
    """Whether a group keeps up: what comes, what it has shown it can do, and when that is not enough.

    `capacity` is the most that it got done in a window that began with work waiting; without such
    a window nobody knows. `trend` is by how much arrivals a second grow in a second.
    """
    line = Window.partitionBy("topic", "group").orderBy("time")
    rows = waiting.withColumn("_before", f.lag("lag").over(line))
    rate = f.col("came") / f.col("seconds")
    at = f.unix_seconds("time")
    found = rows.groupBy("topic", "group").agg(
        (f.sum("came") / f.sum("seconds")).alias("arrivals"),
        f.max(f.when(f.col("_before") > 0, f.col("went") / f.col("seconds"))).alias("capacity"),
        f.regr_slope(rate, at).alias("trend"),
        f.max_by("lag", "time").alias("lag"),
        f.max_by(rate, "time").alias("latest"),
    )
    limits = [
        (topic, policy.max_backlog)
        for topic, policy in evidence.policies.items()
        if policy.max_backlog is not None
    ]
    bounds = waiting.sparkSession.createDataFrame(limits, "topic string, max_backlog bigint")
    spare = f.col("capacity") - f.col("latest")
    room = f.col("max_backlog") - f.col("lag")
    return (
        found.join(f.broadcast(bounds), ["topic"], "left")
        .withColumn("utilisation", f.try_divide("arrivals", "capacity"))
        .withColumn("drained_in", f.when(spare > 0, f.col("lag") / spare))
        .withColumn("full_in", f.when(spare < 0, room / -spare))
        .withColumn(
            "saturated_in", f.when((f.col("trend") > 0) & (spare > 0), spare / f.col("trend"))
        )
        .orderBy("topic", "group")
    )


def _unattended(evidence: Evidence) -> "DataFrame":
    """Groups with messages that are ready, of which nobody holds one or has taken one lately or ever."""
    idle = [
        (topic, group.group, group.ready, group.lag, group.oldest_age, group.paused, group.delivered > 0,
         evidence.policies[topic].ledger)
        for topic, stats in evidence.stats.items()
        for group in stats.groups.values()
        if group.ready and not group.in_flight
    ]  # fmt: skip
    ledger = evidence.ledger
    groups = ledger.sparkSession.createDataFrame(
        idle,
        "topic string, group string, ready bigint, lag bigint, oldest_age double, paused boolean, "
        "_ever boolean, _known boolean",
    )
    taken = ledger.where(f.col("event").isin(*pieces.TAKEN)).groupBy("topic", "group")
    rows = groups.join(taken.agg(f.max("time").alias("last_taken")), ["topic", "group"], "left")
    since = f.lit(evidence.when) - f.make_dt_interval(secs=f.lit(IDLE_SECONDS))
    # The ledger forgets, or is off: then a group that had something once may have it now.
    lately = f.coalesce(f.col("last_taken") > since, f.col("_ever") & ~f.col("_known"))
    return (
        rows.where(~lately).drop("_ever", "_known").orderBy(f.desc("oldest_age"), "topic", "group")
    )

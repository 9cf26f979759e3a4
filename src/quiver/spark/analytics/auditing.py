"""The correctness audit: what the ledger and history say that cannot both be true of a correct queue.

A finding needs a contradiction: two rows of the ledger, or a row and what history has. What the ledger
no longer reaches back to is never held against a message. The rules, by kind:

* `lost`: an offset that no message was given, between two that were. A message that history does not
  have and whose group never settled it. A lease that ended long ago and that nothing was done about.
* `duplicated`: a message that was given out or settled again after its group had settled it. An offset
  that was given twice, a row of an entry that was stored twice, a message that was moved twice.
* `reordered`: offsets that are not in the order of their entries. In a topic with order, a message
  that was given out while an earlier one (of its key, or of its partition) was waiting.
* `double_leased`: a message that was given out while somebody of the same group held it.
"""

from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from quiver.client.arguments import times
from quiver.spark.analytics import pieces
from quiver.spark.analytics.evidence import Evidence

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KINDS: Final = ("lost", "duplicated", "reordered", "double_leased")
PATIENCE_SECONDS: Final = (
    60  # by which a lease that has ended is in the ledger, on the ledger's clock
)

ROW: Final = ("time", "entry", "event", "group", "consumer", "attempt", "until")  # of a proof
FINDING: Final = (
    "kind", "time", "entry", "topic", "partition", "offset", "count", "group", "id", "why", "rows",
)  # fmt: skip
STORY: Final = (*pieces.PLACE, "group", "group_life", "era")
ONE_GROUP: Final = ("topic", "life", "partition", "group", "group_life", "era")


def audit(evidence: Evidence, start: Any = None, end: Any = None) -> "DataFrame":
    """What is wrong, oldest first; what happened from `start` up to `end` counts.

    Columns: kind, time, entry (when it went wrong), topic, partition, offset, count (which messages),
    group, id (of the first message, if it was sent where it is), why (a sentence), and rows (of the
    ledger that prove it).
    """
    happened, cut = evidence.happened, evidence.pieces
    rules = [
        _arrivals(happened, evidence),
        _stored_twice(happened),
        _moved_twice(cut),
        _steps(cut),
        _forgotten(cut, evidence),
        _vanished(cut, evidence),
        *_overtaken(cut, evidence),
    ]
    found = [rule.localCheckpoint() for rule in rules]  # one plan of all would take Spark minutes
    findings = reduce(lambda one, other: one.unionByName(other), found)
    findings = _named(between(findings, start, end), cut).select(*FINDING)
    return findings.orderBy("entry", "topic", "partition", "offset")


def between(rows: "DataFrame", start: Any, end: Any) -> "DataFrame":
    """The rows whose `time` is in a span, as for `queue.ledger(…)`; `end` is not included."""
    start_ms, end_ms = times(start, end)
    if start_ms is not None:
        rows = rows.where(f.col("time") >= f.timestamp_millis(f.lit(start_ms)))
    if end_ms is not None:
        rows = rows.where(f.col("time") < f.timestamp_millis(f.lit(end_ms)))
    return rows


# -- places ----------------------------------------------------------------------------------------


def _arrivals(happened: "DataFrame", evidence: Evidence) -> "DataFrame":
    """A partition's offsets are given one after the other, each once, as entries come."""
    known = [topic for topic, policy in evidence.policies.items() if policy.ledger]
    own = ~f.col("event").isin(*pieces.MOVES, pieces.ARRIVED, pieces.STORED)
    telling = happened.where(own).select("topic", "life").distinct()
    arrived = happened.where(f.col("event").isin(*pieces.ARRIVALS))
    arrived = arrived.join(telling.withColumn("_tells", f.lit(True)), ["topic", "life"], "left")
    arrived = arrived.where(
        f.col("_tells").isNotNull() | (f.col("is_last_life") & f.col("topic").isin(known))
    )
    order = Window.partitionBy("topic", "life", "partition").orderBy("offset", "entry")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    start, end, entry = f.col("offset"), f.col("_end"), f.col("entry")
    reached = arrived.withColumn("_end", f.max(start + f.col("count")).over(before))
    first = f.coalesce(start >= end, f.lit(True))  # of all that were given the offset
    turn = f.when(first, f.struct("entry", *[name for name in ROW if name != "entry"]))
    reached = reached.withColumn("_last", f.max(turn).over(before))
    later = f.format_string(
        "it came with entry %d, and an earlier offset with the later entry %d", entry, "_last.entry"
    )
    faults = [
        (start > end, "lost", f.lit("the ledger has later messages of the partition, and none here"),
         end, start - end),
        (start < end, "duplicated", f.lit("the offset was given to two messages"),
         start, f.least(end - start, "count")),
        (first & (entry < f.col("_last.entry")), "reordered", later, start, f.col("count")),
    ]  # fmt: skip
    told = [
        f.when(
            wrong,
            f.struct(
                f.lit(kind).alias("kind"), why.alias("why"),
                offset.alias("offset"), count.alias("count"),
            ),
        )
        for wrong, kind, why, offset, count in faults
    ]  # fmt: skip
    found = reached.withColumn("_fault", f.explode(f.array_compact(f.array(*told))))
    found = found.withColumns(
        {"offset": f.col("_fault.offset"), "count": f.col("_fault.count")}
    ).withColumn("group", f.lit(None).cast("string"))
    proof = f.array(f.struct(*[f.col(f"_last.{name}") for name in ROW]), _row())
    return _finding(found, f.col("_fault.kind"), f.col("_fault.why"), proof)


def _stored_twice(happened: "DataFrame") -> "DataFrame":
    """A row of an entry becomes one message."""
    order = Window.partitionBy("entry").orderBy("row", "topic", "partition", "offset")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    sent = happened.where("event = 'sent'")
    sent = sent.withColumn("_end", f.max(f.col("row") + f.col("count")).over(before))
    return _finding(
        sent.where(f.col("row") < f.col("_end")),
        "duplicated",
        "one row of the entry was stored at two offsets",
        f.array(_row()),
    )


def _moved_twice(cut: "DataFrame") -> "DataFrame":
    """Who has left a topic cannot leave it again."""
    gone = _with_previous(cut.where(f.col("event").isin(*pieces.REMOVED)), pieces.PLACE)
    moved = gone.where(f.col("event").isin(*pieces.MOVES) & f.col("_before").isNotNull())
    why = f.format_string("it was %s after it had been %s", _past("event"), _past("_before.event"))
    return _finding(moved, "duplicated", why, f.array(f.col("_before"), _row()))


# -- steps of a group ------------------------------------------------------------------------------


def _steps(cut: "DataFrame") -> "DataFrame":
    """What a group does with a message: lease it, then let go of it or settle it; settle it once."""
    steps = _with_previous(cut.where(f.col("event").isin(*pieces.STEPS)), STORY)
    proof = f.array(f.col("_before"), _row())
    done = f.col("_before.event").isin(*pieces.SETTLED)
    held = (f.col("_before.event") == "leased") & f.col("event").isin(*pieces.TAKEN)
    why = f.when(
        held,
        f.format_string(
            "it was %s while %s held it, since entry %d",
            _past("event"), f.coalesce("_before.consumer", f.lit("somebody")), "_before.entry",
        ),
    ).otherwise(
        f.format_string(
            "it was %s after the group had settled it (%s, entry %d)",
            _past("event"), _past("_before.event"), "_before.entry",
        )
    )  # fmt: skip
    kind = f.when(held, "double_leased").otherwise("duplicated")
    return _finding(steps.where(held | done), kind, why, proof)


def _forgotten(cut: "DataFrame", evidence: Evidence) -> "DataFrame":
    """A lease ends: by its holder, or when its time has come."""
    ends = evidence.ledger.agg(f.max("time").alias("_now"))
    told = (*pieces.STEPS, "extended", "reserved")
    held = cut.where(f.col("group").isNotNull() & f.col("event").isin(*told))
    last = held.groupBy(*STORY, "is_last_life", "is_last_group_life", "is_last_era").agg(
        f.max(f.struct("entry", "rank", "event", "time", "consumer", "attempt")).alias("_last"),
        f.max("until").alias("until"),
        f.first("count").alias("count"),
        f.bool_or(f.col("event").isin(*pieces.SETTLED)).alias("_settled"),
    )
    last = last.where("not _settled").select("*", "_last.*")
    gone = cut.where(f.col("event").isin(*pieces.REMOVED)).select(*pieces.PLACE)
    purged = (
        cut.where("event = 'purged'").groupBy("topic", "life").agg(f.max("entry").alias("_purged"))
    )  # also ends leases on what had expired before, of which it has no rows
    open_ = (
        last.where(f.col("event").isin("leased", "extended", "reserved"))
        .where("is_last_life and is_last_group_life and is_last_era")
        .join(gone, list(pieces.PLACE), "left_anti")
        .join(purged, ["topic", "life"], "left")
        .where(f.col("_purged").isNull() | (f.col("_purged") < f.col("entry")))
        .crossJoin(f.broadcast(ends))
        .where(f.col("until") + f.expr(f"interval {PATIENCE_SECONDS} seconds") < f.col("_now"))
    )
    why = f.format_string("its lease ended on %s, and nothing has happened since", _iso("until"))
    return _finding(open_, "lost", why, f.array(_row()))


# -- history ---------------------------------------------------------------------------------------


def _vanished(cut: "DataFrame", evidence: Evidence) -> "DataFrame":
    """Who came and is not there any more has an ending."""
    topics = list(evidence.policies)
    arrived = (
        cut.where(f.col("event").isin(*pieces.ARRIVALS) & f.col("is_last_life"))
        .where(f.col("topic").isin(topics) & (f.col("entry") <= evidence.complete_until))
        .withColumnRenamed("group", "_alone")  # redriven for one group, which has settled it alone
    )
    ended = f.col("event").isin(*pieces.REMOVED, pieces.STORED)
    ended |= (f.col("event") == "expired") & f.col("group").isNull()
    missing = arrived.join(cut.where(ended).select(*pieces.PLACE), list(pieces.PLACE), "left_anti")
    missing = missing.drop("group_life", "is_last_group_life", "era", "is_last_era")
    steps = cut.where(f.col("group").isNotNull() & f.col("event").isin(*pieces.STEPS))
    settled = steps.where(f.col("event").isin(*pieces.SETTLED)).select(*pieces.PLACE, "group")
    claims = _claims(missing, steps, evidence)
    unsettled = claims.join(settled, [*pieces.PLACE, "group"], "left_anti")
    # Who came later than the message may have come when others were done with it. It cannot if all
    # that there ever were have a claim to it, and none has settled it.
    everybody = Window.partitionBy(*pieces.PLACE)
    unanimous = (f.count("*").over(everybody) == f.col("_groups")) & ~f.col("_seeks")
    for_group = unsettled.withColumn("_unanimous", unanimous).where("_was_there or _unanimous")
    for_nobody = missing.join(_groups(evidence), ["topic"], "left_anti").withColumn(
        "group", f.lit(None).cast("string")
    )
    why = "it is not stored any more, and the ledger has no reason why"
    return _finding(for_group, "lost", why, f.array(_row())).unionByName(
        _finding(for_nobody, "lost", why, f.array(_row()))
    )


def _claims(missing: "DataFrame", steps: "DataFrame", evidence: Evidence) -> "DataFrame":
    """Messages with the groups that were to get them: `_was_there` before it came, or began before it."""
    who = ["topic", "life", "group"]
    now = steps.where("is_last_group_life")
    since = now.groupBy(*who).agg(f.min("entry").alias("_since"))
    lowest = now.groupBy(*who, "partition").agg(f.min("offset").alias("_from"))
    seeks = (
        evidence.ledger.where("event = 'sought'")
        .groupBy("topic", "group", "partition")
        .agg(f.collect_list(f.struct("entry", "offset")).alias("_sought"))
    )
    passed_by = f.exists(
        "_sought", lambda seek: (seek.entry > f.col("entry")) & (seek.offset > f.col("offset"))
    )
    return (
        missing.join(f.broadcast(since), ["topic", "life"])
        .join(f.broadcast(lowest), [*who, "partition"], "left")
        .join(f.broadcast(seeks), ["topic", "group", "partition"], "left")
        .join(f.broadcast(_groups(evidence)), ["topic"])
        .withColumn("_was_there", f.col("entry") > f.col("_since"))
        .where(f.col("_was_there") | (f.col("offset") >= f.col("_from")))
        .where(f.col("_alone").isNull() | (f.col("_alone") == f.col("group")))
        .where(f.col("_sought").isNull() | ~passed_by)
    )


def _groups(evidence: Evidence) -> "DataFrame":
    """How many groups a topic has ever had, and whether one was ever put elsewhere."""
    ledger = evidence.ledger
    told = ledger.where(f.col("event").isin(*pieces.STEPS, "sought", "group_deleted"))
    told = told.where(f.col("group").isNotNull()).select("topic", "group", "event")
    known = [
        (topic, group, "") for topic, stats in evidence.stats.items() for group in stats.groups
    ]
    now = ledger.sparkSession.createDataFrame(known, "topic string, `group` string, event string")
    return (
        told.unionByName(now)
        .groupBy("topic")
        .agg(
            f.count_distinct("group").alias("_groups"),
            f.bool_or(f.col("event").isin("sought", "group_deleted")).alias("_seeks"),
        )
    )


# -- order -----------------------------------------------------------------------------------------


def _overtaken(cut: "DataFrame", evidence: Evidence) -> list["DataFrame"]:
    """With order, nothing is given out while something earlier waits.

    What is reserved is given out with that; when it begins is its consumer's affair.
    """
    by_order = {
        order: [topic for topic, policy in evidence.policies.items() if policy.order == order]
        for order in ("partition", "key")
    }
    steps = cut.where(f.col("event").isin(*pieces.STEPS, "reserved") & f.col("is_last_life"))
    steps = _with_previous(steps, STORY)
    begins = f.col("event").isin(*pieces.TAKEN)
    reserved = f.coalesce(f.col("_before.event") == "reserved", f.lit(False))
    taken = steps.where((f.col("event") == "reserved") | (begins & ~reserved)).drop("_before")
    strict = taken.where(f.col("topic").isin(by_order["partition"]))
    keyed = taken.where(f.col("topic").isin(by_order["key"]))
    last = f.col("offset") + f.col("count") - 1
    single = keyed.withColumn("offset", f.explode(f.sequence(f.col("offset"), last)))
    keys = evidence.messages.where(f.col("key").isNotNull())
    single = single.withColumn("count", f.lit(1).cast("long")).join(
        keys.select("topic", "partition", "offset", "key"), ["topic", "partition", "offset"]
    )
    return [
        *_passed(strict, ONE_GROUP, f.lit("its partition")),
        *_passed(single, (*ONE_GROUP, "key"), f.concat(f.lit("key "), f.col("key"))),
    ]


def _passed(taken: "DataFrame", line: tuple[str, ...], what: "Column") -> list["DataFrame"]:
    """Of messages that stand in line, those that were given out after one that came behind them.

    A message that was given out before was in the line since then: nobody behind it may have been
    given out between.
    """
    turns = taken.withColumn("_turn", f.struct(f.col("offset"), *ROW))
    mine = Window.partitionBy(*line, "offset").orderBy("entry")
    turns = turns.withColumn("_mine", f.lag("entry").over(mine))
    earlier = Window.partitionBy(*line).orderBy("entry").rangeBetween(Window.unboundedPreceding, -1)
    first = turns.withColumn("_other", f.max("_turn").over(earlier)).where(f.col("_mine").isNull())
    again = turns.where(f.col("_mine").isNotNull())
    others = turns.select(*line, f.col("_turn").alias("_other"))
    again = again.join(others, list(line)).where(
        (f.col("_other.entry") > f.col("_mine")) & (f.col("_other.entry") < f.col("entry"))
    )
    why = f.format_string(
        "offset %d of %s had been given out before it, with entry %d",
        "_other.offset", what, "_other.entry",
    )  # fmt: skip
    proof = f.array(f.struct(*[f.col(f"_other.{name}") for name in ROW]), _row())
    return [
        _finding(rows.where(f.col("_other.offset") > f.col("offset")), "reordered", why, proof)
        for rows in (first, again)
    ]


# -- what a finding says ---------------------------------------------------------------------------


def _finding(
    rows: "DataFrame", kind: "str | Column", why: "str | Column", proof: "Column"
) -> "DataFrame":
    columns = ("time", "entry", "topic", "life", "partition", "offset", "count", "group")
    kind, why = (f.lit(one).alias(name) for one, name in ((kind, "kind"), (why, "why")))
    return rows.select(kind, *columns, why, proof.alias("rows"))


def _with_previous(rows: "DataFrame", story: tuple[str, ...]) -> "DataFrame":
    """Each row with the one before it in its story, as `_before`."""
    order = Window.partitionBy(*story).orderBy("entry", "rank")
    return rows.withColumn("_before", f.lag(_row()).over(order))


def _named(findings: "DataFrame", cut: "DataFrame") -> "DataFrame":
    """Findings with the id of their first message, where it is known."""
    sent = cut.where("event = 'sent'").select(
        *pieces.PLACE, f.format_string("%d-%d", "entry", "row").alias("id")
    )
    return findings.join(sent.dropDuplicates(list(pieces.PLACE)), list(pieces.PLACE), "left")


def _row() -> "Column":
    return f.struct(*ROW)


def _past(column: str) -> "Column":
    return f.replace(f.col(column), f.lit("_"), f.lit(" "))


def _iso(column: str) -> "Column":
    return f.date_format(column, "yyyy-MM-dd HH:mm:ss.SSS")

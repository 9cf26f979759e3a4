"""LOAD: good rows to files and to a topic, bad ones to the dead letters; each batch once, in each of them.

What would not fit into a message is bad, too, so that writing never fails because of a row.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from quiver import limits
from quiver.spark.pipeline.config import TopicConfig
from quiver.spark.pipeline.expressions import data, expression, first, none, quoted
from quiver.spark.pipeline.transforming import judged
from quiver.tracing import PARENT, STATE

REASON: Final = "quiver.reason"
STAGE: Final = "quiver.stage"
PIPELINE: Final = "quiver.pipeline"
JSON: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",  # all that a timestamp has, not milliseconds
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
PLACE: Final = ("topic", "partition", "offset")  # of the bad message: quiver.topic, …


def packed(rows: DataFrame, topic: TopicConfig | None) -> DataFrame:
    """Rows with the message that each will be, in `_key` and `_body`."""
    if topic is None:
        return rows
    key = none() if topic.key is None else expression(rows, topic.key, "load.topic.key")
    body = sql.to_json(sql.struct(*map(quoted, data(rows))), JSON)
    rows = rows.withColumns({"_key": key.cast("string"), "_body": body})
    names = [name for name in rows.columns if name not in {"_stage", "_reason"}]
    too_large = [
        _over("_key", limits.KEY_BYTES_MAX, "the key of the result"),
        _over("_body", limits.BODY_BYTES_MAX, "the result"),
    ]
    return rows.select(*names, *judged("load", first(too_large)))


def good(rows: DataFrame) -> DataFrame:
    """The data of good rows."""
    return rows.filter("_reason IS NULL").select(*map(quoted, data(rows)))


def results(rows: DataFrame) -> DataFrame:
    """Good rows as messages, in the trace of those that they come from."""
    told = sql.map_filter("_message.headers", lambda name, _: name.isin(PARENT, STATE))
    found = rows.filter("_reason IS NULL")
    return found.select(
        sql.col("_key").alias("key"), sql.col("_body").alias("body"), told.alias("headers")
    )


def dead_letters(rows: DataFrame, pipeline: str) -> DataFrame:
    """Bad rows as the messages that they were, with what is wrong in their headers."""
    reason = sql.substring("_reason", 1, limits.REASON_CHARS_MAX)
    said: dict[str, Column] = {
        PIPELINE: sql.lit(pipeline), STAGE: sql.col("_stage"), REASON: reason,
        **{f"quiver.{name}": sql.col(f"_message.{name}").cast("string") for name in PLACE},
    }  # fmt: skip
    pairs = [part for name, value in said.items() for part in (sql.lit(name), value)]
    own = sql.map_filter("_message.headers", lambda name, _: ~name.isin(*said))
    fewer = sql.map_from_entries(sql.slice(sql.map_entries(own), 1, limits.DEAD_LETTER_HEADERS_MAX))
    fit = sql.octet_length(sql.to_json(own)) <= limits.DEAD_LETTER_HEADERS_BYTES_MAX
    kept = sql.when(fit, fewer).otherwise(
        sql.map_from_entries(sql.slice(sql.map_entries(own), 1, 0))
    )
    bad = rows.filter("_reason IS NOT NULL")
    return bad.select(
        sql.col("_message.key").alias("key"), sql.col("_message.body").alias("body"),
        sql.map_concat(sql.coalesce(kept, sql.create_map()), sql.create_map(*pairs)).alias("headers"),
    )  # fmt: skip


def _over(name: str, most: int, what: str) -> Column:
    return sql.when(sql.octet_length(name) > most, f"{what} has more than {most:,} bytes")

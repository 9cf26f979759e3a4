"""ENRICH: rows without duplicates, with what others know about them, and with more columns.

Time here is when a batch was planned (`_seen`), which Spark writes down with it: a batch that is done again
has the same. By that time no row is ever late, so none is dropped for being late, however old it is
and however unevenly partitions are read. What is added to a clock that went back is for `clock` to say.
"""

from collections.abc import Callable
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType, StructField

from quiver.errors import InvalidRequest
from quiver.model.units import milliseconds
from quiver.spark.pipeline.config import Enrich, Reference, Stream, Transform, Version
from quiver.spark.pipeline.expressions import (
    data,
    demand_columns,
    expression,
    first_line,
    none,
    quoted,
)
from quiver.spark.pipeline.transforming import ROW, judged, transform

FOUND: Final = "_found"  # in reference data: there is a match


def enrich(
    rows: DataFrame, config: Enrich, messages: Callable[[str], DataFrame], *, added_ms: int = 0
) -> DataFrame:
    """Rows with more columns; `messages` gives those of another topic, `added_ms` is added to the clock."""
    spans = [part.within for part in (config.dedup, config.stream) if part is not None]
    if spans:
        rows = _timed(rows, max(_ms(within) for within in spans), added_ms)
    if config.dedup is not None:
        rows = _once(rows, config.dedup.by, "enrich.dedup")
    for reference in config.reference:
        rows = _with_reference(rows, reference)
    if config.stream is not None:
        others = _others(config.stream, messages(config.stream.topic), added_ms)
        rows = _with_stream(rows, config.stream, others)
    for name, text in config.columns.items():
        rows = rows.withColumn(name, expression(rows, text, f"enrich.columns.{name}"))
    return rows.drop("_seen")


def _timed(rows: DataFrame, within_ms: int, added_ms: int) -> DataFrame:
    """Rows with the time that counts; what is remembered of them is forgotten after `within_ms`."""
    now_ms = sql.unix_millis(sql.current_timestamp())
    timed = rows.withColumn(
        "_seen", sql.timestamp_millis(now_ms + sql.lit(added_ms).cast("bigint"))
    )
    return timed.withWatermark("_seen", f"{within_ms} milliseconds")


def _once(rows: DataFrame, by: tuple[str, ...], where: str) -> DataFrame:
    """The first row of each key. Bad rows have no key that means anything: they are all kept."""
    demand_columns(rows, by, f"{where}.by")
    for name in map(quoted, by):
        expression(rows, f"{name} = {name}", f"{where}.by")  # a map, for one, is equal to nothing
    place = sql.struct("_message.topic", "_message.partition", "_message.offset")
    rows = rows.withColumn("_place", sql.when(sql.col("_reason").isNotNull(), place))
    return rows.dropDuplicatesWithinWatermark([*by, "_place"]).drop("_place")


def _ms(within: str) -> int:
    return milliseconds(within, "within")


# -- reference data --------------------------------------------------------------------------------


def _with_reference(rows: DataFrame, config: Reference) -> DataFrame:
    demand_columns(rows, config.on, f"the rows, for enrich.reference {config.name}")
    table = _table(rows, config)
    more = [name for name in table.columns if name not in config.on]
    _demand_new(rows, more, config.name)
    right = sql.broadcast(table.withColumn(FOUND, sql.lit(True))).alias("right")
    joined = rows.alias("left").join(right, _equal(config.on) & _good("left"), "left")
    missing = _unmatched(config.name, config.on, config.required, sql.col(FOUND).isNull())
    kept = [name for name in rows.columns if name not in {"_stage", "_reason"}]
    return joined.select(
        *_columns("left", kept), *judged("enrich", missing), *_columns("right", more)
    )


def _table(rows: DataFrame, config: Reference) -> DataFrame:
    """The reference data, in which no key may be twice: a row would become two."""
    reader = rows.sparkSession.read.format(config.format).option("header", "true")
    try:
        table = (reader.schema(config.schema) if config.schema else reader).load(config.path)
        demand_columns(table, config.on, f"enrich.reference {config.name}")
        for name in config.on:
            table = _with_key_of(table, rows.schema[name], config.name)
        twice = table.groupBy(*map(quoted, config.on)).count().filter("count > 1").first()
    except PySparkException as error:
        raise InvalidRequest(f"enrich.reference {config.name}: {first_line(error)}") from None
    if twice is not None:
        key = ", ".join(f"{name} = {twice[name]}" for name in config.on)
        raise InvalidRequest(
            f"enrich.reference {config.name} has {twice['count']} rows for {key}; each key must be "
            "there once, as each row stays one row"
        )
    return table


def _with_key_of(table: DataFrame, field: StructField, where: str) -> DataFrame:
    """The table with a key of the rows' type, so that what is one key for them is one here: 1 and 01."""
    key, kind = sql.col(quoted(field.name)), table.schema[field.name].dataType
    made = key.try_cast(field.dataType)
    exact = made.isNotNull() if isinstance(kind, StringType) else made.try_cast(kind) == key
    other = table.filter(key.isNotNull() & ~sql.coalesce(exact, sql.lit(False))).first()
    if other is not None:
        raise InvalidRequest(
            f"enrich.reference {where} has {field.name} = {other[field.name]}, and the rows have it as "
            f"{field.dataType.simpleString()}"
        )
    return table.withColumn(field.name, made)


# -- another stream --------------------------------------------------------------------------------


def _others(config: Stream, messages: DataFrame, added_ms: int) -> DataFrame:
    """The first message of each key."""
    others = transform(messages, Transform(versions={config.topic: Version(schema=config.schema)},
                                           version=f"'{config.topic}'"))  # fmt: skip
    timed = _timed(others, _ms(config.within), added_ms)
    return _once(timed, config.on, f"enrich.stream {config.topic}")


def _with_stream(rows: DataFrame, config: Stream, others: DataFrame) -> DataFrame:
    """Each row with the first message of the other topic that has its key.

    All rows of both sides come out of the join, so that bad ones of either side go on their way; good ones
    of the other side that nobody waited for are left out.
    """
    demand_columns(rows, config.on, f"the rows, for enrich.stream {config.topic}")
    more = [name for name in data(others) if name not in config.on]
    _demand_new(rows, more, config.topic)
    within = sql.expr(f"INTERVAL '{_ms(config.within) / 1000}' SECOND")
    left, right = sql.col("left._seen"), sql.col("right._seen")
    near = (left >= right - within) & (left <= right + within)
    joined = rows.alias("left").join(
        others.alias("right"),
        _equal(config.on) & _good("left") & _good("right") & near,
        "full",
    )  # fmt: skip
    alone = sql.col("left._message").isNull()
    joined = joined.filter(~(alone & _good("right")))
    missing = _unmatched(
        config.topic, config.on, config.required, sql.col("right._message").isNull()
    )
    both = [sql.coalesce(f"left.{name}", f"right.{name}").alias(name) for name in ROW]
    flat = joined.select(
        *both, sql.when(~alone, missing).alias("_missing"),
        *_columns("left", data(rows)), *_columns("right", more),
    )  # fmt: skip
    return flat.select(
        "_message", *judged("enrich", sql.col("_missing")), *map(quoted, [*data(rows), *more])
    )


# -- both ------------------------------------------------------------------------------------------


def _unmatched(name: str, on: tuple[str, ...], required: bool, missing: Column) -> Column:
    """The reason of a row that has no match and must have one."""
    if not required:
        return none()
    key = sql.to_json(sql.struct(*_columns("left", on)))
    return sql.when(missing, sql.concat(sql.lit(f"there is no {name} for "), key))


def _equal(on: tuple[str, ...]) -> Column:
    conditions = [
        sql.col(f"left.{quoted(name)}") == sql.col(f"right.{quoted(name)}") for name in on
    ]
    equal = sql.lit(True)
    for condition in conditions:
        equal = equal & condition
    return equal


def _good(side: str) -> Column:
    return sql.col(f"{side}._reason").isNull()


def _columns(side: str, names: list[str] | tuple[str, ...]) -> list[Column]:
    return [sql.col(f"{side}.{quoted(name)}") for name in names]


def _demand_new(rows: DataFrame, names: list[str], where: str) -> None:
    for name in names:
        if name in rows.columns:
            raise InvalidRequest(f"{where} has a column {name!r}, and the rows have one already")

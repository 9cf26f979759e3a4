"""TRANSFORM: messages become rows of the newest version, or bad rows with a reason.

Rows between stages have the columns of the data and three of the pipeline's:

    _message   the message they come from, whole
    _stage     where a bad row was found to be bad; null for good rows
    _reason    why

Bad rows go along to the end, so that one plan, and one pass over the input, gives both. No row can stop
the pipeline: what Spark cannot compute is null, and the schema says whether that may be.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType, StructField, StructType

from quiver.spark.bodies import is_json
from quiver.spark.pipeline.config import Transform
from quiver.spark.pipeline.expressions import expression, first, none, quoted
from quiver.spark.pipeline.versions import TableShape, shapes

BODY: Final = "_body"  # in what is parsed: the body
CORRUPT: Final = "_corrupt"  # in what is parsed: not null if the body is not as the schema says
OPTIONS: Final = {"columnNameOfCorruptRecord": CORRUPT}
ROW: Final = ("_message", "_stage", "_reason")


def transform(messages: DataFrame, config: Transform) -> DataFrame:
    """Rows of the newest version, from messages in the columns of the source."""
    versions = shapes(config.versions)
    rows = _begun(messages, config.version, [shape.name for shape in versions])
    before = None
    for place, shape in enumerate(versions):
        rows = _stepped(rows, place, shape, before)
        before = shape
    names = versions[-1].columns.names
    checks = [
        sql.when(
            expression(rows, f"NOT ({condition})", f"transform.checks.{name!r}"), f"not so: {name}"
        )
        for name, condition in config.checks.items()
    ]
    rows = rows.withColumn("_stage", none())
    return rows.select("_message", *judged("transform", first(checks)), *names)


def judged(stage: str, reason: Column) -> list[Column]:
    """`_stage` and `_reason` after a stage that found `reason`; what was bad before keeps its own."""
    found = sql.coalesce("_reason", reason)
    at = sql.coalesce("_stage", sql.when(found.isNotNull(), stage))
    return [at.alias("_stage"), found.alias("_reason")]


def _begun(messages: DataFrame, version: str, names: list[str]) -> DataFrame:
    """Messages with their body as `_text`, and the place of their version as `_at`."""
    rows = messages.withColumn("_message", sql.struct(*messages.columns))
    rows = rows.withColumn("body", sql.col("body").cast("string"))
    said = expression(rows, version, "transform.version").cast("string")
    rows = rows.select("_message", sql.col("body").alias("_text"), said.alias("_version"))
    places = [sql.when(sql.col("_version") == name, at) for at, name in enumerate(names)]
    rows = rows.withColumn("_at", sql.coalesce(sql.when(rows["_version"].isNull(), 0), *places))
    known = sql.lit(f" is not known, only {', '.join(names)}")
    unknown = sql.concat(sql.lit("version "), "_version", known)
    reason = (
        sql.when(~sql.is_valid_utf8("_text"), "the body is not UTF-8")
        .when(sql.trim("_text") == "", "the body is empty")
        .when(sql.col("_at").isNull(), unknown)
    )
    return rows.withColumn("_reason", reason)


def _stepped(
    rows: DataFrame, place: int, shape: TableShape, before: TableShape | None
) -> DataFrame:
    """Rows with the columns of a version: parsed, or made of the columns of the version before."""
    native = sql.col("_at") == place
    parsed = sql.from_json(_wrapped(), _readable(shape.columns), OPTIONS)
    good = sql.col("_reason").isNull()
    rows = rows.withColumn("_parsed", sql.when(native & good, parsed))
    body = rows["_parsed"].getField(BODY)
    values = []
    for field in shape.columns.fields:
        own = sql.when(native, body.getField(field.name))
        old = _migrated(rows, field, shape, before)
        values.append(own.otherwise(old).alias(field.name))
    reason = sql.coalesce("_reason", sql.when(native, _fault(shape)))
    rows = rows.select("_message", "_text", "_at", reason.alias("_reason"), *values)
    missing = [
        sql.when(sql.col(quoted(field.name)).isNull(), _missing(native, field.name, shape, before))
        for field in shape.columns.fields
        if not field.nullable
    ]
    absent = sql.when(sql.col("_at") <= place, first(missing))
    return rows.withColumn("_reason", sql.coalesce("_reason", absent))


def _wrapped() -> Column:
    """The body inside an object, as Spark would not look at what comes after a body."""
    return sql.concat(sql.lit(f'{{"{BODY}":'), "_text", sql.lit("}"))


def _readable(columns: StructType) -> StructType:
    """What from_json is asked for: whether a value may be missing is checked afterwards."""
    fields = [StructField(field.name, field.dataType) for field in columns.fields]
    body = StructField(BODY, StructType(fields))
    return StructType([body, StructField(CORRUPT, StringType())])


def _migrated(
    rows: DataFrame, field: StructField, shape: TableShape, before: TableShape | None
) -> Column:
    if field.name in shape.migrate:
        where = f"transform.versions.{shape.name}.migrate.{field.name}"
        kind = field.dataType.simpleString()
        return expression(rows, f"CAST(({shape.migrate[field.name]}) AS {kind})", where)
    if before is not None and field.name in before.columns.names:
        return sql.col(quoted(field.name)).cast(field.dataType)
    return none(field.dataType)


def _fault(shape: TableShape) -> Column:
    """What is wrong with a body that should have this version; null if nothing is."""
    body = sql.col("_parsed").getField(BODY)
    wrong = [
        sql.when(
            sql.get_json_object("_text", f"$['{field.name}']").isNotNull()
            & body.getField(field.name).isNull(),
            f"{field.name} is not {field.dataType.simpleString()}",
        )
        for field in shape.columns.fields
    ]
    not_json = sql.when(~is_json(sql.col("_text")), "the body is not JSON")
    otherwise = sql.lit(f"the body is not as version {shape.name} says")
    corrupt = sql.col("_parsed").getField(CORRUPT).isNotNull() | body.isNull()
    return sql.coalesce(not_json, sql.when(corrupt, sql.coalesce(*wrong, otherwise)))


def _missing(native: Column, name: str, shape: TableShape, before: TableShape | None) -> Column:
    missing = sql.lit(f"{name} is missing")
    if before is None:
        return missing
    unmade = f"{name} of version {shape.name} cannot be made of version {before.name}"
    return sql.when(native, missing).otherwise(unmade)

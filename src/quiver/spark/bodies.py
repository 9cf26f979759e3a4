"""Bodies to columns, with those that cannot be read kept apart.

    orders, malformed = bodies.from_json(frame, "id bigint, cents bigint")

`orders` has a column `data` with the fields; `malformed` has the rows as they were, and a column
`problem` that says what is wrong. Both are data frames like any other, of a batch or of a stream.

Avro and Protobuf need Spark's own packages: `spark.jars.packages` with
`org.apache.spark:spark-avro_2.13` or `spark-protobuf_2.13`, of the version of Spark.
"""

import json
from collections.abc import Iterable
from functools import reduce
from operator import and_
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import DataType, StringType, StructField, StructType

from quiver.errors import InvalidRequest

DATA: Final = "data"
PROBLEM: Final = "problem"
TORN: Final = "_torn"  # in what is parsed: the text, if it is not as the schema says


class Parsed(NamedTuple):
    """Rows whose bodies could be read, and those whose could not."""

    rows: DataFrame
    malformed: DataFrame


def from_json(frame: DataFrame, schema: StructType | str) -> Parsed:
    """Bodies that are JSON objects; `schema` is a StructType, or text such as "id bigint, name string"."""
    fields = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(fields, StructType)
    text = sql.col("body").cast("string")
    made = sql.from_json(
        text,
        StructType([*fields.fields, StructField(TORN, StringType())]),
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": TORN},
    )
    problem = (
        sql.when(~sql.is_valid_utf8(text), "the body is not UTF-8")
        .when(~is_json(text), "the body is not JSON")
        .when(~text.rlike(r"^\s*\{"), "the body is not a JSON object")
        .when(made.isNull() | made[TORN].isNotNull(), "the body is not as the schema says")
    )
    return _apart(frame, made.dropFields(TORN), problem)


def is_json(text: Column) -> Column:
    """Whether a text is one JSON value.

    Spark does not look at what comes after a value, unless it is inside another. What would close a list
    too early is wrong in an object, and the other way round: so we look at it in both.
    """
    values = sql.json_array_length(sql.concat(sql.lit("["), text, sql.lit("]")))
    keys = sql.json_object_keys(sql.concat(sql.lit('{"":'), text, sql.lit("}")))
    return values.eqNullSafe(1) & keys.isNotNull()


def from_avro(frame: DataFrame, schema: str) -> Parsed:
    """Bodies that are an Avro record, without a header; `schema` is the writer's, in JSON."""
    from pyspark.sql.avro.functions import from_avro as parse  # noqa: PLC0415
    from pyspark.sql.avro.functions import to_avro as write  # noqa: PLC0415

    made = parse(sql.col("body"), schema, {"mode": "PERMISSIVE"})
    fields = _fields(schema)
    nothing = _nothing(made, fields)  # some records are just that
    if all(fields.values()):
        nothing &= write(made, schema) != sql.col("body")
    return _apart(frame, made, sql.when(nothing, "the body is not Avro of the schema"))


def _fields(schema: str) -> dict[str, bool]:
    """The fields of an Avro record, and whether each may be null."""
    try:
        record = json.loads(schema)
        return {
            field["name"]: field["type"] == "null"
            or (isinstance(field["type"], list) and "null" in field["type"])
            for field in record["fields"]
        }
    except (ValueError, KeyError, TypeError):
        raise InvalidRequest("the schema is not that of an Avro record, in JSON") from None


def from_protobuf(frame: DataFrame, message: str, descriptors: bytes) -> Parsed:
    """Bodies that are a Protobuf message; `descriptors` is what `protoc --descriptor_set_out` writes."""
    from pyspark.sql.protobuf.functions import from_protobuf as parse  # noqa: PLC0415

    made = parse(
        sql.col("body"), message, options={"mode": "PERMISSIVE"}, binaryDescriptorSet=descriptors
    )
    fields = frame.select(made.alias(DATA)).schema[DATA].dataType
    assert isinstance(fields, StructType)
    # A message of nothing but defaults has an empty body, and no other.
    torn = _nothing(made, fields.names) & (sql.length("body") > 0)
    return _apart(frame, made, sql.when(torn, f"the body is not a {message}"))


def _nothing(made: Column, fields: Iterable[str]) -> Column:
    """What Spark makes of a body that it cannot read: nothing, or a record of nulls."""
    return reduce(and_, (made[name].isNull() for name in fields), sql.lit(True))


def _apart(frame: DataFrame, made: Column, problem: Column) -> Parsed:
    both = frame.withColumn(PROBLEM, problem)
    return Parsed(
        both.where(sql.col(PROBLEM).isNull()).drop(PROBLEM).withColumn(DATA, made),
        both.where(sql.col(PROBLEM).isNotNull()),
    )

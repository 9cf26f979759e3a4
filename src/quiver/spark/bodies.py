"""Bodies to columns, with those that cannot be read kept apart.

    orders, malformed = bodies.from_json(frame, "id bigint, cents bigint")

`orders` has a column `data` with the fields; `malformed` has the rows as they were, and a column
`problem` that says what is wrong. Both are data frames like any other, of a batch or of a stream.

Avro and Protobuf need Spark's own packages: `spark.jars.packages` with
`org.apache.spark:spark-avro_2.13` or `spark-protobuf_2.13`, of the version of Spark.
"""

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import DataType, StringType, StructField, StructType

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
    # Spark does not look at what comes after a value, unless it is in a list.
    values = sql.json_array_length(sql.concat(sql.lit("["), text, sql.lit("]")))
    problem = (
        sql.when(~sql.is_valid_utf8(text), "the body is not UTF-8")
        .when(values.isNull() | (values != 1), "the body is not JSON")
        .when(~text.rlike(r"^\s*\{"), "the body is not a JSON object")
        .when(made.isNull() | made[TORN].isNotNull(), "the body is not as the schema says")
    )
    return _apart(frame, made.dropFields(TORN), problem)


def from_avro(frame: DataFrame, schema: str) -> Parsed:
    """Bodies in Avro's binary form, without a header; `schema` is the writer's, in JSON."""
    from pyspark.sql.avro.functions import from_avro as parse  # noqa: PLC0415

    made = parse(sql.col("body"), schema, {"mode": "PERMISSIVE"})
    return _apart(frame, made, sql.when(made.isNull(), "the body is not Avro of the schema"))


def from_protobuf(frame: DataFrame, message: str, descriptors: bytes) -> Parsed:
    """Bodies that are a Protobuf message; `descriptors` is what `protoc --descriptor_set_out` writes."""
    from pyspark.sql.protobuf.functions import from_protobuf as parse  # noqa: PLC0415

    made = parse(
        sql.col("body"), message, options={"mode": "PERMISSIVE"}, binaryDescriptorSet=descriptors
    )
    return _apart(frame, made, sql.when(made.isNull(), f"the body is not a {message}"))


def _apart(frame: DataFrame, made: Column, problem: Column) -> Parsed:
    both = frame.withColumn(PROBLEM, problem)
    return Parsed(
        both.where(sql.col(PROBLEM).isNull()).drop(PROBLEM).withColumn(DATA, made),
        both.where(sql.col(PROBLEM).isNotNull()),
    )

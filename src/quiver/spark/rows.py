"""The columns of a row in Spark, and Arrow tables of a queue to batches that have them.

Spark takes a batch only if its types are exactly those that it expects; nothing is cast for us.
A reader may be given a schema with fewer columns: those left out cost nothing.
"""

from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quiver.errors import InvalidRequest

ORIGIN: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("group", StringType()),
        StructField("attempts", IntegerType()),
        StructField("reason", StringType()),
        StructField("time", TimestampType()),
    ]
)
MESSAGES: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("key", StringType()),
        StructField("body", BinaryType()),
        StructField("headers", MapType(StringType(), StringType())),
        StructField("priority", IntegerType()),
        StructField("created_at", TimestampType()),
        StructField("deliver_at", TimestampType()),
        StructField("expires_at", TimestampType()),
        StructField("dedup_id", StringType()),
        StructField("attempt", IntegerType()),
        StructField("id", StringType()),
        StructField("origin", ORIGIN),  # of a dead letter
    ]
)
LEDGER: Final = StructType(
    [
        StructField("time", TimestampType()),
        StructField("entry", LongType()),
        StructField("event", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("count", LongType()),
        StructField("group", StringType()),
        StructField("consumer", StringType()),
        StructField("attempt", IntegerType()),
        StructField("reason", StringType()),
        StructField("until", TimestampType()),
        StructField("to_topic", StringType()),
        StructField("to_partition", IntegerType()),
        StructField("to_offset", LongType()),
        StructField("row", IntegerType()),
    ]
)


def of_table(table: str) -> StructType:
    """All columns of messages, or of the ledger."""
    return LEDGER if table == "ledger" else MESSAGES


def wanted(schema: StructType, table: str) -> pa.Schema:
    """The Arrow schema of the columns that a reader shall give, which must be some of ours."""
    types = {field.name: field.dataType for field in of_table(table)}
    for field in schema:
        if types.get(field.name) != field.dataType:
            raise InvalidRequest(
                f"there is no column {field.name!r} of type {field.dataType.simpleString()}; the columns "
                f"are {', '.join(f'{name} {kind.simpleString()}' for name, kind in types.items())}"
            )
    made: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return made


def converted(table: pa.Table, schema: pa.Schema, topic: str | None = None) -> pa.RecordBatch:
    """The table with exactly these columns, as one batch; `topic` is a column, if it is given."""
    rows = table.num_rows

    def column(field: pa.Field) -> Any:
        if topic is not None and field.name == "topic":
            return pa.repeat(pa.scalar(topic, field.type), rows)
        chunks = table[field.name].chunks
        if len(chunks) == 1:  # as a node sends them: nothing is copied
            values = chunks[0]
        else:
            values = pa.concat_arrays(chunks) if chunks else pa.nulls(0, table[field.name].type)
        return values if values.type.equals(field.type) else values.cast(field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)

"""What tests of Spark share: messages of every kind, data frames, and how to compare the two."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quiver import Message, Queue
from quiver.spark.rows import MESSAGES


def load(spark, url: str, topic: str, **options: Any):
    return spark.read.format("quiver").options(url=url, topic=topic, **options).load()


def stream(spark, url: str, topic: str, **options: Any):
    return spark.readStream.format("quiver").options(url=url, topic=topic, **options).load()


def varied(count: int, first: int = 0) -> list[Message]:
    """Messages with every column, every pattern of missing values, and bodies of all kinds."""
    bodies = [b"", b"\x00\xff\x80", "žluťoučký 🐎".encode(), b"x" * 1_000, b'{"a": 1}']
    return [
        Message(
            bodies[number % len(bodies)] + str(number).encode() if number % 5 else b"",
            key=None if number % 3 == 0 else f"k{number % 7}/ñ",
            headers={} if number % 4 == 0 else {"n": str(number), "é": "", "": "x"},
            priority=number % 10,
            delay=None if number % 6 else 3_600 + number,
            ttl=None if number % 8 else 86_400 + number,
            dedup_id=None if number % 9 else f"d{number}",
        )
        for number in range(first, first + count)
    ]


def expected(queue: Queue, topic: str, **where: Any) -> pa.Table:
    """What Spark should have, as the client reads it, in order of partition and offset."""
    found = pa.concat_tables(queue.read_arrow(topic, **where))
    found = found.append_column("topic", pa.array([topic] * found.num_rows))
    names = [field.name for field in MESSAGES]
    return in_order(found.select(names))


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([("partition", "ascending"), ("offset", "ascending")])


def assert_same(found: pa.Table, wanted: pa.Table) -> None:
    """Cell by cell."""
    found = in_order(found)
    assert found.column_names == wanted.column_names
    assert found.num_rows == wanted.num_rows
    for name in wanted.column_names:
        ours = wanted[name].cast(found[name].type)
        if pa.types.is_map(ours.type) or pa.types.is_struct(ours.type):
            assert found[name].to_pylist() == ours.to_pylist(), name
        else:
            assert found[name].combine_chunks().equals(ours.combine_chunks()), name


def moment(table: pa.Table, row: int) -> datetime:
    value: datetime = pc.cast(table["created_at"], pa.timestamp("ms", "UTC"))[row].as_py()
    return value.astimezone(UTC)

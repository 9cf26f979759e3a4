"""Other programs read segments, and find exactly the messages that were sent."""

import math
from typing import Any

import duckdb
import pandas as pd
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from tests.readers.archive import Archive, Row, make

pytestmark = pytest.mark.check

TOPICS = ("orders", "orders.dlq", "events", "jobs")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return make(tmp_path_factory.mktemp("archive"))


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(map(plain, rows), key=lambda row: (row["partition"], row["offset"]))


def plain(row: Row) -> Row:
    """The row as plain Python values: what readers call maps and missing values differs."""
    made = {name: None if missing(value) else value for name, value in row.items()}
    if made["headers"] is not None:
        made["headers"] = dict(made["headers"])
    if made["origin"] is not None:
        made["origin"] = dict(made["origin"])
    return made


def missing(value: Any) -> bool:
    return value is None or value is pd.NaT or (isinstance(value, float) and math.isnan(value))


def test_the_directory_has_what_the_readers_shall_find(archive):
    assert {topic: len(rows) for topic, rows in archive.rows.items()} == {
        "orders": 60,
        "orders.dlq": 24,
        "events": 60,
        "jobs": 6,
    }
    assert len(archive.files("orders")) > 3, "segments of several snapshots"
    assert {row["partition"] for row in archive.rows["orders"]} == {0, 1, 2}
    assert not set(archive.files("orders")) & set(archive.files("orders.dlq"))


@pytest.mark.parametrize("topic", TOPICS)
def test_pyarrow_reads_exactly_the_messages(archive, topic):
    found = ds.dataset(archive.files(topic), format="parquet").to_table()
    assert in_order(found.to_pylist()) == archive.rows[topic]


@pytest.mark.parametrize("topic", TOPICS)
def test_pandas_reads_exactly_the_messages(archive, topic):
    frames = [pd.read_parquet(file) for file in archive.files(topic)]
    found = [row for frame in frames for row in frame.to_dict("records")]
    assert in_order(found) == archive.rows[topic]


@pytest.mark.parametrize("topic", TOPICS)
def test_duckdb_reads_exactly_the_messages(archive, topic):
    with duckdb.connect() as connection:
        found = connection.sql(f"from '{archive.pattern(topic)}'").to_arrow_table()
    assert in_order(found.to_pylist()) == archive.rows[topic]


def test_conditions_that_skip_row_groups_skip_no_message(archive):
    """Readers leave out what a file's statistics rule out; those must be right."""
    wanted = [
        row for row in archive.rows["orders"] if row["key"] == "Tromsø/é" and row["offset"] > 4
    ]
    assert wanted
    condition = (pc.field("key") == "Tromsø/é") & (pc.field("offset") > 4)
    arrow = ds.dataset(archive.files("orders"), format="parquet").to_table(filter=condition)
    assert in_order(arrow.to_pylist()) == wanted
    with duckdb.connect() as connection:
        question = f"from '{archive.pattern('orders')}' where key = 'Tromsø/é' and \"offset\" > 4"
        found = connection.sql(question).to_arrow_table()
    assert in_order(found.to_pylist()) == wanted

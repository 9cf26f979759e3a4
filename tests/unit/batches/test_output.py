"""Batches for readers: lists and tables."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from quiver.batches.output import NONE, ORIGIN, OUTPUT_SCHEMA, Piece, columns, ids_of, table
from quiver.batches.rows import make_row, pack
from quiver.batches.schema import TIME, assemble
from quiver.model.replies import Origin, Slice

NOW = 1_700_000_000_000
PLAIN = pack([make_row(b"%d" % number) for number in range(10)], NOW)
RICH = pack(
    [
        make_row(b"a"),
        make_row(b"b", key="k", headers={"x": "y"}, priority=3, delay=1, ttl=2, dedup_id="d"),
        make_row(b"c", headers={"z": ""}),
    ],
    NOW,
)


def moment(milliseconds):
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def slice_of(row, count, **fields):
    given = {"partition": 0, "offset": 0, "index": 1, "time_ms": NOW} | fields
    return Slice(row=row, count=count, **given)


def piece(batch, part):
    """A slice of a batch that has the rows of its entry."""
    return Piece(batch, part.row, part)


def test_messages_that_have_only_bodies_have_no_columns():
    assert columns(PLAIN) is NONE
    assert NONE["key"] is None
    assert NONE["priority"] is None


def test_every_column_that_exists_is_a_list():
    found = columns(RICH)
    assert found["key"] == [None, "k", None]
    assert found["headers"] == [None, {"x": "y"}, {"z": ""}]
    assert found["priority"] == [0, 3, 0]
    assert found["created_at"] is None
    one = found.only(1)
    assert (one["key"], one["headers"], one["priority"]) == (["k"], [{"x": "y"}], [3])


def test_rows_beyond_the_batch_are_a_bug():
    with pytest.raises(AssertionError):
        table([piece(PLAIN, slice_of(8, 3))])


def test_no_slices_are_an_empty_table():
    assert table([]).schema == OUTPUT_SCHEMA
    assert table([], with_ids=True).schema.names == [*OUTPUT_SCHEMA.names, "id"]
    assert table([]).num_rows == 0


def test_a_table_has_all_columns_and_defaults():
    made = table([piece(PLAIN, slice_of(3, 2, partition=7, offset=40, attempt=2))])
    made.validate(full=True)
    assert made.schema == OUTPUT_SCHEMA
    absent = dict.fromkeys(["key", "headers", "deliver_at", "expires_at", "dedup_id", "origin"])
    common = absent | {"priority": 0, "created_at": moment(NOW), "partition": 7, "attempt": 2}
    assert made.to_pylist() == [
        common | {"body": b"3", "offset": 40},
        common | {"body": b"4", "offset": 41},
    ]


def test_slices_of_different_batches_become_one_table():
    made = table(
        [
            piece(PLAIN, slice_of(0, 2, offset=5)),
            piece(RICH, slice_of(1, 2, partition=1, offset=100, time_ms=NOW + 1)),
            piece(PLAIN, slice_of(9, 1, offset=7)),
        ]
    )
    made.validate(full=True)
    assert made.column("body").to_pylist() == [b"0", b"1", b"b", b"c", b"9"]
    assert made.column("key").to_pylist() == [None, None, "k", None, None]
    assert made.column("headers").to_pylist() == [None, None, [("x", "y")], [("z", "")], None]
    assert made.column("priority").to_pylist() == [0, 0, 3, 0, 0]
    assert made.column("deliver_at")[2].as_py() == moment(NOW + 1_000)
    assert made.column("partition").to_pylist() == [0, 0, 1, 1, 0]
    assert made.column("offset").to_pylist() == [5, 6, 100, 101, 7]
    assert made.column("created_at").to_pylist() == [
        moment(NOW + extra) for extra in (0, 0, 1, 1, 0)
    ]


def test_bodies_are_not_copied():
    made = table([piece(PLAIN, slice_of(1, 2)), piece(PLAIN, slice_of(5, 2))])
    stored = PLAIN.column(0).buffers()[2].address
    assert [chunk.buffers()[2].address for chunk in made.column("body").chunks] == [stored] * 2


def test_a_creation_time_of_the_sender_stays():
    batch = assemble({"body": pa.array([b"", b""]), "created_at": pa.array([5, None], TIME)})
    made = table([piece(batch, slice_of(0, 2)), piece(PLAIN, slice_of(0, 1, time_ms=9))])
    assert made.column("created_at").cast(pa.int64()).to_pylist() == [5, NOW, 9]
    assert columns(batch)["created_at"] == [5, None]


def test_a_dead_letter_says_where_it_came_from():
    origin = Origin("orders", 3, 70, "billing", 5, "Timeout", NOW)
    made = table([piece(PLAIN, slice_of(0, 1)), piece(PLAIN, slice_of(1, 2, origin=origin))])
    made.validate(full=True)
    story = {
        "topic": "orders",
        "partition": 3,
        "group": "billing",
        "attempts": 5,
        "reason": "Timeout",
        "time": moment(NOW),
    }
    assert made.column("origin").type == ORIGIN
    assert made.column("origin").to_pylist() == [
        None,
        story | {"offset": 70},
        story | {"offset": 71},
    ]


def test_ids_are_made_when_asked_for():
    made = table(
        [piece(PLAIN, slice_of(8, 2, index=12)), piece(PLAIN, slice_of(0, 1))], with_ids=True
    )
    assert made.column("id").to_pylist() == ["12-8", "12-9", "1-0"]


@pytest.mark.parametrize("counts", [[], [1], [1, 1, 1], [5_000], [900, 900], [1, 2_000, 1, 600]])
def test_ids_are_the_same_however_long_their_entries_are(counts: list[int]):
    places = [(10**at, row) for at, count in enumerate(counts) for row in range(95, 95 + count)]
    entries = pa.array([entry for entry, _ in places], pa.int64())
    rows = pa.array([row for _, row in places], pa.int32())
    assert ids_of(entries, rows).to_pylist() == [f"{entry}-{row}" for entry, row in places]

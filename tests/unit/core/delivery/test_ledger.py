"""Rows gather, grow as long as they can, and are taken once."""

import pytest

from quiver import limits
from quiver.batches.ledger import SCHEMA, table
from quiver.core.delivery.ledger import Ledger, NoLedger
from quiver.model.ledger import Event, LedgerRows


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger()
    made.at(1, 1_000)
    return made


def found(rows: LedgerRows | None, *names: str) -> list[tuple]:
    assert rows is not None
    return [tuple(row[name] for name in names) for row in table(rows).to_pylist()]


def test_a_row_that_goes_on_makes_the_last_one_longer(ledger):
    ledger.add(Event.ACKED, "t", 0, 5, 7, "g")
    ledger.add(Event.ACKED, "t", 0, 7, 8, "g")
    ledger.add(Event.ACKED, "t", 0, 8, 20, "g")
    assert found(ledger.take(), "offset", "count") == [(5, 15)]


@pytest.mark.parametrize(
    "other",
    [
        (Event.NACKED, "t", 0, 7, 8, "g", "c", 1, "r", 9),
        (Event.ACKED, "u", 0, 7, 8, "g", "c", 1, "r", 9),
        (Event.ACKED, "t", 1, 7, 8, "g", "c", 1, "r", 9),
        (Event.ACKED, "t", 0, 8, 9, "g", "c", 1, "r", 9),
        (Event.ACKED, "t", 0, 4, 5, "g", "c", 1, "r", 9),
        (Event.ACKED, "t", 0, 7, 8, "h", "c", 1, "r", 9),
        (Event.ACKED, "t", 0, 7, 8, "g", "d", 1, "r", 9),
        (Event.ACKED, "t", 0, 7, 8, "g", "c", 2, "r", 9),
        (Event.ACKED, "t", 0, 7, 8, "g", "c", 1, "s", 9),
        (Event.ACKED, "t", 0, 7, 8, "g", "c", 1, "r", 8),
    ],
)
def test_whatever_differs_is_a_row_of_its_own(ledger, other):
    ledger.add(Event.ACKED, "t", 0, 5, 7, "g", "c", 1, "r", 9)
    ledger.add(*other)
    rows = ledger.take()
    assert rows.count == 2
    assert found(rows, "offset", "count") == [(5, 2), (other[3], 1)]


def test_another_entry_is_a_row_of_its_own(ledger):
    ledger.add(Event.ACKED, "t", 0, 5, 7)
    ledger.at(2, 1_000)
    ledger.add(Event.ACKED, "t", 0, 7, 8)
    assert found(ledger.take(), "entry", "count") == [(1, 2), (2, 1)]


def test_messages_that_move_apart_are_apart(ledger):
    for start, to in ((0, 10), (1, 11), (2, 20)):
        ledger.add(Event.DEAD_LETTERED, "t", 0, start, start + 1, to_topic="d", to_partition=0,
                   also=to)  # fmt: skip
    assert found(ledger.take(), "offset", "count", "to_offset") == [(0, 2, 10), (2, 1, 20)]


def test_the_row_in_the_entry_is_told_of_what_was_sent(ledger):
    ledger.add(Event.SENT, "t", 0, 0, 2, also=3)
    ledger.add(Event.LEASED, "t", 0, 0, 2, "g")
    assert found(ledger.take(), "event", "row", "to_offset") == [
        ("sent", 3, None),
        ("leased", None, None),
    ]


def test_what_is_not_known_is_null(ledger):
    ledger.add(Event.TOPIC_DELETED, "t", -1, 0, 0)
    (row,) = table(ledger.take()).to_pylist()
    assert {name for name, value in row.items() if value is not None} == {
        "time", "entry", "event", "topic", "count"
    }  # fmt: skip
    assert table(ledger.peek() or LedgerRows(1, 1, b"", ("",))).schema == SCHEMA


def test_rows_are_taken_once_and_peeked_at_often(ledger):
    ledger.add(Event.ACKED, "t", 0, 0, 1)
    ledger.at(4, 2_000)
    assert ledger.peek() == ledger.peek()
    rows = ledger.take()
    assert (rows.first, rows.last) == (1, 4)
    assert ledger.take() is None
    ledger.at(5, 2_000)
    ledger.add(Event.NACKED, "u", 0, 1, 2)
    rows = ledger.take()
    assert (rows.first, rows.last) == (5, 5)
    assert found(rows, "event", "topic") == [("nacked", "u")]


def test_rows_after_a_snapshot_begin_behind_it():
    ledger = Ledger(after=70)
    ledger.at(75, 1_000)
    ledger.add(Event.ACKED, "t", 0, 0, 1)
    rows = ledger.take()
    assert rows is not None
    assert rows.first == 71


def test_it_is_full_with_many_rows_or_long_texts(ledger, monkeypatch):
    monkeypatch.setattr(limits, "LEDGER_ROWS_MAX", 3)
    monkeypatch.setattr(limits, "LEDGER_CHARS_MAX", 100)
    for offset in (0, 2):
        ledger.add(Event.ACKED, "t", 0, offset, offset + 1)
    assert not ledger.is_full
    ledger.add(Event.ACKED, "t", 0, 4, 5)
    assert ledger.is_full
    ledger.take()
    assert not ledger.is_full
    ledger.add(Event.NACKED, "t", 0, 4, 5, reason="x" * 100)
    assert ledger.is_full


def test_a_topic_that_keeps_none_costs_nothing():
    ledger = NoLedger()
    ledger.add(Event.ACKED, "t", 0, 4, 5)
    assert ledger.take() is None

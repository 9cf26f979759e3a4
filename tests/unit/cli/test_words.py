"""The ledger in plain words: every event, and what it has to say."""

from datetime import UTC, datetime, timedelta

import pytest

from quiver.batches.ledger import SCHEMA
from quiver.cli.words import clock, happened
from quiver.model.ledger import Event

NOON = datetime(2026, 11, 15, 12, 0, 1, 120_000, tzinfo=UTC)


def row(event, **fields):
    nothing = dict.fromkeys(SCHEMA.names)
    there = {"time": NOON, "topic": "orders", "partition": 0, "offset": 17, "count": 1}
    return {**nothing, **there, "event": event, **fields}


@pytest.mark.parametrize(
    ("event", "fields", "words"),
    [
        ("sent", {}, "sent to orders, partition 0, offset 17"),
        ("sent", {"count": 3}, "sent to orders, partition 0, offsets 17 to 19"),
        (
            "sent",
            {"until": NOON + timedelta(seconds=5)},
            "sent to orders, partition 0, offset 17, to be delivered from 12:00:06.120 on",
        ),
        (
            "leased",
            {"group": "g", "consumer": "w1", "attempt": 2, "until": NOON + timedelta(days=1)},
            "leased by group g (consumer w1), attempt 2, until 2026-11-16 12:00:01.120",
        ),
        ("acked", {"group": "g"}, "acked by group g"),
        ("nacked", {"group": "g", "attempt": 1}, "nacked by group g, attempt 1"),
        (
            "nacked",
            {"group": "g", "reason": "no", "until": NOON},
            "nacked by group g: no; again from 12:00:01.120 on",
        ),
        (
            "timed_out",
            {"group": "g", "attempt": 1},
            "timed out: the lease of group g, attempt 1 ended unsettled",
        ),
        ("expired", {}, "expired: its time to live is over"),
        ("expired", {"group": "g"}, "expired for group g: its time to live is over"),
        (
            "dead_lettered",
            {"group": "g", "attempt": 2, "reason": "no", "to_topic": "d", "to_partition": 1,
             "to_offset": 1_000},
            "given up by group g, attempt 2: no; moved to d, partition 1, offset 1,000",
        ),
        (
            "redriven",
            {"topic": "d", "to_topic": "orders", "to_partition": 0, "to_offset": 4},
            "redriven from d to orders, partition 0, offset 4, for every group",
        ),
        (
            "redriven",
            {"topic": "d", "group": "g", "to_topic": "orders", "to_partition": 0, "to_offset": 4},
            "redriven from d to orders, partition 0, offset 4, for group g",
        ),
    ],
)  # fmt: skip
def test_a_row_says(event, fields, words):
    assert happened(row(event, **fields)) == words


@pytest.mark.parametrize("event", list(Event))
def test_every_event_has_words_of_its_own(event):
    told = row(event.name.lower(), group="g", until=NOON, to_topic="d", to_partition=0, to_offset=1)
    unknown = row("something_else")
    assert happened(unknown) == "something else"
    assert "_" not in happened(told)
    assert len(happened(told)) > len(event.name) + 3


def test_what_consumers_said_cannot_move_a_cursor():
    told = row("nacked", group="g", consumer="a\x1b[2Jb", reason="x\r\ny", attempt=1)
    assert happened(told).isprintable()


def test_a_time_has_its_date_if_that_is_another():
    assert clock(NOON, row("sent")) == "12:00:01.120"
    assert clock(NOON + timedelta(days=1), row("sent")) == "2026-11-16 12:00:01.120"

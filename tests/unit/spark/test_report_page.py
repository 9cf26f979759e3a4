"""The page of a report: broken lines where nothing happened, units, groups that nobody works for."""

from datetime import UTC, datetime, timedelta
from math import isnan

import pyarrow as pa
import pytest

from quiver.spark.analytics.page import page
from quiver.spark.analytics.plots import plots, with_gaps

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def at(*minutes):
    return [BEGIN + minute * MINUTE for minute in minutes]


def test_a_line_is_broken_where_windows_are_missing():
    times, values = with_gaps(at(0, 1, 5, 6, 9), [1.0, 2.0, 3.0, 4.0, 5.0], MINUTE)
    assert times == at(0, 1, 2, 5, 6, 7, 9)
    assert [None if isnan(value) else value for value in values] == [1, 2, None, 3, 4, None, 5]


def test_a_line_through_all_windows_is_whole():
    assert with_gaps(at(0, 1, 2), [1.0, 0.0, 1.0], MINUTE) == (at(0, 1, 2), [1.0, 0.0, 1.0])
    assert with_gaps([], [], MINUTE) == ([], [])


def made(**tables):
    empty = pa.table({"topic": pa.array([], pa.string())})
    return {"findings": empty, "unattended": empty} | {
        name: pa.Table.from_pylist(rows) for name, rows in tables.items()
    }


def shown(**tables):
    return page(made(**tables), {}, BEGIN, BEGIN + MINUTE)


@pytest.mark.parametrize(
    ("table", "row", "cells"),
    [
        ("forecast", {"saturated_in": 14_101.4, "drained_in": 0.25, "full_in": None},
         ["3h 55m", "0.2s", "-"]),
        ("forecast", {"arrivals": 75.04, "capacity": 1_520.0, "utilisation": 0.4937},
         ["75/s", "1,520/s", "49%"]),
        ("forecast", {"trend": 0.002}, ["+7.2/s an hour"]),
        ("service", {"leases": 3_001, "p50": 0.012, "p99": 75.0}, ["3,001", "12ms", "1m 15s"]),
        ("cost", {"worker_seconds": 90_000.0, "stored_bytes": 3_400_000}, ["1d 1h", "3.4 MB"]),
        ("keys", {"messages": 8, "share": 0.8}, ["8", "80%"]),
    ],
)  # fmt: skip
def test_figures_have_their_unit(table, row, cells):
    text = shown(**{table: [row]})
    assert [f">{cell}</td>" in text for cell in cells] == [True] * len(cells), text
    assert "seconds</th>" not in text


def test_a_group_that_nobody_works_for_is_said_at_the_top():
    row = {"topic": "orders", "group": "<audit>", "ready": 1_200, "lag": 1_200, "oldest_age": 7_200.0,
           "paused": False, "last_taken": None}  # fmt: skip
    text = shown(unattended=[row, {**row, "group": "fax", "ready": 1, "paused": True}])
    top = text.partition("<section>")[0]
    assert (
        "Nobody works for group &lt;audit&gt; of orders: 1,200 messages wait, the oldest for 2h."
        in top
    )
    assert "group fax of orders, which is paused: 1 message waits for 2h." in top
    assert "Nobody works" not in shown()


def test_the_plots_are_drawn_with_gaps_and_units():
    flow = dict.fromkeys(("published", "redriven", "leased", "delivered"), 0)
    throughput = [{"time": time, "topic": "t", "seconds": 60, "sent": 60, "acked": 60, **flow}
                  for time in at(0, 1, 9)]  # fmt: skip
    waiting = [{"time": time, "topic": "t", "group": "g", "lag": 1, "came": 60, "present": 1.0,
                "expected": 1.0} for time in at(0, 1, 9)]  # fmt: skip
    latency = [{"time": time, "topic": "t", "group": "g", "messages": 60, "p50": 0.5, "p99": 400.0}
               for time in at(0, 1, 9)]  # fmt: skip
    drawn = plots({
        name: pa.Table.from_pylist(rows) for name, rows in {
            "throughput": throughput, "waiting": waiting, "latency": latency, "service_times": [],
            "causes": [], "keys": [],
        }.items()
    })  # fmt: skip
    assert {"throughput", "latency", "waiting", "little"} == set(drawn)
    assert b"NaN" not in drawn["latency"]

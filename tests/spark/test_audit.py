"""The audit finds what is wrong, says why, and has nothing to say of a queue that works."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quiver.spark.analytics.auditing as rules
from quiver.batches.ledger import SCHEMA
from quiver.spark.analytics.auditing import audit, between
from quiver.spark.analytics.evidence import Evidence, gather
from quiver.testing import VirtualClock
from tests.bounds import add_level
from tests.contract.doors import SyncDoor
from tests.spark.faults import FAULTS, MOVED_TWICE, planted, prepare
from tests.spark.healthy import live_through_everything
from tests.spark.lives import lives

pytestmark = pytest.mark.timeout(400)  # many small jobs: seconds each where others are at work


@pytest.fixture(scope="module")
def healthy(spark, tmp_path_factory) -> Evidence:
    """Of a queue that has lived through everything."""
    path = tmp_path_factory.mktemp("healthy")
    clock = VirtualClock()
    (path / "queue").mkdir()
    with SyncDoor().open(path / "queue", clock) as queue:
        live_through_everything(queue, clock)
        prepare(queue, clock)
        return gather(spark, queue, path)


@pytest.fixture(scope="module")
def report(spark, healthy, tmp_path_factory):
    """What is found when every fault is planted."""
    path = tmp_path_factory.mktemp("planted") / "ledger.parquet"
    rows = planted([row.asDict() for row in healthy.ledger.collect()])
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
    return audit(replace(healthy, ledger=spark.read.parquet(str(path)))).localCheckpoint()


@pytest.fixture(scope="module")
def findings(report) -> list:
    return report.collect()


def test_a_clean_run_has_no_findings(healthy):
    events = {row.event for row in healthy.ledger.select("event").distinct().collect()}
    assert events >= {"published", "redriven", "sought", "purged", "dropped", "timed_out", "lost",
                      "compacted", "expired", "topic_deleted", "group_deleted"}  # fmt: skip
    assert audit(healthy).collect() == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(findings, name):
    found = {(x.kind, x.offset, x["count"], x.group) for x in findings if x.topic == name}
    assert found == {FAULTS[name].found()}


def test_a_dead_letter_that_came_back_twice_is_found(findings):
    found = {(x.kind, x.topic, x.offset) for x in findings if x.topic.startswith(MOVED_TWICE)}
    assert found == {("duplicated", f"{MOVED_TWICE}.dlq", 5)}


def test_nothing_else_is_found(findings):
    assert {x.topic for x in findings} == {*FAULTS, f"{MOVED_TWICE}.dlq"}


def test_a_finding_can_be_checked_in_the_ledger(findings):
    [found] = [x for x in findings if x.kind == "double_leased"]
    assert found.why == f"it was leased while w1 held it, since entry {found.rows[0].entry}"
    assert [(row.event, row.consumer) for row in found.rows] == [("leased", "w1"), ("leased", "w2")]
    assert found.id is not None


def test_the_time_chooses_what_is_reported(report, findings):
    start, end = findings[2].time, findings[-1].time
    chosen = between(report, start, end).collect()
    assert chosen == [x for x in findings if start <= x.time < end]
    assert 0 < len(chosen) < len(findings)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("count", [15, pytest.param(60, marks=pytest.mark.soak)])
def test_any_life_of_a_queue_is_clean(spark, tmp_path, monkeypatch, count):
    monkeypatch.setattr(rules, "PATIENCE_SECONDS", 0)  # their clocks tick in milliseconds
    for _ in range(2):  # some lives raise the level
        add_level(monkeypatch)
    assert audit(lives(count, 150).evidence(spark, tmp_path)).collect() == []

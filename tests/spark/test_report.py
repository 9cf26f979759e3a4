"""The figures are those of what happened, and the report shows them."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import quiver
from quiver.spark.analytics import gather, report
from quiver.testing import VirtualClock
from tests.contract.doors import SyncDoor

COMMAND_SECONDS = 300

# Many small jobs: seconds each where others are at work.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    """The report of a queue to which little happened, at known times."""
    path = tmp_path_factory.mktemp("report")
    clock = VirtualClock()
    (path / "queue").mkdir()
    with SyncDoor().open(path / "queue", clock) as queue:
        little_happens(queue, clock)
        return report(gather(spark, queue, path))


def little_happens(queue, clock) -> None:
    """Ten messages, one a second, each acked four seconds after it came; and one that always fails."""
    queue.create_topic("t", max_attempts=3, retention="forever")
    queue.create_topic("bad", max_attempts=3)
    queue.send("bad", b"x")
    for at in range(10):
        queue.send("t", b"x", key="often" if at < 8 else f"k{at}")
        clock.advance(1)
        [one] = queue.receive("t", "g", consumer="w")
        clock.advance(3)
        one.ack()
    for attempt in range(3):
        [one] = queue.receive("bad", "g")
        clock.advance(2)
        one.nack(reason=f"order {attempt}7 of 'ann' at 0xdeadbeef{attempt} is bad")
    clock.advance(20)
    queue.send("t", b"waits")


def rows(made, table: str, **chosen) -> list[dict]:
    found = made.tables[table].to_pylist()
    return [row for row in found if all(row[name] == value for name, value in chosen.items())]


def test_throughput_adds_up(made):
    for event, count in (("sent", 11), ("leased", 10), ("acked", 10)):
        assert sum(row[event] for row in rows(made, "throughput", topic="t")) == count
    assert sum(row["dead_lettered"] for row in rows(made, "throughput", topic="bad")) == 1


def test_latency_is_from_arrival_to_ack(made):
    for row in rows(made, "latency", topic="t"):
        assert (row["p50"], row["p99"], row["max"], row["wait_p50"]) == (4, 4, 4, 1)


def test_service_time_is_from_lease_to_its_end(made):
    [acked] = rows(made, "service", topic="t")
    assert (acked["outcome"], acked["leases"], acked["p50"], acked["total"]) == ("acked", 10, 3, 30)
    [failed] = rows(made, "service", topic="bad")
    assert (failed["outcome"], failed["leases"], failed["total"]) == ("nacked", 3, 6)


def test_littles_law_holds_where_as_much_comes_as_goes(made):
    """Each message is there for four of every four seconds."""
    steady = rows(made, "waiting", topic="t")[1:7]
    assert all(abs(row["present"] - 1) < 0.3 for row in steady)
    total = sum(row["present"] for row in rows(made, "waiting", topic="t"))
    assert total * steady[0]["seconds"] == pytest.approx(10 * 4)
    assert rows(made, "waiting", topic="t")[-1]["lag"] == 1


def test_alike_reasons_are_one_cause(made):
    [nacked] = rows(made, "causes", event="nacked")
    assert nacked["cause"] == "order <n> of <text> at <hex> is bad"
    assert (nacked["messages"], nacked["variants"]) == (3, 3)


def test_poison_messages_are_named(made):
    [bad] = rows(made, "poison")
    assert (bad["topic"], bad["offset"], bad["attempts"], bad["how"]) == (
        "bad",
        0,
        3,
        "dead_lettered",
    )


def test_hot_keys_have_their_share(made):
    hottest, *_ = rows(made, "keys", topic="t")
    assert (hottest["key"], hottest["messages"], hottest["share"]) == ("often", 8, 0.8)


def test_cost_counts_deliveries_and_work_in_vain(made):
    [bad] = rows(made, "cost", topic="bad")
    assert (bad["deliveries_per_message"], bad["worker_seconds"], bad["wasted_seconds"]) == (
        3,
        6,
        6,
    )


def test_the_page_is_whole_and_loads_nothing(made, tmp_path):
    page = made.save(tmp_path / "out").read_text()
    assert made.sound
    assert "The audit found nothing wrong." in page
    assert page.count("<img") == 7
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "<script" not in page
    assert "order &lt;n&gt; of &lt;text&gt;" in page  # what people wrote is text
    tables = {path.stem: pq.read_table(path) for path in (tmp_path / "out/tables").iterdir()}
    assert {name: table.num_rows for name, table in tables.items()} == {
        name: table.num_rows for name, table in made.tables.items()
    }


def command(*arguments: str, cwd) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "quiver.cli", *arguments],
        cwd=cwd, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


@pytest.mark.timeout(4 * COMMAND_SECONDS)
def test_the_commands_tell_a_sound_queue_from_one_that_is_not(tmp_path):
    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("t")
        for _ in range(10):
            queue.send("t", b"x")
        for one in queue.receive("t", "g", max_messages=10):
            one.ack()  # each by itself, so each has its row
    done = command("audit", cwd=tmp_path)
    assert (done.returncode, done.stdout[:17]) == (0, "Nothing is wrong "), done.stderr
    done = command("report", "--out", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r/index.html").exists()
    assert "The audit found nothing wrong." in done.stdout
    lose_an_ack(tmp_path)
    done = command("audit", "--json", "--out", "found.parquet", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    [found] = json.loads(done.stdout)
    assert (found["kind"], found["topic"], found["offset"], found["group"]) == ("lost", "t", 5, "g")
    assert pq.read_table(tmp_path / "found.parquet").num_rows == 1


def lose_an_ack(path: Path) -> None:
    """Take the settlement of a message out of the ledger's file."""
    assert command("seal", cwd=path).returncode == 0
    [file] = (path / "data").glob("ledger-*.parquet")
    table = pq.read_table(file)
    acked = pc.and_(pc.equal(table["event"], "acked"), pc.equal(table["offset"], 5))
    pq.write_table(table.filter(pc.invert(acked)), file)


def test_times_are_utc(made):
    assert made.first == datetime(2026, 1, 1, tzinfo=UTC)

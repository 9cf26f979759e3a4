"""A report finds the groups that nobody works for."""

import pytest

from quiver.spark.analytics import figures, gather
from quiver.testing import VirtualClock
from tests.contract.doors import SyncDoor

pytestmark = pytest.mark.check  # many small jobs


def test_groups_without_workers_are_found_and_others_are_not(spark, tmp_path):
    clock = VirtualClock()
    (tmp_path / "queue").mkdir()
    with SyncDoor().open(tmp_path / "queue", clock) as queue:
        for topic in ("t", "quiet"):
            queue.create_topic(topic, ledger=topic == "t")
        for group in ("never", "stopped", "busy", "done", "holding"):
            queue.create_group("t", group)
        for group in ("never", "unknown"):
            queue.create_group("quiet", group)
        queue.send_batch("t", ["a", "b", "c"])
        queue.send_batch("quiet", ["a", "b"])
        queue.receive("quiet", "unknown")[0].ack()
        for group in ("stopped", "busy"):
            queue.receive("t", group)[0].ack()
        queue.ack(queue.receive("t", "done", max_messages=3))
        clock.advance(100)
        queue.receive("t", "busy")[0].ack()
        queue.receive("t", "holding", lease="1h")
        found = figures(gather(spark, queue, tmp_path))["unattended"].toArrow().to_pylist()
    assert [(row["topic"], row["group"], row["ready"]) for row in found] == [
        ("quiet", "never", 2), ("t", "never", 3), ("t", "stopped", 2),
    ]  # fmt: skip
    assert [row["last_taken"] is None for row in found] == [True, True, False]
    assert {row["oldest_age"] for row in found} == {100.0}

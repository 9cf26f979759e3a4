"""Ledgers of many random lives of a queue, as if they were one queue's."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from quiver.batches.ledger import SCHEMA
from quiver.model.stats import TopicStats
from quiver.model.topic import TopicPolicy
from quiver.spark.analytics.evidence import MESSAGES, Evidence
from tests.properties.ledger import rows_of
from tests.properties.machine import DeliveryMachine
from tests.properties.storm import live, steps_of

ENTRIES = 10_000_000  # of a life at most
END = datetime.fromisoformat("2026-11-15T12:00:00+00:00")  # of all lives: leases are judged by it


@dataclass
class Lives:
    """What they left."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    policies: dict[str, TopicPolicy] = field(default_factory=dict)
    stats: dict[str, TopicStats] = field(default_factory=dict)

    def add(self, machine: DeliveryMachine, number: int) -> None:
        engine = machine.world.engine
        rows = rows_of(engine)
        later = END - max((row["time"] for row in rows), default=END)
        for row in rows:
            row["entry"] += number * ENTRIES
            row["topic"] = f"{number}.{row['topic']}"
            row["to_topic"] = row["to_topic"] and f"{number}.{row['to_topic']}"
            row["time"] += later
            row["until"] = row["until"] and row["until"] + later
        self.rows += rows
        for topic in engine.core.topics.values():
            name = f"{number}.{topic.name}"
            self.policies[name] = topic.policy
            self.stats[name] = topic.stats(engine.core.now_ms)
            self.messages += [{"topic": name, **message} for message in _stored(topic)]

    def evidence(self, spark, path: Path) -> Evidence:
        pq.write_table(pa.Table.from_pylist(self.rows, SCHEMA), path / "ledger.parquet")
        pq.write_table(pa.Table.from_pylist(self.messages, MESSAGES), path / "messages.parquet")
        return Evidence(
            spark.read.parquet(str(path / "ledger.parquet")),
            spark.read.parquet(str(path / "messages.parquet")),
            self.policies, self.stats, max(row["time"] for row in self.rows), 2**60,
        )  # fmt: skip


def _stored(topic) -> Iterator[dict[str, Any]]:
    for partition in topic.partitions:
        for extent in partition.live():
            for start, end in partition.removed.gaps(extent.first, extent.end):
                for offset in range(start, end):
                    key = partition.key_of(offset) if topic.policy.keyed else 0
                    yield {
                        "partition": partition.number, "offset": offset, "nbytes": 1,
                        "key": str(key) if key else None,
                    }  # fmt: skip


def lives(count: int, length: int, seed: int = 0) -> Lives:
    """So many lives of so many steps, on topics of every kind."""
    found = Lives()
    for number in range(seed, seed + count):

        class Watched(DeliveryMachine):
            order = ("none", "key", "partition")[number % 3]
            fair = number % 4 == 0

            def teardown(self, number: int = number) -> None:
                self.flush()
                found.add(self, number)

        chosen = steps_of(number, length)
        live(Watched, [step for step in chosen if getattr(Watched, step.rule) is not None])
    return found

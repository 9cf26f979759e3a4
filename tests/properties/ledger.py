"""What the ledger adds up to, beside what the core has counted."""

from collections import Counter
from typing import Any

from quiver.node.engine import Engine

COUNTED = {
    "leased": ("delivered",),
    "delivered": ("delivered", "acked"),
    "acked": ("acked",),
    "nacked": ("nacked",),
    "timed_out": ("timed_out",),
    "released": ("released",),
    "expired": ("expired",),
    "dead_lettered": ("dead_lettered",),
    "lost": ("behind_retention",),
}
NUMBERS = ("delivered", "redelivered", "acked", "nacked", "timed_out", "dead_lettered", "redriven",
           "expired", "behind_retention", "released")  # fmt: skip
Sums = dict[tuple[str, str | None], Counter[str]]


def rows_of(engine: Engine) -> list[dict[str, Any]]:
    return [row for table in engine.read_ledger().tables() for row in table.to_pylist()]


def sums(rows: list[dict[str, Any]]) -> Sums:
    """By topic and group, since they began; what is of the topic itself is under None."""
    found: Sums = {}
    for row in rows:
        topic, group, event, count = row["topic"], row["group"], row["event"], row["count"]
        if event == "topic_deleted":
            found = {key: numbers for key, numbers in found.items() if key[0] != topic}
        elif event == "group_deleted":
            found.pop((topic, group), None)
        elif event == "redriven":
            found.setdefault((row["to_topic"], group), Counter())["redriven"] += count
        else:
            numbers = found.setdefault((topic, group), Counter())
            numbers.update(dict.fromkeys(COUNTED.get(event, (event,)), count))
            if event in ("leased", "delivered") and row["attempt"] > 1:
                numbers["redelivered"] += count
    return found


def check_sums(engine: Engine) -> None:
    """For every topic that keeps a ledger, the rows add up to its stats."""
    found = sums(rows_of(engine))
    for topic in engine.core.topics.values():
        if not topic.policy.ledger:
            continue
        stats = topic.stats(engine.core.now_ms)
        of_topic = found.get((topic.name, None), Counter())
        assert (stats.sent, stats.duplicates) == (of_topic["sent"], of_topic["duplicate"])
        assert (stats.dropped, stats.compacted) == (of_topic["dropped"], of_topic["compacted"])
        for name, group in stats.groups.items():
            told = found.get((topic.name, name), Counter())
            assert {x: getattr(group, x) for x in NUMBERS} == {x: told[x] for x in NUMBERS}

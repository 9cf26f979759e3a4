"""Faults that no queue of ours makes, planted in the ledger of one that works.

A fault has a topic of its own, in which group "g" is given ten messages, one at a time, and acks each. Then
its rows of the ledger are changed to tell of something that must never happen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

Row = dict[str, Any]
LATER = 10_000  # entries; behind everything that happened
SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Fault:
    kind: str  # of the finding
    group: str | None
    plant: Callable[[list[Row]], list[Row]]  # the rows of the topic, as they are and as they become
    policy: dict[str, Any]
    offset: int = 5

    def found(self) -> tuple[str, int, int, str | None]:
        """Kind, offset, count and group."""
        return (self.kind, self.offset, 1, self.group)


def without(*events: str) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [row for row in rows if not (row["offset"] == 5 and row["event"] in events)]


def again(*events: str) -> Callable[[list[Row]], list[Row]]:
    """These happen once more, in the end."""

    def plant(rows: list[Row]) -> list[Row]:
        more = [row for row in rows if row["offset"] == 5 and row["event"] in events]
        return rows + [shifted(row, LATER + at) for at, row in enumerate(more)]

    return plant


def swapped(event: str) -> Callable[[list[Row]], list[Row]]:
    """It happens to offset 6 first, and then to 5."""
    offsets = {5: 6, 6: 5}
    return lambda rows: [
        row | {"offset": offsets.get(row["offset"], row["offset"])}
        if row["event"] == event
        else row
        for row in rows
    ]


def overtaken(rows: list[Row]) -> list[Row]:
    """Offset 6 is leased and acked before 5 is."""
    offsets = {5: 6, 6: 5}
    return [
        row | {"offset": offsets.get(row["offset"], row["offset"])}
        if row["event"] in ("leased", "acked") else row
        for row in rows
    ]  # fmt: skip


def leased_twice(rows: list[Row]) -> list[Row]:
    """Somebody else gets it before it is acked."""
    [lease] = [row for row in rows if row["offset"] == 5 and row["event"] == "leased"]
    [ack] = [row for row in rows if row["offset"] == 5 and row["event"] == "acked"]
    others = [row for row in rows if row is not ack]
    return [*others, shifted(lease, LATER) | {"consumer": "w2"}, shifted(ack, LATER)]


def stored_twice(rows: list[Row]) -> list[Row]:
    [sent] = [row for row in rows if row["offset"] == 5 and row["event"] == "sent"]
    return [*rows, shifted(sent, LATER)]


def shifted(row: Row, entries: int) -> Row:
    return row | {"entry": row["entry"] + entries, "time": row["time"] + SECOND}


KEYS = {"order": "key", "retention": "forever"}
FAULTS = {
    "never-stored": Fault("lost", None, without("sent", "leased", "acked"), {}),
    "never-delivered": Fault("lost", "g", without("leased", "acked"), {}),
    "never-settled": Fault("lost", "g", without("acked"), {}),
    "settled-twice": Fault("duplicated", "g", again("acked"), {}),
    "delivered-again": Fault("duplicated", "g", again("leased"), {"retention": "forever"}),
    "stored-twice": Fault("duplicated", None, stored_twice, {}),
    "sent-out-of-order": Fault("reordered", None, swapped("sent"), {"retention": "forever"}, 6),
    "partition-overtaken": Fault("reordered", "g", overtaken, {"order": "partition"}),
    "key-overtaken": Fault("reordered", "g", overtaken, KEYS),
    "leased-twice": Fault("double_leased", "g", leased_twice, {}),
}
MOVED_TWICE = "moved-twice"


def prepare(queue, clock) -> None:
    """The topics, and what really happened to them."""
    for name, fault in FAULTS.items():
        queue.create_topic(name, **fault.policy)
        for _ in range(10):
            queue.send(name, b"x", key="k")
        for _ in range(10):
            [one] = queue.receive(name, "g", consumer="w1")
            clock.advance(0.1)
            one.ack()
    queue.create_topic(MOVED_TWICE, max_attempts=1)
    queue.send_batch(MOVED_TWICE, [b"x"] * 10)
    queue.nack(queue.receive(MOVED_TWICE, "g", max_messages=10))
    queue.redrive(f"{MOVED_TWICE}.dlq")
    clock.advance(100)
    queue.send("team", b"the end")


def planted(rows: list[Row]) -> list[Row]:
    """The ledger with all faults."""
    changed = [row for row in rows if row["topic"] not in FAULTS]
    for name, fault in FAULTS.items():
        changed += fault.plant([row for row in rows if row["topic"] == name])
    moved = next(
        row for row in rows
        if row["event"] == "redriven" and row["to_topic"] == MOVED_TWICE
    )  # fmt: skip
    one = {"offset": 5, "count": 1, "to_offset": moved["to_offset"] + moved["count"]}
    return [*changed, shifted(moved, LATER) | one]

"""A directory with all that messages can carry, sealed, and what a reader must find in it.

What is expected comes from what was sent and from what the sender was told, on a clock that stands
still between steps; nothing of it is read back from the queue.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from quiver import Message, limits
from quiver.testing import VirtualClock
from tests.bounds import set_bounds
from tests.contract.doors import SyncDoor

Row = dict[str, Any]
EVERY_BYTE = bytes(range(256))
LARGE = EVERY_BYTE * 400  # more than a row group of these tests
CONTENTS: list[dict[str, Any]] = [
    {"body": b"plain"},
    {"body": b""},
    {"body": EVERY_BYTE, "key": "binary"},
    {"body": "Grüße aus 東京 🏹".encode(), "key": "Tromsø/é"},
    {"body": LARGE, "key": "large"},
    {"body": b"with headers", "headers": {"trace": "a1", "naïve": "ÿ", "empty": ""}},
    {"body": b"urgent", "priority": 9, "key": "ann"},
    {"body": b"later", "delay": 3_600, "key": "ann"},
    {"body": b"short-lived", "ttl": 86_400, "key": "k"},
    {"body": b"once", "dedup_id": "d-ø-1", "headers": {"a": "b"}, "priority": 3, "delay": 60, "ttl": 7_200},
]  # fmt: skip


class Archive:
    """The directory, and the rows of each topic that must be found in it, in offset order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, list[Row]] = {}

    def files(self, topic: str) -> list[str]:
        return sorted(map(str, self.path.glob(f"{topic}@*.parquet")))

    def pattern(self, topic: str) -> str:
        return str(self.path / f"{topic}@*.parquet")


def make(path: Path) -> Archive:
    """Several segments a partition, some of them rewritten; small ones, so that few messages do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "SEGMENT_BYTES", 100_000)
        patch.setattr(limits, "SEGMENT_GROUP_BYTES", 2_000)
        patch.setattr(limits, "SEGMENTS_SMALL_MAX", 3)
        set_bounds(patch, sweep_hole_min=1)
        clock = VirtualClock()
        with _opened(path, clock) as queue:
            return _fill(Archive(path), queue, clock)


def _fill(archive: Archive, queue: Any, clock: VirtualClock) -> Archive:
    rows: dict[str, list[Row]] = {"orders": [], "orders.dlq": [], "events": [], "jobs": []}
    queue.create_topic("orders", partitions=3, max_attempts=2, retention="forever")
    queue.create_topic("events", retention="forever", compression="zstd")
    queue.create_topic("jobs")
    queue.create_group("orders", "g")
    for turn in range(6):
        for content in CONTENTS:
            unique = f"{content['dedup_id']}-{turn}" if "dedup_id" in content else None
            rows["orders"].append(_one(queue, "orders", {**content, "dedup_id": unique}, clock))
        rows["events"] += _many(queue, "events", clock)
        _bury(queue, rows, clock)  # some of these are in the log
        queue.seal()
        clock.advance(1.234)
        _bury(queue, rows, clock)  # and these are in segments
    rows["jobs"] += _many(queue, "jobs", clock)
    _settle(queue, rows["jobs"])
    queue.seal()
    for found in rows.values():
        found.sort(key=lambda row: (row["partition"], row["offset"]))
    archive.rows = rows
    return archive


def _one(queue: Any, topic: str, content: dict[str, Any], clock: VirtualClock) -> Row:
    sent = queue.send(topic, **content)
    return _row(content, sent.partition, sent.offset, sent.id, clock)


def _many(queue: Any, topic: str, clock: VirtualClock) -> list[Row]:
    """A batch to a topic of one partition."""
    contents = [{**one, "dedup_id": None} for one in CONTENTS]
    [placed] = queue.send_batch(topic, [Message(**_said(one)) for one in contents]).placed
    return [
        _row(one, placed.partition, placed.offset + at, f"{placed.index}-{placed.row + at}", clock)
        for at, one in enumerate(contents)
    ]


def _said(content: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value is not None}


def _row(
    content: dict[str, Any], partition: int, offset: int, id_: str, clock: VirtualClock
) -> Row:
    now = _now(clock)
    entry, _, row = id_.partition("-")
    times = {
        name: now + timedelta(seconds=content[given]) if given in content else None
        for name, given in (("deliver_at", "delay"), ("expires_at", "ttl"))
    }
    return {
        "partition": partition, "offset": offset, "entry": int(entry), "row": int(row),
        "stored_at": now, "body": content["body"], "key": content.get("key"),
        "headers": content.get("headers"), "priority": content.get("priority", 0),
        "dedup_id": content.get("dedup_id"), "created_at": now, "origin": None, **times,
    }  # fmt: skip


def _settle(queue: Any, jobs: list[Row]) -> None:
    """Some messages are acked before they are sealed: nobody wants them any more."""
    got = queue.receive("jobs", "g", max_messages=4)
    queue.ack(got)
    gone = {one.offset for one in got}
    assert len(gone) == 4
    jobs[:] = [row for row in jobs if row["offset"] not in gone]


def _bury(queue: Any, rows: dict[str, list[Row]], clock: VirtualClock) -> None:
    """Some messages die. As letters they are the same messages, stored now in another place."""
    for got in queue.receive("orders", "g", max_messages=2):
        got.dead_letter(reason="kapütt")
        at = {"partition": got.partition, "offset": got.offset}
        [row] = [row for row in rows["orders"] if at.items() <= row.items()]
        origin = {
            "topic": "orders", **at, "group": "g", "attempts": 1, "reason": "kapütt",
            "time": _now(clock),
        }  # fmt: skip
        place = {"partition": 0, "offset": len(rows["orders.dlq"]), "stored_at": _now(clock)}
        rows["orders.dlq"].append({**row, **place, "origin": origin})


def _now(clock: VirtualClock) -> datetime:
    return datetime.fromtimestamp(clock.now_ms() / 1000, UTC)


@contextmanager
def _opened(path: Path, clock: VirtualClock) -> Iterator[Any]:
    queue = SyncDoor().open(path, clock)
    try:
        yield queue
    finally:
        queue.close()

"""What a type checker says about programs that use the public names; `make lint` reads it, nothing runs it.

Each `type: ignore` here is a mistake that the hints must find: mypy complains about one that is not needed.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import quiver

SECOND = timedelta(seconds=1)
MOMENT = datetime(2026, 11, 1, tzinfo=UTC)


def threads(queue: quiver.Queue) -> None:
    """Every kind of duration, moment and position, and each word of a choice."""
    queue.create_topic(
        "t", order="key", partition_by="hash", retention=SECOND, retry="linear", dedup_window=SECOND,
        compression="zstd", labels={"team": "billing"},
    )  # fmt: skip
    queue.create_topic("t", retry=SECOND, partition_by=["k"], retention="7d, 10GB")
    queue.create_topic("t", retry=quiver.retry("fixed", base=SECOND, cap="5m"))
    queue.alter_topic("t", retention=SECOND, retry=None, max_attempts=None, keep_unsettled=False)
    queue.send("t", b"x", delay=SECOND, ttl="5m", durability="memory")
    queue.send_batch("t", [quiver.Message(b"x", delay=SECOND, ttl=1.5)])
    queue.create_group("t", "g", start=MOMENT, guarantee="at-most-once")
    queue.seek("t", "g", "latest")
    queue.seek("t", "g", MOMENT)
    queue.seek("t", "g", 7, partition=0)
    for record in queue.read("t", start=MOMENT, end=100):
        print(record.body, record.created_at + SECOND)
    queue.ledger("t", start=MOMENT, end="2026-11-02")
    for delivery in queue.receive("t", "g", lease=SECOND, wait=SECOND):
        delivery.extend(SECOND)
        delivery.nack(delay=SECOND)
    with queue.producer("t", linger=SECOND) as out, queue.consumer("t", lease=SECOND) as inbox:
        out.send(b"x", delay=SECOND)
        print(inbox.get(wait=SECOND))
    with queue.join("t", "g", "m", session=SECOND) as member:
        member.fetch(wait=SECOND)
    with queue.transaction() as tx:
        tx.send("t", b"x", delay=SECOND)


async def tasks(queue: quiver.AsyncQueue) -> None:
    """The same, awaited."""
    await queue.create_topic("t", order="partition", retention=SECOND, retry=SECOND)
    await queue.alter_topic("t", dedup_window=SECOND, compression=None)
    await queue.send("t", b"x", delay=SECOND)
    await queue.seek("t", "g", MOMENT)
    for delivery in await queue.receive("t", "g", lease=SECOND, wait=SECOND):
        await delivery.nack(delay=SECOND)
    async for table in queue.read_arrow("t", start="earliest", end=MOMENT):
        print(table.num_rows)


def opened(path: str) -> tuple[quiver.Queue, quiver.AsyncQueue]:
    """Both ways to connect."""
    return (
        quiver.connect(path, durability="memory", ledger_retention=SECOND),
        quiver.connect_async(path, read_only=True, ledger_retention="30d"),
    )


def mistakes(queue: quiver.Queue, other: quiver.AsyncQueue) -> None:
    """What must not pass."""
    queue.create_topic("t", order="kye")  # type: ignore[arg-type]
    queue.create_topic("t", partition_by="roundrobin")  # type: ignore[arg-type]
    queue.create_topic("t", compression="gzip")  # type: ignore[arg-type]
    queue.create_topic("t", retention=MOMENT)  # type: ignore[arg-type]
    queue.alter_topic("t", order="key")  # type: ignore[call-arg]
    queue.alter_topic("t", max_attempts="3")  # type: ignore[arg-type]
    queue.alter_topic("t", maximum_attempts=3)  # type: ignore[call-arg]
    queue.send("t", b"x", delay=MOMENT)  # type: ignore[arg-type]
    queue.send("t", b"x", durability="quorum")  # type: ignore[arg-type]
    queue.send("t", b"x", 5)  # type: ignore[call-arg,arg-type]
    queue.create_group("t", "g", guarantee="exactly-once")  # type: ignore[arg-type]
    queue.seek("t", "g", SECOND)  # type: ignore[arg-type]
    queue.seek("t", "g", 1.5)  # type: ignore[arg-type]
    queue.ledger("t", start=SECOND)  # type: ignore[arg-type]
    quiver.connect("data", durability="disc")  # type: ignore[arg-type]
    quiver.retry("exponental")  # type: ignore[arg-type]
    asynchronous: Callable[..., Any] = other.send
    queue.receive("t", wait=asynchronous)  # type: ignore[arg-type]
    other.receive("t", lease=MOMENT)  # type: ignore[arg-type,unused-coroutine]

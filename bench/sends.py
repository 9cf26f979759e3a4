"""Batches and single sends, against other queues and against the disk itself."""

from collections.abc import Iterator
from contextlib import closing

import quiver
from bench.content import batch_of, bodies, texts
from bench.measure import Row, Run, Target, by_threads, rates, repeated
from bench.peers import BareLoop, LiteQueue, PersistQueue
from quiver.batches.codec import encode

ROWS = 1_000
UNIT = "msgs/s"
SENDS = f"send_batch of a record batch, {ROWS:,} x 100 B random bodies, one thread, one sync each"
LOOP = "bare write + fdatasync"
RESERVED = f"{LOOP}, reserved"


def peers(run: Run) -> Iterator[Row]:
    """Batches of a thousand against what other queues do with one message."""
    folder = run.folder("peers")
    content, words = bodies(ROWS), texts(ROWS)
    batch = batch_of(content)
    with (
        quiver.connect(folder / "quiver") as queue,
        closing(PersistQueue(folder)) as persist,
        closing(LiteQueue(folder)) as lite,
    ):
        queue.create_topic("t")
        ours, puts, lites, many = rates(
            run,
            repeated(lambda: queue.send_batch("t", batch).count),
            repeated(lambda: persist.put(content[0])),
            repeated(lambda: lite.put(words[0])),
            repeated(lambda: lite.put_many(words)),
        )
    least = Target(">=", 50)
    yield Row(
        "send_batch", ours, "persist-queue put", puts, UNIT,
        f"{SENDS}; put of 100 B, {PersistQueue.settings}; it has no batches.", least,
    )  # fmt: skip
    yield Row(
        "send_batch", ours, "litequeue put", lites, UNIT,
        f"{SENDS}; put of 100 characters, {LiteQueue.settings}.", least,
    )  # fmt: skip
    yield Row(
        "send_batch", ours, f"litequeue, {ROWS:,} in a transaction", many, UNIT,
        f"{SENDS}; {ROWS:,} puts in one transaction(), synced once at its commit.",
    )  # fmt: skip


def bare(run: Run) -> Iterator[Row]:
    """Batches against a loop that writes and syncs the same bytes, and the other ways to send."""
    folder = run.folder("bare")
    content = bodies(ROWS)
    batch = batch_of(content)
    data = b"".join(map(memoryview, encode(batch)))
    messages = [quiver.Message(body) for body in content]

    def write(loop: BareLoop) -> int:
        loop.write(data)
        return ROWS

    def produce() -> int:
        with queue.producer("t") as producer:
            for _ in range(10):
                for body in content:
                    producer.send(body)
        return producer.confirmed

    with (
        quiver.connect(folder / "quiver") as queue,
        closing(BareLoop(folder, reserve=False)) as growing,
        closing(BareLoop(folder, reserve=True)) as reserved,
    ):
        queue.create_topic("t")
        ours, grown, written, threads, listed, produced, memory = rates(
            run,
            repeated(lambda: queue.send_batch("t", batch).count),
            repeated(lambda: write(growing)),
            repeated(lambda: write(reserved)),
            by_threads(4, lambda: queue.send_batch("t", batch).count),
            repeated(lambda: queue.send_batch("t", messages).count),
            repeated(produce),
            repeated(lambda: queue.send_batch("t", batch, durability="memory").count),
        )
    same = f"a Python loop that writes the batch's {len(data):,} bytes behind the others and syncs"
    most = Target(">=", 0.6)
    yield Row("send_batch", ours, LOOP, grown, UNIT, f"{SENDS}; {same}.", most)
    yield Row(
        "send_batch", ours, RESERVED, written, UNIT,
        f"{SENDS}; {same}, into space allocated ahead as Quiver's log does it.", most,
    )  # fmt: skip
    yield Row(
        "send_batch, 4 threads", threads, RESERVED, written, UNIT,
        f"As above from four threads at once, which share syncs; {same}.",
    )  # fmt: skip
    yield Row(
        "send_batch of Messages", listed, "of a record batch", ours, UNIT,
        f"send_batch of a list of {ROWS:,} quiver.Message, one sync each; {SENDS}.",
    )  # fmt: skip
    yield Row(
        "producer().send", produced, "of a record batch", ours, UNIT,
        f"10,000 producer sends and a flush that waits until all are synced; {SENDS}.",
    )  # fmt: skip
    yield Row(
        'send_batch, "memory"', memory, '"disk"', ours, UNIT,
        f'The same with durability="memory", written but not synced (not durable!); {SENDS}.',
    )  # fmt: skip


def singles(run: Run) -> Iterator[Row]:
    """Single synced sends from one thread and from many."""
    folder = run.folder("singles")
    body = bodies(1)[0]

    def send() -> int:
        queue.send("t", body)
        return 1

    def write() -> int:
        loop.write(body)
        return 1

    with (
        quiver.connect(folder / "quiver") as queue,
        closing(BareLoop(folder, reserve=True)) as loop,
    ):
        queue.create_topic("t")
        # Longer turns: letting 64 threads go and waiting for the last takes some milliseconds.
        many, one, theirs = rates(
            run, by_threads(64, send), repeated(send), repeated(write), turns=2
        )
    yield Row(
        "send, 64 threads", many, "send, 1 thread", one, UNIT,
        "send of 100 B, each confirmed when synced, from 64 threads at once (started before the "
        "clock is) and from one.", Target(">=", 10),
    )  # fmt: skip
    yield Row(
        "send, 64 threads", many, RESERVED, theirs, UNIT,
        "As above; a Python loop that writes 100 B into space allocated ahead and syncs: what no "
        "queue that syncs each message by itself can exceed.",
    )  # fmt: skip
    yield Row(
        "send, 1 thread", one, RESERVED, theirs, UNIT,
        "A lone sender against the same loop: what is missing is the price of Python in between.",
    )  # fmt: skip

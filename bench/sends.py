"""Batches and single sends, against other queues and against the disk itself."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import quiver
from bench.content import batch_of, bodies, texts
from bench.measure import Row, Run, Target, in_turns, rate
from bench.peers import BareLoop, LiteQueue, PersistQueue
from quiver.batches.codec import encode

ROWS = 1_000
UNIT = "msgs/s"
SENDS = f"send_batch of a record batch, {ROWS:,} x 100 B random bodies, one thread, one sync each"


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
        ours, puts, lites, many = in_turns(
            run.rounds,
            lambda: rate(lambda: queue.send_batch("t", batch).count, run.seconds),
            lambda: rate(lambda: persist.put(content[0]), run.seconds),
            lambda: rate(lambda: lite.put(words[0]), run.seconds),
            lambda: rate(lambda: lite.put_many(words), run.seconds),
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

    def write() -> int:
        loop.write(data)
        return ROWS

    with quiver.connect(folder / "quiver") as queue, closing(BareLoop(folder)) as loop:
        queue.create_topic("t")

        def produce() -> float:
            return rate(lambda: _produced(queue, content), run.seconds)

        ours, theirs, threads, listed, produced, memory = in_turns(
            run.rounds,
            lambda: rate(lambda: queue.send_batch("t", batch).count, run.seconds),
            lambda: rate(write, run.seconds),
            lambda: _by_threads(4, lambda: queue.send_batch("t", batch).count, run.seconds),
            lambda: rate(lambda: queue.send_batch("t", messages).count, run.seconds),
            produce,
            lambda: rate(
                lambda: queue.send_batch("t", batch, durability="memory").count, run.seconds
            ),
        )
    loop_name = "bare write + fdatasync"
    loop_how = f"a Python loop that appends the batch's {len(data):,} bytes to a file and syncs it"
    yield Row(
        "send_batch", ours, loop_name, theirs, UNIT, f"{SENDS}; {loop_how}.", Target(">=", 0.6)
    )
    yield Row(
        "send_batch, 4 threads", threads, loop_name, theirs, UNIT,
        f"As above from four threads at once, which share syncs; {loop_how}.",
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


def _produced(queue: quiver.Queue, content: list[bytes]) -> int:
    with queue.producer("t") as producer:
        for _ in range(10):
            for body in content:
                producer.send(body)
    return producer.confirmed


def singles(run: Run) -> Iterator[Row]:
    """Single synced sends from one thread and from many."""
    folder = run.folder("singles")
    body = bodies(1)[0]
    with quiver.connect(folder / "quiver") as queue, closing(BareLoop(folder)) as loop:
        queue.create_topic("t")

        def send() -> int:
            queue.send("t", body)
            return 1

        def write() -> int:
            loop.write(body)
            return 1

        many, one, theirs = in_turns(
            run.rounds,
            lambda: _by_threads(64, send, run.seconds),
            lambda: rate(send, run.seconds),
            lambda: rate(write, run.seconds),
        )
    yield Row(
        "send, 64 threads", many, "send, 1 thread", one, UNIT,
        "send of 100 B, each confirmed when synced, from 64 threads at once (threads started "
        "before the clock) and from one.", Target(">=", 10),
    )  # fmt: skip
    yield Row(
        "send, 64 threads", many, "bare write + fdatasync", theirs, UNIT,
        "As above; a Python loop that appends 100 B to a file and syncs it: what any queue that "
        "syncs each message by itself cannot exceed.",
    )  # fmt: skip
    yield Row(
        "send, 1 thread", one, "bare write + fdatasync", theirs, UNIT,
        "A lone sender against the same loop: what is missing is the price of Python in between.",
    )  # fmt: skip


def _by_threads(threads: int, step, seconds: float) -> float:
    """The rate of all threads together, from the moment they are let go until the last is done."""
    counts = [0] * threads
    ready = threading.Barrier(threads + 1)

    def work(at: int) -> None:
        ready.wait()
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            counts[at] += step()

    workers = [threading.Thread(target=work, args=(at,)) for at in range(threads)]
    for worker in workers:
        worker.start()
    ready.wait()
    start = time.perf_counter()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - start)

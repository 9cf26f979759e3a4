"""Lease and ack, against the sends that stored the messages."""

import time
from collections.abc import Iterator

import quiver
from bench.content import batch_of, bodies
from bench.measure import Row, Run, Target, in_turns
from bench.peers import LiteQueue, PersistQueue
from bench.sends import SENDS, UNIT

ROWS = 1_000
TAKEN = 10_000  # by one receive


def receives(run: Run) -> Iterator[Row]:
    """Everything a round sends is received twice: as Arrow by one group, as objects by another."""
    messages = 50_000 if run.rounds < 5 else 100_000
    batch = batch_of(bodies(ROWS))
    with quiver.connect(run.folder("receives")) as queue:
        queue.create_topic("t")
        for group in ("arrow", "objects"):
            queue.create_group("t", group)

        def send() -> float:
            return _rate(messages, lambda: queue.send_batch("t", batch).count)

        def as_arrow() -> float:
            return _rate(messages, lambda: _taken_as_arrow(queue))

        def as_objects() -> float:
            return _rate(messages, lambda: _taken_as_objects(queue))

        sent, arrow, objects = in_turns(run.rounds, send, as_arrow, as_objects)
    again = "both are synced, and the messages come from memory, as right after they were sent"
    yield Row(
        "receive_arrow + ack", arrow, "send_batch", sent, UNIT,
        f"{messages:,} messages a round in batches of {TAKEN:,}, the lease and the ack of each "
        f"batch; {again}; against {SENDS}.", Target(">=", 1),
    )  # fmt: skip
    yield Row(
        "receive + ack", objects, "send_batch", sent, UNIT,
        f"The same as Delivery objects, the body of each looked at, acked by one "
        f"ack(deliveries) a batch; {again}.", Target(">=", 0.5),
    )  # fmt: skip
    yield from _against_peers(run)


def _rate(messages: int, step) -> float:
    start = time.perf_counter()
    done = 0
    while done < messages:
        done += step()
    return done / (time.perf_counter() - start)


def _taken_as_arrow(queue: quiver.Queue) -> int:
    got = queue.receive_arrow("t", "arrow", max_messages=TAKEN)
    got.ack()
    return len(got)


def _taken_as_objects(queue: quiver.Queue, topic: str = "t", group: str = "objects") -> int:
    got = queue.receive(topic, group, max_messages=TAKEN)
    assert all(delivery.body for delivery in got)
    queue.ack(got)
    return len(got)


def _against_peers(run: Run) -> Iterator[Row]:
    """One message at a time, as the peers do it, and in batches."""
    folder = run.folder("receives-peers")
    persist, lite = PersistQueue(folder), LiteQueue(folder)
    body = bodies(1)[0]
    count = 100 if run.rounds < 5 else 250
    with quiver.connect(folder / "quiver") as queue:
        queue.create_topic("t")

        def one() -> int:
            (delivery,) = queue.receive("t")
            delivery.ack()
            return 1

        def ours() -> float:
            queue.send_batch("t", [body] * count)
            return _rate(count, one)

        def persists() -> float:
            for _ in range(count):
                persist.put(body)
            return _rate(count, persist.take)

        def lites() -> float:
            lite.put_many(["x" * len(body)] * count)
            return _rate(count, lite.take)

        ones, puts, pops = in_turns(run.rounds, ours, persists, lites)
    persist.close()
    lite.close()
    how = "one message at a time, taken and then acked, each step synced"
    yield Row("receive(1) + ack", ones, "persist-queue get + ack", puts, UNIT,
              f"{how}; {PersistQueue.settings}.")  # fmt: skip
    yield Row("receive(1) + ack", ones, "litequeue pop + done", pops, UNIT,
              f"{how}; {LiteQueue.settings}.")  # fmt: skip

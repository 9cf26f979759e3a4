"""Lease and ack, against the sends that stored the messages, and against other queues."""

from collections.abc import Iterator
from contextlib import closing

import quiver
from bench.content import batch_of, bodies, texts
from bench.measure import Row, Run, Target, rates, repeated_until
from bench.peers import LiteQueue, PersistQueue
from bench.sends import ROWS, SENDS, UNIT

TAKEN = 10_000  # by one receive


def receives(run: Run) -> Iterator[Row]:
    """What is sent is received twice: as Arrow by one group, as objects by another."""
    batch = batch_of(bodies(ROWS))

    def take_arrow() -> int:
        got = queue.receive_arrow("t", "arrow", max_messages=TAKEN)
        got.ack()
        return len(got)

    def take_objects() -> int:
        got = queue.receive("t", "objects", max_messages=TAKEN)
        assert all(delivery.body for delivery in got)
        queue.ack(got)
        return len(got)

    with quiver.connect(run.folder("receives")) as queue:
        queue.create_topic("t")
        for group in ("arrow", "objects"):
            queue.create_group("t", group)
        sent, arrow, objects = rates(
            run,
            repeated_until(TAKEN, lambda: queue.send_batch("t", batch).count),
            repeated_until(TAKEN, take_arrow),
            repeated_until(TAKEN, take_objects),
        )
    how = f"one receive of {TAKEN:,} and one ack of all, both synced"
    yield Row(
        "receive_arrow + ack", arrow, "send_batch", sent, UNIT,
        f"{how}; the messages come from memory, as right after they were sent; {SENDS}.",
        Target(">=", 1),
    )  # fmt: skip
    yield Row(
        "receive + ack", objects, "send_batch", sent, UNIT,
        f"{how}; as Delivery objects, the body of each looked at; {SENDS}.", Target(">=", 0.5),
    )  # fmt: skip


def taking(run: Run) -> Iterator[Row]:
    """One message at a time, as other queues do it."""
    folder = run.folder("taking")
    body, word = bodies(1)[0], texts(1)[0]
    at_once = 10  # taken in each turn; what is taken is put in before, unmeasured

    def take() -> int:
        (delivery,) = queue.receive("t")
        delivery.ack()
        return 1

    def ours(seconds: float) -> tuple[int, float]:
        queue.send_batch("t", [body] * at_once)
        return repeated_until(at_once, take)(seconds)

    def persists(seconds: float) -> tuple[int, float]:
        for _ in range(at_once):
            persist.put(body)
        return repeated_until(at_once, persist.take)(seconds)

    def lites(seconds: float) -> tuple[int, float]:
        lite.put_many([word] * at_once)
        return repeated_until(at_once, lite.take)(seconds)

    with (
        quiver.connect(folder / "quiver") as queue,
        closing(PersistQueue(folder)) as persist,
        closing(LiteQueue(folder)) as lite,
    ):
        queue.create_topic("t")
        taken, gets, pops = rates(run, ours, persists, lites)
    how = "One message at a time, taken and then acked, each step synced"
    yield Row(
        "receive + ack, one by one", taken, "persist-queue get + ack", gets, UNIT,
        f"{how}; {PersistQueue.settings}.",
    )  # fmt: skip
    yield Row(
        "receive + ack, one by one", taken, "litequeue pop + done", pops, UNIT,
        f"{how}; {LiteQueue.settings}.",
    )  # fmt: skip

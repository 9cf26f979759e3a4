"""Couriers: threads of the process that owns the queue, each serving one worker process.

    receive from the queue  ->  have the worker do it  ->  ack, nack, or commit a transaction

One process owns the directory of an embedded queue, so this is how other processes take part.
Any number of couriers may serve a group: the queue gives each message to one of them at a time.
"""

from collections import defaultdict
from threading import Event, Lock, Thread
from typing import Final

import quiver
from quiver.cli.demo.orders import Order
from quiver.cli.demo.services import DemoBatch, DemoOutcome, Task
from quiver.cli.demo.workers import Worker

BATCH_MESSAGES: Final = 40
LEASE_SECONDS: Final = 3.0  # many times what a batch takes, and short enough to watch it run out
WAIT_SECONDS: Final = 0.2  # how long a receive waits for messages before it looks at `stop`
HANG_BEFORE_BATCH: Final = 12  # of billing: early enough that most of the work is still to do


class Tally:
    """What the couriers of one service saw. They share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.retried = 0  # deliveries that were not the first of their message
        self.absorbed = 0  # deliveries of what had been done before
        self.turn: dict[str, int] = {}  # order id -> as how many-th it was first delivered

    def note_deliveries(self, tasks: list[Task]) -> None:
        """These came from the queue."""
        with self._lock:
            self.retried += sum(task.attempt > 1 for task in tasks)
            for task in tasks:
                self.turn.setdefault(task.order.id, len(self.turn) + 1)

    def note_absorbed(self, count: int) -> None:
        """So many had been done before, and were not done again."""
        with self._lock:
            self.absorbed += count


class Sabotage:
    """Picks the one batch whose worker will hang, with half of the batch done.

    By the number of batches and not by the clock: so it happens on any machine, slow or fast.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._batches = 0
        self._done = False

    def hang_after(self, batch_messages: int) -> int | None:
        """After how many messages the worker of this batch hangs, if it does."""
        with self._lock:
            self._batches += 1
            if self._done or self._batches < HANG_BEFORE_BATCH or batch_messages < 2:
                return None
            self._done = True
            return batch_messages // 2


class Courier(Thread):
    """Carries orders from the queue to one worker, until told to stop."""

    def __init__(
        self, queue: quiver.Queue, worker: Worker, tally: Tally, sabotage: Sabotage | None
    ) -> None:
        super().__init__(name=f"courier of {worker.name}")
        self.worker = worker
        self.problem: Exception | None = None  # what ended the thread, if it was not `stop`
        self.stranded: list[quiver.Delivery] = []  # what the worker was doing when it hung
        self._queue = queue
        self._tally = tally
        self._sabotage = sabotage
        self._stopping = Event()

    def stop(self) -> None:
        """Finish the batch in hand, then end; `join` waits for that."""
        self._stopping.set()

    def run(self) -> None:
        """What the thread does."""
        try:
            while not self._stopping.is_set() and not self.stranded:
                self._carry()
        except Exception as problem:  # noqa: BLE001  # raised again where the story is told
            self.problem = problem

    def _carry(self) -> None:
        deliveries = self._queue.receive(
            "orders",
            group=self.worker.service,
            max_messages=BATCH_MESSAGES,
            lease=LEASE_SECONDS,
            wait=WAIT_SECONDS,
            consumer=self.worker.name,
        )
        if not deliveries:
            return
        outcomes = self._work(deliveries)
        if outcomes is None:
            self.stranded = deliveries  # neither acked nor nacked: their leases will end
            return
        self._tally.note_absorbed(sum(outcome.absorbed for outcome in outcomes))
        try:
            self._settle(deliveries, outcomes)
        except quiver.ReceiptExpired:
            # We were slower than the lease. The queue has let go of these messages and delivers
            # them again; the services take that as what it is, a duplicate.
            return

    def _work(self, deliveries: list[quiver.Delivery]) -> list[DemoOutcome] | None:
        tasks = [Task(each.id, each.attempt, Order(**each.json())) for each in deliveries]
        self._tally.note_deliveries(tasks)
        hang_after = self._sabotage.hang_after(len(tasks)) if self._sabotage else None
        return self.worker.ask(DemoBatch(tasks, hang_after))

    def _settle(self, deliveries: list[quiver.Delivery], outcomes: list[DemoOutcome]) -> None:
        if self.worker.service == "inventory":
            self._ship(deliveries, outcomes)
        else:
            self._ack_or_nack(deliveries, outcomes)

    def _ack_or_nack(self, deliveries: list[quiver.Delivery], outcomes: list[DemoOutcome]) -> None:
        by_failure: dict[str, list[quiver.Delivery]] = defaultdict(list)
        for delivery, outcome in zip(deliveries, outcomes, strict=True):
            by_failure[outcome.failure].append(delivery)
        done = by_failure.pop("", [])
        self._queue.ack(done)
        # No delay is given: the topic's retry policy knows how long to wait, and when to give up.
        for failure, failed in by_failure.items():
            self._queue.nack(failed, reason=failure)

    def _ship(self, deliveries: list[quiver.Delivery], outcomes: list[DemoOutcome]) -> None:
        """Settle the orders and send their shipments: all of it happens, or nothing."""
        shipments = [
            quiver.Message(
                {"order_id": delivery.json()["id"], "warehouse": outcome.warehouse},
                key=delivery.key,
                dedup_id=delivery.id,  # an order that comes back by redrive is not shipped again
            )
            for delivery, outcome in zip(deliveries, outcomes, strict=True)
        ]
        with self._queue.transaction() as transaction:
            transaction.ack(deliveries)
            transaction.send_batch("shipments", shipments)
        self._tally.note_absorbed(sum(sent.duplicates for sent in transaction.sent))

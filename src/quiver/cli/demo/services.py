"""What the three services do with an order. This runs in the worker processes.

A worker knows nothing of the queue: it gets tasks through a pipe and answers with outcomes.
"""

import signal
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Final, Literal, Protocol

from quiver.cli.demo.effects import Effect, EffectBook
from quiver.cli.demo.orders import DEAD_SERVER, Order

ServiceName = Literal["billing", "inventory", "notifications"]
SERVICES: Final[tuple[ServiceName, ...]] = ("billing", "inventory", "notifications")

WORK_SECONDS: Final = 0.003  # an order's work: the payment gateway, the warehouse, the mail server
FLAKY_SHARE: Final = 0.08  # of mails, fail for no good reason
TIMEOUT: Final = "Timeout: the mail server did not answer"
BAD_ADDRESS: Final = "Bad address: there is no @ in it"


@dataclass(frozen=True, slots=True)
class Task:
    """A delivery, as much of it as a worker needs."""

    message_id: str
    attempt: int
    order: Order


@dataclass(frozen=True, slots=True)
class DemoBatch:
    """Tasks to do now. A worker told to `hang_after` some of them never comes back from it."""

    tasks: list[Task]
    hang_after: int | None = None


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """What became of a task: done, done before (`absorbed`), or not done because of a `failure`."""

    failure: str = ""
    absorbed: bool = False
    warehouse: str = ""


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has started."""


@dataclass(frozen=True, slots=True)
class Hangs:
    """The worker is stuck in the middle of a batch; it will not say anything again."""


class Service(Protocol):
    """Something that is done for each order."""

    def handle(self, task: Task) -> DemoOutcome:
        """Do it."""


class Billing:
    """Charges customers. Delivered twice, an order is still charged once."""

    def __init__(self, book: EffectBook) -> None:
        self._book = book

    def handle(self, task: Task) -> DemoOutcome:
        """Charge."""
        fresh = self._book.record(task.message_id, Effect(task.order.id, task.order.cents))
        return DemoOutcome(absorbed=not fresh)


class Inventory:
    """Chooses the warehouse. Its only effect is a message, so the queue's transaction is enough."""

    def handle(self, task: Task) -> DemoOutcome:
        """Choose."""
        return DemoOutcome(warehouse="north" if task.order.cents % 2 else "south")


class Notifications:
    """Sends mails. It fails now and then, and for some orders always, until it is `repaired`."""

    def __init__(self, book: EffectBook, *, repaired: bool) -> None:
        self._book = book
        self._repaired = repaired

    def handle(self, task: Task) -> DemoOutcome:
        """Send a mail."""
        failure = "" if self._repaired else self._failure(task)
        if failure:
            return DemoOutcome(failure=failure)
        fresh = self._book.record(task.message_id, Effect(task.order.id, 0))
        return DemoOutcome(absorbed=not fresh)

    @staticmethod
    def _failure(task: Task) -> str:
        if "@" not in task.order.email:
            return BAD_ADDRESS
        # Chance depends on the order and the attempt only, so each run of the demo has the same.
        unlucky = Random(f"{task.order.id}/{task.attempt}").random() < FLAKY_SHARE
        return TIMEOUT if unlucky or task.order.email.endswith(DEAD_SERVER) else ""


def book_path(folder: Path, service: ServiceName) -> Path:
    """Where a service keeps its effects."""
    return folder / f"{service}.sqlite"


def make_service(name: ServiceName, folder: Path, *, repaired: bool) -> Service:
    """The service of that name, with its record in `folder`."""
    match name:
        case "billing":
            return Billing(EffectBook(book_path(folder, name)))
        case "inventory":
            return Inventory()
        case "notifications":
            return Notifications(EffectBook(book_path(folder, name)), repaired=repaired)


def serve(pipe: Connection, name: ServiceName, folder: Path, repaired: bool) -> None:
    """The life of a worker process: answer batches until the parent closes the pipe, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends us
    service = make_service(name, folder, repaired=repaired)
    try:
        pipe.send(Ready())
        while True:
            pipe.send(_work(pipe, service, pipe.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _work(pipe: Connection, service: Service, batch: DemoBatch) -> list[DemoOutcome]:
    outcomes: list[DemoOutcome] = []
    for task in batch.tasks:
        if len(outcomes) == batch.hang_after:
            pipe.send(Hangs())
            pipe.recv()  # for ever: nothing is sent to a worker that hangs
        time.sleep(WORK_SECONDS)
        outcomes.append(service.handle(task))
    return outcomes

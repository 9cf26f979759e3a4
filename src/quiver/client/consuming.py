"""What a consumer does in the background, a step at a time, and what it does when its node is away.

Both faces drive these flows: `sync.Consumer` in a thread, `aio.AsyncConsumer` in a task.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from logging import getLogger
from random import Random
from threading import RLock
from typing import Any, Final, Generic, TypeVar

from quiver import limits
from quiver.client.acks import AckBatch
from quiver.client.flows import Flows
from quiver.client.keeping import HOLDING, extend, until_settled
from quiver.client.prefetch import Ask, Begin, GiveBack, Keep, PrefetchBuffer, Rest, SendAcks, Step
from quiver.client.results import Leased
from quiver.client.steps import Course, Flow, done
from quiver.errors import (
    DiskFull,
    OutcomeUnknown,
    QueueClosed,
    QueueFull,
    QuiverError,
    ReceiptError,
    ReceiptExpired,
    UnavailableError,
)
from quiver.model.commands import Action
from quiver.model.queries import Ping
from quiver.model.units import milliseconds
from quiver.node.tickets import Ticket

L = TypeVar("L", bound=Leased)

LOGGER: Final = getLogger("quiver")
FOR_THE_CALLER: Final = (DiskFull, QueueFull)  # nothing comes back by itself here


class Consuming(Generic[L]):
    """The steps of one consumer. `lock` is around every change of its stock."""

    def __init__(
        self, flows: Flows, stock: PrefetchBuffer[L], make: Callable[..., L], settle: Callable[..., Any],
        wish: Sequence[str],
    ) -> None:  # fmt: skip
        self.lock = RLock()  # taken as it is: a condition can be interrupted half way
        self.stock = stock
        self._queue = flows  # whose consumer it is
        self.queue_closed = False
        self._make, self._settle = make, settle
        self._topic, self._group, self._name = wish
        self._own = self._flows = flows

    def open(self) -> None:
        """Have a way to the messages that nobody else's answers hold up."""
        self._own = self._queue.apart()
        self._flows = self._own.patient(limits.CONSUMER_PATIENCE_SECONDS)

    def close(self) -> None:
        """Let go of it; what was taken is settled as the queue does."""
        own = self._own
        self._own = self._flows = self._queue
        if own is not self._queue:
            own.broker.close()

    def demand_queue(self) -> None:
        """Refuse to look for messages when the queue is closed, and none will ever come."""
        if self.queue_closed:
            raise QueueClosed("the queue is closed; connect again")

    def settle(self, action: Action, items: Any, **options: Any) -> Flow[None]:
        """Settle what somebody has taken, after what was acked before."""
        settle = self._own.settle(action, items, **options)
        if self.stock.owner.gone:
            yield from settle
            return
        yield from self.flush()
        if action not in HOLDING:
            settle = until_settled(settle, partial(self._let_go, items))
        yield from settle

    def _let_go(self, items: Any) -> None:
        with self.lock:
            self.stock.settled(items)

    def do(self, step: "Step[L]", asked: float) -> Flow[float | None]:
        """Do this step, begun at `asked`, after the acks that were collected: both are one round trip.

        If there is nothing to do, the answer is for how many seconds.
        """
        if not isinstance(step, Rest):
            self.send_acks()
        match step:
            case Keep():
                yield from extend(self._flows, step.due, self._told(asked))
            case GiveBack():
                yield from self.release(step.deliveries)
                with self.lock:
                    self.stock.were_given_back()
            case Begin():
                yield from self._begin(step.deliveries, asked)
            case Ask():
                wait = self.stock.pause if step.waits else 0
                got = yield from self.receive(step.room, wait, step.begin)
                with self.lock:
                    self.stock.add(got, asked, step, time.monotonic())
            case SendAcks():
                yield from self.flush()
            case Rest(seconds):
                yield from self._answered()
                return seconds
        if self.stock.closed:  # meanwhile
            yield from self._give_back()
        self.note_acks()
        return None

    def _give_back(self) -> Flow[None]:
        with self.lock:
            waiting = self.stock.emptied()
        if waiting:
            yield from self.release(waiting)

    # -- acks that were collected ------------------------------------------------------------------

    def send_acks(self) -> None:
        """Ask for what was collected to be settled: before all that is asked for after this."""
        with self.lock:
            for batch in self.stock.acks.to_send():
                self._send(batch)

    def note_acks(self) -> list[Ticket[Any]]:
        """See what was answered; what is still waited for. An error if it is not known what was done."""
        errors = []
        with self.lock:
            for batch in self.stock.acks.sent:
                try:
                    if batch.lost:
                        self._send(batch)
                    else:
                        self._note(batch)
                except Exception as error:  # noqa: BLE001  # raised below: others have failed likewise
                    errors.append(error)
            if errors:
                raise errors[0]
            courses = [batch.course for batch in self.stock.acks.sent]
            tickets = [course.ticket for course in courses if course is not None]
        return [ticket for ticket in tickets if ticket is not None]

    def _send(self, batch: AckBatch[L]) -> None:
        batch.doubtful = batch.doubtful or batch.lost
        batch.course = Course(self._flows.settle("ack", batch.items, acked=True))
        self._note(batch)

    def _note(self, batch: AckBatch[L]) -> None:
        refused: Sequence[Any] = ()
        course = batch.course
        assert course is not None
        try:
            if not course.go():
                if course.ticket is not None:
                    course.ticket.shared = True
                return
        except ReceiptExpired as error:
            refused = error.refused
        except ReceiptError:  # of a topic or group that was deleted
            refused = batch.items
        except Exception:
            if batch.course is course:
                self.stock.acks.failed(batch)
            raise
        if batch.course is course:  # a signal handler has not sent it again meanwhile
            self.stock.were_acked(batch, refused)

    def flush(self) -> Flow[None]:
        """Send what was collected, and wait until all that was sent is answered."""
        with suppress(QuiverError):  # of attempts before: these are sent again
            self.note_acks()
        self.send_acks()
        yield from self._answered()

    def _answered(self) -> Flow[None]:
        while tickets := self.note_acks():
            with suppress(QuiverError):  # `note_acks` sees it, too
                yield from done(tickets[0])

    def one(self, wait: float) -> Flow[list[L]]:
        """The next message, which is begun, or none."""
        self.send_acks()
        got = yield from self.receive(1, wait, None)
        try:
            self.note_acks()
        except QuiverError:  # they are sent again; what was received must not get lost
            if not got:
                raise
        return got

    def receive(self, room: int, wait: float, begin: int | None) -> Flow[list[L]]:
        """Messages for the stock, or for whoever waits for one."""
        got: list[L] = yield from self._flows.receive_messages(
            self._make, self._settle, self._topic, self._group, room, self.stock.lease_seconds,
            wait, self._name, begin,
        )  # fmt: skip
        if got and self.stock.acks.open:
            got[0].lease.acks = self  # they share it
        return got

    def release(self, deliveries: list[L]) -> Flow[None]:
        """Give these back; what is not ours any more need not be."""
        with suppress(ReceiptError):
            yield from self._flows.settle("release", deliveries, acked=True)

    def end(self, waiting: list[L], *, asked: bool) -> Flow[None]:
        """Give back what waits. What was `asked` for, and is not wanted, has its answer before."""
        if waiting:
            yield from self.release(waiting)
        elif asked and self._own.broker.remote:
            yield from self._own.ask(Ping())

    def _begin(self, deliveries: list[L], asked: float) -> Flow[None]:
        """Begin these. If others have some of them, see what else they have taken."""
        refused: Any = ()
        try:
            yield from self._flows.settle("begin", deliveries, lease=self.stock.lease_seconds)
        except ReceiptExpired as error:
            refused = error.refused
        except ReceiptError:  # of a topic or group that was deleted
            refused = deliveries
        with self.lock:
            self.stock.were_begun(refused, asked, time.monotonic())
            doubtful = self.stock.reserved if refused else []
        if doubtful:
            due = [(self.stock.lease_seconds, doubtful)]
            yield from extend(self._flows, due, self._told(asked))

    def _told(self, asked: float) -> Callable[[list[L], Any], None]:
        def told(kept: list[L], lost: Any) -> None:
            with self.lock:
                self.stock.were_kept(kept, lost, asked)

        return told

    @property
    def title(self) -> str:
        """Who it is, for people."""
        return f"the consumer of topic {self._topic!r} (group {self._group!r})"

    def is_passing(self, error: Exception) -> bool:
        """Whether it may be over after a while: the node is away, or has too much to do."""
        if isinstance(error, QueueClosed):  # the node's, which ends, or our own
            return not self._flows.broker.closed
        away = isinstance(error, UnavailableError | OutcomeUnknown)
        return away and not isinstance(error, FOR_THE_CALLER)


class Outage:
    """Since when a node is away; how long to wait before the next attempt, and whether to go on."""

    def __init__(self, title: str, limit_seconds: float | None) -> None:
        self._title = title
        self._limit = limit_seconds
        self._chance = Random()  # noqa: S311  # it spreads attempts, it guards nothing
        self._since: float | None = None
        self._failures = 0

    @property
    def lasts(self) -> bool:
        """Whether the node is away."""
        return self._since is not None

    def failed(self, error: QuiverError, began: float) -> float:
        """An attempt that began then has failed; how many seconds to wait, or the error if it is enough."""
        if self._since is None:
            self._since = began
            LOGGER.warning("%s has lost its node, and waits for it: %s", self._title, error)
        self._failures += 1
        longest = min(
            limits.BACKOFF_SECONDS_MAX, limits.BACKOFF_SECONDS_MIN * 2 ** min(self._failures, 30)
        )
        pause = self._chance.uniform(longest / 2, longest)
        if self._limit is not None:
            left = self._since + self._limit - time.monotonic()
            if left <= 0:
                raise error
            pause = min(pause, left)
        return pause

    def is_over(self) -> None:
        """An attempt was successful."""
        if self._since is not None:
            seconds = time.monotonic() - self._since
            LOGGER.warning("%s has its node back, after %.1f s", self._title, seconds)
            self._since, self._failures = None, 0


def limit_of(give_up_after: Any) -> float | None:
    """For how many seconds a node may be away, from what a caller says."""
    if give_up_after is None:
        return None
    return milliseconds(give_up_after, "give_up_after") / 1000

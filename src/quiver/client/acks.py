"""Acks that a consumer has collected: which are to be sent, and which were refused. Knows no waiting.

They are in batches, each of which goes as one settle. The last is open for more. A batch stays until it is
answered, so an interrupt (Ctrl-C) at any moment loses none of it: what it has ended is sent once more.
"""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from quiver import limits
from quiver.client.results import Leased
from quiver.client.steps import Course
from quiver.errors import ReceiptExpired

L = TypeVar("L", bound=Leased)
AckMode: TypeAlias = Literal["wait", "background"]


@dataclass(slots=True, eq=False)
class AckBatch(Generic[L]):
    """Acks that are sent together."""

    items: list[L] = field(default_factory=list)
    course: Course[None] | None = None  # of the settle, if it was sent and has not failed
    doubtful: bool = False  # was sent before, and perhaps done: a refusal need not be one

    @property
    def lost(self) -> bool:
        """Whether its settle was interrupted, so that its outcome will not be known, or not here."""
        if self.course is None:
            return False
        ticket = self.course.ticket
        return not self.course.waits or (ticket is not None and ticket.stuck)


class Acks(Generic[L]):
    """What was acked and is not confirmed, of one consumer. If it is not `open`, nothing is collected.

    `clock` gives seconds and only goes forward; `now_ms` is the time of the queue.
    """

    def __init__(
        self, ahead: int, lease_seconds: float, *, open_: bool, now_ms: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self.open = open_
        self.due_at = inf  # when they are to be sent, if nothing takes them along before
        self.refused: list[Any] = []  # and nobody was told
        self._most = self._room = max(ahead, limits.CONSUMER_ACKS_MIN)
        self._linger = min(limits.CONSUMER_ACK_LINGER_SECONDS, lease_seconds / 3)
        self._left_ms = lease_seconds * 2000 / 3  # of a lease of which a third is used
        self._now_ms = now_ms
        self._clock = clock
        self._urgent_ms = 0.0  # a lease that ends before has less left
        self._batches: deque[AckBatch[L]] = deque([AckBatch()])  # the oldest first
        self._total = 0  # how many there were together with those that were refused

    def add(self, delivery: L, *, hurry: bool = False) -> Literal["", "collected", "look"]:
        """Collect one, if it is open; somebody may have to look when they are due, and if there are enough.

        In a `hurry` somebody may be waiting for what it holds up.
        """
        if not self.open:
            return ""
        if delivery.acked or delivery.lease.settled:
            return "collected"
        waiting = self._batches[-1].items
        waiting.append(delivery)
        delivery.acked = True
        first = len(waiting) == 1
        if first:
            self.due_at = self._clock() + self._linger
            self._urgent_ms = self._now_ms() + self._left_ms
        if hurry or delivery.lease.deadline_ms < self._urgent_ms:
            self.due_at = -inf
            return "look"
        return "look" if first or len(waiting) > self._room else "collected"

    @property
    def enough(self) -> bool:
        """Whether these must be sent before any more is collected."""
        return len(self._batches[-1].items) > self._room

    @property
    def sent(self) -> list[AckBatch[L]]:
        """Those that were sent, and have no answer yet that is known."""
        return [batch for batch in tuple(self._batches) if batch.course is not None]

    def to_send(self) -> list[AckBatch[L]]:
        """Those that are to be sent now: nothing is added to them any more."""
        if self._batches[-1].items:
            self._batches.append(AckBatch())
        self.due_at = inf
        self._room = self._most
        found = [one for one in tuple(self._batches) if one.items]
        unsent = [one for one in found if one.course is None or one.lost]
        again = [one for one in unsent if one.doubtful]
        for one in again[1:]:  # together: after a while without a node there may be many
            again[0].items += one.items
            self._discard(one)
        return [one for one in unsent if one not in again[1:]]

    def failed(self, batch: AckBatch[L]) -> None:
        """Whether these were done is not known: they are to be sent again."""
        batch.course, batch.doubtful = None, True
        self.due_at = self._clock() + self._linger
        waiting = [one for one in tuple(self._batches) if one.course is None]
        self._room = self._most - sum(len(one.items) for one in waiting[:-1])

    def settled(self, batch: AckBatch[L], refused: Iterable[Any]) -> None:
        """These have their answer. What was done before, as far as is known, is not told as refused."""
        wrong = list(refused)
        if batch.doubtful:
            now_ms = self._now_ms()
            wrong = [one for one in wrong if one.lease.deadline_ms <= now_ms]
        if wrong:
            self.refused += wrong
            self._total += len(batch.items)
        self._discard(batch)

    def _discard(self, batch: AckBatch[L]) -> None:
        with suppress(ValueError):  # a signal handler was faster
            self._batches.remove(batch)

    def refusal(self) -> ReceiptExpired | None:
        """What was refused since this was asked last, as one error."""
        if not self.refused:
            return None
        refused, total = self.refused, self._total
        self.refused, self._total = [], 0
        return ReceiptExpired(
            f"{len(refused)} of {total} acks that were collected in the background were refused: their "
            "leases had ended before, and the messages are delivered again, or somebody else has "
            "settled them. The others are done. Make the lease longer, or let it be kept (keep=True)",
            tuple(refused),
        )

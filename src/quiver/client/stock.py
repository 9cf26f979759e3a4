"""What a consumer has received ahead: the part that knows no waiting, so both faces share it."""

from collections import deque
from collections.abc import Iterable
from math import inf
from typing import Any, Final, Generic, TypeVar

from quiver import limits
from quiver.client import arguments
from quiver.client.owner import Owner
from quiver.client.results import Leased
from quiver.errors import (
    InvalidRequest,
    OutcomeUnknown,
    QueueClosed,
    ReceiptError,
    UnavailableError,
)

L = TypeVar("L", bound=Leased)

# Why messages that were not taken could not be given back: no matter, their leases end by themselves,
# or went with their topic.
GIVEN_UP: Final = (ReceiptError, OutcomeUnknown, UnavailableError, QueueClosed)


class Stock(Generic[L]):
    """Deliveries that wait to be taken, and those that were taken and are not settled yet.

    Times are seconds of any clock that only goes forward. What waits longer than its lease lasts is
    forgotten: somebody else may have it. What an at-most-once group gets is settled already: it has
    no lease that could end, be made longer, or be given back.
    """

    def __init__(self, most: Any, lease: Any, *, keep: Any) -> None:
        if not isinstance(keep, bool):
            raise InvalidRequest("keep must be True or False")
        self.lease_seconds = arguments.lease_ms(lease) / 1000
        self._most = arguments.whole(most, "prefetch", 1, limits.RECEIVE_MESSAGES_MAX)
        self._keep = keep
        self.owner = Owner("consumer")
        self._waiting: deque[tuple[L, float]] = deque()
        self._taken: dict[tuple[int, int, int], L] = {}
        self._kept = 0.0  # when leases were last made longer

    @property
    def room(self) -> int:
        """How many to ask for now: none until half of the stock is used up."""
        return self._most - len(self._waiting) if len(self._waiting) <= self._most // 2 else 0

    def add(self, deliveries: Iterable[L], asked: float) -> None:
        """Take these in; they were asked for at `asked`, so their leases last at least from then."""
        until = asked + self.lease_seconds
        self._waiting.extend(
            (delivery, inf if delivery.lease.settled else until) for delivery in deliveries
        )

    def take(self, now: float) -> L | None:
        """The oldest whose lease still holds."""
        while self._waiting:
            delivery, until = self._waiting.popleft()
            if now < until:
                if self._keep and not delivery.lease.settled:
                    self._taken[_place(delivery)] = delivery
                return delivery
        return None

    def settled(self, items: Iterable[Any]) -> None:
        """These need no lease any more."""
        for item in items:
            if isinstance(item, Leased):
                self._taken.pop(_place(item), None)

    def to_keep(self, now: float) -> list[L]:
        """Those whose leases are to be made longer now; not again for a third of a lease."""
        if not self._keep or now < self._kept + self.lease_seconds / 3:
            return []
        self._kept = now
        return [*self._held(), *self._taken.values()]

    def were_kept(self, kept: Iterable[L], lost: Iterable[Any], asked: float) -> None:
        """Their leases last from `asked` on, but for those that were `lost`."""
        gone = {_place(one) for one in lost if isinstance(one, Leased)}
        known = {_place(one) for one in kept} - gone
        until = asked + self.lease_seconds
        self._waiting = deque(
            (delivery, until if _place(delivery) in known else before)
            for delivery, before in self._waiting
            if _place(delivery) not in gone
        )
        for place in gone:
            self._taken.pop(place, None)

    def emptied(self) -> list[L]:
        """What was never taken, to be given back; what cannot be given back can still be taken."""
        waiting = self._held()
        self._waiting = deque(one for one in self._waiting if one[0].lease.settled)
        self._taken.clear()
        return waiting

    def _held(self) -> list[L]:
        return [delivery for delivery, _ in self._waiting if not delivery.lease.settled]


def _place(delivery: Leased) -> tuple[int, int, int]:
    return delivery.epoch, delivery.partition, delivery.offset

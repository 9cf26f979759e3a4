"""What a consumer has received ahead: the part that knows no waiting, so both faces share it.

A message is *reserved* when it is received ahead, *begun* when it may be handed out, and *taken*
afterwards. What is reserved is no attempt, and other consumers may take it over; so few messages are
begun at a time, but as many as are handed out in a fraction of a second, because to begin is a round
trip.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Generic, TypeAlias, TypeVar

from quiver import limits
from quiver.client import arguments
from quiver.client.keeping import Kept, Place, demand_bool, place
from quiver.client.owner import Owner
from quiver.client.results import Leased
from quiver.errors import (
    OutcomeUnknown,
    QueueClosed,
    ReceiptError,
    UnavailableError,
)

L = TypeVar("L", bound=Leased)

# Why messages that were not taken could not be given back: no matter, their leases end by themselves,
# or went with their topic.
GIVEN_UP: Final = (ReceiptError, OutcomeUnknown, UnavailableError, QueueClosed)


@dataclass(frozen=True, slots=True)
class Keep(Generic[L]):
    """Make leases longer, by their length."""

    due: list[tuple[float, list[L]]]


@dataclass(frozen=True, slots=True)
class GiveBack(Generic[L]):
    """Release these."""

    deliveries: list[L]


@dataclass(frozen=True, slots=True)
class Begin(Generic[L]):
    """Begin these."""

    deliveries: list[L]


@dataclass(frozen=True, slots=True)
class Ask:
    """Receive up to `room` messages and begin the first of them; somebody `waits`, or not."""

    room: int
    begin: int
    waits: bool


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is to be done for some seconds, unless something happens."""

    seconds: float


Step: TypeAlias = "Keep[L] | GiveBack[L] | Begin[L] | Ask | Rest"


@dataclass(slots=True)
class Waiting(Generic[L]):
    """A delivery that nobody has taken: until when it is leased, and since when it can be taken."""

    delivery: L
    until: float
    since: float


class Pace:
    """How many messages to begin at once: as many as were handed out lately."""

    def __init__(self) -> None:
        self._count = 1
        self._since = -inf  # when the last ones were begun

    def next(self, now: float, most: int) -> int:
        """The last ones are used up: so many are to be begun now."""
        took = now - self._since
        if took <= limits.CONSUMER_BEGIN_SECONDS / 2:
            self._count *= 2
        elif took > limits.CONSUMER_BEGIN_SECONDS:
            self._count = int(self._count * limits.CONSUMER_BEGIN_SECONDS / took)
        self._since = now
        self._count = min(max(self._count, 1), max(most, 1))
        return self._count

    def is_for(self, count: int, now: float) -> bool:
        """Whether so many are handed out, more than one, before the next ones should be begun."""
        lately = now - self._since <= limits.CONSUMER_BEGIN_SECONDS
        return lately and self._count >= max(count, 2)


class Stock(Generic[L]):
    """Deliveries that wait to be taken, and what is to be done next.

    Times are seconds of any clock that only goes forward. What waits longer than its lease lasts is
    forgotten, and its lease is not kept: somebody else may have it. What an at-most-once group has begun
    is settled already: it has no lease that could end, be made longer, or be given back.
    """

    def __init__(self, most: Any, lease: Any, *, keep: Any) -> None:
        self.lease_seconds = arguments.lease_ms(lease) / 1000
        self.ahead = arguments.whole(most, "prefetch", 0, limits.RECEIVE_MESSAGES_MAX)
        self.owner = Owner("consumer")
        self._keep = demand_bool(keep, "keep")
        self._kept: Kept[L] = Kept()
        self._wanted = False  # somebody found nothing to take
        self._begun: deque[Waiting[L]] = deque()
        self._reserved: deque[Waiting[L]] = deque()
        self._changing: list[Waiting[L]] = []  # being begun or given back, as far as is known
        self._refill_at = self.ahead // 2 if self.ahead else -1
        self._pace = Pace()

    def __len__(self) -> int:
        return len(self._begun) + len(self._reserved)

    # -- for whoever takes messages ----------------------------------------------------------------

    def take(self, now: float) -> L | None:
        """The oldest that has begun and whose lease still holds."""
        while self._begun:
            waiting = self._begun.popleft()
            if now < waiting.until:
                return waiting.delivery
            self._kept.settled([waiting.delivery])
        self._wanted = True
        return None

    @property
    def has_work(self) -> bool:
        """Whether something can be done now for those who take messages."""
        return (self._wanted and not self._begun) or len(self) <= self._refill_at

    def settled(self, items: Any) -> None:
        """These need no lease any more."""
        self._kept.settled(items)

    def emptied(self) -> list[L]:
        """What was never taken, to be given back; what cannot be given back can still be taken."""
        self._give_all_back()
        self._kept = Kept()
        return [waiting.delivery for waiting in self._changing]

    # -- for whoever works in the background -------------------------------------------------------

    @property
    def pause(self) -> float:
        """The longest wait for messages, or for anything else to happen."""
        return min(limits.CONSUMER_WAIT_SECONDS, self.lease_seconds / 6)

    def next(self, now: float) -> "Step[L]":
        """What is to be done now."""
        keep_in = self._kept.pause(now)
        if keep_in == 0:
            return Keep(self._kept.due(now))
        begun = [waiting.since for waiting in self._begun if waiting.until < inf]
        stale_at = min(begun, default=inf) + limits.CONSUMER_BEGUN_SECONDS_MAX
        if self._changing or stale_at <= now:
            self._give_all_back()
            return GiveBack([waiting.delivery for waiting in self._changing])
        while self._reserved and self._reserved[0].until <= now:
            self._kept.settled([self._reserved.popleft().delivery])
        if self._wanted and not self._begun:
            return self._for_somebody(now)
        self._wanted = False
        if len(self) <= self._refill_at:
            # A consumer that uses all of it up so fast begins it at once.
            fast = self._pace.is_for(self.ahead, now) and not self._reserved
            return Ask(self.ahead - len(self), self.ahead if fast else 0, waits=False)
        return Rest(min(self.pause, stale_at - now, inf if keep_in is None else keep_in))

    def _for_somebody(self, now: float) -> "Step[L]":
        """Somebody waits: begin what is here, or ask for something."""
        count = self._pace.next(now, self.ahead)
        if not self._reserved:
            self._wanted = False
            return Ask(self.ahead, count, waits=True)
        count = min(count, len(self._reserved))
        self._changing = [self._reserved.popleft() for _ in range(count)]
        return Begin([waiting.delivery for waiting in self._changing])

    def _give_all_back(self) -> None:
        """Also what is only reserved: in strict order it must not begin before what goes back."""
        self._changing += [waiting for waiting in self._begun if waiting.until < inf]
        self._changing += self._reserved
        self._begun = deque(waiting for waiting in self._begun if waiting.until == inf)
        self._reserved.clear()
        self._refill_at = -1  # until somebody wants something again
        self._pace = Pace()

    def add(self, deliveries: Sequence[L], asked: float, step: Ask, now: float) -> None:
        """Take these in; they were asked for at `asked`, so their leases last at least from then."""
        for delivery in deliveries:
            if delivery.reserved:
                self._reserved.append(Waiting(delivery, asked + self.lease_seconds, now))
            else:
                self._begun.append(self._as_begun(delivery, asked, now))
        self.keep(deliveries, asked)
        left = len(self) // 2 if len(self) > 1 else -1
        # If there was less than there is room for, there is no more: later, when half is used up.
        self._refill_at = self.ahead // 2 if len(deliveries) >= step.room else left

    def _as_begun(self, delivery: L, asked: float, now: float) -> "Waiting[L]":
        until = inf if delivery.lease.settled else asked + self.lease_seconds
        return Waiting(delivery, until, now)

    def keep(self, deliveries: Iterable[L], asked: float) -> None:
        """Their leases are to be made longer, if that is what is wanted."""
        if self._keep:
            self._kept.add(deliveries, self.lease_seconds, asked)

    def were_begun(self, refused: Sequence[Any], asked: float, now: float) -> None:
        """What was to be begun has begun at `asked` or later, but for what was refused."""
        gone = places(refused)
        self._begun.extend(
            self._as_begun(waiting.delivery, asked, now)
            for waiting in self._changing
            if place(waiting.delivery) not in gone
        )
        self._changing = []
        self._kept.settled(refused)

    def were_given_back(self) -> None:
        """What was to be given back is nobody's."""
        self._kept.settled([waiting.delivery for waiting in self._changing])
        self._changing = []

    @property
    def reserved(self) -> list[L]:
        """What has not begun."""
        return [waiting.delivery for waiting in self._reserved]

    def were_kept(self, kept: Iterable[L], lost: Sequence[Any], asked: float) -> None:
        """Their leases last from `asked` on, but for those that were `lost`."""
        gone = places(lost)
        known = places(kept) - gone
        until = asked + self.lease_seconds
        for waiting in (*self._begun, *self._reserved):
            if place(waiting.delivery) in known:
                waiting.until = until
        self._begun = deque(x for x in self._begun if place(x.delivery) not in gone)
        self._reserved = deque(x for x in self._reserved if place(x.delivery) not in gone)
        self._kept.settled(lost)


def places(items: Iterable[Any]) -> set[Place]:
    """What tells these deliveries from others."""
    return {place(one) for one in items if isinstance(one, Leased)}

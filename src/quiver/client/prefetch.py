"""What a consumer has received ahead: the part that knows no waiting, so both faces share it.

A message is *reserved* when it is received ahead, *begun* when it may be handed out, and *taken*
afterwards. What is reserved is no attempt, and other consumers may take it over; so few messages are
begun at a time, but as many as are handed out in a fraction of a second, because to begin is a round
trip.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import filterfalse, repeat
from math import inf
from operator import attrgetter
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from quiver import limits
from quiver.client import arguments
from quiver.client.acks import AckBatch, AckMode, Acks
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
_DELIVERY: Final = attrgetter("delivery")  # in C, as it is for many
_RESERVED: Final = attrgetter("reserved")


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
class SendAcks:
    """Nobody asks for messages now, and the acks that were collected should go."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is to be done for some seconds, unless something happens."""

    seconds: float


Step: TypeAlias = "Keep[L] | GiveBack[L] | Begin[L] | Ask | SendAcks | Rest"


class Waiting(msgspec.Struct, gc=False, eq=False):
    """A delivery that nobody has taken: until when it is leased, and since when it can be taken."""

    delivery: Any
    until: float
    since: float


class BeginPace:
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


class PrefetchPace:
    """Whether it takes longer to get messages than to use up all that may wait.

    Then whoever takes them waits in any case, and the fewest requests are best: for all of them, when none
    is left. Otherwise it is best to ask when half of them are left, so that nobody waits.
    """

    def __init__(self) -> None:
        self.hasty = False
        self._ran_out: float | None = None  # when the first found nothing to take
        self._since = -inf  # when the last ones came
        self._count = 0  # and how many waited then

    def ran_out(self, now: float) -> None:
        """Somebody found nothing to take."""
        if self._ran_out is None:
            self._ran_out = now

    def came(self, asked: float, now: float, count: int, most: int) -> None:
        """An answer; so many wait now, of so many that may."""
        if self._ran_out is None or not self._count:
            self.hasty = False
        else:  # from how long it took to use up what there was
            needs = (self._ran_out - self._since) * most / self._count
            self.hasty = now - asked > needs
        self._ran_out, self._since, self._count = None, now, count


class PrefetchBuffer(Generic[L]):
    """Deliveries that wait to be taken, and what is to be done next.

    Times are seconds of any clock that only goes forward. What waits longer than its lease lasts is
    forgotten, and its lease is not kept: somebody else may have it. What an at-most-once group has begun
    is settled already: it has no lease that could end, be made longer, or be given back.
    """

    def __init__(
        self, most: Any, lease: Any, *, keep: Any, acks: Any = "wait",
        now_ms: Callable[[], int] = lambda: 0, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.lease_seconds = arguments.lease_ms(lease) / 1000
        self.ahead = arguments.whole(most, "prefetch", 0, limits.RECEIVE_MESSAGES_MAX)
        self.owner = Owner("consumer")
        collects = arguments.choice(acks, "acks", AckMode) == "background"
        self.acks: Acks[L] = Acks(
            self.ahead, self.lease_seconds, open_=collects, now_ms=now_ms, clock=clock
        )
        self._keep = demand_bool(keep, "keep")
        self._kept: Kept[L] = Kept()
        self.closed = False  # what comes is to be given back
        self._wanted = False  # somebody found nothing to take
        self._begun: deque[Waiting] = deque()
        self._reserved: deque[Waiting] = deque()
        self._changing: list[Waiting] = []  # being begun or given back, as far as is known
        self._refill_at = self.ahead // 2 if self.ahead else -1
        self._pace = BeginPace()
        self._haste = PrefetchPace()

    def __len__(self) -> int:
        return len(self._begun) + len(self._reserved)

    # -- for whoever takes messages ----------------------------------------------------------------

    def take(self, now: float) -> L | None:
        """The oldest that has begun and whose lease still holds."""
        while self._begun:
            waiting = self._begun.popleft()
            if now < waiting.until:
                delivery: L = waiting.delivery
                return delivery
            self._kept.settled([waiting.delivery])
        self._wanted = True
        self._haste.ran_out(now)
        return None

    def nobody_waits(self) -> None:
        """Who found nothing to take has gone."""
        self._wanted = False

    @property
    def has_begun(self) -> bool:
        """Whether something can be taken, if its lease still holds."""
        return bool(self._begun)

    @property
    def has_work(self) -> bool:
        """Whether something can be done now for those who take messages."""
        if len(self._begun) + len(self._reserved) <= self._refill_at:
            return True
        return self._wanted and not self._begun

    def settled(self, items: Any) -> None:
        """These need no lease any more."""
        self._kept.settled(items)

    def were_acked(self, batch: AckBatch[L], refused: Sequence[Any]) -> None:
        """What was collected is answered; until then it has to be held."""
        self._kept.settled(batch.items)
        self.acks.settled(batch, refused)

    def close(self) -> None:
        """From now on nothing is asked for or collected, and what comes is to be given back."""
        self.closed, self.acks.open = True, False

    def emptied(self) -> list[L]:
        """What was never taken, to be given back; what cannot be given back can still be taken."""
        self._give_all_back()
        self._kept = Kept()
        return list(map(_DELIVERY, self._changing))

    # -- for whoever works in the background -------------------------------------------------------

    @property
    def pause(self) -> float:
        """The longest wait for messages, or for anything else to happen."""
        return min(limits.CONSUMER_WAIT_SECONDS, self.lease_seconds / 6)

    def next(self, now: float) -> "Step[L]":
        """What is to be done now."""
        if self.closed:
            return Rest(self.pause)
        keep_in = self._kept.pause(now)
        if keep_in == 0:
            return Keep(self._kept.due(now))
        stale_at = inf
        if self._begun and self._begun[0].until < inf:  # else none of them can be given back
            stale_at = self._begun[0].since + limits.CONSUMER_BEGUN_SECONDS_MAX
        if self._changing or stale_at <= now:
            self._give_all_back()
            return GiveBack(list(map(_DELIVERY, self._changing)))
        while self._reserved and self._reserved[0].until <= now:
            self._kept.settled([self._reserved.popleft().delivery])
        if self._wanted and not self._begun:
            return self._for_somebody(now)
        self._wanted = False
        if len(self) <= self._refill_at:
            # A consumer that uses all of it up so fast begins it at once.
            fast = self._pace.is_for(self.ahead, now) and not self._reserved
            if fast:
                self._pace.next(now, self.ahead)
            return Ask(self.ahead - len(self), self.ahead if fast else 0, waits=False)
        if self.acks.due_at <= now:
            return SendAcks()
        rest = min(self.pause, stale_at - now, self.acks.due_at - now)
        return Rest(rest if keep_in is None else min(rest, keep_in))

    def _for_somebody(self, now: float) -> "Step[L]":
        """Somebody waits: begin what is here, or ask for something."""
        count = self._pace.next(now, self.ahead)
        if not self._reserved:
            self._wanted = False
            return Ask(self.ahead, count, waits=True)
        count = min(count, len(self._reserved))
        self._changing = [self._reserved.popleft() for _ in range(count)]
        return Begin(list(map(_DELIVERY, self._changing)))

    def _give_all_back(self) -> None:
        """Also what is only reserved: in strict order it must not begin before what goes back."""
        self._changing += [waiting for waiting in self._begun if waiting.until < inf]
        self._changing += self._reserved
        self._begun = deque(waiting for waiting in self._begun if waiting.until == inf)
        self._reserved.clear()
        self._refill_at = -1  # until somebody wants something again
        self._pace = BeginPace()

    def add(self, deliveries: Sequence[L], asked: float, step: Ask, now: float) -> None:
        """Take these in; they were asked for at `asked`, so their leases last at least from then."""
        leased = asked + self.lease_seconds
        if deliveries:
            until = inf if deliveries[0].lease.settled else leased
            begun = filterfalse(_RESERVED, deliveries)
            self._begun.extend(map(Waiting, begun, repeat(until), repeat(now)))
            reserved = filter(_RESERVED, deliveries)
            self._reserved.extend(map(Waiting, reserved, repeat(leased), repeat(now)))
            self.keep(deliveries, asked)
        if self.closed:
            self._give_all_back()
        self._wanted = self._wanted and not self._begun
        if step.waits:  # for messages, and who knows for how long
            asked = now
        self._haste.came(asked, now, len(self), self.ahead)
        # If there was less than there is room for, there is no more: later, when half is used up.
        if len(deliveries) < step.room:
            self._refill_at = len(self) // 2 if len(self) > 1 else -1
        else:
            self._refill_at = 0 if self._haste.hasty else self.ahead // 2

    def _as_begun(self, delivery: L, asked: float, now: float) -> Waiting:
        until = inf if delivery.lease.settled else asked + self.lease_seconds
        return Waiting(delivery, until, now)

    def keep(self, deliveries: Iterable[L], asked: float) -> None:
        """Their leases are to be made longer, if that is what is wanted."""
        if self._keep:
            self._kept.add(deliveries, self.lease_seconds, asked)

    def were_begun(self, refused: Sequence[Any], asked: float, now: float) -> None:
        """What was to be begun has begun at `asked` or later, but for what was refused."""
        gone = places(refused)
        changed, self._changing = self._changing, []
        begun = [
            self._as_begun(waiting.delivery, asked, now)
            for waiting in changed
            if place(waiting.delivery) not in gone
        ]
        self._begun.extend(begun)
        self._wanted = self._wanted and not self._begun
        self._kept.settled(refused)
        if self.closed:
            self._give_all_back()

    def were_given_back(self) -> None:
        """What was to be given back is nobody's."""
        self._kept.settled(list(map(_DELIVERY, self._changing)))
        self._changing = []

    @property
    def reserved(self) -> list[L]:
        """What has not begun."""
        return list(map(_DELIVERY, self._reserved))

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

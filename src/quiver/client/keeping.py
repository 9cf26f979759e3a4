"""Deliveries whose leases are made longer until they are settled: the part that knows no waiting."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from quiver import limits
from quiver.client.flows import Flows, listed
from quiver.client.results import Leased
from quiver.client.steps import Flow
from quiver.errors import InvalidRequest, LimitExceeded, ReceiptError, ReceiptExpired

HOLDING: Final = ("extend", "begin")  # actions after which a message is still leased

L = TypeVar("L", bound=Leased)
Place = tuple[int, int, int]


def place(delivery: Leased) -> Place:
    """What tells a delivery from others of its group."""
    return delivery.epoch, delivery.partition, delivery.offset


def demand_bool(value: Any, name: str) -> bool:
    """The value, which must be True or False."""
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be True or False")
    return value


class Keeping(Protocol):
    """What makes the leases of received messages longer in the background."""

    def add(self, deliveries: Any, lease_seconds: float, asked: float) -> None:
        """Keep these from now on; their leases last at least from `asked` on."""

    def settled(self, items: Any) -> None:
        """These need no lease any more."""


def until_settled(settle: Flow[None], let_go: Callable[[], None]) -> Flow[None]:
    """Settle; until it is known that these leases have ended they may have to be made longer."""
    try:
        yield from settle
    except ReceiptError:
        let_go()
        raise
    let_go()


class Kept(Generic[L]):
    """What is kept, and when it is to be made longer again: each time a third of the lease is over.

    Times are seconds of any clock that only goes forward.
    """

    def __init__(self) -> None:
        self._held: dict[Place, tuple[L, float]] = {}  # and for how long it is leased
        self._dues: dict[float, float] = {}  # by the length of the lease

    def __len__(self) -> int:
        return len(self._held)

    def demand_room(self, count: int) -> None:
        """Refuse to keep so many more than there may be."""
        if len(self._held) + count > limits.KEPT_MAX:
            raise LimitExceeded(
                f"a queue keeps the leases of {limits.KEPT_MAX:,} messages at most; settle some, or "
                "receive fewer with keep=True"
            )

    def add(self, deliveries: Iterable[L], lease_seconds: float, asked: float) -> None:
        """Keep these, whose leases last at least from `asked` on. What is settled has none."""
        for delivery in deliveries:
            if not delivery.lease.settled:
                self._held[place(delivery)] = (delivery, lease_seconds)
                self._dues.setdefault(lease_seconds, asked + lease_seconds / 3)

    def settled(self, items: Any) -> None:
        """These need no lease any more."""
        for item in listed(items) if self._held else ():
            if isinstance(item, Leased):
                self._held.pop(place(item), None)

    def pause(self, now: float) -> float | None:
        """Seconds until something is to be done; None if nothing is kept."""
        if not self._held:
            self._dues.clear()
            return None
        return max(min(self._dues.values()) - now, 0)

    def due(self, now: float) -> list[tuple[float, list[L]]]:
        """What is to be made longer now, by the length of the lease, a topic and group at a time."""
        lengths = {length for length, due in self._dues.items() if due <= now}
        found: dict[tuple[float, int, int], list[L]] = {}
        for delivery, length in self._held.values():
            if length in lengths:
                owner = delivery.lease.topic_number, delivery.lease.group_number
                found.setdefault((length, *owner), []).append(delivery)
        self._dues = {
            length: now + length / 3 if length in lengths else due
            for length, due in self._dues.items()
            if any(length == known for _, known in self._held.values())
        }
        return [(length, deliveries) for (length, *_), deliveries in found.items()]


def extend(
    flows: Flows,
    due: list[tuple[float, list[L]]],
    told: Callable[[list[L], Sequence[Any]], None],
) -> Flow[None]:
    """Make longer what is due; `told` hears what it was about, and which of it is lost."""
    for lease_seconds, deliveries in due:
        lost: Sequence[Any] = ()
        try:
            yield from flows.settle("extend", deliveries, lease=lease_seconds, acked=True)
        except ReceiptExpired as error:
            lost = error.refused
        except ReceiptError:  # of a topic or group that was deleted
            lost = deliveries
        told(deliveries, lost)

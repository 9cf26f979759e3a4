"""Acks that a consumer has collected: which are to be sent, and which were refused. Knows no waiting.

add ─► take ─► settled, or refused
 ▲       │
 └───────┴── put_back: whether they were done is not known; a refusal need not be one, then
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from quiver import limits
from quiver.client.results import Leased
from quiver.errors import ReceiptExpired

L = TypeVar("L", bound=Leased)
AckMode: TypeAlias = Literal["wait", "background"]


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
        self._most = max(ahead, limits.CONSUMER_ACKS_MIN)
        self._linger = min(limits.CONSUMER_ACK_LINGER_SECONDS, lease_seconds / 3)
        self._left_ms = lease_seconds * 2000 / 3  # of a lease of which a third is used
        self._now_ms = now_ms
        self._clock = clock
        self._urgent_ms = 0.0  # a lease that ends before has less left
        self._waiting: list[L] = []
        self._doubtful: dict[int, L] = {}  # by `id`: were sent before, and perhaps done
        self._total = 0  # how many there were together with those that were refused

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, delivery: L, *, hurry: bool = False) -> Literal["", "collected", "look"]:
        """Collect one, if it is open; somebody may have to look when they are due, and if there are enough.

        In a `hurry` somebody may be waiting for what it holds up.
        """
        if not self.open:
            return ""
        if delivery.acked or delivery.lease.settled:
            return "collected"
        delivery.acked = True
        waiting = self._waiting
        waiting.append(delivery)
        first = len(waiting) == 1
        if first:
            self.due_at = self._clock() + self._linger
            self._urgent_ms = self._now_ms() + self._left_ms
        if hurry or delivery.lease.deadline_ms < self._urgent_ms:
            self.due_at = -inf
            return "look"
        return "look" if first or len(waiting) > self._most else "collected"

    @property
    def enough(self) -> bool:
        """Whether these must be sent before any more is collected."""
        return len(self._waiting) > self._most

    def take(self) -> list[L]:
        """Those that are to be sent now."""
        found, self._waiting = self._waiting, []
        self.due_at = inf
        return found

    def put_back(self, items: list[L]) -> None:
        """Whether these were done is not known: they are sent again."""
        self._waiting = items + self._waiting
        self._doubtful |= {id(item): item for item in items}
        self.due_at = self._clock() + self._linger

    def settled(self, items: list[L], refused: Iterable[Any]) -> None:
        """These have their answer. What was done before, as far as is known, is not told as refused."""
        now_ms = self._now_ms() if self._doubtful else 0
        wrong = [x for x in refused if id(x) not in self._doubtful or x.lease.deadline_ms <= now_ms]
        if self._doubtful:
            for item in items:
                self._doubtful.pop(id(item), None)
        if wrong:
            self.refused += wrong
            self._total += len(items)

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

"""Until when leases hold, in the node's time, as far as this client knows: never longer than they do.

A delivery's lease says until when it was granted. `extend` changes that for single messages, to sooner
or later; the new deadline is kept where it is known whose it is: a delivery gets a lease that says so,
and for a receipt that is text it is remembered here, for so many of them. While an answer to `extend`
is missing, the sooner of both deadlines counts.
"""

from collections.abc import Iterable
from operator import attrgetter
from threading import Lock
from typing import Final

from quiver import limits
from quiver.client.results import GrantedLease, Item, Leased, LeasedTable, receipt_of
from quiver.node.receipts import Receipt

_LEASE: Final = attrgetter("lease")


class Deadlines:
    """What one client was told about leases that it has made longer or shorter."""

    def __init__(self) -> None:
        self._lock = Lock()  # consumers extend leases in threads of their own
        self._told: dict[Receipt, int] = {}  # of receipts that were extended as text, newest last
        self._forgotten = -1  # the newest epoch of those that are not remembered any more

    def until(self, item: Item) -> int:
        """When the lease of a delivery or a receipt ends at the earliest; 0 if that is not known."""
        if isinstance(item, str):
            return self._told.get(receipt_of(item), 0)
        if item.epoch <= self._forgotten:
            return 0
        granted_ms = item.lease.deadline_ms
        return self._told.get(receipt_of(item), granted_ms) if self._told else granted_ms

    def earliest(self, together: list[Leased]) -> int:
        """The first of these ends, of deliveries that were given out together."""
        if self._told:
            return min(map(self.until, together))
        if together[0].epoch <= self._forgotten:
            return 0
        leases: set[GrantedLease] = set(map(_LEASE, together))
        return min(lease.deadline_ms for lease in leases)

    def doubt(self, items: Iterable[Item], deadline_ms: int) -> None:
        """The leases of these may be about to end then."""
        items = list(items)
        self._put(items, [min(self.until(item), deadline_ms) for item in items])

    def learn(self, items: Iterable[Item], deadline_ms: int) -> None:
        """The node has answered that the leases of these hold until then."""
        items = list(items)
        self._put(items, [deadline_ms] * len(items))

    def _put(self, items: list[Item], deadlines: list[int]) -> None:
        made: dict[
            tuple[GrantedLease, int], GrantedLease
        ] = {}  # one for all messages that share a lease
        with self._lock:
            for item, deadline_ms in zip(items, deadlines, strict=True):
                receipt = receipt_of(item)
                self._told.pop(receipt, None)
                if isinstance(item, str):
                    self._told[receipt] = deadline_ms
                else:
                    known = item.lease, deadline_ms
                    item.lease = made.setdefault(known, item.lease.until(deadline_ms))
            while len(self._told) > limits.EXTENDED_RECEIPTS_MAX:
                oldest = next(iter(self._told))
                del self._told[oldest]
                self._forgotten = max(self._forgotten, oldest.epoch)


def doubt_table(table: LeasedTable, deadline_ms: int) -> None:
    """The lease of some rows may be about to end then."""
    table.lease = table.lease.until(min(table.lease.deadline_ms, deadline_ms))


def learn_table(table: LeasedTable, before: GrantedLease, deadline_ms: int, *, whole: bool) -> None:
    """The lease of some rows, which was `before`, holds until then. All rows have one deadline here:
    the earliest."""
    known_ms = deadline_ms if whole else min(before.deadline_ms, deadline_ms)
    table.lease = table.lease.until(known_ms)

"""A partition: which offsets exist, where in the log their bytes are, and what is special about them.

Messages that were sent together are one `Extent`. The core never sees a body: an extent says "rows
`row …` of the batch in entry `index`". A dead letter is an extent of the dead-letter topic that
points at the same rows, so moving a message copies nothing and cannot lose it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from quiver.core.delivery.extents import Columns, Extent, Extents
from quiver.core.delivery.offsets import OffsetSet
from quiver.model.ranges import merge, subtract
from quiver.model.replies import Origin, Slice


class Partition:
    """The messages of one partition, oldest extent first. `first … end` is what may still exist.

    `nbytes` is what all extents take, with the messages in them that were removed: those stay in their
    batch until the extent goes or is cut.
    """

    __slots__ = (
        "_extents",
        "end",
        "gone_end",
        "gone_ms",
        "has_delays",
        "has_priorities",
        "has_ttl",
        "nbytes",
        "number",
        "removed",
    )

    def __init__(self, number: int) -> None:
        """An empty partition."""
        self.number = number
        self.end = 0
        self.nbytes = 0
        self.has_ttl = self.has_delays = self.has_priorities = False  # else nobody need look
        self.removed = OffsetSet()  # dropped, purged, discarded, redriven or expired: gone for all
        self.gone_end = self.gone_ms = -1  # the end and time of the newest that retention let go of
        self._extents = Extents()

    @property
    def first(self) -> int:
        """The oldest offset that still exists, or `end`."""
        return self._extents.first(0) if len(self._extents) else self.end

    def append(
        self,
        count: int,
        index: int,
        row: int,
        time_ms: int,
        nbytes: int,
        columns: Columns | None = None,
        base: int = 0,
        origin: Origin | None = None,
    ) -> int:
        """Add messages at the end; return the offset of the first."""
        first = self.end
        self.end += count
        self.nbytes += nbytes
        self._note(columns)
        last = self._extents[len(self._extents) - 1] if len(self._extents) else None
        if (
            last is not None
            and last.end == first
            and last.index == index
            and last.row + last.count == row
            and last.time_ms == time_ms
            and last.columns is columns
            and last.origin is None
            and origin is None
        ):
            self._extents.grow(count, nbytes)
        else:
            self._extents.add(
                Extent(first, count, index, row, time_ms, nbytes, columns, base, origin)
            )
        return first

    def live(self) -> Iterator[Extent]:
        """The extents that still exist."""
        return iter(self._extents)

    def since(self, offset: int) -> Iterator[Extent]:
        """The extents that reach beyond `offset`."""
        at = self._extents.place(offset)
        while at < len(self._extents):
            extent = self._extents[at]
            if extent.end > offset:
                yield extent
            at += 1

    def find(self, offset: int) -> Extent:
        """The extent that holds `offset`, which must exist."""
        extent = self._extents[self._extents.place(offset)]
        assert extent.first <= offset < extent.end
        return extent

    def slices(self, start: int, end: int, attempt: int = 0) -> Iterator[tuple[Slice, int]]:
        """Where the messages `start … end` are, and how many bytes each piece has."""
        for extent in self.since(start):
            if extent.first >= end:
                return
            low, high = max(start, extent.first), min(end, extent.end)
            piece = extent.slice(self.number, low, high, attempt)
            yield piece, extent.nbytes * piece.count // extent.count

    def messages(self) -> int:
        """How many messages can be read, settled or not: an extent may have some that were removed."""
        return self.end - self.removed.count

    def oldest(self) -> Extent | None:
        """The extent that was appended first of those that still exist."""
        return self._extents[0] if len(self._extents) else None

    def drop_oldest(self) -> None:
        """Forget that one."""
        extent = self._extents[0]
        self.removed.add(extent.first, extent.end)
        self.nbytes -= extent.nbytes
        self._extents.drop()

    def retain(self, keep: Iterable[Extent]) -> None:
        """Forget all extents but these, which are the same as now or parts of them."""
        before = merge([(extent.first, extent.end) for extent in self.live()])
        kept = Extents()
        after = []
        self.nbytes = 0
        for extent in keep:
            kept.add(extent)
            after.append((extent.first, extent.end))
            self.nbytes += extent.nbytes
        self._extents = kept
        for start, end in subtract(before, merge(after)):
            self.removed.add(start, end)

    def set_times(
        self, past: Callable[[int], int], columns: Callable[[Columns, int], Columns]
    ) -> None:
        """Replace when messages were stored, and the attributes of those stored at a time."""
        self._extents.set_times(past, columns)

    def offset_at(self, time_ms: int) -> int:
        """The first message that was stored at `time_ms` or later."""
        at = self._extents.at_time(time_ms)
        return self._extents.first(at) if at < len(self._extents) else self.end

    def first_delayed(self, start: int, now_ms: int) -> tuple[int, int | None]:
        """The first message from `start` on that is not due yet, and when it is; or the end."""
        if not self.has_delays:
            return self.end, None
        for extent in self.since(start):
            delays = extent.columns.deliver_at if extent.columns is not None else ()
            for offset in range(max(start, extent.first), extent.end) if delays else ():
                due_ms = delays[extent.base + offset - extent.first]
                if due_ms > now_ms and offset not in self.removed:
                    return offset, due_ms
        return self.end, None

    def key_of(self, offset: int) -> int:
        """The key's hash, 0 for none."""
        found = self._extents.columns_of(offset)
        return found[0].keys[found[1]] if found and found[0].keys else 0

    def tenant_of(self, offset: int) -> int:
        """The hash of the key's tenant, 0 for no key."""
        found = self._extents.columns_of(offset)
        return found[0].tenants[found[1]] if found and found[0].keys else 0

    def priority_of(self, offset: int) -> int:
        """The message's priority."""
        if not self.has_priorities:
            return 0
        found = self._extents.columns_of(offset)
        return found[0].priorities[found[1]] if found and found[0].priorities else 0

    def deliver_at_of(self, offset: int) -> int:
        """When the message may be delivered first, 0 for at once."""
        if not self.has_delays:
            return 0
        found = self._extents.columns_of(offset)
        return found[0].deliver_at[found[1]] if found and found[0].deliver_at else 0

    def expires_at_of(self, offset: int) -> int:
        """When the message is no longer wanted, 0 for never."""
        found = self._extents.columns_of(offset)
        return found[0].expires_at[found[1]] if found and found[0].expires_at else 0

    def _note(self, columns: Columns | None) -> None:
        """Remember which kinds of attributes messages here have had."""
        if columns is not None:
            self.has_ttl = self.has_ttl or len(columns.expires_at) > 0
            self.has_delays = self.has_delays or len(columns.deliver_at) > 0
            self.has_priorities = self.has_priorities or len(columns.priorities) > 0

    def dump(self) -> list[Any]:
        """As plain data."""
        return [self.end, self.nbytes, self.gone_end, self.gone_ms, self.removed.dump(),
                self._extents.dump()]  # fmt: skip

    @classmethod
    def load(cls, number: int, data: list[Any]) -> "Partition":
        """What `dump` gave."""
        made = cls(number)
        made.end, made.nbytes, made.gone_end, made.gone_ms, removed, extents = data
        made.removed = OffsetSet.load(removed)
        made._extents = Extents.load(extents)
        for columns in made._extents.all_columns():
            made._note(columns)
        return made

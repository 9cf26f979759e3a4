"""A partition: which offsets exist, where in the log their bytes are, and what is special about them.

Messages that were sent together are one `Extent`. The core never sees a body: an extent says "rows
`row …` of the batch in entry `index`". A dead letter is an extent of the dead-letter topic that
points at the same rows, so moving a message copies nothing and cannot lose it.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

from quiver.core.delivery.offsets import OffsetSet, merge, subtract
from quiver.model.commands import Attributes
from quiver.model.replies import Origin, Slice

COMPACT_AT: Final = 1_024  # dropped extents kept at the head of the list before it is shortened


class Columns:
    """`Attributes` made indexable by row."""

    __slots__ = ("attributes", "deliver_at", "expires_at", "keys", "priorities", "tenants")

    def __init__(self, attributes: Attributes) -> None:
        """Views over the attribute bytes; nothing is copied."""
        self.attributes = attributes
        self.keys = memoryview(attributes.keys).cast("Q")
        self.tenants = memoryview(attributes.tenants or attributes.keys).cast("Q")
        self.priorities = attributes.priorities
        self.deliver_at = memoryview(attributes.deliver_at).cast("q")
        self.expires_at = memoryview(attributes.expires_at).cast("q")

    @classmethod
    def of(cls, attributes: Attributes | None) -> "Columns | None":
        """The columns, if there is anything in them that delivery must know."""
        a = attributes
        if a is None or not (a.keys or a.priorities or a.deliver_at or a.expires_at):
            return None
        return cls(a)

    def cut(self, row: int, rows: int) -> "Columns | None":
        """The keys and priorities of some rows: what a message keeps when it moves."""
        a = self.attributes
        wide = slice(8 * row, 8 * (row + rows))
        return Columns.of(Attributes(a.keys[wide], a.tenants[wide], a.priorities[row : row + rows]))


class Extent:
    """Messages `first … first + count`, appended by one entry."""

    __slots__ = ("base", "columns", "count", "first", "index", "nbytes", "origin", "row", "time_ms")

    def __init__(
        self,
        first: int,
        count: int,
        index: int,
        row: int,
        time_ms: int,
        nbytes: int,
        columns: Columns | None,
        base: int,
        origin: Origin | None,
    ) -> None:
        """Row `base` of `columns` describes the first message."""
        self.first = first
        self.count = count
        self.index = index
        self.row = row
        self.time_ms = time_ms
        self.nbytes = nbytes
        self.columns = columns
        self.base = base
        self.origin = origin

    @property
    def end(self) -> int:
        """The offset after the last one."""
        return self.first + self.count

    def part(self, start: int, end: int) -> "Extent":
        """The messages `start … end` of it."""
        if (start, end) == (self.first, self.end):
            return self
        skip = start - self.first
        return Extent(
            start, end - start, self.index, self.row + skip, self.time_ms,
            self.nbytes * (end - start) // self.count, self.columns, self.base + skip,
            self.origin and self.origin.shift(skip),
        )  # fmt: skip

    def slice(self, partition: int, start: int, end: int, attempt: int) -> Slice:
        """The part `start … end` as a reader needs it."""
        skip = start - self.first
        origin = self.origin
        if origin is not None and skip:
            origin = origin.shift(skip)
        return Slice(partition, start, end - start, self.index, self.row + skip, self.time_ms,
                     attempt, origin)  # fmt: skip


class Partition:
    """The messages of one partition, oldest extent first. `first … end` is what may still exist."""

    __slots__ = (
        "_head",
        "_starts",
        "end",
        "extents",
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
        self.extents: list[Extent] = []
        self._starts: list[int] = []
        self._head = 0  # extents before it are dropped

    @property
    def first(self) -> int:
        """The oldest offset that still exists, or `end`."""
        return self._starts[self._head] if self._head < len(self._starts) else self.end

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
        last = self.extents[-1] if self._head < len(self.extents) else None
        if (
            last is not None
            and last.end == first
            and last.index == index
            and last.row + last.count == row
            and last.columns is columns
            and last.origin is None
            and origin is None
        ):
            last.count += count
            last.nbytes += nbytes
        else:
            self.extents.append(
                Extent(first, count, index, row, time_ms, nbytes, columns, base, origin)
            )
            self._starts.append(first)
        return first

    def live(self) -> Iterator[Extent]:
        """The extents that still exist."""
        for at in range(self._head, len(self.extents)):
            yield self.extents[at]

    def since(self, offset: int) -> Iterator[Extent]:
        """The extents that reach beyond `offset`."""
        at = max(bisect_right(self._starts, offset) - 1, self._head)
        for found in range(at, len(self.extents)):
            if self.extents[found].end > offset:
                yield self.extents[found]

    def find(self, offset: int) -> Extent:
        """The extent that holds `offset`, which must exist."""
        extent = self.extents[bisect_right(self._starts, offset) - 1]
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

    def oldest(self) -> Extent | None:
        """The extent that was appended first of those that still exist."""
        return self.extents[self._head] if self._head < len(self.extents) else None

    def drop_oldest(self) -> None:
        """Forget that one."""
        extent = self.extents[self._head]
        self.removed.add(extent.first, extent.end)
        self.nbytes -= extent.nbytes
        self._head += 1
        if self._head >= COMPACT_AT and self._head * 2 >= len(self.extents):
            self._compact()

    def retain(self, keep: list[Extent]) -> None:
        """Forget all extents but these, which are the same as now or parts of them."""
        before = merge([(extent.first, extent.end) for extent in self.live()])
        after = merge([(extent.first, extent.end) for extent in keep])
        for start, end in subtract(before, after):
            self.removed.add(start, end)
        self.extents = keep
        self._starts = [extent.first for extent in keep]
        self._head = 0
        self.nbytes = sum(extent.nbytes for extent in keep)
        for extent in keep:
            self._note(extent.columns)

    def offset_at(self, time_ms: int) -> int:
        """The first message that was stored at `time_ms` or later."""
        low, high = self._head, len(self.extents)
        while low < high:
            middle = (low + high) // 2
            if self.extents[middle].time_ms < time_ms:
                low = middle + 1
            else:
                high = middle
        return self._starts[low] if low < len(self._starts) else self.end

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
        extent = self.find(offset)
        columns = extent.columns
        return columns.keys[extent.base + offset - extent.first] if columns and columns.keys else 0

    def tenant_of(self, offset: int) -> int:
        """The hash of the key's tenant, 0 for no key."""
        extent = self.find(offset)
        columns = extent.columns
        if columns is None or not columns.keys:
            return 0
        return columns.tenants[extent.base + offset - extent.first]

    def priority_of(self, offset: int) -> int:
        """The message's priority."""
        if not self.has_priorities:
            return 0
        extent = self.find(offset)
        columns = extent.columns
        if columns is None or not columns.priorities:
            return 0
        return columns.priorities[extent.base + offset - extent.first]

    def deliver_at_of(self, offset: int) -> int:
        """When the message may be delivered first, 0 for at once."""
        if not self.has_delays:
            return 0
        extent = self.find(offset)
        columns = extent.columns
        if columns is None or not columns.deliver_at:
            return 0
        return columns.deliver_at[extent.base + offset - extent.first]

    def expires_at_of(self, offset: int) -> int:
        """When the message is no longer wanted, 0 for never."""
        extent = self.find(offset)
        columns = extent.columns
        if columns is None or not columns.expires_at:
            return 0
        return columns.expires_at[extent.base + offset - extent.first]

    def _note(self, columns: Columns | None) -> None:
        """Remember which kinds of attributes messages here have had."""
        if columns is not None:
            self.has_ttl = self.has_ttl or len(columns.expires_at) > 0
            self.has_delays = self.has_delays or len(columns.deliver_at) > 0
            self.has_priorities = self.has_priorities or len(columns.priorities) > 0

    def _compact(self) -> None:
        del self.extents[: self._head], self._starts[: self._head]
        self._head = 0

    def dump(self) -> list[Any]:
        """As plain data; columns shared by extents are written once."""
        tables: dict[int, int] = {}
        columns: list[list[bytes]] = []
        extents: list[list[Any]] = []
        for extent in self.live():
            table = -1
            if extent.columns is not None:
                table = tables.setdefault(id(extent.columns), len(columns))
                if table == len(columns):
                    a = extent.columns.attributes
                    columns.append([a.keys, a.tenants, a.priorities, a.deliver_at, a.expires_at])
            o = extent.origin
            origin = o and [
                o.topic, o.partition, o.offset, o.group, o.attempts, o.reason, o.time_ms
            ]  # fmt: skip
            extents.append(
                [extent.first, extent.count, extent.index, extent.row, extent.time_ms,
                 extent.nbytes, table, extent.base, origin]
            )  # fmt: skip
        return [self.end, self.removed.dump(), columns, extents]

    @classmethod
    def load(cls, number: int, data: list[Any]) -> "Partition":
        """What `dump` gave."""
        made = cls(number)
        made.end, removed, columns, extents = data
        made.removed = OffsetSet.load(removed)
        tables = [Columns(Attributes(*row)) for row in columns]
        made.retain(
            [
                Extent(
                    first, count, index, row, time_ms, nbytes,
                    tables[table] if table >= 0 else None, base,
                    Origin(*origin) if origin else None,
                )
                for first, count, index, row, time_ms, nbytes, table, base, origin in extents
            ]
        )  # fmt: skip
        return made

"""The extents of a partition, in offset order, packed: a few numbers each, not an object.

A backlog of single sends has an extent for every message. As objects a million of them would take a
quarter of a gigabyte and a second and a half to save; as columns of numbers it is 48 MB and nothing.
What only some extents have (attributes, an origin) is kept beside.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from quiver.model.commands import Attributes
from quiver.model.replies import Origin, Slice

COMPACT_AT: Final = 1_024  # dropped extents kept at the head before the columns are shortened


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

    def with_times(self, mapped: Callable[[int], int]) -> "Columns":
        """The same, due and ending at other times; 0 stays 0."""
        deliver_at, expires_at = (
            array("q", [mapped(time_ms) if time_ms else 0 for time_ms in times]).tobytes()
            for times in (self.deliver_at, self.expires_at)
        )
        return Columns(replace(self.attributes, deliver_at=deliver_at, expires_at=expires_at))

    def cut(self, row: int, rows: int, *, timed: bool) -> "Columns | None":
        """What some rows keep when they move: keys, priorities, and, if they are `timed`, times."""
        a = self.attributes
        wide = slice(8 * row, 8 * (row + rows))
        times = (a.deliver_at[wide], a.expires_at[wide]) if timed else ()
        return Columns.of(
            Attributes(a.keys[wide], a.tenants[wide], a.priorities[row : row + rows], *times)
        )


@dataclass(slots=True)
class Extent:
    """Messages `first … first + count`: rows `row …` of the batch in entry `index`.

    Row `base` of `columns` describes the first of them.
    """

    first: int
    count: int
    index: int
    row: int
    time_ms: int
    nbytes: int
    columns: Columns | None = None
    base: int = 0
    origin: Origin | None = None

    @property
    def end(self) -> int:
        """The offset after the last one."""
        return self.first + self.count

    @property
    def stored_ms(self) -> int:
        """When its messages were stored first, wherever they have moved since."""
        return self.origin.stored_ms if self.origin is not None else self.time_ms

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


class Extents:
    """A list of extents that is appended to at the end and dropped from at the head."""

    __slots__ = ("_columns", "_firsts", "_head", "_others")

    def __init__(self) -> None:
        """None yet."""
        self._firsts = array("q")
        self._columns = [array("q") for _ in range(5)]  # count, index, row, time_ms, nbytes
        self._others: dict[int, tuple[Columns | None, int, Origin | None]] = {}  # by first offset
        self._head = 0  # extents before it are dropped

    def __len__(self) -> int:
        """How many there are."""
        return len(self._firsts) - self._head

    def __getitem__(self, at: int) -> Extent:
        """The extent at a place, 0 for the oldest."""
        at += self._head
        first = self._firsts[at]
        counts, indexes, rows, times, sizes = self._columns
        other = self._others.get(first)
        if other is None:
            return Extent(first, counts[at], indexes[at], rows[at], times[at], sizes[at])
        return Extent(first, counts[at], indexes[at], rows[at], times[at], sizes[at], *other)

    def __iter__(self) -> Iterator[Extent]:
        """All of them, oldest first; there may be more at the end before it has come there."""
        at = 0
        while at < len(self):
            yield self[at]
            at += 1

    def add(self, extent: Extent) -> None:
        """Behind all others."""
        self._firsts.append(extent.first)
        counts, indexes, rows, times, sizes = self._columns
        counts.append(extent.count)
        indexes.append(extent.index)
        rows.append(extent.row)
        times.append(extent.time_ms)
        sizes.append(extent.nbytes)
        if extent.columns is not None or extent.origin is not None:
            self._others[extent.first] = (extent.columns, extent.base, extent.origin)

    def grow(self, count: int, nbytes: int) -> None:
        """The last one has so many more."""
        self._columns[0][-1] += count
        self._columns[4][-1] += nbytes

    def drop(self) -> None:
        """Forget the oldest."""
        self._others.pop(self._firsts[self._head], None)
        self._head += 1
        if self._head >= COMPACT_AT and self._head * 2 >= len(self._firsts):
            for column in (self._firsts, *self._columns):
                del column[: self._head]
            self._head = 0

    def place(self, offset: int) -> int:
        """The place of the last extent that starts at `offset` or before; 0 if none does."""
        return max(bisect_right(self._firsts, offset) - 1 - self._head, 0)

    def at_time(self, time_ms: int) -> int:
        """The place of the first extent of `time_ms` or later, or how many there are."""
        low, high = self._head, len(self._firsts)
        times = self._columns[3]
        while low < high:
            middle = (low + high) // 2
            if times[middle] < time_ms:
                low = middle + 1
            else:
                high = middle
        return low - self._head

    def first(self, at: int) -> int:
        """The first offset of the extent at a place."""
        return self._firsts[self._head + at]

    def columns_of(self, offset: int) -> tuple[Columns, int] | None:
        """The attributes of a message that has any, and its row in them."""
        if not self._others:
            return None
        first = self._firsts[bisect_right(self._firsts, offset) - 1]
        other = self._others.get(first)
        if other is None or other[0] is None:
            return None
        return other[0], other[1] + offset - first

    def set_times(
        self, past: Callable[[int], int], columns: Callable[[Columns, int], Columns]
    ) -> None:
        """Replace when messages were stored, and the attributes of those stored at a time."""
        others: dict[int, tuple[Columns | None, int, Origin | None]] = {}
        for first, (table, base, origin) in self._others.items():
            extent = self[self.place(first)]
            moved = origin and replace(
                origin, time_ms=past(origin.time_ms), stored_ms=past(origin.stored_ms)
            )
            others[first] = (table and columns(table, extent.stored_ms), base, moved)
        self._others = others
        self._columns[3] = array("q", map(past, self._columns[3]))

    def all_columns(self) -> Iterator[Columns]:
        """Every table of attributes, perhaps more than once."""
        for columns, _, _ in self._others.values():
            if columns is not None:
                yield columns

    def dump(self) -> list[Any]:
        """As plain data; columns shared by extents are written once."""
        tables: dict[int, int] = {}
        found: list[list[bytes]] = []
        others: list[list[Any]] = []
        for first, (columns, base, origin) in self._others.items():
            table = -1
            if columns is not None:
                table = tables.setdefault(id(columns), len(found))
                if table == len(found):
                    a = columns.attributes
                    found.append([a.keys, a.tenants, a.priorities, a.deliver_at, a.expires_at])
            o = origin
            others.append([first, table, base, o and [
                o.topic, o.partition, o.offset, o.group, o.attempts, o.reason, o.time_ms, o.stored_ms
            ]])  # fmt: skip
        packed = [column[self._head :].tobytes() for column in (self._firsts, *self._columns)]
        return [packed, found, others]

    @classmethod
    def load(cls, data: list[Any]) -> "Extents":
        """What `dump` gave."""
        packed, found, others = data
        made = cls()
        firsts, counts, indexes, rows, times, sizes = (array("q", column) for column in packed)
        made._firsts, made._columns = firsts, [counts, indexes, rows, times, sizes]
        tables = [Columns(Attributes(*row)) for row in found]
        for first, table, base, origin in others:
            columns = tables[table] if table >= 0 else None
            made._others[first] = (columns, base, Origin(*origin) if origin else None)
        return made

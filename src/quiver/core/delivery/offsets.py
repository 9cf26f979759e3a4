"""A set of offsets that stays small whichever way it is filled.

Offsets are kept in chunks of 1,024. A chunk that is partly filled is one integer used as a bit
mask; chunks that are full become ranges of chunks. So a message that waits for a month costs one
mask and one range, not a range per gap, and adding is O(1) per chunk where a sorted list of ranges
would move memory.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

from quiver.model.ranges import Range

BITS: Final = 10
SIZE: Final = 1 << BITS
FULL: Final = (1 << SIZE) - 1


class OffsetSet:
    """Offsets from 0 up; `count` of them are in the set."""

    __slots__ = ("_ends", "_parts", "_starts", "count")

    def __init__(self) -> None:
        """An empty set."""
        self._parts: dict[int, int] = {}
        self._starts: list[
            int
        ] = []  # full chunks, as disjoint non-touching ranges of chunk numbers
        self._ends: list[int] = []
        self.count = 0

    @classmethod
    def below(cls, offset: int) -> "OffsetSet":
        """Everything before `offset`."""
        made = cls()
        chunk, rest = divmod(offset, SIZE)
        if chunk:
            made._starts, made._ends = [0], [chunk]
        if rest:
            made._parts[chunk] = (1 << rest) - 1
        made.count = offset
        return made

    @property
    def low(self) -> int:
        """The smallest offset that is not in the set."""
        chunk = self._ends[0] if self._starts and self._starts[0] == 0 else 0
        mask = self._parts.get(chunk, 0)
        return chunk * SIZE + ((mask + 1) & ~mask).bit_length() - 1

    def add(self, start: int, end: int) -> int:
        """Put `start … end` in; return how many were not in before."""
        if start >= end:
            return 0
        before = self.count
        first, last = start >> BITS, (end - 1) >> BITS
        if first == last:
            self._mark(first, ((1 << (end - start)) - 1) << (start & (SIZE - 1)))
        else:
            self._mark(first, FULL & ~((1 << (start & (SIZE - 1))) - 1))
            for chunk in range(first + 1, last):
                self._mark(chunk, FULL)
            self._mark(last, (1 << (end - (last << BITS))) - 1)
        return self.count - before

    def __contains__(self, offset: int) -> bool:
        """Whether one offset is in."""
        chunk = offset >> BITS
        return bool(self._mask(chunk) >> (offset & (SIZE - 1)) & 1)

    def gaps(self, start: int, end: int, limit: int | None = None) -> Iterator[Range]:
        """The ranges inside `start … end` that are not in the set, in order.

        With a `limit`, only that many offsets, and nothing behind them is looked at.
        """
        left = end - start if limit is None else limit
        for low, high in self._gaps(start, end, left):
            yield low, min(high, low + left)
            left -= high - low
            if left <= 0:
                return

    def _gaps(self, start: int, end: int, enough: int) -> Iterator[Range]:
        open_at = -1
        position = start
        while position < end:
            if open_at >= 0 and position - open_at >= enough:
                yield open_at, position
                return
            chunk = position >> BITS
            stop = min(end, (chunk + 1) << BITS)
            mask = self._mask(chunk)
            if mask == 0:
                if open_at < 0:
                    open_at = position
                position = stop
                continue
            if mask == FULL:
                if open_at >= 0:
                    yield open_at, position
                    open_at = -1
                run = bisect_right(self._starts, chunk) - 1
                position = self._ends[run] << BITS
                continue
            bits = mask >> (position & (SIZE - 1))
            while position < stop:
                if bits & 1:
                    if open_at >= 0:
                        yield open_at, position
                        open_at = -1
                    length = ((bits + 1) & ~bits).bit_length() - 1
                else:
                    if open_at < 0:
                        open_at = position
                    length = (bits & -bits).bit_length() - 1 if bits else SIZE
                position += length
                bits >>= length
            position = stop
        if open_at >= 0:
            yield open_at, end

    def covers(self, start: int, end: int) -> bool:
        """Whether all of `start … end` is in."""
        return next(self.gaps(start, end), None) is None

    def dump(self) -> list[Any]:
        """As plain data."""
        parts = [[chunk, mask.to_bytes(SIZE // 8, "little")] for chunk, mask in self._parts.items()]
        return [self.count, list(self._starts), list(self._ends), parts]

    @classmethod
    def load(cls, data: list[Any]) -> "OffsetSet":
        """What `dump` gave."""
        made = cls()
        made.count, made._starts, made._ends, parts = data
        made._parts = {chunk: int.from_bytes(mask, "little") for chunk, mask in parts}
        return made

    def _mask(self, chunk: int) -> int:
        mask = self._parts.get(chunk)
        if mask is not None:
            return mask
        run = bisect_right(self._starts, chunk) - 1
        return FULL if run >= 0 and chunk < self._ends[run] else 0

    def _mark(self, chunk: int, bits: int) -> None:
        old = self._mask(chunk)
        new = old | bits
        if new == old:
            return
        self.count += new.bit_count() - old.bit_count()
        if new != FULL:
            self._parts[chunk] = new
            return
        self._parts.pop(chunk, None)
        starts, ends = self._starts, self._ends
        run = bisect_right(starts, chunk)
        joins_left = run > 0 and ends[run - 1] == chunk
        joins_right = run < len(starts) and starts[run] == chunk + 1
        if joins_left and joins_right:
            ends[run - 1] = ends[run]
            del starts[run], ends[run]
        elif joins_left:
            ends[run - 1] = chunk + 1
        elif joins_right:
            starts[run] = chunk
        else:
            starts.insert(run, chunk)
            ends.insert(run, chunk + 1)

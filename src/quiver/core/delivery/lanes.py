"""Ready messages where keys do not matter: a lane of offset ranges for each priority.

Higher lanes go first. Inside a lane, messages that came back go before fresh ones, both in offset
order. Offsets that were settled meanwhile (purged, expired) stay in the lanes and are skipped when
they are reached.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

from quiver.core.delivery.offsets import OffsetSet
from quiver.model.ranges import Range

Taken = tuple[int, int, int]  # start, end, attempts so far


class PriorityLanes:
    """What a group may take from one partition, by priority."""

    __slots__ = ("_again", "_fresh")

    def __init__(self) -> None:
        """Nothing is ready."""
        self._fresh: dict[int, deque[Range]] = {}
        self._again: dict[int, list[Taken]] = {}

    def add(self, start: int, end: int, priority: int) -> None:
        """Fresh messages, later than all before."""
        lane = self._fresh.get(priority)
        if lane is None:
            lane = self._fresh[priority] = deque()
        if lane and lane[-1][1] == start:
            lane[-1] = (lane[-1][0], end)
        else:
            lane.append((start, end))

    def put_back(self, start: int, end: int, attempts: int, priority: int) -> None:
        """Messages that may be tried again, or whose delay has passed."""
        heappush(self._again.setdefault(priority, []), (start, end, attempts))

    def levels(self) -> list[int]:
        """The priorities at which there may be something to take."""
        return list({**self._fresh, **self._again})

    def take(self, level: int, limit: int, settled: OffsetSet) -> list[Taken]:
        """Up to `limit` messages of priority `level`."""
        taken: list[Taken] = []
        again = self._again.get(level)
        while again and limit > 0:
            limit -= self._cut(heappop(again), limit, settled, taken, again)
        lane = self._fresh.get(level)
        while lane and limit > 0:
            start, end = lane.popleft()
            limit -= self._cut((start, end, 0), limit, settled, taken, lane)
        if not again:
            self._again.pop(level, None)
        if not lane:
            self._fresh.pop(level, None)
        return taken

    @staticmethod
    def _cut(
        piece: Taken,
        limit: int,
        settled: OffsetSet,
        taken: list[Taken],
        source: "list[Taken] | deque[Range]",
    ) -> int:
        """Take what is unsettled of `piece`, put the rest back at the front of `source`; count it.

        It looks at no more than it takes: the piece may be the whole backlog.
        """
        start, end, attempts = piece
        found = list(settled.gaps(start, end, limit))
        taken += [(low, high, attempts) for low, high in found]
        count = sum(high - low for low, high in found)
        position = found[-1][1] if count == limit else end
        if position < end:
            if isinstance(source, deque):
                source.appendleft((position, end))
            else:
                heappush(source, (position, end, attempts))
        return count

    def lowest(self) -> int:
        """The lowest offset in the lane of priority 0, which must not be empty."""
        heads = [pieces[0][0] for pieces in (self._again.get(0), self._fresh.get(0)) if pieces]
        return min(heads)

    def __bool__(self) -> bool:
        """Whether there may be something to take."""
        return bool(self._fresh or self._again)

    def ranges(self) -> Iterator[Range]:
        """Everything in the lanes, settled or not."""
        for lane in self._fresh.values():
            yield from lane
        for again in self._again.values():
            yield from ((start, end) for start, end, _ in again)

    def dump(self) -> list[Any]:
        """As plain data."""
        return [
            [[priority, list(lane)] for priority, lane in self._fresh.items()],
            [[priority, list(again)] for priority, again in self._again.items()],
        ]

    @classmethod
    def load(cls, data: list[Any]) -> "PriorityLanes":
        """What `dump` gave."""
        made = cls()
        fresh, again = data
        made._fresh = {
            priority: deque((start, end) for start, end in lane) for priority, lane in fresh
        }
        made._again = {
            priority: [(start, end, attempts) for start, end, attempts in lane]
            for priority, lane in again
        }
        return made

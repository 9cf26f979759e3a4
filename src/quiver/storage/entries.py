"""What is remembered of the entries of an open log: their terms, where some of them are, the last ones.

It costs little for a node without peers: a run for each term, and the place of one entry in every
mebibyte of the log. Records are kept only where peers are to be served from memory.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from quiver import limits

if TYPE_CHECKING:
    from quiver.storage.frame import LogRecord

_FIRST = itemgetter(0)
_INDEX = attrgetter("index")


@dataclass(frozen=True, slots=True)
class Point:
    """Where the frame of an entry is: the first entry of the file, and the position."""

    index: int
    file: int
    position: int


class EntryTable:
    """Of the entries behind `after`, whose own term is known: it is what the log begins with.

    One thread changes it. Another may call `find_term` meanwhile, so runs are never removed in place.
    """

    def __init__(self, after: int, term: int, recent_bytes: int) -> None:
        self.term = term  # of the last entry
        self.terms = [(after, term)]  # runs: the first entry of each, and its term
        self._points: list[Point] = []
        self._file = -1  # of the last point
        self._next_point = 0  # from this position on, the file has another one
        self._recent: dict[int, LogRecord] = {}  # the last entries, without a gap
        self._oldest = 0  # of those
        self._recent_bytes = 0
        self._recent_bytes_max = recent_bytes

    def add(self, record: LogRecord, file: int, position: int) -> None:
        """A record was appended."""
        self.add_term(record.index, record.term)
        self.add_place(record.index, file, position)
        if self._recent_bytes_max:
            self._add_recent(record)

    def add_term(self, index: int, term: int) -> None:
        """The log has another entry."""
        if term != self.term:
            self.terms.append((index, term))
            self.term = term

    def add_place(self, index: int, file: int, position: int) -> None:
        """The frame of an entry is there: remember that if the last one is far away."""
        if file != self._file or position >= self._next_point:
            self._points.append(Point(index, file, position))
            self._file, self._next_point = file, position + limits.WAL_POINT_BYTES

    def _add_recent(self, record: LogRecord) -> None:
        """Older ones give way to it."""
        self._oldest = self._oldest if self._recent else record.index
        self._recent[record.index] = record
        self._recent_bytes += record.nbytes
        while self._recent_bytes > self._recent_bytes_max:
            self._recent_bytes -= self._recent.pop(self._oldest).nbytes
            self._oldest += 1

    def recent(self, index: int) -> LogRecord | None:
        """The record of an entry, if it is remembered."""
        return self._recent.get(index)

    def find_term(self, index: int) -> int | None:
        """The term of an entry, None for those before the first one."""
        terms = self.terms
        at = bisect_right(terms, index, key=_FIRST) - 1
        return terms[at][1] if at >= 0 else None

    def point_before(self, index: int) -> Point | None:
        """The last place known that is not behind an entry."""
        at = bisect_right(self._points, index, key=_INDEX) - 1
        return self._points[at] if at >= 0 else None

    def cut(self, after: int) -> None:
        """There are no entries behind `after` any more."""
        self.terms = [run for run in self.terms if run[0] <= after]
        self.term = self.terms[-1][1]
        while self._points and self._points[-1].index > after:
            self._points.pop()
        self._file = -1
        for index in range(max(after + 1, self._oldest), self._oldest + len(self._recent)):
            self._recent_bytes -= self._recent.pop(index).nbytes

    def forget(self, first: int) -> None:
        """Entries before `first` are not asked for any more, but for the term of the last of them."""
        at = bisect_right(self.terms, first - 1, key=_FIRST) - 1
        self.terms = self.terms[max(at, 0) :]
        at = bisect_right(self._points, first, key=_INDEX) - 1
        del self._points[: max(at, 0)]

"""Terms and sizes of the entries behind a snapshot; their payloads are elsewhere.

Terms never fall along a log and rarely change, so they are kept as runs. Sizes are kept as running
totals, so a question about a range takes no longer than one about an entry. The log is `base` (an
entry that is in the snapshot), then entries base + 1 to `last`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable

from quiver.raft.messages import Entry


class TermLog:
    """What consensus knows of a log. Whoever cuts it has made sure that nothing committed goes."""

    __slots__ = ("_firsts", "_terms", "_totals", "base", "base_term", "last", "last_term")

    def __init__(self, base: int, base_term: int, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.reset(base, base_term)
        for term, nbytes in entries:
            self.append(term, nbytes)

    def reset(self, base: int, base_term: int) -> None:
        """Begins anew behind a snapshot, and is empty."""
        self.base = self.last = base
        self.base_term = self.last_term = base_term
        self._firsts: list[int] = []  # where a run of entries of the same term begins
        self._terms: list[int] = []  # its term
        self._totals = array("q", [0])  # bytes of the entries up to each one, from the base on

    def append(self, term: int, nbytes: int) -> None:
        """One more entry at the end."""
        assert term >= self.last_term, "terms fall along the log"
        self.last += 1
        self._totals.append(self._totals[-1] + nbytes)
        if term != self.last_term or not self._firsts:
            self._firsts.append(self.last)
            self._terms.append(term)
            self.last_term = term

    def cut(self, after: int) -> None:
        """Drops what is behind entry `after`."""
        assert self.base <= after <= self.last
        del self._totals[after - self.base + 1 :]
        while self._firsts and self._firsts[-1] > after:
            del self._firsts[-1], self._terms[-1]
        self.last = after
        self.last_term = self._terms[-1] if self._terms else self.base_term

    def drop(self, upto: int) -> None:
        """Lets the log begin behind entry `upto`, which is in a snapshot now."""
        assert self.base <= upto <= self.last
        self.base_term = self.term_of(upto)
        run = bisect_right(self._firsts, upto)
        del self._firsts[:run], self._terms[:run]
        if upto < self.last and (not self._firsts or self._firsts[0] > upto + 1):
            self._firsts.insert(0, upto + 1)
            self._terms.insert(0, self.base_term)
        del self._totals[: upto - self.base]
        self.base = upto

    def term_of(self, index: int) -> int:
        """The term of an entry that is here, the base included."""
        assert self.base <= index <= self.last, f"entry {index} is not in the log"
        if self._firsts and index >= self._firsts[-1]:
            return self.last_term
        run = bisect_right(self._firsts, index) - 1
        return self._terms[run] if run >= 0 else self.base_term

    def has(self, index: int, term: int) -> bool:
        """Whether this very entry is here; by the log matching property so is all before it."""
        return self.base <= index <= self.last and self.term_of(index) == term

    def reaches(self, last_index: int, last_term: int) -> bool:
        """Whether a log with this end is at least as up to date as ours (paper, section 5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last)

    def back_to(self, index: int, term: int) -> int:
        """The last entry up to `index` whose term is at most `term`; the base, if there is none."""
        index = min(index, self.last)
        if index <= self.base:
            return index
        run = bisect_right(self._firsts, index) - 1
        while run >= 0 and self._terms[run] > term:
            index = self._firsts[run] - 1
            run -= 1
        return index

    def bytes_between(self, after: int, upto: int) -> int:
        """Of the entries behind `after`, up to `upto`."""
        return self._totals[upto - self.base] - self._totals[after - self.base]

    def end_of_chunk(self, after: int, bytes_max: int, entries_max: int) -> int:
        """How far the entries behind `after` fill a message; one goes even if it is too large."""
        upto = min(self.last, after + entries_max)
        low, high = after - self.base, upto - self.base
        fits = bisect_right(self._totals, self._totals[low] + bytes_max, low, high + 1) - 1
        return max(fits + self.base, min(after + 1, upto))

    def entries(self, after: int, upto: int) -> tuple[Entry, ...]:
        """The entries behind `after`, up to `upto`."""
        totals, base, term_of = self._totals, self.base, self.term_of
        return tuple(
            [
                Entry(index, term_of(index), totals[index - base] - totals[index - base - 1])
                for index in range(after + 1, upto + 1)
            ]
        )

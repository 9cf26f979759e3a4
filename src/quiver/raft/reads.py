"""Reading what is committed, without an entry: who leads asks a quorum whether it still does.

A leader numbers such rounds. All readers that have come before a round begins share it, and may be
answered from the state at the commit index of that moment. One round is under way at a time; who
comes meanwhile waits for the next.
"""

from __future__ import annotations

from dataclasses import dataclass

from quiver import limits


@dataclass(frozen=True, slots=True)
class Reader:
    """Who asked, and the number under which it wants the answer."""

    peer: int
    token: int


class ReadRounds:
    """Of a leader."""

    __slots__ = ("_asking", "_waiting", "index", "number")

    def __init__(self) -> None:
        self.number = 0  # of the newest round
        self.index = 0  # how far its readers must have applied
        self._asking: list[Reader] = []  # in this round
        self._waiting: list[Reader] = []  # for the next one

    def add(self, reader: Reader) -> bool:
        """Whether there is room for it."""
        if len(self._asking) + len(self._waiting) >= limits.READS_MAX:
            return False
        self._waiting.append(reader)
        return True

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for a round, or in one."""
        return bool(self._waiting or self._asking)

    @property
    def under_way(self) -> int:
        """The number of the round that readers wait for; 0 if there are none."""
        return self.number if self._asking else 0

    def begin(self, commit: int) -> bool:
        """Begins the next round, if there is a need for one and none is under way."""
        if self._asking or not self._waiting:
            return False
        self.number += 1
        self.index = commit
        self._asking, self._waiting = self._waiting, []
        return True

    def end(self) -> list[Reader]:
        """The round is confirmed: its readers."""
        readers, self._asking = self._asking, []
        return readers

    def give_up(self) -> list[Reader]:
        """All readers; this peer leads no longer."""
        readers = self._asking + self._waiting
        self._asking, self._waiting = [], []
        return readers


class ForwardedReads:
    """Of a follower: what its readers have asked the leader.

    On the way a question has a number that is drawn, so that an answer to one of an earlier start
    of this peer, under the same token, is not taken for its own.
    """

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: dict[int, tuple[int, int]] = {}  # number: (the reader's token, ticks left)

    def has_room(self) -> bool:
        """Whether one more may be asked."""
        return len(self._asked) < limits.READS_MAX

    def ask(self, number: int, token: int, ticks: int) -> None:
        """A question is on its way, and worth waiting for as long as that."""
        self._asked[number] = (token, ticks)

    def answered(self, number: int) -> int | None:
        """The reader's token; None, if nobody waits for this answer."""
        asked = self._asked.pop(number, None)
        return None if asked is None else asked[0]

    def tick(self) -> list[int]:
        """The tokens of those that have waited too long."""
        if not self._asked:
            return []
        late = [number for number, (_, ticks) in self._asked.items() if ticks <= 1]
        tokens = [self._asked.pop(number)[0] for number in late]
        self._asked = {number: (token, left - 1) for number, (token, left) in self._asked.items()}
        return tokens

    def give_up(self) -> list[int]:
        """All tokens; whom they asked leads no longer."""
        tokens = [token for token, _ in self._asked.values()]
        self._asked.clear()
        return tokens

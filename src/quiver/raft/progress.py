"""What a leader knows of another peer's log, and how much it may send it.

    PROBE      it does not know where the logs part: one message at a time, and after an answer
               or a heartbeat's answer the next
    REPLICATE  it does: entries follow each other without waiting, as far as the window goes
    SNAPSHOT   the peer needs entries that are gone: it is getting the state instead

Whatever gets lost, there is a way on: an answered heartbeat lets a probe be repeated, asks for the
end of a window that is not confirmed, and repeats an offer of a snapshot after an election timeout.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum


class Replication(Enum):
    """How a leader sends to a peer."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """Of another peer, as its leader sees it."""

    peer: int
    match: int
    replication: Replication
    active: bool
    bytes_in_flight: int


class PeerProgress:
    """Of one peer. `match` is proven equal and durable there; `next` is what is sent next."""

    __slots__ = (
        "_window",
        "active",
        "asked",
        "bytes_in_flight",
        "match",
        "next",
        "paused",
        "replication",
        "round",
        "told",
        "waited",
    )

    def __init__(self, following: int) -> None:
        self.match = 0
        self.next = following
        self.replication = Replication.PROBE
        self.paused = False  # a probe, or an offer of a snapshot, is on its way
        self.asked = False  # a heartbeat was answered while entries are on their way
        self.active = True  # it was heard since the leader last looked
        self.told = 0  # the commit index that the peer surely gets, if nothing is lost
        self.round = 0  # the newest round of readers that it has confirmed
        self.waited = 0  # ticks since the last offer of a snapshot
        self._window: deque[tuple[int, int]] = deque()  # (last index, bytes) of each message
        self.bytes_in_flight = 0

    def has_room(self, bytes_max: int, messages_max: int) -> bool:
        """Whether the next message may go."""
        match self.replication:
            case Replication.REPLICATE:
                return self.bytes_in_flight < bytes_max and len(self._window) < messages_max
            case _:
                return not self.paused

    def sent(self, upto: int, nbytes: int) -> None:
        """Entries up to `upto` are on their way (none, if it is not new)."""
        if self.replication is Replication.PROBE:
            self.paused = True
        elif upto >= self.next:
            self._window.append((upto, nbytes))
            self.bytes_in_flight += nbytes
            self.next = upto + 1
        self.asked = False

    def offered(self) -> None:
        """A snapshot is on its way."""
        self._become(Replication.SNAPSHOT)
        self.paused = True
        self.waited = 0

    def confirmed(self, match: int) -> bool:
        """The peer has all up to `match`. Returns whether that is news."""
        news = match > self.match
        self.match = max(self.match, match)
        if self.replication is Replication.PROBE and match >= self.match:
            self._become(Replication.REPLICATE)
            self.next = self.match + 1
        self.next = max(self.next, self.match + 1)
        while self._window and self._window[0][0] <= self.match:
            self.bytes_in_flight -= self._window.popleft()[1]
        return news

    def is_stale(self, rejected: int) -> bool:
        """Whether a refusal answers a message that no longer matters."""
        match self.replication:
            case Replication.PROBE:
                return rejected != self.next - 1
            case Replication.REPLICATE:
                return rejected <= self.match
            case Replication.SNAPSHOT:
                return True

    def probe(self, following: int) -> None:
        """Looks for the place where the logs part, first behind entry `following` - 1."""
        self._become(Replication.PROBE)
        self.next = max(following, self.match + 1)

    def answered(self, round_number: int) -> None:
        """A heartbeat was answered: what was sent before it has arrived or is lost."""
        self.round = max(self.round, round_number)
        if self.replication is Replication.PROBE:
            self.paused = False
        self.asked = bool(self._window)

    def tick(self, election_ticks: int) -> None:
        """Time passes: an offer of a snapshot that led to nothing is repeated."""
        self.waited += 1
        if self.replication is Replication.SNAPSHOT and self.waited >= election_ticks:
            self.paused = False

    def _become(self, replication: Replication) -> None:
        self.replication = replication
        self.paused = self.asked = False
        self._window.clear()
        self.bytes_in_flight = 0

    def status(self, peer: int) -> PeerStatus:
        """As a value."""
        return PeerStatus(peer, self.match, self.replication, self.active, self.bytes_in_flight)

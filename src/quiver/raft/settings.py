"""What a peer is told at its start: how it should behave, and what its disk remembers."""

from __future__ import annotations

from dataclasses import dataclass

from quiver import limits
from quiver.errors import InvalidRequest
from quiver.raft.messages import Peers, Snapshot
from quiver.raft.ready import Vote


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a peer behaves. Ticks are of any length, but of the same one for all peers."""

    peer: int  # its own number, never used before by another directory
    seed: int  # another one at each start: timeouts and the numbers of questions follow from it
    election_ticks: int = limits.ELECTION_TICKS
    heartbeat_ticks: int = limits.HEARTBEAT_TICKS
    append_bytes_max: int = limits.APPEND_BYTES_MAX
    window_bytes_max: int = limits.WINDOW_BYTES_MAX
    window_messages_max: int = limits.WINDOW_MESSAGES_MAX
    uncommitted_bytes_max: int = limits.UNCOMMITTED_BYTES_MAX

    def __post_init__(self) -> None:
        """Raises InvalidRequest."""
        for name in self.__slots__:
            if name != "seed" and getattr(self, name) < 1:
                raise InvalidRequest(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.election_ticks <= 2 * self.heartbeat_ticks:
            raise InvalidRequest(
                f"election_ticks ({self.election_ticks}) must be more than twice heartbeat_ticks"
                f" ({self.heartbeat_ticks}): one lost heartbeat is no reason for an election"
            )


@dataclass(frozen=True, slots=True)
class Start:
    """What a peer finds on its disk, all of it durable.

    `snapshot` is the state that it has put in place, with index 0 and the first peers if there is
    none. `entries` are (term, bytes) of the log behind it. If more than the snapshot is applied
    already, the peers as of `applied` are told with `Raft.reconfigure`.

    A peer that is `alone` has never had another one: nobody else can hold an entry of its log, so
    all of it is committed, and it leads without an election.
    """

    vote: Vote
    snapshot: Snapshot
    entries: tuple[tuple[int, int], ...] = ()
    commit: int = 0
    applied: int = 0
    alone: bool = False

    @classmethod
    def lone(cls, peer: int, *, snapshot: Snapshot | None = None, last_index: int = 0) -> Start:
        """A directory that never had to do with a cluster, with a log up to `last_index`.

        All of its entries are of the same term. Their sizes do not matter: they are committed.
        """
        begin = snapshot or Snapshot(0, 0, Peers((peer,)))
        entries = ((max(begin.term, 1), 0),) * (last_index - begin.index)
        return cls(Vote(), begin, entries, last_index, last_index, alone=True)

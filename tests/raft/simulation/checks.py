"""What must hold at every step, checked from outside with the eyes of somebody who sees all peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quiver.raft.messages import (
    AppendReply,
    InstallReply,
    Peers,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from tests.raft.simulation.disk import NOTHING, Disk, Log, Payload, digest_after

if TYPE_CHECKING:
    from quiver.raft.messages import Entry, Message


class Broken(AssertionError):
    """An invariant does not hold."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


@dataclass(frozen=True, slots=True)
class Committed:
    """An entry that is committed for all time, and the state behind it."""

    term: int
    payload: Payload
    digest: int
    by: int  # the term of the peer that knew first


class Checks:
    """What has been seen, and what may therefore never be seen."""

    def __init__(self, founders: Peers) -> None:
        self.leaders: dict[int, tuple[int, int]] = {}  # by term: which peer, in which of its lives
        self.votes: dict[tuple[int, int], int] = {}  # by term and voter
        self.made: dict[tuple[int, int], tuple[int, Payload]] = {}  # by index, term: term before
        self.committed: list[Committed] = [Committed(0, NOTHING, 0, 0)]  # by index
        self.changes: list[tuple[int, Peers]] = [(0, founders)]  # of the peers, with their entries

    @property
    def last(self) -> int:
        """The last entry that is known to be committed anywhere."""
        return len(self.committed) - 1

    def leads(self, peer: int, life: int, term: int, log: Log) -> None:
        """One leader a term, for one life, and it has all that was committed before its term."""
        leader = self.leaders.setdefault(term, (peer, life))
        require(leader == (peer, life), f"two leaders in term {term}: {leader} and {(peer, life)}")
        index = self.last
        while self.committed[index].by >= term:
            index -= 1
        there = index <= log.base or log.term(index) == self.committed[index].term
        require(there, f"peer {peer} leads term {term} without the committed entry {index}")

    def forget_lone(self, disk: Disk) -> None:
        """Who has never had another peer may write an entry anew that nobody else can have seen."""
        self.leaders.clear()
        self.made = {
            made: what for made, what in self.made.items() if made[0] <= disk.log.last_index
        }

    def appends(self, peer: int, entry: Entry, payload: Payload, before: int | None) -> None:
        """An index and a term name one entry, with one entry before it: then logs match."""
        require(before is not None, f"peer {peer} has a gap before entry {entry.index}")
        assert before is not None
        made = self.made.setdefault((entry.index, entry.term), (before, payload))
        require(
            made == (before, payload),
            f"peer {peer}: entry {entry.index} of term {entry.term} is not the one it was",
        )
        require(before <= entry.term, f"peer {peer}: entry {entry.index} has an older term")

    def cuts(self, peer: int, log: Log, after: int) -> None:
        """What is committed is not cut, whoever knows of it."""
        require(after >= log.base, f"peer {peer} cuts below its log, behind {after}")
        index = after + 1
        cut = index <= min(self.last, log.last_index)
        if cut and log.term(index) == self.committed[index].term:
            raise Broken(f"peer {peer} cuts the committed entry {index}")

    def commits(self, peer: int, log: Log, commit: int, term: int) -> bool:
        """An index is committed once. True if somebody learns something new by it."""
        require(commit <= log.last_index, f"peer {peer} commits {commit}, which it does not have")
        if commit <= self.last:
            if commit > log.base:
                same = log.term(commit) == self.committed[commit].term
                require(same, f"peer {peer} commits another entry {commit}")
            return False
        if self.last > log.base:
            same = log.term(self.last) == self.committed[self.last].term
            require(same, f"peer {peer} commits another entry {self.last}")
        require(self.last >= log.base, f"peer {peer} has a state that was never committed")
        for index in range(self.last + 1, commit + 1):
            payload = log.payload(index)
            digest = digest_after(self.committed[-1].digest, payload)
            entry_term = log.term(index)
            assert entry_term is not None
            self.committed.append(Committed(entry_term, payload, digest, term))
            if isinstance(payload, Peers):
                self.changes.append((index, payload))
        return True

    def is_durable(self, leader: int, peers: Peers, disks: dict[int, Disk], commit: int) -> None:
        """What a leader commits is on the disks of a majority of its voters."""
        for voters in (peers.voters, peers.outgoing):
            have = [
                voter
                for voter in voters
                if (disk := disks[voter]).state.snapshot.index >= commit
                or disk.log.term(commit) == self.committed[commit].term
            ]
            require(
                2 * len(have) > len(voters) or not voters,
                f"peer {leader} commits {commit}, which is durable only on {have} of {voters}",
            )

    def applies(self, peer: int, index: int, term: int, payload: Payload, digest: int) -> None:
        """Everybody applies the same, and has the same state behind it."""
        require(index <= self.last, f"peer {peer} applies {index} before it is committed")
        same = self.committed[index]
        require(
            (same.term, same.payload, same.digest) == (term, payload, digest),
            f"peer {peer} applies another entry {index} than others",
        )

    def is_heard(self, leader: int, peers: Peers, heard: set[int]) -> None:
        """Who hears no quorum for two election timeouts does not lead any more."""
        for voters in (peers.voters, peers.outgoing):
            enough = not voters or 2 * len(heard.intersection(voters)) > len(voters)
            require(enough, f"peer {leader} leads {voters}, and has heard only {sorted(heard)}")

    def sends(self, message: Message, disk: Disk, log: Log, other: Disk) -> None:
        """A promise that leaves is durable, and contradicts none that has left before.

        `disk` and `log` are the sender's, and `other` is the disk of the receiver.
        """
        match message:
            case TimeoutNow(to=to):
                end = max(other.log.last_index, other.state.snapshot.index)
                require(end >= log.last_index, f"peer {to} is to lead, and lacks entries")
            case VoteRequest(sender=candidate, term=term):
                self._votes(candidate, term, candidate, disk)
            case VoteReply(sender=voter, term=term, to=candidate, granted=True):
                self._votes(voter, term, candidate, disk)
            case AppendReply(sender=peer, term=term, match=index, rejected=None):
                # Of an older term it may speak of entries that have been overwritten since.
                if disk.vote.term == term:
                    there = max(disk.log.last_index, disk.state.snapshot.index)
                    require(
                        index <= there, f"peer {peer} confirms {index}, but only {there} is durable"
                    )
            case InstallReply(sender=peer, index=index, installed=True):
                log = disk.log
                durable = disk.state.snapshot.index >= index or log.term(index) in self._terms(
                    index
                )
                require(durable, f"peer {peer} confirms the state at {index}, which is not durable")
            case _:
                pass

    def _terms(self, index: int) -> tuple[int, ...]:
        return (self.committed[index].term,) if index <= self.last else ()

    def _votes(self, voter: int, term: int, candidate: int, disk: Disk) -> None:
        vote = self.votes.setdefault((term, voter), candidate)
        require(vote == candidate, f"peer {voter} votes for {vote} and {candidate} in term {term}")
        durable = disk.vote.term > term or (disk.vote.term, disk.vote.peer) == (term, candidate)
        require(durable, f"peer {voter} votes for {candidate} in term {term}, not durably")

    def reads(self, peer: int, index: int, floor: int) -> None:
        """A reader sees what was committed anywhere before it asked."""
        require(
            index >= floor, f"a read at peer {peer} sees {index}, but {floor} was committed before"
        )

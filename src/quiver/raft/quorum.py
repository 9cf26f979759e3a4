"""Majorities: what a set of voters has agreed on. While voters change jointly, both sets must.

Majority is counted in voters, so four need three. Nobody agrees in an empty set of outgoing voters;
it is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quiver.raft.messages import Peers


class Verdict(Enum):
    """Of an election: decided when nobody's missing vote could change it."""

    WON = "won"
    LOST = "lost"
    OPEN = "open"


def majority(voters: tuple[int, ...]) -> int:
    """How many of them are more than half."""
    return len(voters) // 2 + 1


def agreed(peers: Peers, reached: Mapping[int, int]) -> int:
    """The highest number that a quorum has reached; who is not in `reached` has 0."""
    incoming = _agreed(peers.voters, reached)
    return min(incoming, _agreed(peers.outgoing, reached)) if peers.outgoing else incoming


def _agreed(voters: tuple[int, ...], reached: Mapping[int, int]) -> int:
    ascending = sorted([reached.get(voter, 0) for voter in voters])
    return ascending[len(voters) - majority(voters)]


def verdict(peers: Peers, votes: Mapping[int, bool]) -> Verdict:
    """How an election stands. Votes of others than voters do not count."""
    incoming = _verdict(peers.voters, votes)
    if not peers.outgoing:
        return incoming
    both = (incoming, _verdict(peers.outgoing, votes))
    if Verdict.LOST in both:
        return Verdict.LOST
    return Verdict.OPEN if Verdict.OPEN in both else Verdict.WON


def _verdict(voters: tuple[int, ...], votes: Mapping[int, bool]) -> Verdict:
    granted = sum(votes.get(voter, False) for voter in voters)
    refused = sum(not votes.get(voter, True) for voter in voters)
    if granted >= majority(voters):
        return Verdict.WON
    return Verdict.LOST if len(voters) - refused < majority(voters) else Verdict.OPEN

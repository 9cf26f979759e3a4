"""Who takes part, and which next step of it makes sense."""

from __future__ import annotations

from collections.abc import Iterator

from quiver import limits
from quiver.errors import InvalidRequest
from quiver.raft.messages import Peers


def votes_in(peers: Peers, peer: int) -> bool:
    """Whether a peer is a voter."""
    return peer in peers.voters or peer in peers.outgoing


def others(peers: Peers, me: int) -> Iterator[int]:
    """All but one, in order."""
    known = {*peers.voters, *peers.outgoing, *peers.learners}
    return (peer for peer in sorted(known) if peer != me)


def other_voters(peers: Peers, me: int) -> Iterator[int]:
    """All voters but one, in order."""
    return (peer for peer in others(peers, me) if votes_in(peers, peer))


def check_successor(peers: Peers, peer: int) -> None:
    """Raises InvalidRequest if this one could not lead."""
    if not votes_in(peers, peer):
        raise InvalidRequest(f"peer {peer} is no voter, so it cannot lead")


def check_change(now: Peers, then: Peers, leader: int) -> None:
    """Raises InvalidRequest unless one peer comes, goes, or becomes a voter or a learner.

    The last of two voters must be the leader: if it is lost before the other one knows that it is
    alone, that one waits for its vote.
    """
    _check(then)
    if now.outgoing:
        raise InvalidRequest("the voters are being changed jointly: that must end first")
    known = sorted({*now.voters, *now.learners, *then.voters, *then.learners})
    changed = [
        peer
        for peer in known
        if (peer in now.voters, peer in now.learners)
        != (peer in then.voters, peer in then.learners)
    ]
    if not changed:
        raise InvalidRequest("these are the peers already")
    if len(changed) > 1:
        listed = ", ".join(map(str, changed))
        raise InvalidRequest(f"peers change one at a time, not {listed} at once")
    if len(then.voters) == 1 and leader not in then.voters:
        raise InvalidRequest(
            f"peer {then.voters[0]} would be the only voter, but peer {leader} leads:"
            " hand over to it first"
        )


def _check(peers: Peers) -> None:
    if not peers.voters:
        raise InvalidRequest("there must be a voter: without one nothing can be decided any more")
    if peers.outgoing:
        raise InvalidRequest("voters are changed one at a time, so there are no outgoing ones")
    for listed in (peers.voters, peers.learners):
        if list(listed) != sorted(set(listed)):
            raise InvalidRequest(f"peers are listed once and in order, not {listed}")
    both = sorted(set(peers.voters) & set(peers.learners))
    if both:
        raise InvalidRequest(f"peer {both[0]} cannot be a voter and a learner")
    if len(peers.voters) + len(peers.learners) > limits.PEERS_MAX:
        raise InvalidRequest(f"there can be at most {limits.PEERS_MAX} peers")

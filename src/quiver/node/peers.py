"""Who takes part, as the log has it: in commands `SetPeers`, and in the state that they lead to."""

from collections.abc import Sequence
from typing import Final

from quiver.model.commands import SetPeers
from quiver.raft.messages import Peers
from quiver.storage import codec

SETS_PEERS: Final = codec.encode(SetPeers(b""))[0]  # the kind of these entries


def encode_peers(peers: Peers) -> bytes:
    """Who takes part, as `SetPeers` has it."""
    return codec.encode_state([peers.voters, peers.outgoing, peers.learners])


def decode_peers(data: bytes) -> Peers:
    """What `encode_peers` made this of; nobody, of a log that does not say."""
    return Peers(*map(tuple, codec.decode_state(data))) if data else Peers(())


def committed_changes(changes: Sequence[int], *, founded: bool) -> int:
    """Up to where a log must be committed, by its entries that change the peers; 0 if that is unknown.

    One is proposed when the one before is committed: so a log with two of them says that of the first.
    And what was committed says who votes: a peer that forgot it would campaign with voters two changes
    old, whose majority need not know what was committed since. The very first change was written by the
    founder alone, so it is committed wherever it is: `founded` if it is not among these.
    """
    before = [*changes[:1], *changes[:-1]] if not founded else changes[:-1]
    return max(before, default=0)

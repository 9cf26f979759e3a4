"""A leader may be deposed before its driver has asked what there is to do."""

from quiver.raft import Raft, Settings, Start
from quiver.raft.messages import Entry, Heartbeat, Peers, PreVoteReply, Snapshot, VoteReply
from quiver.raft.ready import Role, Vote


def test_the_first_entry_of_a_leadership_that_is_over_is_known_as_such() -> None:
    raft = Raft(Settings(peer=1, seed=1), Start(Vote(), Snapshot(0, 0, Peers((1, 2, 3)))))
    raft.campaign()
    raft.step(PreVoteReply(sender=2, to=1, term=1, granted=True))
    candidate = raft.ready()
    assert candidate is not None
    assert candidate.save is not None
    raft.persisted(candidate.save)
    raft.step(VoteReply(sender=2, to=1, term=1, granted=True))
    raft.step(Heartbeat(sender=3, to=1, term=2, commit=0))
    deposed = raft.ready()
    assert deposed is not None
    assert deposed.save is not None
    assert (deposed.role, deposed.term, deposed.leader) == (Role.FOLLOWER, 2, 3)
    assert deposed.save.entries == (Entry(1, 1, 0),)
    assert raft.begins == 1

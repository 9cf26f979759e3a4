"""What is not a story: bounds, refusals, assertions, and values that drivers rely on."""

import dataclasses
from typing import get_args

import pytest

from quiver import limits
from quiver.errors import InvalidRequest, NotLeader, PeersChanging
from quiver.raft import Raft, Settings, Start, messages
from quiver.raft.messages import (
    Append,
    AppendReply,
    Early,
    Entry,
    Heartbeat,
    HeartbeatReply,
    Install,
    Late,
    Message,
    Peers,
    PreVoteReply,
    ReadReply,
    ReadRequest,
    Snapshot,
    VoteReply,
)
from quiver.raft.ready import Read, Ready, Role, Save, Vote

THREE = Peers((1, 2, 3))


def peer(**settings: int) -> Raft:
    """Peer 1 of three."""
    return Raft(Settings(peer=1, seed=7, **settings), Start(Vote(), Snapshot(0, 0, THREE)))


def drain(raft: Raft) -> list[Ready]:
    """All that is ready, as if the disk were fast and everything applied at once."""
    found = []
    while (ready := raft.ready()) is not None:
        found.append(ready)
        if ready.save is not None:
            raft.persisted(ready.save)
        raft.applied(ready.commit)
    return found


def taken(raft: Raft) -> Ready:
    ready = raft.ready()
    assert ready is not None
    return ready


def saved(raft: Raft) -> Save:
    save = taken(raft).save
    assert save is not None
    return save


def leader(**settings: int) -> Raft:
    """Peer 1 of three, in term 1, with its first entry committed."""
    raft = peer(**settings)
    raft.campaign()
    raft.step(PreVoteReply(sender=2, to=1, term=1, granted=True))
    drain(raft)
    raft.step(VoteReply(sender=2, to=1, term=1, granted=True))
    drain(raft)
    for other in (2, 3):
        raft.step(AppendReply(sender=other, to=1, term=1, match=1))
    drain(raft)
    assert (raft.role, raft.commit, raft.begins) == (Role.LEADER, 1, 1)
    return raft


# -- what comes out -----------------------------------------------------------------------------------


def test_nothing_is_ready_twice():
    raft = leader()
    assert raft.ready() is None
    raft.propose((10,))
    assert saved(raft).entries == (Entry(2, 1, 10),)
    assert raft.ready() is None


def test_each_message_is_early_or_late_and_none_is_both():
    early, late = set(get_args(Early)), set(get_args(Late))
    kinds = [kind for kind in vars(messages).values() if isinstance(kind, type)]
    assert not early & late
    assert early | late == {kind for kind in kinds if issubclass(kind, Message)} - {Message}


def test_saves_are_numbered_and_say_how_the_log_ends_and_what_is_committed():
    raft = leader()
    raft.propose((10, 20))
    save = saved(raft)
    raft.propose((30,))
    following = saved(raft)
    assert following.number == save.number + 1
    assert (save.last_index, save.last_term, save.commit) == (3, 1, 1)
    assert not save.votes
    assert save.cut is None


def test_a_vote_is_saved_when_it_changes():
    raft = peer()
    raft.step(Heartbeat(sender=2, to=1, term=4, commit=0))
    save = saved(raft)
    assert (save.votes, save.vote) == (True, Vote(4, None))


def test_entries_that_were_saved_before_a_state_was_put_in_place_count_for_nothing():
    raft = peer()
    entries = tuple(Entry(index, 1, 1) for index in range(1, 9))
    raft.step(Append(sender=2, to=1, term=1, prev_index=0, prev_term=0, entries=entries, commit=0))
    save = saved(raft)
    state = Snapshot(4, 2, THREE)
    raft.step(Install(sender=3, to=1, term=2, snapshot=state))
    assert taken(raft).install == state
    raft.installed(state)
    raft.persisted(save)
    assert (raft.stable_index, raft.last_index, raft.commit) == (4, 4, 4)


def test_a_first_entry_that_was_overwritten_is_not_known_as_such():
    raft = peer()
    raft.campaign()
    raft.step(PreVoteReply(sender=2, to=1, term=1, granted=True))
    drain(raft)
    raft.step(VoteReply(sender=2, to=1, term=1, granted=True))
    assert raft.begins == 1
    other = (Entry(1, 2, 50),)
    raft.step(Append(sender=2, to=1, term=2, prev_index=0, prev_term=0, entries=other, commit=0))
    assert saved(raft).entries == other
    assert raft.begins is None


def test_while_voters_change_jointly_both_sets_must_have_an_entry():
    raft = leader()
    raft.reconfigure(Peers((1, 2, 3), outgoing=(1, 4, 5)))
    raft.propose((1,))
    drain(raft)
    for other, commit in ((2, 1), (3, 1), (4, 2)):
        raft.step(AppendReply(sender=other, to=1, term=1, match=2))
        assert raft.commit == commit


def test_a_snapshot_is_of_what_is_applied_and_durable():
    raft = leader()
    raft.compacted(Snapshot(1, 1, THREE))
    raft.propose((1,))
    with pytest.raises(AssertionError, match="what is to come"):
        raft.compacted(Snapshot(2, 1, THREE))


def test_a_state_that_is_not_waited_for_changes_nothing():
    raft = peer()
    raft.installed(Snapshot(4, 2, THREE))
    raft.install_failed(Snapshot(4, 2, THREE))
    assert raft.commit == 0
    assert raft.installing is None


# -- refusals -----------------------------------------------------------------------------------------


def test_who_does_not_lead_says_who_does():
    raft = peer()
    with pytest.raises(NotLeader) as unknown:
        raft.propose((1,))
    raft.step(Heartbeat(sender=3, to=1, term=1, commit=0))
    with pytest.raises(NotLeader) as known:
        raft.transfer(2)
    assert (unknown.value.leader, known.value.leader) == (None, 3)


def test_one_change_of_the_peers_at_a_time():
    raft = leader()
    index = raft.propose_peers(Peers((1, 2, 3), learners=(4,)), 100)
    with pytest.raises(PeersChanging, match=f"entry {index} must be applied first"):
        raft.propose_peers(Peers((1, 2, 3, 4)), 100)


@pytest.mark.parametrize(
    ("peers", "why"),
    [
        (THREE, "already"),
        (Peers(()), "there must be a voter"),
        (Peers((1, 2, 3, 4, 5)), "4, 5 at once"),
        (Peers((1, 2), learners=(3, 4)), "3, 4 at once"),
        (Peers((1, 2, 3), learners=(3,)), "cannot be a voter and a learner"),
        (Peers((1, 3, 2, 4)), "once and in order"),
        (Peers((1, 2, 3, 3)), "once and in order"),
        (Peers((1, 2, 3), (1, 2)), "outgoing"),
        (Peers((1, 2, 3), learners=tuple(range(4, 40))), f"at most {limits.PEERS_MAX}"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(peers, why):
    raft = leader()
    with pytest.raises(InvalidRequest, match=why):
        raft.propose_peers(peers, 1)
    assert raft.last_index == 1


@pytest.mark.parametrize(
    "peers",
    [
        Peers((1, 2)),
        Peers((2, 3)),
        Peers((1, 2, 3, 4)),
        Peers((1, 2, 3), learners=(4,)),
        Peers((1, 2), learners=(3,)),
    ],
)
def test_one_peer_may_come_go_or_change(peers):
    assert leader().propose_peers(peers, 1) == 2


def test_the_last_of_two_voters_must_lead():
    start = Start(Vote(), Snapshot(3, 1, Peers((1,))), (), 3, 3, alone=True)
    raft = Raft(Settings(peer=1, seed=7), start)
    raft.reconfigure(Peers((1, 2)))
    with pytest.raises(InvalidRequest, match="hand over to it first"):
        raft.propose_peers(Peers((2,)), 1)
    assert raft.propose_peers(Peers((1,)), 1) == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("peer", 0),
        ("append_bytes_max", 0),
        ("window_messages_max", 0),
        ("heartbeat_ticks", 0),
        ("heartbeat_ticks", 5),  # two of them are a whole election timeout
    ],
)
def test_settings_that_could_not_work_are_refused(name, value):
    settings = {"peer": 1, "seed": 1, name: value}
    with pytest.raises(InvalidRequest, match=name):
        Settings(**settings)


def test_peers_do_not_change_while_voters_change_jointly():
    raft = leader()
    raft.reconfigure(Peers((1, 2, 3), outgoing=(1, 4, 5)))
    with pytest.raises(InvalidRequest, match="jointly"):
        raft.propose_peers(Peers((1, 2)), 1)


def test_a_candidate_that_learns_that_it_was_removed_gives_up():
    raft = peer()
    raft.campaign()
    raft.reconfigure(Peers((2, 3)))
    assert raft.role is Role.FOLLOWER
    raft.campaign()
    assert raft.role is Role.FOLLOWER


def test_a_transfer_to_a_peer_that_is_removed_meanwhile_is_given_up():
    raft = leader()
    change = raft.propose_peers(Peers((1, 2)), 1)
    drain(raft)
    raft.transfer(3)
    assert raft.transferee == 3
    raft.step(AppendReply(sender=2, to=1, term=1, match=change))
    drain(raft)
    raft.reconfigure(Peers((1, 2)))
    assert raft.transferee is None
    assert raft.propose((1,)) == change + 1


@pytest.mark.parametrize("term", [1, 2])
def test_who_does_not_lead_has_no_answer_for_readers_of_others(term):
    raft = peer()
    raft.step(Heartbeat(sender=2, to=1, term=2, commit=0))
    drain(raft)
    raft.step(ReadRequest(sender=3, to=1, term=term, token=5))
    assert taken(raft).before == (ReadReply(sender=1, to=3, term=2, token=5, index=None),)


# -- bounds -------------------------------------------------------------------------------------------


def test_readers_that_wait_are_bounded_at_the_leader_and_at_a_follower(monkeypatch):
    monkeypatch.setattr(limits, "READS_MAX", 2)
    raft = leader()
    for token in (1, 2, 3):
        raft.read(token)
    raft.step(ReadRequest(sender=2, to=1, term=1, token=99))
    ready = taken(raft)
    assert ready.reads == (Read(3, None),)
    assert [sent for sent in ready.before if isinstance(sent, ReadReply)] == [
        ReadReply(sender=1, to=2, term=1, token=99, index=None)
    ]

    follower = peer()
    follower.step(Heartbeat(sender=2, to=1, term=1, commit=0))
    for token in (1, 2, 3):
        follower.read(token)
    ready = taken(follower)
    assert ready.reads == (Read(3, None),)
    assert len([sent for sent in ready.before if isinstance(sent, ReadRequest)]) == 2


def test_small_entries_are_bounded_by_their_number(monkeypatch):
    monkeypatch.setattr("quiver.raft.raft.APPEND_ENTRIES_MAX", 2)
    raft = leader()
    raft.propose((0,) * 5)
    sent = [message for message in taken(raft).before if message.to == 2]
    assert [len(one.entries) for one in sent if isinstance(one, Append)] == [2, 2, 1]


def test_timeouts_lie_between_one_and_two_election_timeouts_and_differ():
    waited = set()
    for seed in range(40):
        raft = Raft(Settings(peer=1, seed=seed), Start(Vote(), Snapshot(0, 0, THREE)))
        ticks = 0
        while raft.role is Role.FOLLOWER:
            raft.tick()
            ticks += 1
        waited.add(ticks)
    assert waited == set(range(limits.ELECTION_TICKS, 2 * limits.ELECTION_TICKS))


# -- a group of one -----------------------------------------------------------------------------------


def test_who_is_alone_leads_from_the_start_and_commits_what_is_durable():
    raft = Raft(Settings(peer=1, seed=7), Start.lone(1, last_index=5))
    assert (raft.role, raft.term, raft.commit, raft.begins) == (Role.LEADER, 1, 5, None)
    assert taken(raft).save is None
    assert raft.propose((10,)) == 6
    ready = taken(raft)
    assert (ready.commit, ready.before, ready.after) == (5, (), ())
    assert ready.save is not None
    raft.persisted(ready.save)
    assert taken(raft).commit == 6


def test_who_is_alone_may_have_a_snapshot():
    snapshot = Snapshot(100, 1, Peers((1,)))
    raft = Raft(Settings(peer=1, seed=7), Start.lone(1, snapshot=snapshot, last_index=103))
    assert (raft.commit, raft.last_index, raft.propose((1,))) == (103, 103, 104)


def test_who_has_peers_is_not_alone():
    with pytest.raises(AssertionError, match="has no peers"):
        Raft(Settings(peer=1, seed=7), Start(Vote(), Snapshot(0, 0, THREE), alone=True))


# -- what must never happen ---------------------------------------------------------------------------


def test_a_second_leader_of_a_term_stops_the_peer():
    with pytest.raises(AssertionError, match="two leaders in term 1"):
        leader().step(Heartbeat(sender=2, to=1, term=1, commit=0))


def test_a_peer_that_has_more_than_its_leader_stops_it():
    with pytest.raises(AssertionError, match="peer 2 has more than its leader"):
        leader().step(AppendReply(sender=2, to=1, term=1, match=9))


def test_a_heartbeat_that_commits_what_is_not_here_stops_the_peer():
    with pytest.raises(AssertionError, match="entry 3 is committed but not here"):
        peer().step(Heartbeat(sender=2, to=1, term=1, commit=3))


def test_an_append_that_would_cut_what_is_committed_stops_the_peer():
    raft = leader()
    with pytest.raises(AssertionError, match="entry 1 is committed and would be cut"):
        raft.step(
            Append(
                sender=2,
                to=1,
                term=2,
                prev_index=0,
                prev_term=0,
                entries=(Entry(1, 2, 1),),
                commit=0,
            )
        )


def test_an_append_with_a_gap_stops_the_peer():
    entries = (Entry(1, 1, 1), Entry(3, 1, 1))
    with pytest.raises(AssertionError, match="gap"):
        peer().step(
            Append(sender=2, to=1, term=1, prev_index=0, prev_term=0, entries=entries, commit=0)
        )


def test_what_is_not_committed_cannot_be_applied():
    with pytest.raises(AssertionError, match="entry 2 is applied but not committed"):
        leader().applied(2)


def test_a_message_for_another_peer_is_a_mistake_of_the_driver():
    with pytest.raises(AssertionError, match="somebody else"):
        peer().step(Heartbeat(sender=2, to=3, term=1, commit=0))


def test_messages_of_peers_that_do_not_take_part_do_no_harm():
    raft = leader()
    for stranger in (
        AppendReply(sender=9, to=1, term=1, match=1),
        HeartbeatReply(sender=9, to=1, term=1),
    ):
        raft.step(stranger)
    assert raft.ready() is None
    assert {other.peer for other in raft.others} == {2, 3}


def test_messages_are_frozen():
    beat = Heartbeat(sender=1, to=2, term=1, commit=0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(beat, "term", 2)  # noqa: B010  what a type checker would not let pass

"""Peers that agree with each other: what they store, apply and answer, and what a power cut leaves."""

import pytest

from quiver import limits
from quiver.errors import DiskFull, InvalidRequest, NotLeader, Overloaded
from quiver.node.joined import JoinedPeer
from quiver.node.peer import Peer
from quiver.raft.messages import VoteReply, VoteRequest
from quiver.raft.ready import Role
from quiver.storage import mark
from quiver.testing import MemoryFiles
from tests.properties.workload import SECRET, START_MS
from tests.trio import SILENT_TICKS, Trio

FOUNDED = 3  # entries: the secret, a topic, who takes part


def test_a_proposal_is_answered_when_a_quorum_has_synced_it():
    trio = Trio()
    trio.lead(1)
    trio.slow |= {1, 2, 3}
    asked = trio.send(1, b"one")
    trio.settle()
    assert asked.outcome is None
    trio.sync(1)
    trio.settle()
    assert asked.outcome is None
    trio.sync(3)
    assert asked.outcome is None
    trio.settle()
    assert asked.stored
    assert trio.bodies(1) == [b"one"]


def test_an_entry_is_applied_when_it_is_committed_and_durable_here():
    trio = Trio()
    trio.lead(1)
    trio.pass_time()
    trio.slow |= {1}
    asked = trio.send(1, b"one")
    trio.settle()
    trio.pass_time()
    assert [trio.bodies(number) for number in (1, 2, 3)] == [[], [b"one"], [b"one"]]
    assert asked.outcome is None
    trio.sync(1)
    assert asked.stored
    assert trio.bodies(1) == [b"one"]
    assert len(trio.digests()) == 1


def test_a_sync_counts_for_what_was_written_when_it_began():
    trio = Trio()
    trio.lead(1)
    trio.slow |= {1, 2, 3}
    first = trio.send(1)
    trio.begin_sync(1)
    second = trio.send(1)
    trio.settle()
    trio.begin_sync(2)
    trio.end_sync(1)
    trio.end_sync(2)
    trio.settle()
    assert [first.stored, second.outcome] == [True, None]
    trio.sync(1)
    assert second.stored


def test_what_is_not_committed_is_lost_with_its_leader_and_its_asker_is_told():
    trio = Trio()
    trio.lead(1)
    kept = trio.send(1, b"kept")
    trio.settle()
    lost = [trio.send(1, b"lost %d" % number) for number in range(3)]
    trio.settle(1)  # nobody hears of them
    trio.lead(2, 1)
    instead = [trio.send(2, b"instead %d" % number) for number in range(2)]
    trio.settle(1)
    assert all(asked.stored for asked in [kept, *instead])
    assert [asked.outcome for asked in lost] == [None] * 3
    trio.pass_time(3)
    assert [type(asked.error) for asked in lost] == [NotLeader] * 3
    assert "nothing of it was stored" in str(lost[0].error)
    assert [asked.error.leader for asked in lost if isinstance(asked.error, NotLeader)] == [2] * 3
    for number in (1, 2, 3):
        assert trio.bodies(number) == [b"kept", b"instead 0", b"instead 1"]
    assert len(trio.digests()) == 1
    assert [asked.offset for asked in (kept, *instead)] == [0, 1, 2]


def test_who_leads_again_takes_what_was_refused_before():
    trio = Trio()
    trio.lead(1)
    trio.settle()
    lost = trio.send(1, b"lost")
    trio.settle(1)
    trio.lead(2, 1)
    trio.packets.clear()
    trio.lead(3, 1)
    trio.pass_time(3)
    assert isinstance(lost.error, NotLeader)
    trio.lead(1)
    trio.settle()
    again = trio.send(1, b"again")
    trio.pass_time(2)
    assert again.stored
    assert [trio.bodies(number) for number in (1, 2, 3)] == [[b"again"]] * 3


def test_a_leader_that_survives_keeps_what_it_has_proposed():
    """An entry of an earlier term comes to be committed with one of the new term."""
    trio = Trio()
    trio.lead(1)
    kept = trio.send(1, b"kept")
    trio.settle(2, 3)
    trio.pass_time(30, 2, 3)
    assert trio.peers[1].raft.role is not Role.LEADER
    trio.lead(1)
    trio.settle()
    assert kept.stored
    assert trio.bodies(1) == [b"kept"]


def test_nothing_new_is_taken_while_what_was_proposed_before_is_not_decided():
    trio = Trio()
    trio.lead(1)
    undecided = trio.send(1)
    trio.settle(2, 3)
    trio.pass_time(30, 2, 3)
    trio.slow |= {2, 3}
    trio.lead(1)
    assert isinstance(trio.send(1).error, Overloaded)
    trio.sync(2)
    trio.settle()
    assert undecided.stored


def test_who_does_not_lead_says_so_at_once():
    trio = Trio()
    trio.lead(2)
    asked = trio.send(1)
    assert isinstance(asked.error, NotLeader)
    assert asked.error.leader == 2
    assert isinstance(trio.change(3, 1, 2).error, NotLeader)
    assert trio.peers[1].engine.wal.last_index == trio.peers[2].engine.wal.last_index


def test_an_opening_applies_what_is_committed_and_nothing_behind_it():
    trio = Trio()
    trio.lead(1)
    trio.send(1, b"kept")
    trio.pass_time()
    trio.send(1, b"lost")
    trio.packets.clear()
    trio.survives = "all"  # also the mark of what is committed, which is not synced
    trio.restart(1)
    assert trio.bodies(1) == [b"kept"]
    assert trio.peers[1].engine.wal.last_index > trio.peers[1].engine.core.index
    trio.lead(2, 1)
    trio.send(2, b"instead")
    trio.pass_time(3)
    assert [trio.bodies(number) for number in (1, 2, 3)] == [[b"kept", b"instead"]] * 3
    assert len(trio.digests()) == 1


@pytest.mark.parametrize("slow", [set(), {1}], ids=["its entries are kept", "they are lost"])
def test_a_restarted_leader_never_leads_again_in_its_term(slow):
    trio = Trio((1,), (2,))
    trio.slow |= slow
    terms = [trio.lead(1).raft.term]
    for _ in range(3):
        trio.send(1)
        trio.settle()
        assert trio.restart(1).raft.role is Role.FOLLOWER
        terms.append(trio.lead(1).raft.term)
    assert terms == sorted({*terms})
    trio.slow.clear()
    trio.sync(1)
    trio.pass_time(3)
    assert len(trio.digests()) == 1


def test_a_vote_is_durable_before_it_is_told():
    trio = Trio()
    last = trio.peers[1].engine.wal
    request = VoteRequest(
        sender=1, to=3, term=9, last_index=last.last_index, last_term=last.last_term, transfer=True
    )
    trio.do(3, lambda peer: peer.step(request))
    (told,) = [one.message for one in trio.packets if isinstance(one.message, VoteReply)]
    assert told.granted
    trio.packets.clear()
    trio.restart(3)
    other = VoteRequest(sender=2, to=3, term=9, last_index=99, last_term=8, transfer=True)
    trio.do(3, lambda peer: peer.step(other))
    (told,) = [one.message for one in trio.packets if isinstance(one.message, VoteReply)]
    assert not told.granted
    assert (told.term, trio.peers[3].raft.term) == (9, 9)


def test_a_sole_voter_applies_while_the_disk_works_and_answers_when_it_has():
    trio = Trio((1,), (2,))
    trio.lead(1)
    trio.settle()
    trio.slow |= {1}
    asked = trio.send(1, b"one")
    assert trio.bodies(1) == [b"one"]
    assert asked.outcome is None
    trio.sync(1)
    assert asked.stored
    trio.pass_time(2)
    assert trio.bodies(2) == [b"one"]


def test_a_sole_voter_goes_on_after_a_power_cut():
    trio = Trio((1,), (2,))
    trio.lead(1)
    kept = trio.send(1, b"kept")
    trio.settle()
    trio.slow |= {1}
    lost = trio.send(1, b"lost")
    trio.settle()  # the learner has it, and must let go of it
    trio.crash(1)
    trio.start(1)
    trio.slow.clear()
    trio.lead(1)
    trio.send(1, b"instead")
    trio.pass_time(5)
    assert [kept.stored, lost.outcome] == [True, None]
    assert [trio.bodies(number) for number in (1, 2)] == [[b"kept", b"instead"]] * 2
    assert len(trio.digests()) == 1


def test_voters_change_one_after_the_other():
    trio = Trio((1,), (2,))
    trio.lead(1)
    trio.settle()
    trio.change(1, 1, 2)
    trio.pass_time(3)
    assert {peer.raft.peers.voters for peer in trio.peers.values()} == {(1, 2)}
    trio.slow |= {2}
    asked = trio.send(1)
    trio.settle()
    assert asked.outcome is None  # it takes both now
    assert trio.bodies(1) == []
    trio.sync(2)
    trio.settle()
    assert asked.stored


def test_who_takes_part_changes_by_what_is_committed_also_for_a_sole_voter():
    trio = Trio((1,), (2,))
    peer = trio.lead(1)
    trio.slow |= {1}
    trio.change(1, 1, 2)
    trio.send(1, b"behind")
    assert peer.raft.decides_alone
    assert trio.bodies(1) == []
    trio.sync(1)
    assert not peer.raft.decides_alone


def test_a_cut_frees_what_waits_for_entries_that_are_gone():
    """They will never be durable, so nothing may wait for that."""
    trio = Trio()
    trio.lead(1)
    trio.pass_time()
    trio.slow |= {1}
    for _ in range(3):
        trio.send(1)  # with itself alone, and not on the disk
    trio.lead(2)
    trio.slow.clear()
    trio.sync(1)
    asked = trio.send(2)
    trio.settle(3)  # so it takes peer 1
    assert asked.stored


def test_a_log_with_a_change_of_the_peers_says_that_the_one_before_is_committed():
    trio = Trio((1,), (2,))
    trio.lead(1)
    trio.settle()
    first = trio.change(1, 1, 2)
    trio.settle()
    trio.pass_time(2)
    assert first.stored
    trio.slow |= {2}
    second = trio.change(1, 1)
    trio.settle()
    trio.sync(2)
    for number in (1, 2):
        trio.crash(number)
        assert trio.start(number).raft.peers.voters == (1, 2)
    assert second.outcome is None


def test_all_find_each_other_again_when_each_has_lost_its_mark():
    """It is not synced, so a power cut everywhere can take it from everybody."""
    trio = Trio()
    trio.lead(1)
    trio.send(1, b"kept")
    trio.pass_time()
    for number in (1, 2, 3):
        trio.crash(number)
        trio.disks[number].remove(mark.NAME)
        trio.disks[number].sync_directory()
        peer = trio.start(number)
        assert peer.raft.peers.voters == (1, 2, 3)
        assert trio.bodies(number) == []
    trio.lead(2)
    trio.pass_time(2)
    assert [trio.bodies(number) for number in (1, 2, 3)] == [[b"kept"]] * 3


def test_a_peer_whose_disk_hangs_lets_messages_go_by_and_comes_back(monkeypatch):
    monkeypatch.setattr(limits, "SAVES_MAX", 5)
    trio = Trio()
    trio.lead(1)
    trio.slow |= {2}
    trio.send(1)
    trio.settle()
    trio.pass_time(50)
    assert isinstance(trio.send(2).error, DiskFull)
    trio.slow.clear()
    trio.sync(2)
    asked = trio.send(1)
    trio.settle(3)
    trio.pass_time(3, 3)
    assert asked.stored
    assert len({len(trio.bodies(number)) for number in (1, 2)}) == 1


def test_a_state_that_cannot_be_had_is_asked_for_again():
    """Fetching one is the driver's business; here nobody does."""
    trio = Trio()
    trio.lead(1)
    trio.crash(3)
    for _ in range(5):
        trio.send(1)
    trio.pass_time()
    trio.snapshot(1)
    peer = trio.start(3)
    trio.lead(1)
    trio.pass_time(3)
    wanted = peer.raft.installing
    assert wanted is not None
    assert trio.installs[3][-1] == wanted
    trio.do(3, lambda peer: peer.install_failed(wanted))
    assert peer.raft.installing is None
    trio.pass_time(SILENT_TICKS)
    assert len(trio.installs[3]) == 2
    asked = trio.send(1)
    trio.pass_time(2)
    assert asked.stored  # by the two others


def test_stamps_never_fall_below_the_last_one_appended():
    trio = Trio()
    trio.lead(1)
    trio.slow |= {1, 2, 3}
    trio.now_ms += 60_000
    trio.send(1)
    trio.now_ms -= 50_000
    trio.send(1)
    wal = trio.peers[1].engine.wal
    stamps = [record.now_ms for record in wal.entries(1, 1 << 20)]
    assert stamps == sorted(stamps)
    assert stamps[-1] == START_MS + 60_000


def test_a_full_disk_of_a_follower_confirms_nothing_and_catches_up_with_room():
    trio = Trio()
    trio.lead(1)
    trio.pass_time()
    disk = trio.disks[2]
    disk.capacity_bytes = disk.used_bytes
    asked = trio.send(1, b"x" * 10_000)
    trio.settle(3)
    assert asked.outcome is None
    assert trio.peers[2].engine.wal.last_index == FOUNDED + 1
    trio.pass_time(2, 3)
    assert asked.outcome is None
    disk.capacity_bytes = None
    trio.pass_time(3, 3)
    assert asked.stored
    assert trio.bodies(2) == [b"x" * 10_000]


def test_a_full_disk_of_a_leader_refuses_and_takes_again_with_room():
    trio = Trio()
    trio.lead(1)
    trio.settle()
    disk = trio.disks[1]
    disk.capacity_bytes = disk.used_bytes
    assert isinstance(trio.send(1, b"x" * 10_000).error, DiskFull)
    disk.capacity_bytes = None
    asked = trio.send(1)
    trio.settle()
    assert asked.stored


def test_a_leader_hands_over_and_a_follower_can_ask_how_far_it_must_read():
    trio = Trio()
    trio.lead(1)
    trio.settle()
    trio.do(1, lambda peer: peer.transfer(3))
    trio.settle()
    assert trio.peers[3].raft.role is Role.LEADER
    trio.do(2, lambda peer: peer.read(7))
    trio.settle()
    trio.pass_time(2)
    (read,) = trio.reads[2]
    assert read.token == 7
    assert read.index is not None
    assert trio.peers[2].engine.core.index >= read.index


def test_a_snapshot_of_a_joined_peer_is_what_it_opens_with():
    trio = Trio()
    trio.lead(1)
    for _ in range(5):
        trio.send(1)
    trio.pass_time()
    for number in (1, 2):
        trio.snapshot(number)
    trio.send(1, b"later")
    trio.pass_time()
    bodies = trio.bodies(1)
    for number in (1, 2):
        trio.restart(number)
        assert trio.peers[number].engine.wal.after > 0
    trio.lead(2)
    trio.pass_time(3)
    assert [trio.bodies(number) for number in (1, 2, 3)] == [bodies] * 3
    assert len(trio.digests()) == 1


def test_a_directory_is_opened_by_who_knows_whether_it_has_joined():
    trio = Trio()
    with pytest.raises(InvalidRequest, match="is that of node 2 of cluster cccccccc"):
        Peer.open(trio.disks[2], now_ms=START_MS, secret=SECRET)
    with pytest.raises(InvalidRequest, match="has not joined"):
        JoinedPeer.reopen(MemoryFiles(), seed=1)

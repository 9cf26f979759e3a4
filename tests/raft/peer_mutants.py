"""Mistakes planted in a peer that agrees with others, in the format of those in its files."""

from typing import Final

from tests.raft.storage_mutants import StorageMutant

UNIT: Final = "tests/unit/node/test_joined_peer.py"
PEER: Final = "node/peer.py"
JOINED: Final = "node/joined.py"
SAVER: Final = "node/saver.py"
EARLY: Final = ("        if self.raft.decides_alone:\n", "        if True:\n")

ANSWERED: Final = """        effects.answers += [(asked, outcome) for asked, _, outcome in self._applied]
        self._applied.clear()
"""

PEER_MUTANTS: Final = (
    StorageMutant(
        "1: an opening applies all that it finds",
        JOINED,
        (
            ("        if known_commit > engine.wal.commit_index:\n", "        if True:\n"),
            ("engine.wal.commit(known_commit)", "engine.wal.commit(engine.wal.last_index)"),
        ),
        f"{UNIT}::test_an_opening_applies_what_is_committed_and_nothing_behind_it",
    ),
    StorageMutant(
        "1b: an opening goes by the mark alone",
        JOINED,
        (("        if known_commit > engine.wal.commit_index:\n", "        if False:\n"),),
        f"{UNIT}::test_a_log_with_a_change_of_the_peers_says_that_the_one_before_is_committed",
    ),
    StorageMutant(
        "1c: the founder's word is not known to be committed",
        "node/peers.py",
        (("[*changes[:1], *changes[:-1]] if not founded else changes[:-1]", "changes[:-1]"),),
        f"{UNIT}::test_all_find_each_other_again_when_each_has_lost_its_mark",
    ),
    StorageMutant(
        "2: all apply while the disk works",
        JOINED,
        (EARLY,),
        f"{UNIT}::test_an_entry_is_applied_when_it_is_committed_and_durable_here",
    ),
    StorageMutant(
        "2b: a sole voter takes a change of the peers for committed",
        JOINED,
        (("if record.kind == SETS_PEERS and index > wal.commit_index:", "if False:"),),
        f"{UNIT}::test_who_takes_part_changes_by_what_is_committed_also_for_a_sole_voter",
    ),
    StorageMutant(
        "2c: what is committed is applied before it is durable here",
        JOINED,
        (("return min(wal.commit_index, wal.synced_index)", "return wal.commit_index"),),
        f"{UNIT}::test_an_entry_is_applied_when_it_is_committed_and_durable_here",
    ),
    StorageMutant(
        "3: a proposal is answered when it is appended",
        JOINED,
        (
            EARLY,
            ("        self._answer(effects)\n", ANSWERED),
        ),
        f"{UNIT}::test_a_proposal_is_answered_when_a_quorum_has_synced_it",
    ),
    StorageMutant(
        "4b: what is appended counts as durable",
        SAVER,
        (("waiting[0].upto <= self._wal.synced_index", "waiting[0].upto <= self._wal.last_index"),),
        f"{UNIT}::test_a_proposal_is_answered_when_a_quorum_has_synced_it",
    ),
    StorageMutant(
        "10e: a vote is told and not written",
        SAVER,
        (("        if save.votes:\n", "        if False:\n"),),
        f"{UNIT}::test_a_vote_is_durable_before_it_is_told",
    ),
    StorageMutant(
        "11: a restarted leader goes on in its term",
        JOINED,
        (("vote=Vote(vote.term, vote.peer),", "vote=Vote(vote.term - (vote.peer == known.node)),"),),
        f"{UNIT}::test_a_restarted_leader_never_leads_again_in_its_term",
    ),
    StorageMutant(
        "15e: readers find a batch when it is appended",
        PEER,
        (
            (
                "                self._proposed.append((request, record))\n",
                "                self._proposed.append((request, record))\n"
                "                if request.proposal.batch is not None:\n"
                "                    engine.locator.cache.put(record.index, request.proposal.batch)\n",
            ),
        ),
        f"{UNIT}::test_what_is_not_committed_is_lost_with_its_leader_and_its_asker_is_told",
    ),
    StorageMutant(
        "16: proposals are known by their index alone",
        JOINED,
        (("while proposed and proposed[0][1].term < term:", "while False:"),),
        f"{UNIT}::test_what_is_not_committed_is_lost_with_its_leader_and_its_asker_is_told",
    ),
    StorageMutant(
        "19: stamps go by what is applied",
        JOINED,
        (("return max(now_ms, last_ms)", "return max(now_ms, core.now_ms)"),),
        f"{UNIT}::test_stamps_never_fall_below_the_last_one_appended",
    ),
    StorageMutant(
        "28: what the disk has refused is confirmed",
        SAVER,
        (("            self._refused = _Refused(ready, records)\n            return False\n",
          "            pass\n"),),
        f"{UNIT}::test_a_full_disk_of_a_follower_confirms_nothing_and_catches_up_with_room",
    ),
    StorageMutant(
        "cut: what waits for entries that are gone waits for ever",
        SAVER,
        (("one.upto = min(one.upto, save.cut)", "pass"),),
        f"{UNIT}::test_a_cut_frees_what_waits_for_entries_that_are_gone",
    ),
)  # fmt: skip

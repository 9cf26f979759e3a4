"""Majorities against a twin that tries all subsets."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiver.raft.messages import Peers
from quiver.raft.quorum import Verdict, agreed, majority, verdict

numbers = st.integers(1, 7)
voters = st.sets(numbers, min_size=1, max_size=5).map(lambda some: tuple(sorted(some)))
either = st.one_of(st.just(()), voters)
configurations = st.builds(Peers, voters, either, st.just((8, 9)))


def quorums(peers):
    """All sets of voters that may decide."""
    everybody = sorted({*peers.voters, *peers.outgoing})
    for size in range(1, len(everybody) + 1):
        for some in combinations(everybody, size):
            if all(
                2 * len({*some} & {*half}) > len(half)
                for half in (peers.voters, peers.outgoing)
                if half
            ):
                yield some


@given(configurations, st.dictionaries(st.integers(1, 9), st.integers(0, 5)))
def test_what_is_agreed_is_the_most_that_all_of_some_quorum_have_reached(peers, reached):
    naive = max(min(reached.get(peer, 0) for peer in some) for some in quorums(peers))
    assert agreed(peers, reached) == naive


@given(configurations, st.dictionaries(st.integers(1, 9), st.booleans()))
def test_an_election_is_won_by_a_quorum_and_lost_when_none_is_left(peers, votes):
    won = any(all(votes.get(peer, False) for peer in some) for some in quorums(peers))
    open_ = any(all(votes.get(peer, True) for peer in some) for some in quorums(peers))
    expected = Verdict.WON if won else Verdict.OPEN if open_ else Verdict.LOST
    assert verdict(peers, votes) is expected


@given(configurations)
def test_any_two_quorums_have_a_voter_in_common(peers):
    for one in quorums(peers):
        assert all({*one} & {*other} for other in quorums(peers))


@pytest.mark.parametrize(("count", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4)])
def test_half_is_no_majority(count, needed):
    assert majority(tuple(range(count))) == needed


def test_without_voters_nothing_is_decided():
    nobody = Peers((), (), (1, 2))
    assert verdict(nobody, {1: True, 2: True}) is Verdict.LOST

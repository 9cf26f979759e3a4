"""The parts of the delivery core, each beside something simple that does the same."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quiver.core.delivery import DeliveryCore
from quiver.core.delivery.chains import Ring, join
from quiver.core.delivery.lanes import PriorityLanes
from quiver.core.delivery.members import Members
from quiver.core.delivery.offsets import OffsetSet
from quiver.core.delivery.view import Lease, ViewPiece
from quiver.errors import MemberFenced
from quiver.model.commands import Command, CreateTopic, Entry, Found, Receive, Run, Send
from quiver.model.ranges import merge
from quiver.model.replies import Received
from quiver.model.topic import Retry, TopicPolicy
from tests.lengths import examples

SHORT = settings(stateful_step_count=30, max_examples=examples(50))
small = st.integers(0, 25)
pieces = st.tuples(small, small).map(lambda piece: (min(piece), max(piece)))


def spread(taken):
    """Ranges with something behind them, offset by offset."""
    return [(offset, *rest) for start, end, *rest in taken for offset in range(start, end)]


class LeaseMachine(RuleBasedStateMachine):
    """A lease beside a dictionary of what it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = Lease(7, "me", [])
        self.held: dict[int, tuple[int, int, int]] = {}  # attempt, deadline, steal
        self.clock = 100

    @rule(chosen=st.lists(pieces, min_size=1, max_size=4))
    def grant(self, chosen: list[tuple[int, int]]) -> None:
        apart = merge(list(chosen))
        held = [
            ViewPiece(*range_, 1 + at % 2, 50, 30 * (at % 3)) for at, range_ in enumerate(apart)
        ]
        self.lease = Lease(7, "me", held)
        self.held = {offset: tuple(rest) for offset, *rest in spread(held)}

    @rule(piece=pieces)
    def release(self, piece: tuple[int, int]) -> None:
        released = spread(self.lease.release(*piece))
        expected = [o for o in sorted(self.held) if piece[0] <= o < piece[1]]
        assert released == [(o, *self.held.pop(o)) for o in expected]

    @rule(piece=pieces, steal_ms=st.sampled_from([0, 30]))
    def hold(self, piece: tuple[int, int], steal_ms: int) -> None:
        self.clock += 1
        released = self.lease.release(*piece)
        self.lease.hold([x._replace(deadline_ms=self.clock, steal_ms=steal_ms) for x in released])
        for offset in [o for o in sorted(self.held) if piece[0] <= o < piece[1]]:
            self.held[offset] = (self.held[offset][0], self.clock, steal_ms)

    @rule(piece=pieces)
    def ask(self, piece: tuple[int, int]) -> None:
        start, end = piece
        assert self.lease.holds(start, end) == all(o in self.held for o in range(start, end))

    @invariant()
    def the_same_is_held(self) -> None:
        found = spread(self.lease.held)
        assert found == [(o, *self.held[o]) for o in sorted(self.held)]


TestLease = LeaseMachine.TestCase
TestLease.settings = SHORT


class LanesMachine(RuleBasedStateMachine):
    """Lanes beside lists: what came back goes first, then what is fresh, each in offset order."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes = PriorityLanes()
        self.end = 0
        self.settled = OffsetSet()
        self.fresh: dict[int, list[int]] = {}
        self.back: dict[int, list[tuple[int, int]]] = {}
        self.out: list[tuple[int, int, int]] = []  # offset, attempts, priority

    @rule(count=st.integers(1, 5), priority=st.integers(0, 2), skip=st.integers(0, 2))
    def add(self, count: int, priority: int, skip: int) -> None:
        start = self.end + skip
        self.end = start + count
        self.lanes.add(start, self.end, priority)
        self.fresh.setdefault(priority, []).extend(range(start, self.end))

    @rule(level=st.integers(0, 2), limit=st.integers(1, 7))
    def take(self, level: int, limit: int) -> None:
        gone = self.settled
        back = sorted(piece for piece in self.back.get(level, []) if piece[0] not in gone)
        fresh = [offset for offset in self.fresh.get(level, []) if offset not in gone]
        expected = [*back, *((offset, 0) for offset in fresh)][:limit]
        assert spread(self.lanes.take(level, limit, self.settled)) == expected
        self.back[level] = back[limit:]
        self.fresh[level] = fresh[max(limit - len(back), 0) :]
        self.out += [(offset, attempts, level) for offset, attempts in expected]

    @precondition(lambda self: self.out)
    @rule(at=st.integers(0, 9))
    def put_back(self, at: int) -> None:
        offset, attempts, priority = self.out.pop(at % len(self.out))
        self.lanes.put_back(offset, offset + 1, attempts + 1, priority)
        self.back.setdefault(priority, []).append((offset, attempts + 1))

    @rule(piece=pieces)
    def settle(self, piece: tuple[int, int]) -> None:
        self.settled.add(*piece)
        self.out = [one for one in self.out if one[0] not in self.settled]

    @rule()
    def save_and_load(self) -> None:
        dumped = self.lanes.dump()
        self.lanes = PriorityLanes.load(dumped)
        assert self.lanes.dump() == dumped

    @invariant()
    def everything_is_named(self) -> None:
        left = [offset for lane in self.fresh.values() for offset in lane]
        left += [offset for lane in self.back.values() for offset, _ in lane]
        named = [offset for (offset,) in spread(self.lanes.ranges())]
        assert {o for o in left if o not in self.settled} <= set(named)
        levels = [
            level
            for level in {**self.fresh, **self.back}
            if self.fresh.get(level) or self.back.get(level)
        ]
        assert set(self.lanes.levels()) >= {
            level
            for level in levels
            if any(o not in self.settled for o in self.fresh.get(level, []))
            or any(o not in self.settled for o, _ in self.back.get(level, []))
        }


TestLanes = LanesMachine.TestCase
TestLanes.settings = SHORT


@given(st.lists(st.sampled_from(["push", "push", "pop"]), max_size=60), st.randoms())
def test_in_a_ring_nobody_has_a_second_turn_before_a_neighbour_who_waits(moves, chance):
    ring = Ring()
    keys = {1: 10, 2: 10, 3: 20, 4: 30, 5: 30, 6: 30}  # key: tenant
    waiting: dict[int, list[int]] = {}  # who waits: whose turns it has seen
    for move in moves:
        if move == "push":
            absent = [key for key in keys if key not in waiting]
            if absent:
                key = chance.choice(absent)
                ring.push(key, keys[key])
                waiting[key] = []
        elif waiting:
            key = ring.pop()
            turns = waiting.pop(key)
            assert all(count == 1 for count in Counter(turns).values()), "somebody was overtaken"
            for other, seen in waiting.items():
                if keys[other] == keys[key]:
                    seen.append(key)
        assert bool(ring) == bool(waiting)


@given(st.lists(st.tuples(small, st.integers(0, 2))))
def test_joined_messages_are_the_same_in_the_same_order(singles):
    assert spread(join(singles)) == singles


class MembersMachine(RuleBasedStateMachine):
    """Membership: everybody gets a fair share, and nobody's work is taken without need."""

    partitions = 5

    def __init__(self) -> None:
        super().__init__()
        self.members = Members(self.partitions)
        self.now_ms = 0

    names = st.sampled_from(["a", "b", "c", "d", "e", "f", "g"])

    @rule(name=names)
    def join(self, name: str) -> None:
        before, known = dict(self.members.target), name in self.members.members
        generation = self.members.generation
        self.members.join(name, 10, self.now_ms, most=7)
        moved = [p for p, owner in before.items() if self.members.target[p] != owner]
        assert all(self.members.target[partition] == name for partition in moved)
        assert len(moved) <= -(-self.partitions // len(self.members.members))
        assert (self.members.generation > generation) == (not known)
        assert not (known and moved)

    @rule(name=names)
    def leave(self, name: str) -> None:
        if name not in self.members.members:
            with pytest.raises(MemberFenced):
                self.members.leave(name)
            return
        before = dict(self.members.target)
        self.members.leave(name)
        for partition, owner in self.members.target.items():
            assert before[partition] in (owner, name), "a partition moved without need"

    @rule(name=names, released=st.lists(st.integers(0, 6), max_size=3))
    def beat(self, name: str, released: list[int]) -> None:
        if name not in self.members.members:
            with pytest.raises(MemberFenced):
                self.members.beat(name, tuple(released), self.now_ms)
            return
        owned, revoked = self.members.owned(name), self.members.revoked(name)
        self.members.beat(name, tuple(released), self.now_ms)
        lost = set(owned) - set(self.members.owned(name))
        assert lost == set(revoked) & set(released)

    @rule()
    def save_and_load(self) -> None:
        dumped = self.members.dump()
        self.members = Members.load(self.partitions, dumped)
        assert self.members.dump() == dumped

    @invariant()
    def everything_is_owned_by_somebody_who_is_there(self) -> None:
        self.members.check()
        owned = [p for name in self.members.members for p in self.members.owned(name)]
        assert sorted(owned) == (list(range(self.partitions)) if self.members.members else [])


TestMembers = MembersMachine.TestCase
TestMembers.settings = SHORT


@given(
    st.builds(
        Retry,
        st.sampled_from(["fixed", "linear", "exponential"]),
        st.integers(0, 10**6),
        st.integers(0, 10**7),
        st.booleans(),
    ),
    st.integers(1, 1_000),
    st.integers(0, 2**63 - 1),
)
def test_a_retry_waits_as_long_as_its_policy_says(retry, attempt, seed):
    factor = {"fixed": 1, "linear": attempt, "exponential": 2 ** (attempt - 1)}[retry.kind]
    full = min(retry.base_ms * factor, retry.cap_ms)
    delay_ms = retry.delay_ms(attempt, seed)
    assert delay_ms == retry.delay_ms(attempt, seed)
    if retry.jitter:
        assert full // 2 <= delay_ms <= full
    else:
        assert delay_ms == full


@pytest.mark.parametrize("policy", [TopicPolicy(partitions=3), TopicPolicy(3, fair=True)])
def test_partitions_take_turns_when_messages_are_received_one_by_one(policy):
    core = DeliveryCore()
    commands: list[Command] = [Found(b"secret", 1), CreateTopic("t", policy)]
    commands.append(Send(1, tuple(Run(partition, 4, 4) for partition in range(3)), (3,)))
    commands += [Receive(1, "g", 1, 1_000)] * 6
    replies = [core.apply(Entry(index, 1, one)).reply for index, one in enumerate(commands, 1)]
    got = [piece.partition for one in replies if isinstance(one, Received) for piece in one.slices]
    assert sorted(got[:3]) == sorted(got[3:]) == [0, 1, 2]

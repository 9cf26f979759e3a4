"""A front under any driver: rounds may be in flight, and no message is lost, doubled or left lying.

The driver commits rounds in order and as late as it likes. The model of a topic without an order is
short: a message is with one receive at most, what is sent first is received first as long as nothing
came back, and no receive waits while there is something for it.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quiver.model.commands import CreateGroup
from quiver.node.front import Pending, ReceiveRequest
from tests.lengths import examples
from tests.stepped import Stepped, offsets

GROUPS = ("g", "h")
STEP_MS = 1_000


class AnyDriver(RuleBasedStateMachine):
    """Requests, time and commits in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Stepped()
        self.topic = self.node.topic(partitions=1)
        self.rounds: list[list[Pending]] = []
        self.sends: list[Any] = []
        self.receives: list[ReceiveRequest] = []  # not abandoned, and not settled
        self.acked: dict[str, set[int]] = {group: set() for group in GROUPS}
        self.came_back = False
        self.came_late: set[str] = set()  # groups that may miss what was settled before them

    @initialize(known=st.booleans())
    def begin(self, known: bool) -> None:
        for group in GROUPS if known else ():
            self.node.do(CreateGroup(self.topic.number, group))

    def proposed(self, pending: list[Pending]) -> None:
        if pending:
            self.rounds.append(pending)

    @rule(count=st.integers(1, 4), delay=st.sampled_from([None, 1, 3]))
    def send(self, count: int, delay: int | None) -> None:
        made = [self.node.send(self.topic, delay=delay) for _ in range(count)]
        self.came_back = self.came_back or delay is not None  # the order is another one then
        self.sends += made
        self.proposed(self.node.take(*made))

    @rule(
        wants=st.lists(
            st.tuples(st.sampled_from(GROUPS), st.integers(1, 3), st.sampled_from([0, 2, 9])),
            min_size=1,
            max_size=3,
        )
    )
    def receive(self, wants: list[tuple[str, int, int]]) -> None:
        made = [
            self.node.receive(self.topic, count, wait * STEP_MS, group)
            for group, count, wait in wants
        ]
        self.receives += made
        self.proposed(self.node.take(*made))

    @rule(steps=st.integers(0, 5))
    def time_passes(self, steps: int) -> None:
        self.node.now_ms += steps * STEP_MS
        self.proposed(self.node.take())

    @precondition(lambda self: self.rounds)
    @rule()
    def commit(self) -> None:
        self.proposed(self.node.commit(self.rounds.pop(0)))

    @precondition(lambda self: self.receives)
    @rule(which=st.integers(0, 99))
    def abandon(self, which: int) -> None:
        gone = self.receives[which % len(self.receives)]
        if not gone.ticket.done:
            self.receives.remove(gone)
            self.came_back = True
            gone.ticket.abandoned = True

    @precondition(lambda self: self.receives)
    @rule(which=st.integers(0, 99), action=st.sampled_from(["ack", "nack", "release"]))
    def settle(self, which: int, action: str) -> None:
        self.drain()
        held = self.receives[which % len(self.receives)]
        if held.ticket.done:
            self.receives.remove(held)
            if offsets(held):
                self.node.release(held.ticket, action)
            if action == "ack":
                self.came_late |= {*GROUPS} - {
                    *self.node.engine.core.topics[self.topic.number].groups
                }
                self.acked[held.command.group] |= set(offsets(held))
            else:
                self.came_back = True

    @rule()
    def drain(self) -> None:
        """Commit all that is proposed: then nothing may be left undone."""
        self.proposed(self.node.take())
        while self.rounds:
            self.commit()
        core, now_ms = self.node.engine.core, self.node.now_ms
        core.check()
        assert all(send.done and send.error is None for send in self.sends)
        for waiter in self.node.front.waiters:
            if not waiter.ticket.abandoned:
                assert waiter.until_ms > now_ms
                topic, group = waiter.line
                assert group is not None
                assert not core.is_ready(topic, group, now_ms), "it waits beside messages for it"
        assert not self.node.front._pending
        assert not self.node.front._in_flight

    @invariant()
    def each_message_is_with_one(self) -> None:
        for group in GROUPS:
            got = [
                offset
                for one in self.receives
                if one.ticket.done and one.command.group == group
                for offset in offsets(one)
            ]
            assert len(set(got)) == len(got)
            assert not set(got) & self.acked[group]
            if not self.came_back and group not in self.came_late:
                assert set(got) | self.acked[group] == set(range(len(got) + len(self.acked[group])))


AnyDriver.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40)
test_any_driver = AnyDriver.TestCase

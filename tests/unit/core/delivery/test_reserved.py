"""Reserved leases: no attempt before they begin, and others may take them over.

Entry by entry, on the core alone; the state machine in tests/properties has every combination.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from quiver import limits
from quiver.batches.attributes import attributes_of
from quiver.batches.ledger import table
from quiver.batches.rows import make_row, pack
from quiver.core.delivery import DeliveryCore
from quiver.errors import InvalidRequest
from quiver.model.commands import (
    Command,
    CreateGroup,
    CreateTopic,
    Entry,
    Found,
    Held,
    PauseGroup,
    Receive,
    Run,
    Send,
    Settle,
    Tick,
)
from quiver.model.replies import Received, Settled
from quiver.model.topic import TopicPolicy
from quiver.storage import codec

START_MS = 1_700_000_000_000
OWN_MS = limits.RESERVED_MS_MIN
AGAIN_MS = limits.STOLEN_MS_MIN
LEASE_MS = 30_000


class Core:
    """A core with one topic and one group, and a clock; all is checked after each entry."""

    def __init__(self, *, guarantee: Any = "at-least-once", **policy: Any) -> None:
        self.core = DeliveryCore()
        self.now_ms = START_MS
        self.keyed = policy.get("order") == "key"
        self.do(Found(b"secret", START_MS))
        made = TopicPolicy(max_attempts=1, dead_letter="dead", **policy)
        self.topic = self.do(CreateTopic("t", made)).topic
        self.do(CreateGroup(self.topic, "g", guarantee=guarantee))
        self.group = self.core.topics[self.topic].groups["g"].number

    def do(self, command: Command) -> Any:
        """Do a command; its reply, or the refusal raised."""
        outcome = self.core.apply(Entry(self.core.index + 1, self.now_ms, command))
        self.core.check()
        if isinstance(outcome.reply, Exception):
            raise outcome.reply
        return outcome.reply

    def send(self, count: int = 1, **fields: Any) -> None:
        rows = [make_row(b"x", **fields) for _ in range(count)]
        batch = pack(rows, self.now_ms)
        attributes = attributes_of(batch, keyed=self.keyed)
        self.do(Send(self.topic, (Run(0, count, count),), (1,), attributes))

    def receive(
        self,
        count: int = 10,
        begin: int | None = None,
        consumer: str = "",
        lease_ms: int = LEASE_MS,
    ) -> Received:
        reply = self.do(Receive(self.topic, "g", count, lease_ms, consumer, 1, begin))
        assert isinstance(reply, Received)
        return reply

    def settle(self, got: Received, action: Any, *offsets: int, **fields: Any) -> Settled:
        ranges = tuple((offset, offset + 1) for offset in offsets)
        reply = self.do(
            Settle(self.topic, self.group, action, (Held(0, got.epoch, ranges),), **fields)
        )
        assert isinstance(reply, Settled)
        return reply

    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @property
    def stats(self) -> Any:
        return self.core.stats(self.topic, self.now_ms).groups["g"]

    @property
    def events(self) -> list[tuple[str, int]]:
        rows = self.core.ledger.peek()
        assert rows is not None
        told = table(rows).to_pylist()
        return [(row["event"], row["count"]) for row in told if row["group"]]


def places(got: Received) -> list[tuple[int, int, bool]]:
    """Offset, attempt and whether it is reserved, of every message."""
    return [
        (piece.offset + at, piece.attempt, piece.reserved)
        for piece in got.slices
        for at in range(piece.count)
    ]


def offsets(got: Received) -> list[int]:
    return [offset for offset, _, _ in places(got)]


def refused(settled: Settled) -> list[int]:
    return [offset for held in settled.refused for start, end in held.ranges
            for offset in range(start, end)]  # fmt: skip


# -- attempts --------------------------------------------------------------------------------------


def test_a_receive_begins_as_many_as_it_says_and_reserves_the_rest():
    core = Core()
    core.send(4)
    got = core.receive(begin=1)
    assert places(got) == [(0, 1, False), (1, 1, True), (2, 1, True), (3, 1, True)]
    assert (core.stats.delivered, core.stats.in_flight, core.stats.reserved) == (1, 4, 3)
    assert core.events == [("leased", 1), ("reserved", 3)]


@pytest.mark.parametrize("how", ["release", "the lease ends", "others take it over"])
def test_what_was_only_reserved_comes_again_as_what_it_was(how):
    core = Core()
    core.send(1)
    got = core.receive(begin=0)
    match how:
        case "release":
            core.settle(got, "release", 0)
        case "the lease ends":
            core.wait(LEASE_MS)
            core.do(Tick())
        case "others take it over":
            core.wait(OWN_MS)
    assert places(core.receive()) == [(0, 1, False)]
    stats = core.stats
    assert (stats.delivered, stats.redelivered, stats.released) == (1, 0, 1)
    assert (stats.nacked, stats.timed_out, stats.dead_lettered) == (0, 0, 0)
    assert core.events == [("reserved", 1), ("released", 1), ("leased", 1)]


def test_what_has_begun_can_be_released_too_and_the_attempt_does_not_count():
    core = Core()
    core.send(1)
    core.settle(core.receive(), "release", 0)
    assert places(core.receive()) == [(0, 1, False)]
    assert core.stats.dead_lettered == 0


def test_what_is_released_with_a_delay_waits():
    core = Core()
    core.send(1)
    core.settle(core.receive(begin=0), "release", 0, delay_ms=5_000)
    assert core.stats.delayed == 1
    core.wait(4_999)
    assert offsets(core.receive()) == []
    core.wait(1)
    assert offsets(core.receive()) == [0]


def test_to_begin_counts_once_however_often_it_is_said():
    core = Core()
    core.send(2)
    got = core.receive(begin=0)
    for _ in range(3):
        assert core.settle(got, "begin", 0, 1) == Settled(2)
    assert (core.stats.delivered, core.stats.reserved) == (2, 0)
    assert core.events == [("reserved", 2), ("leased", 2)]


def test_to_begin_again_for_longer_is_told_as_an_extension():
    core = Core()
    core.send(1)
    core.settle(core.receive(), "begin", 0, lease_ms=LEASE_MS)
    assert core.events == [("leased", 1), ("extended", 1)]


def test_to_begin_holds_it_from_now_if_it_says_for_how_long():
    core = Core()
    core.send(2)
    got = core.receive(begin=0, lease_ms=1_000)
    core.wait(900)
    assert core.settle(got, "begin", 0, lease_ms=1_000).deadline_ms == core.now_ms + 1_000
    assert core.settle(got, "begin", 1).deadline_ms == 0
    core.wait(100)
    core.do(Tick())
    assert (core.stats.in_flight, core.stats.timed_out) == (1, 1)
    assert core.settle(got, "ack", 0, 1).refused == (Held(0, got.epoch, ((1, 2),)),)


@pytest.mark.parametrize(("action", "counted"), [("ack", 1), ("nack", 1), ("dead_letter", 1),
                                                 ("extend", 0)])  # fmt: skip
def test_to_settle_it_is_to_begin_it_before(action, counted):
    core = Core()
    core.send(1)
    core.settle(core.receive(begin=0), action, 0, lease_ms=LEASE_MS)
    assert (core.stats.delivered, core.stats.reserved) == (counted, 1 - counted)


def test_the_lease_of_what_has_begun_ends_as_ever():
    core = Core()
    core.send(2)
    core.receive(begin=1)
    core.wait(LEASE_MS)
    core.do(Tick())
    assert (core.stats.timed_out, core.stats.released, core.stats.dead_lettered) == (1, 1, 1)
    assert places(core.receive()) == [(1, 1, False)]


def test_what_is_over_before_it_begins_never_begins():
    core = Core()
    core.send(1, ttl=10)
    got = core.receive(begin=0)
    core.wait(10_000)
    assert refused(core.settle(got, "begin", 0)) == [0]
    assert (core.stats.expired, core.stats.delivered, core.stats.lag) == (1, 0, 0)


# -- at most once ----------------------------------------------------------------------------------


def test_at_most_once_what_is_reserved_is_settled_when_it_begins():
    core = Core(guarantee="at-most-once")
    core.send(3)
    got = core.receive(begin=1)
    assert (core.stats.acked, core.stats.lag, core.stats.reserved) == (1, 2, 2)
    assert core.settle(got, "begin", 1).count == 1
    assert core.settle(got, "release", 2).count == 1
    assert refused(core.settle(got, "release", 0, 1)) == [0, 1]
    assert places(core.receive(begin=0)) == [(2, 1, True)]
    assert (core.stats.acked, core.stats.delivered, core.stats.lag) == (2, 2, 1)
    assert core.events[:3] == [("delivered", 1), ("reserved", 2), ("delivered", 1)]


@pytest.mark.parametrize("action", ["nack", "dead_letter"])
def test_at_most_once_nothing_can_have_failed(action):
    core = Core(guarantee="at-most-once")
    core.send(1)
    assert refused(core.settle(core.receive(begin=0), action, 0)) == [0]
    assert (core.stats.reserved, core.stats.acked) == (1, 0)


# -- taking over -----------------------------------------------------------------------------------


def test_nothing_is_taken_over_before_its_time_and_then_the_older_half():
    core = Core()
    core.send(5)
    slow = core.receive(begin=0, consumer="slow")
    core.wait(OWN_MS - 1)
    assert core.receive(consumer="idle").slices == ()
    core.wait(1)
    assert offsets(core.receive(consumer="idle")) == [0, 1, 2]
    assert refused(core.settle(slow, "begin", 0, 1, 2, 3, 4)) == [0, 1, 2]
    assert core.stats.delivered == 5


def test_no_more_is_taken_over_than_was_asked_for():
    core = Core()
    core.send(8)
    core.receive(begin=0)
    core.wait(OWN_MS)
    assert offsets(core.receive(2)) == [0, 1]
    assert core.stats.reserved == 6


def test_what_was_reserved_first_is_taken_over_first():
    core = Core()
    core.send(4)
    core.receive(2, begin=0)
    core.wait(1)
    core.receive(2, begin=0)
    core.wait(OWN_MS)
    assert offsets(core.receive(1)) == [0]


def test_what_has_begun_is_never_taken_over():
    core = Core()
    core.send(2)
    got = core.receive(begin=0)
    core.settle(got, "begin", 0)
    core.wait(AGAIN_MS)
    assert offsets(core.receive()) == [1]
    assert core.receive().slices == ()


def test_what_was_taken_over_is_not_taken_over_again_for_a_while():
    core = Core()
    core.send(1)
    core.receive(begin=0)
    core.wait(OWN_MS)
    core.send(1)
    assert offsets(core.receive(1, begin=1)) == [1], "what is ready goes first"
    core.receive(2, begin=1)  # the one that was reserved; it begins
    core.send(2)
    core.receive(2, begin=0)
    core.wait(OWN_MS)
    taken = core.receive(2, begin=1)
    assert places(taken) == [(2, 1, False)]
    core.settle(taken, "ack", 2)
    core.settle(core.receive(1, begin=1), "ack", 3)
    core.send(4)
    core.receive(4, begin=0)
    core.wait(OWN_MS)
    assert places(core.receive(4, begin=1)) == [(4, 1, False), (5, 1, True)]
    core.do(Settle(core.topic, core.group, "dismiss", (Held(0, 0, ((6, 8),)),)))
    core.wait(AGAIN_MS - 1)
    assert core.receive(4, begin=1).slices == ()
    core.wait(1)
    assert offsets(core.receive(4, begin=1)) == [5]


def test_who_begins_nothing_takes_nothing_over():
    core = Core()
    core.send(2)
    core.receive(begin=0)
    core.wait(OWN_MS)
    assert not core.core.is_ready(core.topic, "g", core.now_ms, begins=False)
    assert core.receive(begin=0).slices == ()
    assert core.core.is_ready(core.topic, "g", core.now_ms)


def test_a_key_stays_in_order_whoever_has_its_head():
    core = Core(order="key")
    for _ in range(3):
        core.send(key="ann")
    core.send(key="bob")
    busy = core.receive(begin=0)
    assert offsets(busy) == [0, 3], "one of each key"
    core.settle(busy, "begin", 0)
    core.wait(OWN_MS)
    idle = core.receive()
    assert offsets(idle) == [3], "what is behind a message that has begun stays behind it"
    core.settle(busy, "ack", 0)
    assert offsets(core.receive(begin=0)) == [1]
    core.wait(OWN_MS)
    assert offsets(core.receive()) == [1], "the head is taken over, and not what is behind it"


def test_several_messages_of_a_key_cannot_be_reserved():
    core = Core(order="key")
    with pytest.raises(InvalidRequest):
        core.do(Receive(core.topic, "g", 5, LEASE_MS, "", 2, 1))


def test_in_strict_order_all_that_is_reserved_goes_together():
    core = Core(order="partition")
    core.send(4)
    slow = core.receive(begin=0)
    core.wait(OWN_MS)
    assert offsets(core.receive(1)) == [0]
    assert refused(core.settle(slow, "begin", 1, 2, 3)) == [1, 2, 3]


def test_in_strict_order_nothing_is_taken_over_while_something_has_begun():
    core = Core(order="partition")
    core.send(3)
    busy = core.receive(begin=1)
    core.wait(OWN_MS)
    assert core.core.next_due_ms(core.topic, "g") is None
    assert core.receive().slices == ()
    core.settle(busy, "ack", 0)
    assert offsets(core.receive()) == [1, 2]


def test_nothing_is_taken_over_in_a_paused_group():
    core = Core()
    core.send(1)
    core.receive(begin=0)
    core.do(PauseGroup(core.topic, "g", paused=True))
    core.wait(OWN_MS)
    assert core.receive().slices == ()
    assert core.stats.reserved == 1


def test_whoever_waits_is_told_when_something_may_be_taken_over():
    core = Core()
    core.send(2)
    core.receive(begin=0)
    assert core.core.next_due_ms(core.topic, "g") == START_MS + OWN_MS
    core.wait(OWN_MS)
    assert core.core.is_ready(core.topic, "g", core.now_ms)
    assert core.core.ready_count(core.topic, "g", core.now_ms) == 2
    core.receive()
    core.receive()
    assert not core.core.is_ready(core.topic, "g", core.now_ms)
    assert core.core.next_due_ms(core.topic, "g") is None


# -- what was there before -------------------------------------------------------------------------


def old(state: Any) -> Any:
    """A state as it was saved before there were reservations."""
    for topic in state[5]:
        for group in topic[4]:
            assert group[5].pop() == 0, "how many were released"
            for view in group[6]:
                for lease in view[3]:
                    lease[2] = [piece[:4] for piece in lease[2]]
    return state


def test_a_snapshot_of_before_is_loaded_as_what_it_meant():
    core = Core(order="key")
    core.send(3, key="ann")
    got = core.receive()
    saved = codec.encode_state(core.core.dump())
    before = codec.encode_state(old(codec.decode_state(saved)))
    assert before != saved
    core.core = DeliveryCore.load(codec.decode_state(before))
    core.core.check()
    assert codec.encode_state(core.core.dump()) == saved
    core.settle(got, "ack", 0)
    assert (core.stats.acked, core.stats.released, core.stats.reserved) == (1, 0, 0)


@pytest.mark.parametrize(
    ("command", "added"),
    [
        (Receive(1, "g", 10, 30_000, "me", 2), ["begin", "told_bytes"]),
        (Settle(1, 2, "release", (Held(0, 3, ((4, 5),)),), reason="the receiver was gone"), []),
    ],
)
def test_a_command_of_before_means_what_it_meant(command: Command, added: Sequence[str]):
    kind, data = codec.encode(command)
    fields = msgspec.msgpack.decode(data)
    for name in added:
        del fields[name]
    assert codec.decode(kind, msgspec.msgpack.encode(fields)) == command

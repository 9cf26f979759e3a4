"""Whoever waits gets what others have reserved as soon as it may, and nothing turns in circles."""

from collections.abc import Iterator
from pathlib import Path
from secrets import token_bytes
from typing import Any

import pytest

from quiver import Queue, limits
from quiver.client.flows import Flows
from quiver.client.local import LocalBroker
from quiver.model.commands import CreateGroup, Held, Receive, Settle
from quiver.model.replies import Grant
from quiver.node.peer import Peer
from quiver.node.shard import Shard
from quiver.node.tickets import Ticket
from quiver.storage.files import DiskFiles
from quiver.testing import VirtualClock
from tests.inside import Inside

OWN_SECONDS = limits.RESERVED_MS_MIN / 1000
AGAIN_SECONDS = limits.STOLEN_MS_MIN / 1000
LEASE_MS = 600_000
WAIT_MS = 3_600_000
ROUNDS = 50


class Node:
    """A shard on a clock that stands still, with a topic."""

    def __init__(self, path: Path) -> None:
        self.clock = VirtualClock()
        peer = Peer.open(
            DiskFiles(path), now_ms=self.clock.now_ms(), secret=token_bytes(32), ledger_ms=10**9
        )
        self.shard = Shard(peer, self.clock)
        self.clock.when_advanced(self.settle_down)
        self.queue = Queue(Flows(LocalBroker(self.shard), "memory"), lambda: None)
        self.queue.create_topic("t", max_attempts=1)
        self.queue.create_group("t", "g")
        self.topic = self.ask(lambda engine: engine.core.names["t"])

    def ask(self, question: Any) -> Any:
        return self.shard.ask(Inside(question)).wait()

    def settle_down(self) -> None:
        """Return when all that is due has been done."""
        for _ in range(2):
            self.ask(lambda _: None)

    def receive(
        self, begin: int | None = None, count: int = 10, group: str = "g", wait_ms: int = WAIT_MS
    ) -> Ticket[Grant]:
        command = Receive(self.topic, group, count, LEASE_MS, "", 1, begin)
        ticket = self.shard.receive(command, wait_ms)
        self.settle_down()
        return ticket

    def index(self) -> int:
        """How many entries there are."""
        return self.ask(lambda engine: engine.core.index)


def offsets(ticket: Ticket[Grant]) -> list[int]:
    assert ticket.done
    slices = ticket.get().received.slices
    return [piece.offset + at for piece in slices for at in range(piece.count)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.shard.close()


def test_who_waits_has_it_when_its_time_has_come_and_not_before(node):
    node.queue.send_batch("t", ["0", "1", "2"])
    node.receive(begin=1)
    waits = node.receive()
    node.clock.advance(OWN_SECONDS - 0.001)
    assert not waits.done
    node.clock.advance(0.001)
    assert offsets(waits) == [1]


def test_several_who_wait_share_what_there_is(node):
    node.queue.send_batch("t", [str(at) for at in range(4)])
    node.receive(begin=0)
    waiters = [node.receive(count=1) for _ in range(5)]
    node.clock.advance(OWN_SECONDS)
    node.settle_down()
    assert [offsets(one) for one in waiters[:4]] == [[0], [1], [2], [3]]
    assert not waiters[4].done
    assert node.queue.groups("t")["g"].dead_lettered == 0


def test_what_was_taken_over_and_reserved_again_comes_to_the_next_one_later(node):
    node.queue.send_batch("t", [str(at) for at in range(4)])
    node.receive(begin=0)
    first = node.receive(begin=1)
    node.clock.advance(OWN_SECONDS)
    assert offsets(first) == [0, 1]
    second, third = node.receive(begin=1, count=1), node.receive(begin=1, count=1)
    third_after = node.receive(begin=1, count=1)
    assert [offsets(second), offsets(third)] == [[2], [3]]
    node.clock.advance(AGAIN_SECONDS - 0.001)
    assert not third_after.done
    node.clock.advance(0.001)
    assert offsets(third_after) == [1]


def test_what_is_sent_comes_before_what_others_have_reserved(node):
    node.queue.send("t", "0")
    node.receive(begin=0)
    waits = node.receive()
    node.queue.send("t", "1")
    node.settle_down()
    assert offsets(waits) == [1]


@pytest.mark.parametrize("begin", [None, 1])
def test_nothing_turns_in_circles_while_somebody_waits(node, begin):
    """Strict order, and something has begun: there is nothing to take over, now or later."""
    node.queue.create_topic("s", order="partition")
    node.topic = node.ask(lambda engine: engine.core.names["s"])
    node.shard.propose(CreateGroup(node.topic, "g")).wait()
    node.queue.send_batch("s", ["0", "1", "2"])
    busy = node.receive(begin=1)
    waits = node.receive(begin=begin)
    node.clock.advance(OWN_SECONDS)
    node.settle_down()
    before, index = node.clock.readings, node.index()
    for _ in range(ROUNDS):
        node.ask(lambda _: None)
    assert node.clock.readings - before <= 4 * ROUNDS, "a loop that does not sleep"
    assert node.index() == index
    got = busy.get().received
    done = Settle(got.topic, got.group, "ack", (Held(0, got.epoch, ((0, 1),)),))
    node.shard.propose(done).wait()
    node.settle_down()
    assert offsets(waits) == [1, 2]


def test_who_begins_nothing_does_not_wait(node):
    node.queue.send("t", "0")
    assert offsets(node.receive(begin=0)) == [0]
    assert offsets(node.receive(begin=0)) == []


def test_a_begin_is_confirmed_before_it_is_synced_unless_it_settles(node):
    node.shard.propose(CreateGroup(node.topic, "once", guarantee="at-most-once")).wait()
    node.queue.send_batch("t", ["0", "1"])
    is_synced = Inside(lambda engine: engine.wal.synced_index == engine.wal.last_index)
    for group, expected in (("g", False), ("once", True)):
        got = node.receive(begin=0, group=group).get().received
        held = (Held(0, got.epoch, ((0, 2),)),)
        assert node.shard.propose(Settle(got.topic, got.group, "begin", held)).wait().count == 2
        assert node.shard.ask(is_synced).wait() is expected


def test_what_was_leased_for_somebody_who_is_gone_is_uncounted(node):
    node.queue.send_batch("t", ["0", "1"])
    ticket = node.receive(begin=1)
    ticket.abandoned = True
    node.settle_down()
    stats = node.queue.groups("t")["g"]
    assert (stats.ready, stats.released, stats.reserved) == (2, 2, 0)
    again = node.receive()
    assert [piece.attempt for piece in again.get().received.slices] == [1, 1]


def test_at_most_once_only_what_has_not_begun_is_given_back(node):
    node.shard.propose(CreateGroup(node.topic, "once", guarantee="at-most-once")).wait()
    node.queue.send_batch("t", ["0", "1"])
    node.receive(begin=1, group="once").abandoned = True
    node.settle_down()
    assert node.queue.groups("t")["once"].ready == 1

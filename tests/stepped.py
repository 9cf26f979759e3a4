"""A front and an engine in memory, stepped by hand: nothing happens between two calls."""

from typing import Any

from quiver.batches.rows import make_row
from quiver.model.commands import Command, CreateTopic, Held, Receive, Settle
from quiver.model.replies import Grant
from quiver.model.topic import TopicPolicy
from quiver.node.engine import Proposal
from quiver.node.front import (
    CommandRequest,
    Front,
    FrontRequest,
    GrantTicket,
    Pending,
    ReceiveRequest,
    WatchRequest,
)
from quiver.node.packing import SendRequest
from quiver.node.peer import Peer
from quiver.node.placing import TopicHandle
from quiver.node.tickets import Ticket
from quiver.testing import MemoryFiles
from tests.inside import WatchInside

START_MS = 1_000_000
LEASE_MS = 3_600_000


class Stepped:
    """What a driver does, a step at a time; `now_ms` is what the test says."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.peer = Peer.open(MemoryFiles(), now_ms=START_MS, secret=b"s" * 32)
        self.engine = self.peer.engine
        self.front = Front(self.engine)
        self.given_back: list[Grant] = []

    def topic(self, name: str = "t", **policy: Any) -> TopicHandle:
        made = TopicPolicy(**policy)
        return TopicHandle(name, self.do(CreateTopic(name, made)).topic, made)

    # -- requests ----------------------------------------------------------------------------------

    def send(self, topic: TopicHandle, body: bytes = b"x", **options: Any) -> SendRequest:
        return SendRequest(lambda request: None, topic, make_row(body, **options), sync=True)

    def receive(
        self, topic: TopicHandle, count: int = 1, wait_ms: int = 0, group: str = "g"
    ) -> ReceiveRequest:
        command = Receive(topic.number, group, count, LEASE_MS)
        ticket = GrantTicket(lambda received: None)
        until_ms = self.now_ms + wait_ms
        return ReceiveRequest(command, Proposal(command), ticket, until_ms, sync=True)

    def command(self, command: Command) -> CommandRequest:
        return CommandRequest(Proposal(command), Ticket(), sync=True)

    def watch(self, topic: TopicHandle, question: Any, wait_ms: int) -> WatchRequest:
        query = WatchInside(topic.number, question)
        return WatchRequest(query, Ticket(), self.now_ms + wait_ms)

    # -- steps -------------------------------------------------------------------------------------

    def take(self, *requests: FrontRequest) -> list[Pending]:
        return self.front.take(list(requests), self.now_ms)

    def commit(self, pending: list[Pending]) -> list[Pending]:
        """One round: what it makes the front propose next."""
        outcomes = self.peer.commit([one.proposal for one in pending], now_ms=self.now_ms)
        return self.front.answered(zip(pending, outcomes, strict=True), self.now_ms)

    def run(self, *requests: FrontRequest) -> int:
        """Rounds until nothing is proposed any more; how many entries that made."""
        before = self.engine.core.index
        pending = self.take(*requests) or self.front.tick(self.now_ms)
        while pending:
            pending = self.commit(pending)
        return self.engine.core.index - before

    def do(self, command: Command) -> Any:
        request = self.command(command)
        self.run(request)
        return request.ticket.get()

    def release(self, ticket: Ticket[Grant], action: Any = "ack") -> None:
        """Settle all that a receive got."""
        got = ticket.get().received
        held = [
            Held(part.partition, got.epoch, ((part.offset, part.offset + part.count),))
            for part in got.slices
        ]
        self.do(Settle(got.topic, got.group, action, tuple(held), delay_ms=0))


def offsets(request: ReceiveRequest) -> list[int]:
    """What it got, if it was answered."""
    slices = request.ticket.get().received.slices
    assert request.ticket.done
    return [part.offset + at for part in slices for at in range(part.count)]

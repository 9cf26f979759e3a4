"""Packing: single messages that arrive together become one batch and one `Send` for each topic."""

from collections.abc import Callable, Sequence

from quiver.batches.rows import Row
from quiver.model.replies import Placed, SentMany
from quiver.node.engine import Proposal
from quiver.node.placing import TopicHandle, place_rows
from quiver.node.tickets import Ticket


class SendRequest(Ticket[tuple[Placed, int]]):
    """One message, which is its own ticket; those to one topic are sent together."""

    __slots__ = ("_submit", "partition", "row", "sync", "topic")

    def __init__(
        self, submit: "Callable[[SendRequest], None]", topic: TopicHandle, row: Row, *, sync: bool
    ) -> None:
        super().__init__()
        self._submit: Callable[[SendRequest], None] | None = submit  # until it is submitted
        self.topic = topic
        self.row = row
        self.sync = sync
        self.partition = 0

    def submit(self) -> None:
        submit, self._submit = self._submit, None
        if submit is not None:
            submit(self)

    @property
    def ticket(self) -> Ticket[tuple[Placed, int]]:
        return self

    @property
    def nbytes(self) -> int:
        return self.row.nbytes


def by_partition(requests: Sequence[SendRequest]) -> list[SendRequest]:
    """The requests with those to one partition next to each other, in their order."""
    topic = requests[0].topic
    found: dict[int, list[SendRequest]] = {}
    for request in requests:
        request.partition = topic.partitioner.one(request.row.key, topic.turn())
        found.setdefault(request.partition, []).append(request)
    return [request for together in found.values() for request in together]


def packed(requests: Sequence[SendRequest], now_ms: int) -> Proposal:
    """One Send of many single messages to a topic, which are ordered by partition."""
    rows = [request.row for request in requests]
    partitions = [request.partition for request in requests]
    return Proposal(*place_rows(requests[0].topic, rows, partitions, now_ms))


def answer_packed(requests: Sequence[SendRequest], reply: SentMany) -> None:
    """Tell each request of a packed send where its message is, or why it was refused."""
    waiting = iter(requests)
    for one in reply.answers:
        if isinstance(one, Exception):
            next(waiting).fail(one)
            continue
        answered = []
        for placed in one.placed:
            for at in range(placed.count):
                request = next(waiting)
                request.value = (placed, at)
                answered.append(request)
        Ticket.wake(answered)
    assert next(waiting, None) is None, "every message of a send is answered"

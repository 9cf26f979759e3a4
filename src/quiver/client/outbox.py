"""What a producer has collected and what it has submitted: the part that knows no waiting."""

from collections import deque
from typing import Any, Final

from quiver import limits
from quiver.batches.rows import Row
from quiver.client import arguments
from quiver.client.flows import Flows, sent_batch
from quiver.client.owner import Owner
from quiver.client.steps import Flow
from quiver.errors import OutcomeUnknown, ProducerFailed, QueueClosed, QuiverError
from quiver.model.commands import UNNAMED, Producer
from quiver.model.message import Message
from quiver.model.replies import Durability, SentMany
from quiver.node.placing import TopicHandle
from quiver.node.tickets import Ticket

REOPEN: Final = "Open another; under the same name, its `sequence` says what is stored"


class Outbox:
    """Rows that wait to be sent together, and batches that wait to be confirmed, oldest first."""

    def __init__(
        self, flows: Flows, topic: TopicHandle, durability: Durability, rows_max: int,
        bytes_max: int, name: str | None = None, epoch: int = 0, sequence: int = 0,
    ) -> None:  # fmt: skip
        self.sequence = sequence  # messages this producer's name has had submitted
        self.confirmed = 0  # messages of this producer that are stored
        self.owner = Owner("producer")
        self._flows = flows
        self._topic = topic
        self._durability: Durability = durability
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._name = name
        self._epoch = epoch
        self._rows: list[Row] = []
        self._bytes = 0
        self._pending: deque[tuple[Ticket[SentMany], list[Row], int]] = deque()
        self._pending_bytes = 0
        self._lost: OutcomeUnknown | None = None  # why nobody knows what is stored

    def __str__(self) -> str:
        name = f"{self._name} of " if self._named else "of "
        return f"{name}{self._topic.name} in {self._flows.place}"

    @property
    def rows(self) -> int:
        """How many messages wait to be sent."""
        return len(self._rows)

    def add(self, row: Row) -> None:
        """Collect a message; a full batch is submitted."""
        self._rows.append(row)
        self._bytes += row.nbytes
        full = len(self._rows) >= self._rows_max or self._bytes >= self._bytes_max
        if full or self._lost is not None:
            self.submit()

    def submit(self) -> None:
        """Send what was collected, without waiting for it to be stored."""
        if not self._rows:
            return
        rows, nbytes = self._rows, self._bytes
        producer = Producer(self._name, self._epoch, self.sequence) if self._name else None
        batch = self._flows.pack(rows)
        ticket: Ticket[SentMany] = Ticket()
        try:
            self._demand_known()
            ticket = self._flows.send_packed(self._topic, batch, self._durability, producer)
        except QuiverError as error:
            ticket.fail(error)
        except BaseException:  # Ctrl-C, when it may be on its way already
            ticket.fail(OutcomeUnknown("the send was interrupted"))
            raise
        finally:
            self._rows, self._bytes = [], 0
            self._pending.append((ticket, rows, nbytes))
            self._pending_bytes += nbytes
            self.sequence += len(rows)

    def awaited(self, *, all_of_them: bool) -> list[Ticket[Any]]:
        """The tickets to wait for: all there are, or only the oldest until there is room again."""
        full = self._pending_bytes > limits.PRODUCER_PENDING_BYTES_MAX
        tickets = [ticket for ticket, _, _ in self._pending]
        return tickets if all_of_them else tickets[:1] if full else []

    def collect(self) -> None:
        """Take note of what is confirmed; raise for what was refused, with all its messages.

        A sequence that was refused is used again, by whoever sends the refused messages again: what
        a producer with a name has collected behind them is handed back, too. One whose outcome is
        unknown is never used again: other messages under it would pass for what is stored already.
        Then nothing more is sent.
        """
        refused: list[Row] = []
        lost: list[Row] = []
        cause: QuiverError | None = None
        while self._pending and self._pending[0][0].done:
            ticket, rows, nbytes = self._pending[0]
            try:
                sent_batch(ticket.get().answers[0], self._durability)
            except OutcomeUnknown as error:
                lost += rows
                self._lost = self._lost or error
            except QuiverError as error:
                refused += rows
                cause = cause or error
                self.sequence -= len(rows)
            else:
                self.confirmed += len(rows)
            self._pending.popleft()
            self._pending_bytes -= nbytes
        if lost:
            raise ProducerFailed(
                f"{len(lost)} messages may be stored or not"
                + (f", and {len(refused)} were not stored" if refused else "")
                + f": {self._lost}. {REOPEN}",
                tuple(map(_message, lost + refused)),
            ) from self._lost
        if cause is not None:
            refused += self._taken_back()
            raise ProducerFailed(
                f"{len(refused)} messages were not stored: {cause}", tuple(map(_message, refused))
            ) from cause

    def _taken_back(self) -> list[Row]:
        """What was collected and must not be stored in the place of what was refused."""
        if not self._named:
            return []
        rows, self._rows, self._bytes = self._rows, [], 0
        return rows

    @property
    def _named(self) -> bool:
        """Whether somebody chose its name, and may go on from its sequence later."""
        return self._name is not None and not self._name.startswith(UNNAMED)

    def _demand_known(self) -> None:
        if self._lost is not None:
            raise QueueClosed(
                f"this producer does not know what is stored of what it sent before. {REOPEN}"
            ) from self._lost


def open_outbox(
    flows: Flows, topic: str, rows_max: int, bytes_max: int, durability: Durability | None,
    name: str | None,
) -> Flow[Outbox]:  # fmt: skip
    """The outbox of a new producer; a named one goes on where its name left off."""
    arguments.whole(rows_max, "max_messages", 1, limits.BATCH_ROWS_MAX)
    arguments.whole(bytes_max, "max_bytes", 1, limits.BATCH_BYTES_MAX // 2)
    given = flows.given(durability)
    handle = yield from flows.handle(topic)
    name = flows.producer_name() if name is None else name
    if name is None:
        yield from flows.policy(topic)  # it is still there
        return Outbox(flows, handle, given, rows_max, bytes_max)
    opened = yield from flows.open_producer(handle, name)
    return Outbox(flows, handle, given, rows_max, bytes_max, name, opened.epoch, opened.sequence)


def _message(row: Row) -> Message:
    return Message(
        row.body,
        row.key,
        row.headers or {},
        row.priority,
        row.delay_ms / 1000 if row.delay_ms else None,
        row.ttl_ms / 1000 if row.ttl_ms else None,
        row.dedup_id,
    )

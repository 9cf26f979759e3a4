"""What a producer has collected and what it has submitted: the part that knows no waiting.

An interrupt (Ctrl-C) may raise at any call in here. So the messages of a producer are in one deque of
parts, each of them in exactly one part, and what belongs together changes without a call in between.
"""

from collections import deque
from collections.abc import Callable, Mapping
from itertools import takewhile
from logging import getLogger
from secrets import token_hex
from sys import modules
from typing import Any, Final

from quiver import limits, tracing
from quiver.batches.rows import PRIORITY, Checked, make_row, message_of
from quiver.client import arguments
from quiver.client.flows import Flows, sent_batch
from quiver.client.owner import Owner
from quiver.client.steps import Flow
from quiver.errors import OutcomeUnknown, ProducerFailed, QueueClosed, QuiverError
from quiver.model.commands import UNNAMED, ProducerStamp
from quiver.model.replies import Durability, SentMany
from quiver.model.units import Duration
from quiver.node.placing import TopicHandle
from quiver.node.tickets import Ticket

LOGGER: Final = getLogger("quiver")
REOPEN: Final = "Open another; under the same name, its `sequence` says what is stored"
NOTHING: Final[Ticket[SentMany]] = Ticket()  # is never done: what to look at if nothing is awaited


class Part:
    """Messages that are sent together: collected as long as there is no ticket, then submitted."""

    __slots__ = ("nbytes", "rows", "ticket")

    def __init__(self) -> None:
        self.rows: list[Checked] = []
        self.nbytes = 0
        self.ticket: Ticket[SentMany] | None = None


class SendBuffer:
    """The parts of a producer, oldest first: those to be confirmed, and last the one that grows."""

    def __init__(
        self, flows: Flows, topic: TopicHandle, durability: Durability, rows_max: int,
        bytes_max: int, name: str | None = None, epoch: int = 0, sequence: int = 0,
    ) -> None:  # fmt: skip
        self.sequence = sequence  # messages this producer's name has had submitted
        self.confirmed = 0  # messages of this producer that are stored
        self.owner = Owner("producer")
        self.begins: Callable[[], object] = lambda: (
            None
        )  # called before the first of a part is added
        self._flows = flows
        self._topic = topic
        self._durability: Durability = durability
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._name = name
        self._epoch = epoch
        self._parts = deque([Part()])
        self._oldest = NOTHING  # the ticket of the first part
        self._pending_bytes = 0
        self._lost: OutcomeUnknown | None = None  # why nobody knows what is stored
        # What `collect` has found and not raised yet:
        self._unknown: list[Checked] = []
        self._refused: list[Checked] = []
        self._cause: QuiverError | None = None

    def __str__(self) -> str:
        name = f"{self._name} of " if self._named else "of "
        return f"{name}{self._topic.name} in {self._flows.place}"

    @property
    def rows(self) -> int:
        """How many messages wait to be sent."""
        return sum(len(part.rows) for part in self._collected())

    def belongs_to_closed(self) -> None:
        """Its queue was closed: say what was left in it, which it hands back to who asks."""
        if self.rows:
            LOGGER.warning(
                "%d messages of the producer %s were not stored: its queue was closed before it. "
                "Close producers first, as `with` does", self.rows, self,
            )  # fmt: skip

    def add(
        self, body: Any, key: str | None, headers: Mapping[str, str] | None, priority: int,
        delay: Duration | None, ttl: Duration | None, dedup_id: str | None,
    ) -> bool:  # fmt: skip
        """Check and collect a message; a full batch is submitted.

        True if it is time to `collect`, and to wait for room. It runs for each message: what can be
        done once for a batch is done there.
        """
        row: Checked
        if (
            type(body) is bytes
            and key is None
            and headers is None
            and priority is PRIORITY
            and delay is None
            and ttl is None
            and dedup_id is None
            and len(body) <= limits.BODY_BYTES_MAX
            and tracing.LOADED not in modules
        ):
            row, nbytes = body, len(body)
        else:
            row = make_row(
                body, key=key, headers=headers, priority=priority, delay=delay, ttl=ttl,
                dedup_id=dedup_id,
            )  # fmt: skip
            nbytes = row.nbytes
        first = not self._parts[-1].rows
        if first:
            self.begins()
        part = self._parts[-1]
        part.nbytes += nbytes
        part.rows.append(row)
        if part.nbytes >= self._bytes_max or len(part.rows) >= self._rows_max:
            self.submit()
        return first or self._oldest.done

    def submit(self) -> None:
        """Send what was collected, without waiting for it to be stored."""
        if self._parts[-1].rows:
            self._parts.append(Part())
        for part in self._collected()[:-1]:  # one, and those at which this was interrupted before
            self._send(part)
        self._oldest = self._parts[0].ticket or NOTHING

    def _send(self, part: Part) -> None:
        broker = self._flows.broker
        batch = broker.pack(part.rows)
        begin = self.sequence
        producer = ProducerStamp(self._name, self._epoch, begin) if self._name else None
        interrupted = _failed(OutcomeUnknown("the send was interrupted"))
        if part.ticket is not None:  # a signal handler has sent it meanwhile
            return
        part.ticket = interrupted  # until there is another
        self.sequence = begin + batch.num_rows
        self._pending_bytes += part.nbytes
        try:
            self._demand_known()
            part.ticket = broker.send_batch(
                self._topic, batch, producer=producer, sync=self._durability == "disk"
            )
        except QuiverError as error:
            part.ticket = _failed(error)

    def awaited(self, *, all_of_them: bool) -> list[Ticket[Any]]:
        """The tickets to wait for: all there are, or only the oldest until there is room again."""
        if all_of_them:
            return [part.ticket for part in self._parts if part.ticket is not None]
        full = self._pending_bytes > limits.PRODUCER_PENDING_BYTES_MAX
        oldest = self._parts[0].ticket
        return [oldest] if full and oldest is not None else []

    def collect(self) -> None:
        """Take note of what is confirmed; raise for what was refused, with all its messages.

        A sequence that was refused is used again, by whoever sends the refused messages again: what
        a producer with a name has collected behind them is handed back, too. One whose outcome is
        unknown is never used again: other messages under it would pass for what is stored already.
        Then nothing more is sent.
        """
        while (ticket := self._parts[0].ticket) is not None and ticket.done:
            self._note(self._parts[0], ticket)
        self._oldest = ticket or NOTHING
        if self._unknown or self._refused:
            self._raise()

    def _note(self, part: Part, ticket: Ticket[SentMany]) -> None:
        """Take note of one part's outcome. What changes, changes without a call until `popleft`."""
        error: QuiverError | None = None
        try:
            sent_batch(ticket.get().answers[0], self._durability)
        except QuiverError as problem:
            error = problem
        count = len(part.rows)
        unknown = isinstance(error, OutcomeUnknown)
        self._pending_bytes -= part.nbytes
        if error is None:
            self.confirmed += count
        elif unknown:
            self._unknown = self._unknown + part.rows
            self._lost = self._lost or error  # type: ignore[assignment]  # it is one
            self._rows_max = 1  # the next message learns of it
        else:
            self._refused = self._refused + part.rows
            self._cause = self._cause or error
            self.sequence -= count
        self._parts.popleft()

    def _raise(self) -> None:
        unknown, refused, kept, cause = self._unknown, self._refused, self._parts, self._cause
        if unknown:
            cause = self._lost
            said = (
                f"{len(unknown)} messages may be stored or not"
                + (f", and {len(refused)} were not stored" if refused else "")
                + f": {cause}. {REOPEN}"
            )
        else:
            if (
                self._named
            ):  # what was collected must not be stored in the place of what was refused
                refused = refused + [row for part in self._collected() for row in part.rows]
                kept = deque([*(part for part in kept if part.ticket is not None), Part()])
            said = f"{len(refused)} messages were not stored: {cause}"
        failed = ProducerFailed(said, tuple(map(message_of, unknown + refused)))
        self._unknown, self._refused, self._parts, self._cause = [], [], kept, None
        raise failed from cause

    def _collected(self) -> list[Part]:
        """The parts that are not submitted, oldest first."""
        return [*takewhile(lambda part: part.ticket is None, reversed(self._parts))][::-1]

    @property
    def _named(self) -> bool:
        """Whether somebody chose its name, and may go on from its sequence later."""
        return self._name is not None and not self._name.startswith(UNNAMED)

    def _demand_known(self) -> None:
        if self._lost is not None:
            raise QueueClosed(
                f"this producer does not know what is stored of what it sent before. {REOPEN}"
            ) from self._lost


def open_send_buffer(
    flows: Flows, topic: str, rows_max: int, bytes_max: int, durability: Durability | None,
    name: str | None,
) -> Flow[SendBuffer]:  # fmt: skip
    """The outbox of a new producer; a named one goes on where its name left off."""
    arguments.whole(rows_max, "max_messages", 1, limits.BATCH_ROWS_MAX)
    arguments.whole(bytes_max, "max_bytes", 1, limits.BATCH_BYTES_MAX // 2)
    given = flows.given(durability)
    handle = yield from flows.find(topic)
    if name is None and not flows.broker.remote:
        return SendBuffer(flows, handle, given, rows_max, bytes_max)
    if name is None:  # so that a batch whose answer was lost can be sent again
        name = f"{UNNAMED}{token_hex(8)}"
    opened = yield from flows.open_producer(handle, name)
    return SendBuffer(
        flows, handle, given, rows_max, bytes_max, name, opened.epoch, opened.sequence
    )


def _failed(error: QuiverError) -> Ticket[SentMany]:
    ticket: Ticket[SentMany] = Ticket()
    ticket.fail(error)
    return ticket

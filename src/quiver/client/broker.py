"""What flows stand on: something that does commands and answers queries, here or elsewhere.

Everything that crosses this seam is a value: commands, queries and errands of `model`, and Arrow beside
them. So what stands behind it may be a shard of this process, a directory that is only read, a node, or
another engine, without the flows knowing. It makes these promises:

- A call never blocks. What it returns is waited for, and has the answer or one of our errors.
- What is asked for one after the other is begun in that order, so a settle that is followed by a receive
  needs one round trip and one commit.
- A command whose ticket has its answer was done, and with `sync` it stays so if the machine goes down.
- A ticket that is abandoned leaves no lease behind: what a receive gets then is given back.
- Queries change nothing, and are answered as of some moment after they were asked.

What only some can do is an ability. Whoever lacks one refuses the call with an error that says so.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from quiver.batches.rows import Checked, Row
from quiver.client.steps import Awaited
from quiver.model.commands import Command, ProducerStamp, Receive
from quiver.model.errands import Errand
from quiver.model.queries import Ability, Query, Watched
from quiver.model.replies import Grant, Placed, SentMany, Settled, Transacted
from quiver.model.settlement import Settlement
from quiver.node.placing import TopicHandle
from quiver.node.tickets import Ticket

A = TypeVar("A")


class Broker(Protocol):
    """Does commands, and answers queries."""

    @property
    def abilities(self) -> frozenset[Ability]:
        """What it can do besides sending, receiving and answering."""

    @property
    def remote(self) -> bool:
        """Whether an answer may be lost on its way: what is sent in batches needs a producer's name then,
        so that it can be sent again, and it is known until when leases hold."""

    @property
    def closed(self) -> bool:
        """Whether a call that was refused with `QueueClosed` will never be done."""

    @property
    def directory(self) -> str:
        """Where its files are; for a backup."""

    def now_ms(self) -> int:
        """The time of the queue."""

    def patient(self, seconds: float) -> "Broker":
        """The same, which fails when a node could not be reached for so long."""

    def apart(self) -> "Broker":
        """The same, for one consumer: neither waits for the other's large answers. To be closed."""

    def propose(self, command: Command, *, sync: bool = True) -> Ticket[Any]:
        """Do a command that has no messages with it; the ticket gets its reply."""

    def pack(self, rows: Sequence[Checked]) -> pa.RecordBatch:
        """The batch of these rows, whose delays and lives begin when it is sent."""

    def send_row(
        self, topic: TopicHandle, row: Row, *, sync: bool = True
    ) -> Ticket[tuple[Placed, int]]:
        """Send one message, together with others that arrive at the same time.

        The ticket gets where they were placed together, and which of them this one is.
        """

    def send_batch(
        self, topic: TopicHandle, batch: pa.RecordBatch, *, producer: ProducerStamp | None = None,
        staged: bool = False, sync: bool = True,
    ) -> Ticket[SentMany]:  # fmt: skip
        """Send a canonical batch as one request."""

    def receive(self, command: Receive, wait_ms: int, *, sync: bool = True) -> Ticket[Grant]:
        """Lease messages, waiting up to `wait_ms` for the first."""

    def give_back(self, grant: Grant) -> None:
        """Let go of messages that were received and that nobody has seen."""

    def settle(self, settlement: Settlement, *, sync: bool = True) -> Ticket[Settled]:
        """Settle what is held under leases that were given out here; `ReceiptInvalid` if they were not."""

    def transact(
        self,
        settlements: Sequence[Settlement],
        sends: Sequence[tuple[TopicHandle, pa.RecordBatch]],
        *,
        sync: bool = True,
    ) -> Ticket[Transacted]:
        """Settle and send, all or nothing."""

    def ask(self, query: Query[A]) -> Awaited[A]:
        """The answer to a query."""

    def watch(self, query: Watched[A], wait_ms: int) -> Ticket[A | None]:
        """The answer to a query as soon as it has one; None when the time is up."""

    def run(self, errand: Errand[A], batch: pa.RecordBatch | None = None) -> Awaited[A]:
        """Do an errand, with the batch that it may need: only with the ability `errands`."""

    def seal(self) -> Awaited[None]:
        """Write everything that is kept into segments; done when they are durable."""

    def compact(self, topic: TopicHandle) -> Awaited[int]:
        """Drop what newer messages of the same key have superseded; how many."""

    def close(self) -> None:
        """Finish what was begun, release everybody who waits, and let go of everything."""


class Signing(Protocol):
    """A broker without the ability `errands`: what is staged is signed on this side of it."""

    @property
    def secret(self) -> bytes:
        """What leases and staged messages are signed with."""

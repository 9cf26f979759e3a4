"""What flows stand on: something that does commands and answers queries, here or elsewhere.

Everything that crosses this seam is a value: commands and queries of `model`, and Arrow beside them. So
what stands behind it may be a shard of this process, a directory that is only read, or another process
or engine, without the flows knowing. It makes these promises:

- A call never blocks. What it returns is waited for, and has the answer or one of our errors.
- A command whose ticket has its answer was done, and with `sync` it stays so if the machine goes down.
- A ticket that is abandoned leaves no lease behind: what a receive gets then is given back.
- Queries change nothing, and are answered as of some moment after they were asked.

What only some can do is an ability. Whoever lacks one refuses the call with an error that says so.
"""

from typing import Any, Protocol, TypeVar

from quiver.batches.codec import BytesLike
from quiver.batches.rows import Row
from quiver.client.steps import Awaited
from quiver.model.commands import Command, Receive
from quiver.model.queries import Ability, Query, Watched
from quiver.model.replies import Grant, Placed, Received
from quiver.node.placing import TopicHandle
from quiver.node.tickets import Ticket

A = TypeVar("A")


class Broker(Protocol):
    """Does commands, and answers queries."""

    @property
    def abilities(self) -> frozenset[Ability]:
        """What it can do besides sending, receiving and answering."""

    @property
    def secret(self) -> bytes:
        """What receipts are signed with."""

    @property
    def directory(self) -> str:
        """Where its files are; for a backup."""

    def now_ms(self) -> int:
        """The time of the queue."""

    def propose(
        self, command: Command, encoded: BytesLike = b"", *, sync: bool = True
    ) -> Ticket[Any]:
        """Do a command with the encoded batch that it sends, if it sends one; the ticket gets its reply."""

    def send_row(
        self, topic: TopicHandle, row: Row, *, sync: bool = True
    ) -> Ticket[tuple[Placed, int]]:
        """Send one message, together with others that arrive at the same time.

        The ticket gets where they were placed together, and which of them this one is.
        """

    def receive(self, command: Receive, wait_ms: int, *, sync: bool = True) -> Ticket[Grant]:
        """Lease messages, waiting up to `wait_ms` for the first."""

    def give_back(self, reply: Received) -> None:
        """Let go of messages that were received and that nobody has seen."""

    def ask(self, query: Query[A]) -> Awaited[A]:
        """The answer to a query."""

    def watch(self, query: Watched[A], wait_ms: int) -> Ticket[A | None]:
        """The answer to a query as soon as it has one; None when the time is up."""

    def seal(self) -> Ticket[None]:
        """Write everything that is kept into segments; the ticket is set when they are durable."""

    def compact(self, topic: int) -> Ticket[int]:
        """Drop what newer messages of the same key have superseded; the ticket gets how many."""

    def close(self) -> None:
        """Finish what was begun, release everybody who waits, and let go of everything."""

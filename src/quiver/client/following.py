"""The broker of a directory that is only read."""

from collections.abc import Sequence
from copy import copy
from threading import Lock
from typing import Any, NoReturn, TypeVar

import pyarrow as pa

from quiver import notices
from quiver.batches.rows import Checked, pack
from quiver.client.owner import Owner
from quiver.client.steps import Work
from quiver.errors import QueueClosed, ReadOnly, UnreadableMessages
from quiver.model.queries import Ability, Query
from quiver.node.clock import Clock
from quiver.node.replica import Replica

A = TypeVar("A")


class Follower:
    """Answers queries, in the thread of whoever asks, and refuses everything else."""

    abilities: frozenset[Ability] = frozenset({"backup"})
    remote = False
    closed = True

    def __init__(self, replica: Replica, clock: Clock) -> None:
        self.now_ms = clock.now_ms
        self.directory = replica.directory
        self._owner = Owner("queue")
        self._lock = Lock()
        self._replica: Replica | None = replica
        self._warned = False

    def patient(self, seconds: float) -> "Follower":
        """The same: there is nobody to wait for."""
        return self

    def apart(self) -> "Follower":
        """The same, which this one can do without."""
        return copy(self)

    def pack(self, rows: Sequence[Checked]) -> pa.RecordBatch:
        """The batch of these rows. It is refused when it is sent."""
        return pack(rows, self.now_ms())

    def ask(self, query: Query[A]) -> Work[A]:
        """Ask about the state, as far as the directory has it now."""
        return Work(lambda: self._answer(query))

    def close(self) -> None:
        """Let go of the files."""
        self._replica = None

    def _answer(self, query: Query[A]) -> A:
        self._owner.demand()
        with self._lock:
            if self._replica is None:
                raise QueueClosed("the queue is closed; connect again")
            answer = self._replica.ask(query)
            self._warn(self._replica)
            return answer

    def _warn(self, replica: Replica) -> None:
        """Say once that the answer is that of a damaged directory."""
        if replica.damage is not None and not self._warned:
            self._warned = True
            notices.warn(UnreadableMessages(f"Entries are missing: {replica.damage}"))

    @property
    def secret(self) -> bytes:
        """What leases and staged messages are signed with: they are for those who may write."""
        self._refuse()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ReadOnly()

    propose = send_row = send_batch = receive = give_back = settle = transact = _refuse
    watch = run = seal = compact = _refuse

"""What stands in for a shard where a directory is only read."""

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any, NoReturn

from quiver import notices
from quiver.client.owner import Owner
from quiver.client.steps import Work
from quiver.errors import QueueClosed, ReadOnly, UnreadableMessages
from quiver.node.clock import Clock
from quiver.node.engine import Engine
from quiver.node.replica import Replica


class Follower:
    """Answers questions, in the thread of whoever asks, and refuses everything else."""

    def __init__(self, replica: Replica, clock: Clock) -> None:
        self.clock = clock
        self._owner = Owner("queue")
        self._lock = Lock()
        self._replica: Replica | None = replica
        self._warned = False

    def ask(self, question: Callable[[Engine], Any]) -> Work:
        """Ask about the state, as far as the directory has it now."""
        return Work(lambda: self._answer(question))

    def close(self) -> None:
        """Let go of the files."""
        self._replica = None

    def _answer(self, question: Callable[[Engine], Any]) -> Any:
        self._owner.demand()
        with self._lock:
            if self._replica is None:
                raise QueueClosed("the queue is closed; connect again")
            answer = self._replica.ask(partial(self._asked, question))
            self._warn(self._replica)
            return answer

    def _warn(self, replica: Replica) -> None:
        """Say once that the answer is that of a damaged directory."""
        if replica.damage is not None and not self._warned:
            self._warned = True
            notices.warn(UnreadableMessages(f"Entries are missing: {replica.damage}"))

    def _asked(self, question: Callable[[Engine], Any], engine: Engine) -> Any:
        self.clock.not_before(engine.core.now_ms)
        return question(engine)

    @property
    def secret(self) -> bytes:
        """What receipts are signed with: they are for those who may settle."""
        self._refuse()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ReadOnly()

    propose = send_row = receive = watch = seal = compact = _refuse

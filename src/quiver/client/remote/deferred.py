"""What a signal handler leaves to the thread that it has interrupted.

A lock that a thread may take twice lets a handler in, also in the midst of what must not be begun anew
before it is finished. So a handler asks whether its thread is inside. What it wants then is done by that
thread, when it has let go of the lock and before it waits for anything.
"""

from collections.abc import Callable
from typing import Any

from quiver.client.threads import is_held
from quiver.errors import UnavailableError


class DeferredWork:
    """Work that is left to whoever is inside the lock."""

    __slots__ = ("_lock", "works")

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.works: dict[Callable[..., None], None] = {}

    @property
    def inside(self) -> bool:
        """Whether this thread has the lock: then it is a signal handler that asks."""
        return is_held(self._lock)

    def leave(self, work: Callable[..., None]) -> None:
        """It is to be done soon, once."""
        self.works[work] = None

    def do(self, *given: Any) -> None:
        """Do what was left until now; once more, if an interrupt (Ctrl-C) comes in between."""
        for work in list(self.works):
            try:
                work(*given)
            except RuntimeError:  # there can be no more threads: nor next time
                self.works.pop(work, None)
                raise
            self.works.pop(work, None)


def not_here() -> UnavailableError:
    """What a signal handler is told that would wait for its own thread."""
    return UnavailableError(
        "a signal handler cannot wait for what its own thread is in the midst of; "
        "do it when that goes on"
    )

"""Whose a producer or consumer is: of the process that opened it."""

import os
from typing import Final
from weakref import WeakSet

from quiver.errors import QueueClosed

_OWNERS: Final[WeakSet["Owner"]] = WeakSet()


class Owner:
    """The process that opened something. One that was forked from it has a copy that it may not use:
    the thread behind it is gone, its locks may be held for ever, and both would do the same work."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.gone = False  # whether this is another process; to ask the system takes 0.2 µs
        _OWNERS.add(self)

    def demand(self) -> None:
        """Refuse another process; to be asked before any lock is taken."""
        if self.gone:
            raise QueueClosed(
                f"this process was forked from the one that opened the {self._what}, and only that one "
                "may use it: open another after forking"
            )


def _forked() -> None:
    for owner in _OWNERS:
        owner.gone = True


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_forked)

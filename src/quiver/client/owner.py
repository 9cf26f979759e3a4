"""Whose a producer or consumer is: of the process that opened it."""

import os

from quiver.errors import QueueClosed


class Owner:
    """The process that opened something. One that was forked from it has a copy that it may not use:
    the thread behind it is gone, its locks may be held for ever, and both would do the same work."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()

    @property
    def gone(self) -> bool:
        """Whether this is another process."""
        return os.getpid() != self._pid

    def demand(self) -> None:
        """Refuse another process; to be asked before any lock is taken."""
        if self.gone:
            raise QueueClosed(
                f"this process was forked from the one that opened the {self._what}, and only that one "
                "may use it: open another after forking"
            )

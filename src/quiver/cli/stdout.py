"""Writes to stdout and knows exactly which messages got there."""

import os
import select
import sys
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from quiver.errors import QuiverError

BROKEN_PIPE: Final = 141  # what a shell says of any program that writes to a pipe nobody reads


class OutputFailed(QuiverError):
    """Standard output cannot be written."""

    code = "output_failed"


class Stdout:
    """Standard output without a buffer of ours, so that written means handed over."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._descriptor = sys.stdout.fileno()
        self._failure: OSError | None = None

    @property
    def terminal(self) -> bool:
        """Whether a person looks at it."""
        return os.isatty(self._descriptor)

    @property
    def closed(self) -> bool:
        """Whether the reader of a pipe has gone, or nothing can be written any more."""
        if self._failure is None and self._poll(0) & select.POLLERR:
            self._failure = BrokenPipeError()
        return self._failure is not None

    def write(self, pieces: Iterable[bytes]) -> int:
        """Write the pieces in order; how many were written whole."""
        listed = list(pieces)
        data = memoryview(b"".join(listed))
        done = 0
        try:
            while done < len(data):
                done += self._some(data[done:])
        except OSError as failure:
            self._failure = failure
        return sum(1 for end in accumulate(map(len, listed)) if end <= done)

    def check(self) -> None:
        """Raise what kept us from writing, if anything did."""
        if isinstance(self._failure, BrokenPipeError):
            raise self._failure
        if self._failure is not None:
            raise OutputFailed(f"cannot write the output: {self._failure.strerror}")

    def _some(self, data: memoryview) -> int:
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:  # somebody made it non-blocking
            self._poll(None)
            return 0

    def _poll(self, timeout_ms: int | None) -> int:
        if not hasattr(select, "poll"):  # Windows: writing will tell
            return 0
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return sum(events for _, events in poll.poll(timeout_ms))


def forget_stdout() -> None:
    """Nobody reads our output any more: the interpreter must not complain about it at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)

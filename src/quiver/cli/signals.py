"""Ctrl-C at the right moment: between two steps, never in the middle of one.

The first signal asks; the second one, from somebody who has had enough, interrupts at once.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether somebody asked us to stop. While `now` is set, being asked is being interrupted."""

    def __init__(self, then: Callable[[], None] | None = None) -> None:
        self.signal = 0
        self.now = False
        self._then = then

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that ended by this signal."""
        return 128 + self.signal if self.signal else 0

    def ask(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        again, self.signal = bool(self.signal), number
        if again or self.now:
            raise KeyboardInterrupt
        if self._then is not None:
            self._then()


@contextmanager
def stoppable(then: Callable[[], None] | None = None) -> Iterator[Stop]:
    """Ctrl-C and SIGTERM only ask, inside this block; `then` hands on the question."""
    stop = Stop(then)
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop.ask) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

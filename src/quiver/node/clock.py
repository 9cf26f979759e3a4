"""The time that the log is stamped with."""

import time
from typing import Final, Protocol


class Clock(Protocol):
    """Milliseconds since 1970, never going back."""

    def now_ms(self) -> int:
        """What time it is."""

    def not_before(self, now_ms: int) -> None:
        """Go on from `now_ms` if that is later: the log has seen that time already."""


class SystemClock:
    """The wall clock as it was at the start, moved on by a clock that nobody can set.

    So a wall clock that is set back or forth while we run neither ends leases early nor stops time.
    """

    def __init__(self) -> None:
        self._offset_ms = time.time_ns() // 1_000_000 - _running_ms()

    def now_ms(self) -> int:
        return self._offset_ms + _running_ms()

    def not_before(self, now_ms: int) -> None:
        self._offset_ms += max(now_ms - self.now_ms(), 0)


# The one that goes on while the machine sleeps; Linux has a clock of its own for that.
_RUNNING: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _running_ms() -> int:
    return time.clock_gettime_ns(_RUNNING) // 1_000_000

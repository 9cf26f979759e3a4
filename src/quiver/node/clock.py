"""The time that the log is stamped with."""

import time
from typing import Protocol


class Clock(Protocol):
    """Milliseconds since 1970, never going back."""

    def now_ms(self) -> int:
        """What time it is."""

    def not_before(self, now_ms: int) -> None:
        """Go on from `now_ms` if that is later: the log has seen that time already."""


class SystemClock:
    """The wall clock as it was at the start, moved on by the monotonic clock.

    So a wall clock that is set back or forth while we run neither ends leases early nor stops time.
    """

    def __init__(self) -> None:
        self._offset_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        return self._offset_ms + time.monotonic_ns() // 1_000_000

    def not_before(self, now_ms: int) -> None:
        self._offset_ms += max(now_ms - self.now_ms(), 0)

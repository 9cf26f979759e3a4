"""The time that the log is stamped with."""

import time
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

from quiver import limits
from quiver.errors import ClockJumped


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


class Jump(NamedTuple):
    """The time of a log's last entry, and what the clock says when the log is opened."""

    log_ms: int
    clock_ms: int

    @property
    def seconds(self) -> float:
        """How far the clock is ahead of the log."""
        return (self.clock_ms - self.log_ms) / 1000

    @property
    def is_back(self) -> bool:
        """Whether the log's time is in the future, so that it would stay there."""
        return -self.seconds > limits.CLOCK_BEHIND_SECONDS_MAX

    @property
    def is_unlikely(self) -> bool:
        """Whether more time seems to have passed than queues are closed for."""
        return self.seconds > limits.CLOCK_AHEAD_SECONDS_MAX

    @property
    def is_long(self) -> bool:
        """Whether so much time seems to have passed that it should be told."""
        return self.seconds > limits.CLOCK_AHEAD_SECONDS_TOLD

    def demand(self, directory: str) -> None:
        """Refuse to go on with a time that is probably wrong."""
        times = (
            f"the last entry of {directory} is of {told(self.log_ms)}, and this machine's clock says "
            f"{told(self.clock_ms)}, {_apart(self.seconds)}"
        )
        wrong = "If the clock is wrong, set it and open the queue again."
        todo = f"`quiver doctor {directory} --accept-clock`"
        if self.is_back:
            raise ClockJumped(
                f"{times} earlier. {wrong} If the clock is right, it was far ahead once: {todo} sets "
                "the queue's time back and loses nothing. Nothing was changed."
            )
        if self.is_unlikely:
            raise ClockJumped(
                f"{times} later. {wrong} If so much time has passed, say so once: {todo}. Nothing was "
                "changed."
            )


def told(time_ms: int) -> str:
    """A time as people write it."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{time_ms:,} ms since 1970"


def _apart(seconds: float) -> str:
    days = timedelta(seconds=abs(seconds)).days
    return f"{days:,} days" if days < 731 else f"{days / 365.25:.1f} years"


# The one that goes on while the machine sleeps; Linux has a clock of its own for that.
_RUNNING: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _running_ms() -> int:
    return time.clock_gettime_ns(_RUNNING) // 1_000_000

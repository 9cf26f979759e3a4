"""A clock that is told the time, so that no test waits for it to pass."""

from collections.abc import Callable
from threading import Lock
from typing import Final

START_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class VirtualClock:
    """`quiver.node.clock.Clock` that stands still until somebody calls `advance`.

    A shard sleeps until what it knows to be due; it cannot know that time has jumped. So whoever
    runs a shard on this clock says with `when_advanced` how to wake it: any request will do.
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms
        self._lock = Lock()
        self._wake: list[Callable[[], None]] = []
        self.readings = 0  # how often somebody asked: a loop that does not sleep gives itself away

    def now_ms(self) -> int:
        """The time it was told."""
        self.readings += 1
        return self._now_ms

    def not_before(self, now_ms: int) -> None:
        """Go on from `now_ms` if that is later."""
        with self._lock:
            self._now_ms = max(self._now_ms, now_ms)

    def advance(self, seconds: float) -> None:
        """Let time pass; return when everybody who was to be woken has done what is due."""
        assert seconds >= 0, "time never goes back"
        with self._lock:
            self._now_ms += round(seconds * 1000)
        for wake in list(self._wake):
            wake()

    def when_advanced(self, wake: Callable[[], None]) -> None:
        """Call `wake` after every `advance`."""
        self._wake.append(wake)

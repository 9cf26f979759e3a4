"""When a peer loses its patience: at a time that is not the one of the others, drawn from a seed."""

from __future__ import annotations

_MASK = (1 << 64) - 1


class Draws:
    """Numbers of 64 bits that follow from a seed (splitmix64)."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def next(self) -> int:
        """The next one."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        drawn = self._state
        drawn = ((drawn ^ (drawn >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        drawn = ((drawn ^ (drawn >> 27)) * 0x94D049BB133111EB) & _MASK
        return drawn ^ (drawn >> 31)


class ElectionTimer:
    """Ticks since a sign of life; runs out after one to two election timeouts."""

    __slots__ = ("_draws", "_limit", "_ticks", "elapsed")

    def __init__(self, ticks: int, draws: Draws) -> None:
        self._ticks = ticks
        self._draws = draws
        self.restart()

    def restart(self) -> None:
        """From the beginning, and for another time."""
        self.elapsed = 0
        self._limit = self._ticks + self._draws.next() % self._ticks

    @property
    def ran_out(self) -> bool:
        """Whether it is time to campaign."""
        return self.elapsed >= self._limit

    @property
    def leased(self) -> bool:
        """Whether the sign of life is so young that a leader surely still lives."""
        return self.elapsed < self._ticks

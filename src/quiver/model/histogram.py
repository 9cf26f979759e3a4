"""How often a value was in which range."""

from bisect import bisect_left


class Histogram:
    """Counts by upper bound; the last count is of what is above them all."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0  # of all values

    def add(self, value: float, count: int = 1) -> None:
        """It was this, so many times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def copy(self) -> "Histogram":
        """As it is now."""
        made = Histogram(self.bounds)
        made.counts, made.total = list(self.counts), self.total
        return made

"""How figures are obtained: sides take turns, and it is the ratio of each turn that counts.

A machine that is busy for a while slows all sides of a turn alike, so ratios of neighbours hold
where figures of different minutes do not.
"""

import operator
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Literal


@dataclass(frozen=True, slots=True)
class Target:
    """What the ratio of a row should be."""

    sign: Literal[">=", "<="]
    value: float

    def met_by(self, ratio: float) -> bool:
        compare = operator.ge if self.sign == ">=" else operator.le
        return bool(compare(ratio, self.value))


@dataclass(frozen=True, slots=True)
class Row:
    """Two figures that were measured in turns: ours, and what it is held against."""

    name: str
    ours: list[float]
    peer: str
    theirs: list[float]
    unit: str
    how: str
    target: Target | None = None

    @property
    def ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.target.met_by(self.ratio)


class Run:
    """What the experiments share: where they may write, how long they may take."""

    def __init__(self, directory: Path, *, quick: bool) -> None:
        self.rounds = 3 if quick else 7
        self.seconds = 0.15 if quick else 0.4  # of each side, in each round
        self.backlog = 100_000 if quick else 1_000_000
        self._directory = directory
        self._numbers = count()

    def folder(self, name: str) -> Path:
        """A new directory on the file system that is measured."""
        path = self._directory / f"{next(self._numbers):03}-{name}"
        path.mkdir()
        return path


Experiment = Callable[[Run], Iterator[Row]]
Side = Callable[[], float]


def in_turns(rounds: int, *sides: Side) -> list[list[float]]:
    """The figures of each side, A B A B …; a first round warms up and does not count."""
    figures: list[list[float]] = [[] for _ in sides]
    for turn in range(rounds + 1):
        for side, found in zip(sides, figures, strict=True):
            figure = side()
            if turn:
                found.append(figure)
    return figures


def rate(step: Callable[[], int], seconds: float) -> float:
    """How many a second `step` does, which returns how many it did; repeated for `seconds`."""
    done = 0
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        done += step()
    return done / passed


def timed(work: Callable[[], object]) -> float:
    """The seconds that some work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def spread(figures: Sequence[float]) -> tuple[float, float, float]:
    """Median, lowest, highest."""
    return median(figures), min(figures), max(figures)

"""How figures are obtained: sides take turns, and it is the ratio of each round that counts.

A machine is never alone, and its disk may be ten times slower for a while. So in each round all
sides work in many short turns, A B A B …, and what slows one slows its neighbour. The figures of a
round are compared with each other, never with those of another.
"""

import asyncio
import operator
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Literal

ROUNDS_MIN = 2  # however slow the machine is
TURNS = 8  # of each side, in each round


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
    """Two figures that were measured in turns, one for each round: ours, and its peer's."""

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

    def __init__(self, directory: Path, *, quick: bool, against: str | None = None) -> None:
        self.quick = quick
        self.against = against  # an earlier commit of ours
        self.rounds = 3 if quick else 7
        self.seconds = 0.12 if quick else 0.4  # of each side, in each round
        self.backlog = 100_000 if quick else 1_000_000
        self.patience = 3 if quick else 20  # seconds; past it, ROUNDS_MIN must do
        self.skipped: dict[str, str] = {}  # what could not be measured here, and why
        self._directory = directory
        self._numbers = count()

    def folder(self, name: str) -> Path:
        """A new directory on the file system that is measured."""
        path = self._directory / f"{next(self._numbers):03}-{name}"
        path.mkdir()
        return path

    def turns(self) -> Iterator[bool]:
        """The rounds: False for the first, which warms up and does not count."""
        start = time.perf_counter()
        for turn in range(self.rounds + 1):
            if turn > ROUNDS_MIN and time.perf_counter() - start > self.patience:
                return
            yield turn > 0


Experiment = Callable[[Run], Iterator[Row]]
Step = Callable[[], int]  # does some messages and returns how many
Side = Callable[[float], tuple[int, float]]  # works for some seconds: how many, in what time


@dataclass(frozen=True, slots=True)
class Loop:
    """Messages that are taken and acked in a loop, as the client's documentation has it."""

    what: str  # in its own words
    fill: Callable[[int], object]  # sends so many messages, fast; not measured
    work: Callable[[int], object]  # takes and acks exactly so many
    most: int  # that are there at a time: what some seconds of work need


def rates(run: Run, *sides: Side, turns: int = TURNS) -> list[list[float]]:
    """How many a second each side does, by round."""
    figures: list[list[float]] = [[] for _ in sides]
    for counts in run.turns():
        done, spent = [0] * len(sides), [0.0] * len(sides)
        for _ in range(turns):
            for at, side in enumerate(sides):
                number, seconds = side(run.seconds / turns)
                done[at] += number
                spent[at] += seconds
        if counts:
            for at, found in enumerate(figures):
                found.append(done[at] / spent[at])
    return figures


def times(run: Run, *sides: Callable[[], float]) -> list[list[float]]:
    """What each side measures of itself, by round; for things too slow for many turns."""
    figures: list[list[float]] = [[] for _ in sides]
    for counts in run.turns():
        for side, found in zip(sides, figures, strict=True):
            figure = side()
            if counts:
                found.append(figure)
    return figures


def repeated(step: Step) -> Side:
    """A side that repeats a step until its time is up."""

    def work(seconds: float) -> tuple[int, float]:
        done = 0
        start = time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds:
            done += step()
        return done, passed

    return work


def repeated_until(messages: int, step: Step) -> Side:
    """A side that repeats a step until it has done so many messages, however long that takes."""

    def work(_: float) -> tuple[int, float]:
        done = 0
        start = time.perf_counter()
        while done < messages:
            more = step()
            assert more > 0, "messages that were sent are missing"
            done += more
        return done, time.perf_counter() - start

    return work


def by_threads(threads: int, step: Step) -> Side:
    """A side of several threads, from the moment they are let go until the last one is done."""

    def work(seconds: float) -> tuple[int, float]:
        counts = [0] * threads
        ready = threading.Barrier(threads + 1)

        def thread(at: int) -> None:
            ready.wait()
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                counts[at] += step()

        workers = [threading.Thread(target=thread, args=(at,)) for at in range(threads)]
        for worker in workers:
            worker.start()
        ready.wait()
        start = time.perf_counter()
        for worker in workers:
            worker.join()
        return sum(counts), time.perf_counter() - start

    return work


class Crowd:
    """Tasks of an event loop that each do a step, wait for it, and do it again."""

    def __init__(self, runner: asyncio.Runner, tasks: int) -> None:
        self._runner = runner
        self._tasks = tasks

    def run(self, work: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await work

        return self._runner.run(wait())

    def side(self, step: Callable[[], Awaitable[Any]]) -> Side:
        async def task(until: float) -> int:
            done = 0
            while time.perf_counter() < until:
                await step()
                done += 1
            return done

        async def work(seconds: float) -> tuple[int, float]:
            start = time.perf_counter()
            counts = await asyncio.gather(*(task(start + seconds) for _ in range(self._tasks)))
            return sum(counts), time.perf_counter() - start

        return lambda seconds: self._runner.run(work(seconds))


@contextmanager
def concurrently(tasks: int) -> Iterator[Crowd]:
    """An event loop for so many tasks, on which what they share must be made, too."""
    with asyncio.Runner() as runner:
        yield Crowd(runner, tasks)


def taken(loop: Loop, chunk: int) -> Side:
    """A side of a loop. What it takes is sent before, unmeasured; all its messages at most."""
    waiting = 0

    def work(seconds: float) -> tuple[int, float]:
        nonlocal waiting
        if waiting < loop.most:
            loop.fill(loop.most - waiting)
            waiting = loop.most
        done = 0
        start = time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds and done + chunk <= waiting:
            loop.work(chunk)
            done += chunk
        waiting -= done
        return done, passed

    return work


def spread(figures: Sequence[float]) -> tuple[float, float, float]:
    """Median, lowest, highest."""
    return median(figures), min(figures), max(figures)

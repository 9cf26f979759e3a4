"""A backlog far larger than the memory it may take: filled, killed, opened, drained; and what senders
notice while messages leave the log."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from threading import Thread
from typing import Any

import quiver
from bench.content import BODY_BYTES, batch_of, bodies
from bench.lives import BATCH
from bench.measure import Row, Run, Target, times

ROOT = Path(__file__).parents[1]
MEMORY_MB_MAX = 500
READ_BYTES = 1 << 20
SENT = 1_000  # in the batches that make a log to be sealed
DIFFERENT = 40  # of those batches: so many that nothing repeats itself within a row group


class Life:
    """A process of `bench.lives`, and what it says."""

    def __init__(self, *words: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.lives", *map(str, words)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.peak_mb = 0.0

    def until(self, enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Listen until it has said enough, then kill it: nothing is closed, nothing is tidied up."""
        assert self._process.stdout is not None
        with self._process:
            for line in self._process.stdout:
                said: dict[str, Any] = json.loads(line)
                self.peak_mb = max(self.peak_mb, said["peak_mb"])
                if enough(said):
                    self._process.kill()
                    return said
        raise AssertionError(f"it ended by itself with {self._process.returncode}")


def history(run: Run) -> Iterator[Row]:
    """Ten million messages in a process that may have half a gigabyte."""
    count = 1_000_000 if run.quick else 10_000_000
    path = run.folder("history")
    start = time.perf_counter()
    fills = []
    for goal in (count // 2, count):
        fills.append(Life("fill", path, count))
        fills[-1].until(partial(_confirmed, goal))
    filled = count / (time.perf_counter() - start)
    logs = sorted(path.glob("wal-*.log"))
    logged, sealed = _size(logs), _size(path.glob("*.parquet"))
    opened = times(run, lambda: _open(path), lambda: _read(sorted(path.glob("wal-*.log"))))
    life = Life("drain", path, count)
    said = life.until(lambda _: True)
    assert (said["once"], said["lost"], said["doubled"]) == (count, 0, 0), said
    what = f"{count:,} messages of {BODY_BYTES} B, send_batch of {BATCH:,}"
    most = Target("<=", 1)
    yield Row(
        f"open at {count:,}", opened[0], "read the log files once", opened[1], "ms",
        f"A process that has sent {what}, killed with SIGKILL after half of them and, in its second "
        f"life, after the last; then connect in a new process, against reading the {len(logs)} log "
        f"files that are left ({logged:,.0f} MB; {sealed:,.0f} MB are in segments) in pieces of a "
        "mebibyte. Before each turn the system is told to forget what it has of the directory.",
        Target("<=", 1.5),
    )  # fmt: skip
    bound = f"{MEMORY_MB_MAX} MB"
    yield Row(
        "peak memory, filling", [max(one.peak_mb for one in fills)], bound, [MEMORY_MB_MAX], "MB",
        f"The most that was ever resident (VmHWM) of the processes that sent {what}; everything "
        "counts, the interpreter and Arrow too.", most,
    )  # fmt: skip
    yield Row(
        "peak memory, draining", [life.peak_mb], bound, [MEMORY_MB_MAX], "MB",
        f"The same of the process that then received and acked all of them, receive_arrow of "
        f"{BATCH:,}; a byte of it for each message, to count how often it came. Each came exactly "
        "once, which the bench insists on.", most,
    )  # fmt: skip
    yield Row(
        "receive_arrow + ack, all of them", [count / said["seconds"]], "send_batch", [filled],
        "msgs/s", "The draining process, from segments and log, with the counting in it; against the "
        "filling ones, with their start, their kills and the sealing in it.",
    )  # fmt: skip


def _confirmed(goal: int, said: dict[str, Any]) -> bool:
    return bool(said["confirmed"] >= goal)


def _size(paths: Any) -> float:
    return sum(path.stat().st_size for path in paths) / 1e6


def _open(path: Path) -> float:
    _forget(path)
    return float(Life("open", path).until(lambda _: True)["ms"])


def _read(paths: list[Path]) -> float:
    """Milliseconds to read these files once."""
    _forget(paths[0].parent)
    start = time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.read(READ_BYTES):
                pass
    return (time.perf_counter() - start) * 1000


def _forget(directory: Path) -> None:
    """Have the system drop what it has cached of these files, so that both sides read the disk."""
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# -- senders meanwhile -----------------------------------------------------------------------------


class Senders:
    """Single sends, while a log full of messages is sealed and while nothing else happens."""

    def __init__(self, path: Path, backlog: int) -> None:
        self.queue = quiver.connect(path)
        for topic in ("backlog", "t"):
            self.queue.create_topic(topic)
        self._backlog = backlog
        content = bodies(DIFFERENT * SENT)
        self._batches = [batch_of(content[at : at + SENT]) for at in range(0, len(content), SENT)]
        self._body = content[0]

    def round(self) -> tuple[list[float], list[float]]:
        """The milliseconds of sends while it seals, and of as many without, before and after."""
        for topic in ("backlog", "t"):
            self.queue.purge(topic)
        self.queue.seal()
        for _, batch in zip(range(self._backlog // SENT), cycle(self._batches), strict=False):
            self.queue.send_batch("backlog", batch)
        before = self._sends(lambda done: done < 200)
        sealing = Thread(target=self.queue.seal)
        sealing.start()
        meanwhile = self._sends(lambda _: sealing.is_alive())
        sealing.join()
        after = self._sends(lambda done: done < max(len(meanwhile) - len(before), 200))
        return meanwhile, before + after

    def _sends(self, more: Callable[[int], bool]) -> list[float]:
        spent: list[float] = []
        while more(len(spent)):
            start = time.perf_counter()
            self.queue.send("t", self._body)
            spent.append((time.perf_counter() - start) * 1000)
        return spent


def sealing(run: Run) -> Iterator[Row]:
    """What a sender notices of messages that leave the log."""
    backlog = 200_000 if run.quick else 400_000  # less than makes a snapshot by itself
    senders = Senders(run.folder("sealing"), backlog)
    figures: dict[str, tuple[list[float], list[float]]] = {
        name: ([], []) for name in ("p99", "p50", "slowest")
    }
    counts = []
    for counts_ in run.turns():
        sides = senders.round()
        if counts_:
            counts.append(len(sides[0]))
            for at, side in enumerate(sides):
                cuts = quantiles(side, n=100)
                for name, figure in (("p99", cuts[98]), ("p50", cuts[49]), ("slowest", max(side))):
                    figures[name][at].append(figure)
    senders.queue.close()
    how = (
        f"send of {BODY_BYTES} B, each confirmed when synced, one thread; {min(counts):,} to "
        f"{max(counts):,} of them in each round while seal() writes {backlog:,} messages of the log "
        "into segments in the background, as every snapshot does with what stays; against about as "
        "many while nothing else happens, partly before and partly after"
    )
    targets = {"p99": Target("<=", 2)}
    for name, (ours, theirs) in figures.items():
        said = f"{how}." if name == "p99" else "Of the same sends."
        yield Row(
            f"send while it seals, {name}", ours, "while it does not", theirs, "ms", said,
            targets.get(name),
        )  # fmt: skip

"""What was measured on: figures without it mean little."""

import os
import platform
import sqlite3
import time
from importlib.metadata import version
from pathlib import Path

WAIT_MAX = 0.05  # share of the time; a thread that waits longer for a processor is not alone
LIBRARIES = ("quiver-mq", "pyarrow", "msgspec", "crc32c", "persist-queue", "litequeue")
IN_MEMORY = {"tmpfs", "ramfs", "devtmpfs"}


class NotADisk(Exception):
    """A sync on this file system means nothing."""


def facts(directory: Path) -> dict[str, str]:
    """The machine, its software, and the file system that is written to."""
    kind, mounted, options = file_system(directory)
    return {
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} usable of {os.cpu_count()}",
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg())
        + " (1, 5, 15 minutes) at start",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": f"{kind} on {mounted} ({options}); a disk, not memory: checked",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        **{name: version(name) for name in LIBRARIES},
    }


def demand_disk(directory: Path) -> None:
    """Refuse a directory that is kept in memory."""
    kind, mounted, _ = file_system(directory)
    if kind in IN_MEMORY:
        raise NotADisk(
            f"{directory} is on {mounted}, which is {kind}: a sync costs nothing there, so the "
            "figures would mean nothing. Choose a directory on a disk with --dir."
        )


def file_system(directory: Path) -> tuple[str, str, str]:
    """Type, mount point and options of what holds the directory."""
    path = directory.resolve()
    best = ("unknown", "/", "")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        mounted = left.split()[4].replace("\\040", " ")
        if path.is_relative_to(mounted) and len(mounted) >= len(best[1]):
            best = (right.split()[0], mounted, right.split()[2])
    return best


class ProcessorWait:
    """How much of the time this thread was ready to run, and others had the processors.

    It is what makes figures worthless without any sign: a sync of a tenth of a millisecond takes
    four if another process has the processor when it ends.
    """

    def __init__(self) -> None:
        self._start_ns = time.perf_counter_ns()
        self._waited_ns = self._so_far()

    def share(self) -> float:
        passed = time.perf_counter_ns() - self._start_ns
        return (self._so_far() - self._waited_ns) / passed

    @staticmethod
    def _so_far() -> int:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1])


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()

"""Starting workers, killing them, and opening what they leave behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Timer

from quiver import Queue
from quiver.testing import VirtualClock
from tests.contract.doors import SyncDoor
from tests.inside import Inside

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tests.process.workers", *words]


def start(words: list[str]) -> subprocess.Popen[str]:
    """A worker in a session of its own, so that it can be killed with all it has started."""
    return subprocess.Popen(
        words,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def kill_after(
    worker: subprocess.Popen[str], path: Path, lines: int, kind: str = ""
) -> tuple[str, str]:
    """Kill it once it has taken `path`, said so many lines, and one of that kind; return them all.

    Work is counted, not time: a slow machine takes longer, and crashes in the same places.
    """
    assert worker.stdout is not None
    assert worker.stderr is not None
    hung = Event()

    def give_up() -> None:
        hung.set()
        os.killpg(worker.pid, signal.SIGKILL)

    watchdog = Timer(PATIENCE_SECONDS, give_up)
    watchdog.start()
    heard: list[str] = []
    while not has_taken(worker, path) and worker.poll() is None:
        time.sleep(0.005)
    while len(heard) < lines or (kind and not any(line.startswith(kind) for line in heard)):
        line = worker.stdout.readline()
        if not line:  # it ended by itself, or the watchdog ended it
            break
        heard.append(line)
    else:
        os.killpg(worker.pid, signal.SIGKILL)
    watchdog.cancel()
    with worker:  # not communicate(): it would pass over what is read ahead already
        heard += worker.stdout
        complaints = worker.stderr.read()
    assert not hung.is_set(), f"it said too little for too long: {heard[-3:]} {complaints[-3_000:]}"
    assert worker.returncode == -signal.SIGKILL, f"it ended by itself: {complaints[-3_000:]}"
    return "".join(heard), complaints


def has_taken(worker: subprocess.Popen[str], path: Path) -> bool:
    """Whether it is its name that the directory's lock has."""
    try:
        return bool(json.loads((path / "quiver.lock").read_text())["pid"] == worker.pid)
    except (OSError, ValueError):  # not there yet, or being written
        return False


def finish(worker: subprocess.Popen[str], seconds: float = PATIENCE_SECONDS) -> tuple[str, str]:
    """Let it end by itself, within bounds."""
    try:
        return worker.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.communicate(timeout=PATIENCE_SECONDS)
        raise


def by_kind(said: str) -> dict[str, list[str]]:
    """What was said, by its first word."""
    found: dict[str, list[str]] = {}
    for line in said.splitlines():
        kind, _, rest = line.partition(" ")
        found.setdefault(kind, []).append(rest)
    return found


@contextmanager
def opened_later(path: Path, seconds: float = 7_200) -> Iterator[Queue]:
    """The directory as it will be opened some time from now, when every lease has ended."""
    clock = VirtualClock(int((time.time() + seconds) * 1000))
    door = SyncDoor()
    queue = door.open(path, clock)
    try:
        door.shard.ask(Inside(lambda engine: engine.core.check())).wait()
        yield queue
    finally:
        queue.close()

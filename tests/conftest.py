"""What holds for every test: hypothesis profiles, and nothing may be left behind."""

import gc
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import lengths

lengths.load_profile()

GRACE_SECONDS = 2.0  # for threads that were told to stop and are on their way out
DESCRIPTORS = Path("/proc/self/fd")  # Linux; elsewhere only threads are checked


def pytest_configure() -> None:
    """A shell starts what runs in the background with interrupts ignored, and children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two processes for each core: half of its time a test waits, for the disk or for a process."""
    return 2 * (os.cpu_count() or 1)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail a test that leaves a thread running or a file of a temporary directory open.

    Autouse fixtures are set up first and torn down last, so what a test's own fixtures close is
    closed by then. Threads and files that were there before the test are nobody's leak.
    """
    roots = (str(tmp_path_factory.getbasetemp()), tempfile.gettempdir())
    threads, files = set(threading.enumerate()), open_files(roots)
    yield
    alive = [thread.name for thread in still_alive(set(threading.enumerate()) - threads)]
    opened = open_files(roots) - files
    if opened:
        gc.collect()  # a cycle may hold a closed-over file for a moment longer
        opened = open_files(roots) - files
    assert not alive, f"threads still running after the test: {sorted(alive)}"
    assert not opened, f"files still open after the test: {sorted(opened)}"


def still_alive(threads: set[threading.Thread]) -> list[threading.Thread]:
    deadline = time.monotonic() + GRACE_SECONDS
    threads = {thread for thread in threads if not is_sparks(thread)}
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [thread for thread in threads if thread.is_alive()]


def is_sparks(thread: threading.Thread) -> bool:
    """Py4J has one for each thread of the JVM that calls into Python, and keeps it for the next call."""
    called = getattr(getattr(thread, "_target", None), "__self__", None)
    return type(called).__module__.startswith("py4j.")


def open_files(roots: tuple[str, ...]) -> set[tuple[int, str]]:
    """Descriptors that point into one of the directories, each with its target."""
    found = set()
    for descriptor in list(DESCRIPTORS.iterdir()) if DESCRIPTORS.is_dir() else ():
        try:
            target = str(descriptor.readlink())
        except OSError:  # the descriptor of the listing itself is gone by now
            continue
        ours = "/site-packages/" not in target  # fonts, which matplotlib keeps open
        if ours and target.startswith(tuple(f"{root}/" for root in roots)):
            found.add((int(descriptor.name), target))
    return found

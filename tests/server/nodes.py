"""Starts and ends nodes.

A node is a process of its own: `quiver serve` with its own directory, port, signals and exit code.
Most of the processor time of a start is spent on imports, so the processes are forked from one
that has imported everything and done nothing else. `fresh=True` starts Python anew, as a user does:
for tests of starting and ending, and of what Python reads when it starts (PYTHONPATH, sitecustomize).
"""

import json
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import IO, Any, Protocol, Self
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 30
END_SECONDS = 30

# The process that nodes are forked from. It imports these, and no test's code.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["quiver.cli.app", "quiver.server.serve", "typer._adapters"])


class Process(Protocol):
    """What `subprocess.Popen` has and `Forked` too."""

    @property
    def pid(self) -> int: ...
    @property
    def stderr(self) -> IO[str] | None: ...

    def poll(self) -> int | None: ...
    def wait(self, timeout: float) -> int: ...
    def send_signal(self, number: int, /) -> None: ...


class Forked:
    """`python -m module arguments…` in a process that has imported Quiver already."""

    def __init__(self, command: list[str], env: Mapping[str, str]) -> None:
        reading, writing = FORKS.Pipe(duplex=False)
        with reading, writing:
            self.stderr: IO[str] | None = os.fdopen(os.dup(reading.fileno()), encoding="utf-8")
            self._process = FORKS.Process(target=run_forked, args=(command, dict(env), writing))
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        assert code is not None, f"process {self.pid} has not ended in {timeout} seconds"
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            # It may have ended, and the process it was forked from not said so yet.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def run_forked(command: list[str], env: dict[str, str], stderr: Connection) -> None:
    """In the new process: everything is as after a start by `subprocess.Popen`."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard, target in enumerate((nothing, nothing, stderr.fileno())):
        os.dup2(target, standard)
    os.close(nothing)
    stderr.close()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(ROOT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    module, *sys.argv[1:] = command
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def start_fresh(command: list[str], env: Mapping[str, str]) -> "subprocess.Popen[str]":
    """`python -m module arguments…` in a new Python."""
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, env=env, cwd=ROOT,
    )  # fmt: skip


class Node:
    """A running `quiver serve`. `lines` has what it logged so far."""

    def __init__(
        self,
        data: Path,
        options: tuple[str, ...],
        env: Mapping[str, str],
        module: str,
        *,
        fresh: bool,
    ) -> None:
        self.data = data
        self._module = module
        self._start_process = start_fresh if fresh else Forked
        self.port = 0
        self.lines: list[dict[str, Any]] = []
        self._options = options
        self._env = env
        self._start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def _start(self) -> None:
        command = [self._module, "serve", "--data", str(self.data)]
        if "--listen" not in self._options:
            command += ["--listen", f"127.0.0.1:{self.port}"]
        self.process: Process = self._start_process(
            [*command, *self._options], {**os.environ, **self._env}
        )
        self._news: Queue[dict[str, Any] | None] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.port = int(self.logged("listening")["address"].rpartition(":")[2])
        except BaseException:
            self.kill()
            raise

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            found = json.loads(line) if line.startswith("{") else {"event": "text", "text": line}
            self.lines.append(found)
            self._news.put(found)
        self._news.put(None)

    def logged(self, event: str, **facts: Any) -> dict[str, Any]:
        """The next line about `event` with these facts."""
        while True:
            try:
                line = self._news.get(timeout=START_SECONDS)
            except Empty:
                raise AssertionError(f"no {event!r} in {self.lines}") from None
            assert line is not None, f"it ended without {event!r}: {self.lines}"
            if {"event": event, **facts}.items() <= line.items():
                return line

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit code."""
        code = self.process.wait(END_SECONDS)
        self._reader.join(END_SECONDS)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return code

    def kill(self) -> None:
        """End at once, as by a crash."""
        self.process.send_signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """End in order; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def restart(self) -> None:
        """Start again after `kill` or `stop`: same directory, same port."""
        if self.process.poll() is None:
            self.stop()
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


def start_node(
    tmp_path: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    module: str = "quiver.cli",
    fresh: bool = False,
) -> Node:
    """A node with its data in `tmp_path`, on a free port."""
    return Node(tmp_path / "data", options, env or {}, module, fresh=fresh)


def until_waiting(node: Node, count: int) -> None:
    """Until so many receives wait at the node."""
    for _ in range(200):
        with urlopen(f"{node.url}/metrics", timeout=10) as answer:
            if f"\nquiver_receives_waiting {count}.0\n" in answer.read().decode():
                return
        time.sleep(0.05)
    raise AssertionError(f"there were never {count} receives that wait")

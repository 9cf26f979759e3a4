"""Starts and ends nodes."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Any, Self
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 30
END_SECONDS = 30


class Node:
    """A running `quiver serve`. `lines` has what it logged so far."""

    def __init__(
        self, data: Path, options: tuple[str, ...], env: Mapping[str, str], module: str
    ) -> None:
        self.data = data
        self._module = module
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
        command = [sys.executable, "-m", self._module, "serve", "--data", str(self.data)]
        if "--listen" not in self._options:
            command += ["--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(
            [*command, *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self._env},
            cwd=ROOT,
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
        self.process.kill()
        self.wait()

    def stop(self) -> int:
        """End in order; the exit code."""
        self.process.terminate()
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
        if self.process.poll() is None:
            self.process.kill()
        self.wait()


def start_node(
    tmp_path: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    module: str = "quiver.cli",
) -> Node:
    """A node with its data in `tmp_path`, on a free port."""
    return Node(tmp_path / "data", options, env or {}, module)


def until_waiting(node: Node, count: int) -> None:
    """Until so many receives wait at the node."""
    for _ in range(200):
        with urlopen(f"{node.url}/metrics", timeout=10) as answer:
            if f"\nquiver_receives_waiting {count}.0\n" in answer.read().decode():
                return
        time.sleep(0.05)
    raise AssertionError(f"there were never {count} receives that wait")

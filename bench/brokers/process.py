"""Processes of brokers: started on loopback in a directory of their own, ended by their number."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

FETCHED = Path(__file__).parents[2] / ".brokers"  # by `make brokers`
START_SECONDS_MAX = 90.0  # a JVM or an Erlang node on a busy machine
STOP_SECONDS_MAX = 10.0  # then it is killed
LOG_BYTES_SHOWN = 2_000


class Missing(Exception):
    """A broker that cannot be had here: why, and what would help."""


class Server:
    """A broker's process and those that it starts, until the end of the `with` block."""

    def __init__(
        self, command: Sequence[str | Path], folder: Path, *, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = Path(command[0]).name
        self._log = folder / f"{self.name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                cwd=folder,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_for(self, is_ready: Callable[[], bool], what: str) -> None:
        """Return when it is ready; Missing if it ends before, or takes too long."""
        until = time.monotonic() + START_SECONDS_MAX
        while not is_ready():
            if self._process.poll() is not None:
                raise Missing(f"{self.name} ended with {self._process.returncode}: {self.log}")
            if time.monotonic() > until:
                raise Missing(
                    f"{self.name} has no {what} after {START_SECONDS_MAX:g} s: {self.log}"
                )
            time.sleep(0.05)

    def wait_for_port(self, port: int) -> None:
        self.wait_for(lambda: is_open(port), f"open port {port}")

    @property
    def log(self) -> str:
        """The end of what it said."""
        return self._log.read_text(errors="replace")[-LOG_BYTES_SHOWN:].strip()

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for way in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, way)  # its own session: nobody else is in this group
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS_MAX)


def free_port() -> int:
    """A port that nobody listens on: for brokers that cannot choose one and say which."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def program(name: str, *, advice: str) -> Path:
    """Where a program is: fetched, on the PATH, or where Debian puts daemons."""
    found = shutil.which(name, path=os.pathsep.join((os.environ["PATH"], "/usr/sbin")))
    if found is None:
        raise Missing(f"there is no {name} here: {advice}")
    return Path(found)


def says(*command: str | Path) -> str:
    """What a program prints; for versions."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, timeout=60
    )
    return (done.stdout + done.stderr).strip()

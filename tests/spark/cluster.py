"""A standalone Spark of real processes: a master, workers, and drivers that can be killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.find_spark_home import _find_spark_home

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 90  # of a JVM, on a machine that has other things to do
END_SECONDS = 30
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # short-lived, and many on few cores
EXECUTOR = "CoarseGrainedExecutorBackend"
WORKER = "pyspark.daemon"  # which has forked the processes that run Python in an executor


class Cluster:
    """A master and some workers with one core each, on hosts of their own: names of this machine."""

    def __init__(self, path: Path, workers: int) -> None:
        self.path = path
        self.workers: list[subprocess.Popen[bytes]] = []
        port, page = free_ports(2)
        self.url = f"spark://127.0.0.1:{port}"
        self.master = self._start(
            "master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1",
            "--port", str(port), "--webui-port", str(page),
        )  # fmt: skip
        try:
            for number in range(workers):
                self.workers.append(self._start_worker(number))
            for number in range(workers):
                self._until_said(f"worker-{number}", "Successfully registered with master")
        except BaseException:
            self.close()
            raise

    def _start_worker(self, number: int) -> "subprocess.Popen[bytes]":
        self._until_said("master", "I have been elected leader")
        (page,) = free_ports(1)
        return self._start(
            f"worker-{number}", "org.apache.spark.deploy.worker.Worker", "--host",
            f"127.0.0.{1 + number}", "--cores", "1", "--memory", "1g", "--webui-port", str(page),
            "--work-dir", str(self.path / f"work-{number}"), self.url,
        )  # fmt: skip

    def _start(self, name: str, kind: str, *options: str) -> "subprocess.Popen[bytes]":
        program = str(Path(_find_spark_home()) / "bin" / "spark-class")
        with self._log(name).open("wb") as log:
            return subprocess.Popen(
                [program, kind, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(self.path / "tmp", {"SPARK_DAEMON_MEMORY": "256m"}),
                cwd=ROOT,
                start_new_session=True,
            )

    def _log(self, name: str) -> Path:
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path / f"{name}.log"

    def _until_said(self, name: str, words: str) -> None:
        until(lambda: words in self._log(name).read_text(), f"{name} never said {words!r}")

    def executors(self) -> list[int]:
        """The processes that run tasks."""
        return [pid for pid in self._descendants() if EXECUTOR in command(pid)]

    def pythons(self) -> list[int]:
        """The processes that run Python in executors, without the ones that have forked them."""
        parents = parents_of_all()
        forkers = {pid for pid in self._descendants() if WORKER in command(pid)}
        return sorted(pid for pid in forkers if parents.get(pid) in forkers)

    def _descendants(self) -> list[int]:
        return descendants([worker.pid for worker in self.workers])

    def close(self) -> None:
        """End all of it."""
        mine = [*self.workers, self.master]
        for pid in [*self._descendants(), *(process.pid for process in mine)]:
            kill(pid)
        for process in mine:
            process.wait(END_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Driver:
    """A job in a process of its own. What it prints and logs is in `log`."""

    def __init__(self, path: Path, job: str, *words: str) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.log = path / f"driver-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", job, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(path / "tmp"),
                cwd=ROOT,
                start_new_session=True,
            )

    def said(self, words: str) -> bool:
        """Whether it has said that so far."""
        return words in self.log.read_text()

    def until_said(self, words: str) -> None:
        """Until it has said that."""
        until(lambda: self.said(words) or self.ended, f"no {words!r} in {self.log}")
        assert self.said(words), self.log.read_text()[-5_000:]

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.process.poll() is not None

    def wait(self, seconds: float = END_SECONDS) -> int:
        """The exit code."""
        return self.process.wait(seconds)

    def kill(self) -> None:
        """End it at once, with its JVM; the processes that the JVM has started notice that."""
        mine = descendants([self.process.pid])
        for pid in [self.process.pid, *mine]:
            kill(pid)
        self.process.wait(END_SECONDS)


@contextmanager
def driver(path: Path, job: str, *words: str) -> Iterator[Driver]:
    """A job that does not outlive the block."""
    made = Driver(path, job, *words)
    try:
        yield made
    finally:
        made.kill()


def environment(local: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """What JVMs and Python need to find us, and to leave their files where they are removed."""
    local.mkdir(parents=True, exist_ok=True)
    paths = [str(ROOT / "src"), str(ROOT)]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(local),
        "SPARK_WORKER_OPTS": f"-Djava.io.tmpdir={local}",
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",  # however many are killed
        "SPARK_DAEMON_JAVA_OPTS": f"{JVM} -Djava.io.tmpdir={local}",
        **(more or {}),
    }


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def until(happens: Callable[[], object], message: str, seconds: float = START_SECONDS) -> None:
    """Wait until it happens."""
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline, message
        time.sleep(0.05)


def kill(pid: int) -> bool:
    """SIGKILL; whether there was somebody."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def parents_of_all() -> dict[int, int]:
    """The parent of every process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = int(
                    (entry / "stat").read_text().rpartition(")")[2].split()[1]
                )
            except OSError:  # it has ended meanwhile
                continue
    return found


def descendants(roots: list[int]) -> list[int]:
    """All processes that these have started, and those have started, and so on."""
    parents = parents_of_all()
    found: list[int] = []
    wave = roots
    while wave:
        wave = [pid for pid, parent in parents.items() if parent in wave]
        found += wave
    return found


def command(pid: int) -> str:
    """The words a process was started with."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""

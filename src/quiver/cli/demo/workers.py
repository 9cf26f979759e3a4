"""Worker processes, seen from the parent: start, ask, kill, stop."""

import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from quiver.cli.demo.services import DemoBatch, DemoOutcome, Hangs, Ready, ServiceName, serve

START_SECONDS_MAX: Final = 60.0
ANSWER_SECONDS_MAX: Final = 30.0  # a batch takes a fraction of a second
STOP_SECONDS_MAX: Final = 5.0


class WorkerFailed(Exception):
    """A worker process ended or went silent, and nobody had asked for that."""


class Worker:
    """A process that works for one service. Threads must not share one."""

    def __init__(self, name: str, service: ServiceName, folder: Path, *, repaired: bool) -> None:
        self.name = name
        self.service: ServiceName = service
        self._ready = False
        # "spawn": a forked child would inherit the parent's open queue, and its threads' locks.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=serve, args=(theirs, service, folder, repaired), name=name, daemon=True
        )
        with _without_ctrl_c():
            self._process.start()
        theirs.close()  # the child has its own; ours open would hide that the child is gone

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process.pid is not None
        return self._process.pid

    def wait_ready(self) -> None:
        """Return when the process has started."""
        if not self._ready:
            answer = self._answer(START_SECONDS_MAX)
            assert isinstance(answer, Ready)
            self._ready = True

    def ask(self, batch: DemoBatch) -> list[DemoOutcome] | None:
        """Have the tasks done: an outcome for each, or None if the worker hangs."""
        answer = self._answer(ANSWER_SECONDS_MAX, batch)
        if isinstance(answer, Hangs):
            return None
        outcomes: list[DemoOutcome] = answer
        return outcomes

    def _answer(self, seconds: float, question: DemoBatch | None = None) -> Any:
        try:
            if question is not None:
                self._pipe.send(question)
            if self._pipe.poll(seconds):
                return self._pipe.recv()
        except (EOFError, OSError) as error:
            raise WorkerFailed(f"{self.name} (pid {self.pid}) ended unexpectedly") from error
        raise WorkerFailed(f"{self.name} (pid {self.pid}) did not answer for {seconds:.0f} s")

    def kill(self) -> int:
        """SIGKILL: no warning, no clean-up. Return the exit code, which is minus the signal."""
        self._process.kill()
        self._process.join(STOP_SECONDS_MAX)
        return self._process.exitcode or 0

    def stop(self) -> None:
        """End the process: the closed pipe tells it to; if it does not listen, kill it."""
        self._pipe.close()
        self._process.join(STOP_SECONDS_MAX)
        if self._process.is_alive():
            self.kill()


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """A child that is started in here ignores Ctrl-C from its first moment on."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

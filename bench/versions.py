"""This commit next to an earlier one: both installed side by side, taking turns in the same rounds."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path

from bench.measure import Row, Run, Side, Target, rates

ROOT = Path(__file__).parents[1]
WARM_UP_SECONDS = 1.0
TURNS = 4
NOT_SLOWER = Target(">=", 0.97)
# What bench/version_worker.py can do, in its words, and what is wanted.
VERBS: dict[str, Target | None] = {
    "embedded: send_batch of 20,000": NOT_SLOWER,
    "embedded: receive_arrow of 50,000, ack": NOT_SLOWER,
    "embedded: send": NOT_SLOWER,
    "embedded: receive one, ack": NOT_SLOWER,
    "embedded: receive 10,000, ack(list)": NOT_SLOWER,
    "embedded: open 100,000 messages": NOT_SLOWER,
    "node: send_batch of 20,000": NOT_SLOWER,
    "node: receive_arrow of 50,000, ack": NOT_SLOWER,
    "node: send": NOT_SLOWER,
    "node: receive one, ack": NOT_SLOWER,
    "node: send, 64 tasks": None,
    "node: SendMessage, boto3": NOT_SLOWER,
    "node: ReceiveMessage and DeleteMessage, boto3": NOT_SLOWER,
    "node: SendMessage, 64 connections": None,
}


class Worker:
    """A process with the code of one commit, which does as it is told for some seconds."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def side(self, verb: str) -> Side:
        def work(seconds: float) -> tuple[int, float]:
            done, passed = self._ask(verb, seconds)
            return int(done), passed

        return work

    def _ask(self, verb: str, seconds: float) -> tuple[float, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([verb, seconds]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker ended in the middle of {verb!r}: see above")
        done, passed = json.loads(line)
        return done, passed


def versions(run: Run) -> Iterator[Row]:
    """Each verb as it is here and as it was at `--against`."""
    if run.against is None:
        run.skipped["versions"] = "name a commit to compare with: --against REV"
        return
    before = run.folder("before")
    _check_out(run.against, before)
    with ExitStack() as stack:
        new = stack.enter_context(_worker(ROOT / "src", run.folder("new")))
        old = stack.enter_context(_worker(before / "src", run.folder("old")))
        for verb, target in VERBS.items():
            sides = new.side(verb), old.side(verb)
            for side in sides:
                side(WARM_UP_SECONDS)
            ours, theirs = rates(run, *sides, turns=TURNS)
            how = f"The same program on both, in a process each, against {run.against}."
            yield Row(verb, ours, run.against, theirs, "a second", how, target)


def _check_out(revision: str, folder: Path) -> None:
    archive = subprocess.run(
        ["git", "archive", revision, "src"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")


@contextmanager
def _worker(source: Path, folder: Path) -> Iterator[Worker]:
    command = [sys.executable, "-m", "bench.version_worker", str(folder)]
    path = os.pathsep.join((str(source), str(ROOT)))
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, cwd=folder,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:  # which closes its input, and that ends it
        yield Worker(process)

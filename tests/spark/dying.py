"""The format "dying": "quiver", except that somebody dies at a step of the commit protocol, once.

Who and where is said by a file, whose path is the option `path`; whoever gets there first removes it.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from quiver.client.sync import Queue
from quiver.spark.source import QuiverSource
from tests.spark.cluster import command, parents_of_all

STEPS = (
    "before anything is staged",
    "while it is staged",
    "after all is staged",
    "before the commit",
    "before it is published",
    "after it is published",
    "after the commit",
)
JVM = "org.apache.spark.deploy.SparkSubmit"  # of a driver


class Died(Exception):
    """As good as dead: what the process was about to do is not done."""


class DyingSource(QuiverSource):
    def __init__(self, options):
        super().__init__(options)
        self._order = Path(options["path"])

    @classmethod
    def name(cls):
        return "dying"

    def streamWriter(self, schema, overwrite):  # noqa: N802
        writer: Any = super().streamWriter(schema, overwrite)
        writer._target = DyingTarget(writer._target, self._order)
        return writer


class DyingTarget:
    """A target of a writer, with places to die at between its steps."""

    def __init__(self, target, order: Path) -> None:
        self._target = target
        self._order = order

    def stage(self, batches):
        self._reach(STEPS[0])
        parts = self._target.stage(self._watched(batches))
        self._reach(STEPS[2])
        return parts

    def _watched(self, batches) -> Iterator[Any]:
        for batch in batches:
            yield batch.slice(0, 1)
            self._reach(STEPS[1])
            if batch.num_rows > 1:
                yield batch.slice(1)

    def publish(self, *args):
        self._reach(STEPS[3])
        original = Queue.publish

        def publish(queue, *args, **options):
            self._reach(STEPS[4])
            done = original(queue, *args, **options)
            self._reach(STEPS[5])
            return done

        with patch.object(Queue, "publish", publish):
            done = self._target.publish(*args)
        self._reach(STEPS[6])
        return done

    def drop(self, parts):
        self._target.drop(parts)

    def _reach(self, step: str) -> None:
        try:
            order = json.loads(self._order.read_text())
            if order["step"] != step:
                return
            self._order.rename(self._order.with_suffix(".done"))
        except FileNotFoundError:
            return
        match order["how"]:
            case "raise":
                raise Died(step)
            case "worker":
                os.kill(os.getpid(), signal.SIGKILL)
            case "node":
                os.kill(order["pid"], signal.SIGKILL)
            case "driver":
                os.kill(driver_of(os.getpid()), signal.SIGKILL)
                time.sleep(60)  # until this process has noticed


def die(order: Path, step: str, how: str = "raise", pid: int = 0) -> None:
    """Let it happen."""
    order.with_suffix(".done").unlink(missing_ok=True)
    written = order.with_suffix(".tmp")
    written.write_text(json.dumps({"step": step, "how": how, "pid": pid}))
    written.rename(order)


def has_died(order: Path) -> bool:
    """Whether it happened."""
    return order.with_suffix(".done").exists()


def driver_of(pid: int) -> int:
    """The JVM above a Python process."""
    parents = parents_of_all()
    while JVM not in command(pid):
        pid = parents[pid]
    return pid

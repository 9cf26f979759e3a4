"""The tasks of the Celery tests, on the example's app. Each notes what it does in $CELERY_NOTES.

This runs in Celery's own environment, in the worker and in the process that sends.
"""

import ast
import json
import os
import time
from pathlib import Path

from celery import chain, group
from celery.exceptions import Reject

from examples.celery.shop import app

__all__ = ["add", "app", "brood", "chain", "fail", "group", "note", "refuse", "stumble"]

NOTES = Path(os.environ["CELERY_NOTES"])
GATE_SECONDS = 60

app.conf.imports = [__name__]
app.conf.broker_transport_options |= ast.literal_eval(os.environ["CELERY_TRANSPORT"])
app.conf.task_default_queue = os.environ.get("CELERY_QUEUE", "shop")


def write(task: str, **what: object) -> None:
    with NOTES.open("a") as file:
        file.write(json.dumps({"task": task, "at": time.time(), **what}) + "\n")


@app.task
def note(value: object) -> None:
    write("note", value=value)


@app.task
def add(left: int, right: int) -> int:
    return left + right


@app.task(bind=True, max_retries=5)
def stumble(self, value: object, failures: int) -> None:
    """Fail some times, each time with a retry in a second."""
    write("stumble", value=value, retries=self.request.retries)
    if self.request.retries < failures:
        raise self.retry(countdown=1)


@app.task(reject_on_worker_lost=True)
def brood(value: object, gate: str) -> None:
    """Work until a file appears."""
    write("begun", value=value, pid=os.getpid())
    end = time.monotonic() + GATE_SECONDS
    while not Path(gate).exists() and time.monotonic() < end:
        time.sleep(0.05)
    write("brood", value=value)


@app.task(bind=True)
def refuse(self, value: object) -> None:
    """Hand the message back the first time."""
    before = NOTES.read_text() if NOTES.exists() else ""
    write("refuse", value=value)
    if self.request.id not in before:
        write("refused", id=self.request.id)
        raise Reject("not now", requeue=True)


@app.task(acks_on_failure_or_timeout=False)
def fail(value: object) -> None:
    write("fail", value=value)
    raise ValueError(value)

"""Celery with its SQS transport: real workers, which retry, wait, are killed and go home."""

import json
import os
import signal
import subprocess
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients import environments
from tests.clients.conftest import Keys, run_quiver
from tests.server.nodes import Node

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(700)]

PATIENCE = 60.0  # seconds for anything that must happen
LONG = 600  # seconds of visibility: what a worker does not hand back never comes in a test's time
SHORT = 5  # what a dead worker had is given to another


class Celery:
    """Celery in an environment of its own, with the node as its broker."""

    def __init__(self, bin_: Path, broker: str, folder: Path, settings: dict[str, str]) -> None:
        self._bin = bin_
        self._notes = folder / "notes"
        self._folder = folder
        self._workers: list[subprocess.Popen[bytes]] = []
        self.env = {
            **settings,
            "PYTHONPATH": str(environments.ROOT),
            "QUIVER_NODE": broker,
            "CELERY_NOTES": str(self._notes),
        }
        self.transport: dict[str, Any] = {
            "visibility_timeout": LONG,
            "wait_time_seconds": 2,
        }

    @property
    def _env(self) -> dict[str, str]:
        return {**self.env, "CELERY_TRANSPORT": repr(self.transport)}

    def worker(
        self,
        *options: str,
        app: str = "tests.clients.celery_tasks",
        folder: Path = environments.ROOT,
    ) -> subprocess.Popen[bytes]:
        """A worker with two children, all in a session of their own so that all can be killed."""
        name = f"worker-{len(self._workers)}"
        command = f"-A {app} worker --hostname {name} --concurrency 2 --loglevel info".split()
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [self._bin / "celery", *command, *options],
                cwd=folder, env=self._env, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        self._workers.append(process)
        return process

    def python(self, *args: str, folder: Path = environments.ROOT) -> None:
        subprocess.run(
            [self._bin / "python", *args], cwd=folder, env=self._env, timeout=PATIENCE, check=True
        )

    def send(self, *code: str) -> None:
        """Run these lines where the tasks are imported."""
        self.python("-c", "\n".join(("from tests.clients.celery_tasks import *", *code)))

    def notes(self, *tasks: str) -> list[dict[str, Any]]:
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        found = [json.loads(line) for line in lines]
        return [note for note in found if note["task"] in tasks]

    def values(self, task: str) -> list[Any]:
        return sorted(note["value"] for note in self.notes(task))

    def until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)

    def log(self) -> str:
        return "\n".join(log.read_text() for log in sorted(self._folder.glob("worker-*.log")))

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """As a crash of its machine: the worker and its children, at once."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(PATIENCE)

    def close(self) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                self.kill(worker)


@pytest.fixture
def celery(node: Node, keys: Keys, tmp_path: Path, settings: dict[str, str]) -> Iterator[Celery]:
    broker = f"{keys.id}:{keys.secret}@127.0.0.1:{node.port}"
    made = Celery(environments.python_with("celery[sqs]>=5.5,<6"), broker, tmp_path, settings)
    yield made
    made.close()


@pytest.fixture
def left(sqs) -> Callable[..., int]:
    """How many messages a queue has: to be had, in flight and delayed."""

    def count(queue: str = "shop") -> int:
        url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return sum(
            int(found[f"ApproximateNumberOfMessages{kind}"])
            for kind in ("", "NotVisible", "Delayed")
        )

    return count


@pytest.mark.parametrize("signed", [False, True], indirect=True)
def test_tasks_groups_and_chains_are_done_once_each(celery, left):
    celery.worker()
    celery.send(
        "for i in range(100): note.delay(i)",
        "group(note.s(i) for i in range(100, 120)).delay()",
        "chain(add.s(1, 2), add.s(4), note.s()).delay()",
    )
    celery.until(lambda: len(celery.notes("note")) >= 121 and left() == 0)
    assert celery.values("note") == sorted([*range(120), 7])


def test_a_retry_comes_back_until_it_succeeds(celery, left):
    celery.worker()
    celery.send("stumble.delay('x', failures=3)")
    celery.until(lambda: len(celery.notes("stumble")) == 4 and left() == 0)
    assert [note["retries"] for note in celery.notes("stumble")] == [0, 1, 2, 3]


def test_countdown_and_eta_are_waited_for(celery, left):
    celery.worker()
    celery.until(lambda: " ready." in celery.log())
    begun = time.time()
    celery.send(
        "from datetime import datetime, timedelta, UTC",
        "note.apply_async(('countdown',), countdown=8)",
        "note.apply_async(('eta',), eta=datetime.now(UTC) + timedelta(seconds=8))",
        "note.apply_async(('delayed',), DelaySeconds=8)",  # by the queue, not by the worker
        "note.delay('now')",
    )
    celery.until(lambda: len(celery.notes("note")) == 4 and left() == 0)
    first, *later = celery.notes("note")
    assert first["value"] == "now"
    assert {note["value"] for note in later} == {"countdown", "eta", "delayed"}
    assert min(note["at"] for note in later) >= begun + 8


def test_what_a_killed_worker_had_is_done_by_another(celery, left, tmp_path):
    gate = tmp_path / "gate"
    celery.transport["visibility_timeout"] = SHORT
    victim = celery.worker()
    celery.send(f"for i in range(6): brood.delay(i, {str(gate)!r})")
    celery.until(lambda: len(celery.notes("begun")) == 2)
    celery.kill(victim)
    gate.touch()
    assert celery.notes("brood") == []
    celery.worker()
    celery.until(lambda: left() == 0)
    assert set(celery.values("brood")) == set(range(6))
    assert len(celery.notes("begun")) >= 8  # two of them for the second time


def test_what_a_killed_child_had_is_done_by_its_sibling(celery, left, tmp_path):
    """As the system does when memory is short; the worker hands the message back at once."""
    gate = tmp_path / "gate"
    celery.worker()
    celery.send(f"brood.delay('x', {str(gate)!r})")
    celery.until(lambda: len(celery.notes("begun")) == 1)
    os.kill(celery.notes("begun")[0]["pid"], signal.SIGKILL)
    celery.until(lambda: len(celery.notes("begun")) == 2)
    gate.touch()
    celery.until(lambda: left() == 0)
    assert celery.values("brood") == ["x"]


def test_a_worker_that_goes_home_leaves_the_rest_to_others(celery, left, tmp_path):
    gate = tmp_path / "gate"
    first = celery.worker()
    celery.send(f"for i in range(12): brood.delay(i, {str(gate)!r})")
    celery.until(lambda: len(celery.notes("begun")) == 2)
    first.terminate()
    gate.touch()
    assert first.wait(PATIENCE) == 0, celery.log()
    celery.worker()
    celery.until(lambda: left() == 0)
    assert celery.values("brood") == list(range(12))


def test_a_message_that_is_handed_back_comes_again(celery, left):
    celery.worker()
    celery.send("refuse.delay('x')")
    celery.until(lambda: celery.values("refuse") == ["x", "x"] and left() == 0)


def test_a_task_that_always_fails_ends_in_the_dead_letter_queue(celery, left, sqs, node):
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])
    policy = {"deadLetterTargetArn": arn["Attributes"]["QueueArn"], "maxReceiveCount": 2}
    sqs.create_queue(
        QueueName="shop",
        Attributes={"VisibilityTimeout": "1", "RedrivePolicy": json.dumps(policy)},
    )
    celery.transport["visibility_timeout"] = 1
    celery.worker()
    celery.send("fail.delay('x')")
    celery.until(lambda: left("dead") == 1 and len(celery.notes("fail")) == 2)
    assert celery.values("fail") == ["x", "x"]
    assert left("shop") == 0
    run_quiver("dlq", "redrive", "dead", "--data", f"quiver://127.0.0.1:{node.port}")
    celery.until(lambda: len(celery.notes("fail")) == 4 and left("dead") == 1)  # and round again


def test_predefined_queues_and_their_backoff(celery, left, sqs):
    """The transport sets the time until a failed task's message comes again: no retry of Celery's."""
    url = sqs.create_queue(QueueName="shop", Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    queue = {
        "url": url,
        "access_key_id": "any",
        "secret_access_key": "any",
        "backoff_policy": {1: 1, 2: 1, 3: 60},
        "backoff_tasks": ["tests.clients.celery_tasks.fail"],
    }
    celery.transport |= {"visibility_timeout": 60, "predefined_queues": {"shop": queue}}
    celery.worker()
    celery.send("fail.delay('x')")
    celery.until(lambda: len(celery.values("fail")) >= 2)
    sqs.purge_queue(QueueUrl=url)


def test_a_fifo_queue_keeps_the_order_of_a_group(celery, left):
    celery.env["CELERY_QUEUE"] = "shop.fifo"
    celery.worker("--concurrency=1")  # it may hold several of a group: they are done in turn
    celery.send("for i in range(20): note.apply_async((i,), MessageGroupId='one')")
    celery.until(lambda: len(celery.notes("note")) == 20 and left("shop.fifo") == 0)
    assert [note["value"] for note in celery.notes("note")] == list(range(20))


def test_nothing_is_lost_when_the_node_crashes(celery, left, node):
    celery.transport["visibility_timeout"] = SHORT
    celery.worker()
    celery.send("for i in range(10): note.delay(i)")
    celery.until(lambda: len(celery.notes("note")) >= 10)
    celery.send("for i in range(10, 20): note.apply_async((i,), DelaySeconds=2)")
    node.kill()
    node.restart()
    celery.worker()  # as a supervisor would: a worker ends when a question of its breaks off
    celery.send("for i in range(20, 30): note.delay(i)")
    celery.until(lambda: left() == 0)
    assert set(celery.values("note")) == set(range(30))  # a crash may repeat some


@pytest.mark.parametrize("base64", [True, False])
def test_quiver_receives_what_celery_sent(celery, left, node, base64):
    celery.transport["sqs_base64_encoding"] = base64
    celery.send("note.delay('for Quiver')")
    assert left() == 1
    out = run_quiver("receive", "shop", "--json", "--data", f"quiver://127.0.0.1:{node.port}")
    body = json.loads(out)["body"]
    envelope = json.loads(b64decode(body) if base64 else body)
    assert envelope["headers"]["task"] == "tests.clients.celery_tasks.note"
    assert json.loads(b64decode(envelope["body"]))[0] == ["for Quiver"]


def test_the_page_shows_the_example():
    page = (environments.ROOT / "docs" / "sqs.md").read_text()
    shown = page.split("```python no-run\napp.conf.update(\n")[1].split("```")[0]
    example = (environments.ROOT / "examples" / "celery" / "shop.py").read_text()
    assert shown in "\n".join(line.split("  #")[0] for line in example.splitlines())


def test_the_example(celery, left):
    """`examples/celery/shop.py`, as its first lines say to run it."""
    folder = environments.ROOT / "examples" / "celery"
    celery.worker(app="shop", folder=folder)
    celery.python("shop.py", folder=folder)
    for said in ("paid at the third attempt", "shipped", "please tell us how you liked it"):
        celery.until(lambda said=said: f"order 42: {said}" in celery.log())
    celery.until(lambda: left() == 0)

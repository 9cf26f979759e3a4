"""A node dies under its clients, again and again: nothing confirmed is lost, nothing is doubled."""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import compress
from operator import not_
from pathlib import Path

import pytest

import quiver
from tests.server.api import workers
from tests.server.nodes import start_node

FEW = ["dedup", "producer", "consumer", "consumer"]
EIGHT = 2 * FEW
END_SECONDS = 120
PATIENCE = "120s"


@pytest.mark.process
@pytest.mark.parametrize(
    ("times", "roles"),
    [
        pytest.param(1, FEW, id="once"),
        pytest.param(2, EIGHT, marks=pytest.mark.check, id="2"),
        pytest.param(10, EIGHT, marks=[pytest.mark.slow, pytest.mark.timeout(900)], id="10"),
        pytest.param(50, EIGHT, marks=[pytest.mark.soak, pytest.mark.timeout(1_800)], id="50"),
    ],
)
def test_a_node_that_is_killed_under_its_clients_loses_and_doubles_nothing(tmp_path, times, roles):
    chance = random.Random(times)
    with start_node(tmp_path) as node, ExitStack() as stack:
        url = f"quiver://127.0.0.1:{node.port}?patience={PATIENCE}"
        with quiver.connect(url) as queue:
            queue.create_topic(workers.TOPIC, retention="forever", dedup_window="1d")
            queue.create_group(workers.TOPIC, workers.GROUP)
        logs = [tmp_path / f"{role}-{number}.log" for number, role in enumerate(roles)]
        clients = [
            stack.enter_context(client(role, url, number, logs[number]))
            for number, role in enumerate(roles)
        ]
        stack.callback(kill, clients)  # whatever happens, nobody stays
        await_progress(logs, [0] * len(logs))
        for _ in range(times):
            time.sleep(chance.uniform(0.2, 0.8))  # under load, at any moment of it
            node.kill()
            node.restart()
        await_progress(logs, progress(logs))  # they recover by themselves
        consumes = [role == "consumer" for role in roles]
        for process in compress(clients, map(not_, consumes)):  # so that consumers can finish
            finish(process)
        await_acks(url)  # also of what was granted and not answered: it is leased to nobody
        for process in compress(clients, consumes):
            finish(process)
        confirmed = names(compress(logs, map(not_, consumes)))
        received = set(names(compress(logs, consumes))) - {"# expired"}
        with quiver.connect(url) as queue:
            stored = Counter(record.text for record in queue.read(workers.TOPIC))
            left = queue.groups(workers.TOPIC)[workers.GROUP].lag
    assert len(confirmed) > 100
    assert not [name for name in confirmed if name not in stored], "confirmed and lost"
    assert not [name for name, count in stored.items() if count > 1], "stored twice"
    assert left == 0
    assert received == set(stored)


def client(role: str, url: str, number: int, log: Path) -> "subprocess.Popen[bytes]":
    log.touch()
    command = [sys.executable, workers.__file__, role, url, str(number), str(log)]
    return subprocess.Popen(command, stdin=subprocess.PIPE)


def progress(logs: list[Path]) -> list[int]:
    return [log.stat().st_size for log in logs]


def await_progress(logs: list[Path], before: list[int]) -> None:
    deadline = time.monotonic() + END_SECONDS
    while any(now <= then for now, then in zip(progress(logs), before, strict=True)):
        assert time.monotonic() < deadline, "some client does nothing any more"
        time.sleep(0.05)


def await_acks(url: str) -> None:
    deadline = time.monotonic() + END_SECONDS
    with quiver.connect(url) as queue:
        while queue.groups(workers.TOPIC)[workers.GROUP].lag:
            assert time.monotonic() < deadline, "some messages are never acked"
            time.sleep(0.05)


def kill(clients: "list[subprocess.Popen[bytes]]") -> None:
    for process in clients:
        process.kill()


def finish(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(END_SECONDS) == 0


def names(logs: Iterable[Path]) -> list[str]:
    return [line for log in logs for line in log.read_text().splitlines()]

"""A redrive by condition that is killed again and again: every letter is moved once or stays."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import quiver
from tests.process.crash import PATIENCE_SECONDS, ROOT, opened_later

pytestmark = pytest.mark.process

WHERE = "reason like 'Timeout%' and json.amount >= 10"
BATCH = 100_000
REDRIVE = f"""
import os, sys, quiver
say = lambda moved: (os.write(1, b"%d\\n" % moved), os.read(0, 1))  # and wait to be told to go on
with quiver.connect(sys.argv[1]) as queue:
    say(0)
    queue.redrive("orders.dlq", where={WHERE!r}, progress=say)
    os.write(1, b"done\\n")
"""


def reason_of(order: int) -> str:
    return "Timeout: no answer" if order // 10 % 3 else "Bad address"  # failures come in runs


def amount_of(order: int) -> int:
    return order % 100


def matches(order: int) -> bool:
    return reason_of(order).startswith("Timeout") and amount_of(order) >= 10


def bury(path: Path, letters: int) -> None:
    with quiver.connect(path) as queue:
        queue.create_topic("orders", max_attempts=1)
        for first in range(0, letters, BATCH):
            orders = range(first, min(first + BATCH, letters))
            bodies = [b'{"order": %d, "amount": %d}' % (n, amount_of(n)) for n in orders]
            queue.send_batch("orders", pa.table({"body": pa.array(bodies, pa.binary())}))
        while len(batch := queue.receive_arrow("orders", "billing", max_messages=BATCH)):
            offsets = batch.table["offset"].to_pylist()
            for reason in ("Timeout: no answer", "Bad address"):
                batch.dead_letter([reason_of(at) == reason for at in offsets], reason=reason)
        assert queue.stats("orders.dlq").depth == letters


def redrive_until(path: Path, moved: int) -> int:
    """Redrive in a process of its own; kill it when it has moved so many, and say how many it did."""
    worker = subprocess.Popen(
        [sys.executable, "-c", REDRIVE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        bufsize=0, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert worker.stdin is not None
    assert worker.stdout is not None
    said = 0
    with worker:
        for line in worker.stdout:
            if line == b"done\n":
                break
            said = int(line)
            worker.stdin.write(b".")
            if said >= moved:  # in the middle of the next step
                worker.send_signal(signal.SIGKILL)
                break
        worker.wait(PATIENCE_SECONDS)
    return said


def orders_in(queue: quiver.Queue, topic: str) -> list[int]:
    found: list[int] = []
    while len(batch := queue.receive_arrow(topic, "billing", max_messages=BATCH)):
        texts = batch.table["body"].cast(pa.string()).to_pylist()
        found += [int(text[10 : text.index(",")]) for text in texts]
        batch.ack()
    return found


def check_kills(path: Path, letters: int, kills: int) -> None:
    bury(path, letters)
    wanted = [order for order in range(letters) if matches(order)]
    for _ in range(kills):  # half of them together, and a step or two more
        assert redrive_until(path, len(wanted) // (2 * kills)) < len(wanted)
    with opened_later(path) as queue:
        left = queue.redrive("orders.dlq", where=WHERE, dry_run=True)
        assert 0 < left < len(wanted), "it was killed in the middle"
        assert queue.redrive("orders.dlq", where=WHERE) == left
        assert queue.redrive("orders.dlq", where=WHERE) == 0
        back = orders_in(queue, "orders")
        assert len(back) == len(set(back)), "moved twice"
        assert sorted(back) == wanted
        stay = orders_in(queue, "orders.dlq")
        assert sorted(stay) == [order for order in range(letters) if not matches(order)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("letters", "kills"),
    [
        (20_000, 2),
        pytest.param(200_000, 3, marks=pytest.mark.slow),
        pytest.param(1_000_000, 1, marks=pytest.mark.soak),
    ],
)
def test_a_redrive_that_is_killed_goes_on_without_duplicates(tmp_path, letters, kills):
    check_kills(tmp_path / "data", letters, kills)

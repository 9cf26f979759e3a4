"""SIGKILL at random moments: what was confirmed is there, once, and what was acked stays away."""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import quiver
from tests.contract.verbs import drain
from tests.process.crash import by_kind, command, kill_after, opened_later, start
from tests.process.workers import BATCH

pytestmark = pytest.mark.process

LINES_MAX = 500  # that a worker says before it is killed: half a second on a good day


class History:
    """What the workers said in all their lives."""

    def __init__(self) -> None:
        self.kills = 0
        self.sending: dict[str, None] = {}
        self.sent: dict[str, None] = {}
        self.batches: list[str] = []
        self.tasks: list[str] = []
        self.done: list[str] = []
        self.stream = 0
        self.acking: set[str] = set()
        self.acked: set[str] = set()
        self.receipts: dict[str, str] = {}  # of deliveries that nobody has begun to settle
        self.used: dict[str, str] = {}
        self.late: list[str] = []  # delivered after they were acked
        self.seals = 0

    def hear(self, said: str) -> None:
        self.kills += 1
        for line in said.splitlines():
            match line.split(" "):
                case ["sending", message]:
                    self.sending[message] = None
                case ["sent", message]:
                    self.sent[message] = None
                case ["batch", batch]:
                    self.batches.append(batch)
                case ["task", task]:
                    self.tasks.append(task)
                case ["done", task]:
                    self.done.append(task)
                case ["stream", sequence]:
                    self.stream = max(self.stream, int(sequence))
                case ["resume", sequence]:
                    assert int(sequence) >= self.stream, "a named producer was set back"
                case ["got", message, receipt]:
                    if message in self.acked:
                        self.late.append(message)
                    self.receipts[message] = receipt
                case ["acking", message]:
                    self.acking.add(message)
                    self.used[message] = self.receipts.pop(message)
                case ["acked", message]:
                    self.acked.add(message)
                case ["sealed"]:
                    self.seals += 1

    @property
    def unknown(self) -> list[str]:
        """Sends of which nobody knows whether they arrived."""
        return [message for message in self.sending if message not in self.sent]


def check_receipts(path: Path, history: History) -> None:
    """Leases outlive the process: their receipts work once, and those of acked messages never."""
    with quiver.connect(path) as queue:
        for message in list(history.receipts)[:3]:
            receipt = history.receipts.pop(message)
            queue.ack(receipt)
            history.acking.add(message)
            history.acked.add(message)
            history.used[message] = receipt
        for message in list(history.used)[-5:]:
            if message in history.acked:
                with pytest.raises(quiver.ReceiptExpired):
                    queue.ack(history.used[message])


def kill_again_and_again(path: Path, kills: int, random: Random) -> History:
    history = History()
    for round_ in range(kills):
        worker = start(command("crowd", str(path), str(round_), *history.unknown[:50]))
        # Later there is so much that it takes longer than the crowd needs to send as much again.
        kind = "sealed" if round_ % 2 and round_ < 10 else ""
        lines = random.randrange(LINES_MAX) if round_ % 4 else 0  # 0: while it opens the directory
        said, complaints = kill_after(worker, path, lines, kind)
        assert "Traceback" not in complaints, complaints[-3_000:]
        history.hear(said)
        if round_ % 10 == 9 or round_ == kills - 1:
            check_receipts(path, history)
    return history


def check(path: Path, history: History) -> str:
    """The final count. Everything that was confirmed is there; nothing is there twice."""
    sealed = list(path.glob("*@*.parquet"))
    with opened_later(path) as queue:
        left = [body.decode() for body in drain(queue, "singles", "workers")]
        singles = [body.decode() for body in drain(queue, "singles", "audit")]
        batches = [body.decode() for body in drain(queue, "batches", "audit")]
        stream = [int(body) for body in drain(queue, "stream", "audit")]
        tasks = [body.decode() for body in drain(queue, "tasks", "audit")]
        undone = [body.decode() for body in drain(queue, "tasks", "workers")]
        done = [
            [body.decode() for body in drain(queue, side, "audit")] for side in ("left", "right")
        ]
    rows = {f"{batch}/{row}" for batch in history.batches for row in range(BATCH)}
    lost = (
        (set(history.sent) - set(singles))
        | (rows - set(batches))
        | (set(history.tasks) - set(tasks))
        | (set(history.done) - set(done[0]))
        | (set(history.done) - set(done[1]))
    )
    everything: tuple[list[Any], ...] = (singles, batches, stream, tasks, *done)
    twice = [
        message for found in everything for message, times in Counter(found).items() if times > 1
    ]
    confirmed = len(history.sent) + len(rows) + history.stream + len(history.tasks)
    summary = (
        f"kills {history.kills}, attempted {sum(map(len, everything[:4])) + len(history.unknown)}, "
        f"confirmed {confirmed}, acked {len(history.acked)}, transactions {len(history.done)}, "
        f"sealed {history.seals} times, lost {len(lost)}, duplicated {len(twice)}"
    )
    print(summary)
    assert not lost, summary
    assert not twice, summary
    assert not set(singles) - set(history.sending), "a message that nobody sent"
    assert not history.late, "delivered after it was acked"
    assert not set(left) & history.acked, "acked, and still there"
    assert set(singles) <= set(left) | history.acking, "neither acked nor there"
    assert stream == list(range(len(stream))), (
        "the named producer's messages, each once and in order"
    )
    assert len(stream) >= history.stream
    whole = Counter(row.partition("/")[0] for row in batches)
    assert set(whole.values()) <= {BATCH}, "a batch is stored whole or not at all"
    assert sorted(done[0]) == sorted(done[1]), "half a transaction"
    assert sorted(done[0] + undone) == sorted(tasks), "a task is done or not done, never both"
    assert confirmed > 0
    assert sealed, "much of it was read from segments"
    return summary


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kills",
    [
        4,
        pytest.param(30, marks=pytest.mark.slow),
        pytest.param(100, marks=pytest.mark.soak),
    ],
)
def test_kills_at_random_moments_lose_nothing(tmp_path, kills):
    history = kill_again_and_again(tmp_path / "data", kills, Random(kills))
    assert history.kills == kills
    assert history.used, "receipts were tried after a crash"
    check(tmp_path / "data", history)


def test_what_workers_say_is_understood():
    assert by_kind("sent a\nsent b\nend\n") == {"sent": ["a", "b"], "end": [""]}

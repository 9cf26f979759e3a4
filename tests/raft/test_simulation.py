"""Whole clusters with all that can go wrong; the chapter is in `tests.raft.simulation`.

A seed that fails prints its rates, what led to it, and the command that runs it again.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.raft.simulation import cluster
from tests.raft.simulation.runs import SeedFailed, run_seed, run_seeds, told

ROOT = Path(__file__).parents[2]
QUICK = 60

# What the quick seeds must come by, or there is a fault that they do not test.
KINDS = (
    *("PreVoteRequest", "PreVoteReply", "VoteRequest", "VoteReply", "TimeoutNow"),
    *("Append", "AppendReply", "Heartbeat", "HeartbeatReply", "Install", "InstallReply"),
    *("ReadRequest", "ReadReply"),
    *("lost", "late", "overtaken", "doubled", "connections lost"),
    *(f"partition: {kind}" for kind in cluster.PARTITIONS),
    *("crashes", "power cuts", "pauses", "retired", "started alone"),
    *("pre-votes refused", "votes refused", "appends refused", "installs refused"),
    *("elections", "transfers", "cuts", "overwritten", "overwritten while syncing"),
    *("snapshots", "installs", "installs failed"),
    *("membership changes", "added", "promoted", "removed", "demoted", "joint changes"),
    *("confirmed", "reads", "reads refused", "reads on waking"),
    *("refused: NotLeader", "refused: Overloaded", "refused: PeersChanging"),
)


def parts(first: int, end: int, size: int, *marks: pytest.MarkDecorator) -> list[Any]:
    return [
        pytest.param(at, min(size, end - at), marks=marks, id=f"{at}-{min(at + size, end) - 1}")
        for at in range(first, end, size)
    ]


def test_the_quick_seeds_hold_and_come_by_everything() -> None:
    counts = run_seeds(0, QUICK)
    assert [kind for kind in KINDS if not counts[kind]] == []


@pytest.mark.parametrize(
    ("first", "count"),
    [
        *parts(QUICK, 300, 60, pytest.mark.check),
        *parts(300, 2_000, 100, pytest.mark.slow),
        *parts(2_000, 20_000, 500, pytest.mark.soak),
    ],
)
def test_seeds_hold(first: int, count: int) -> None:
    run_seeds(first, count)


def test_a_seed_tells_the_same_story_whatever_the_order_of_sets() -> None:
    stories = {
        subprocess.run(
            [
                sys.executable,
                "-c",
                "from tests.raft.simulation.runs import told; print(told(8, None).story)",
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": order},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for order in ("1", "2")
    }
    assert stories == {f"{told(8, None).story}\n"}


def test_a_seed_that_fails_says_why_and_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "STORM", 0)
    with pytest.raises(SeedFailed) as failed:
        run_seed(3, 5)
    assert failed.value.seed == 3
    lines = str(failed.value).splitlines()
    assert lines[0].startswith("seed 3: Broken: ")
    assert lines[0].endswith("messages from one peer to another in a calm tick")
    assert "    voters = 5" in lines
    assert any("leader" in line for line in lines)
    assert lines[-1] == "again: python -m tests.raft.simulation --runs 1 --first 3 --nodes 5"

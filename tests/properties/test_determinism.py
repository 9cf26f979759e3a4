"""The log alone decides: replayed anywhere, it gives the same state."""

import os
import subprocess
import sys

import pytest

from quiver.node.peer import Peer
from quiver.testing import MemoryFiles
from tests.bounds import set_bounds
from tests.lengths import quickly
from tests.properties.workload import START_MS, Workload, digest

STEPS = 300
SCRIPT = (
    "import sys; from tests.properties.test_determinism import live_digest; "
    "print(live_digest(int(sys.argv[1])))"
)


def played(seed: int) -> tuple[Workload, MemoryFiles]:
    files = MemoryFiles()
    work = Workload(files, seed)
    for _ in range(STEPS):
        work.step()
        work.engine.core.check()
    return work, files


def live_digest(seed: int) -> str:
    work, _ = played(seed)
    return digest(work.engine)


@pytest.fixture
def small_bounds(monkeypatch):
    """So that work is left for the next entry, as it is when very much is due at once."""
    set_bounds(monkeypatch, expire_max=2, mature_max=2)


@pytest.fixture(autouse=True)
def small_segments():
    """Not here: other processes replay what this one does, with the limits as they are."""


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("seed", quickly(2, range(20, 30)))
def test_questions_between_entries_change_nothing(seed):
    files = MemoryFiles()
    work = Workload(files, seed)
    for _ in range(STEPS):
        work.step()
        work.engine.core.next_tick_ms()  # as a shard asks, and a replay does not
    replayed = Peer.open(files.crash("none"), now_ms=START_MS, secret=b"of no use").engine
    assert digest(replayed) == digest(work.engine)


@pytest.mark.parametrize("seed", quickly(2, range(6)))
def test_a_log_replayed_from_zero_gives_the_state_of_the_live_engine(seed):
    work, files = played(seed)
    replayed = Peer.open(files.crash("none"), now_ms=START_MS, secret=b"of no use").engine
    replayed.core.check()
    assert replayed.core.index == work.engine.core.index > STEPS // 2
    assert digest(replayed) == digest(work.engine)


@pytest.mark.parametrize("seed", quickly(1, range(3)))
def test_a_snapshot_and_the_log_behind_it_give_the_same_state(seed):
    work, files = played(seed)
    work.snapshot()
    for _ in range(50):
        work.step()
    replayed = Peer.open(files.crash("none"), now_ms=START_MS, secret=b"of no use").engine
    assert digest(replayed) == digest(work.engine)


@pytest.mark.parametrize("seed", quickly(1, [7, 8]))
def test_the_state_does_not_depend_on_the_hash_seed(seed):
    def run(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", SCRIPT, str(seed)]
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True, timeout=100
        ).stdout.strip()

    assert run("1") == run("2") == live_digest(seed)

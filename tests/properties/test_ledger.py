"""The ledger tells everything once: through crashes, full disks, merging, and any workload."""

from random import Random

import pytest

from quiver import limits
from quiver.errors import DiskFull
from quiver.model.ledger import Event
from quiver.node.engine import Engine
from quiver.node.peer import Peer
from quiver.storage.ledger import spans
from quiver.testing import MemoryFiles, SimulatedCrash
from tests.lengths import quickly
from tests.properties.ledger import check_sums, rows_of
from tests.properties.workload import SECRET, START_MS, Workload

STEPS = 8  # between snapshots
NOT_IN_THE_WORKLOAD = {"delivered", "discarded", "redriven", "group_deleted", "topic_deleted",
                       "compacted", "dropped", "lost", "published"}  # fmt: skip
SIZES = {"file_bytes": 2_000, "allocate_bytes": 1_024, "reserve_bytes": 256}


def survivals():
    return ["none", "all", *(Random(seed) for seed in range(2))]


def play(files: MemoryFiles, seed: int) -> Workload:
    """Some steps, then a snapshot, three times; then a few more steps."""
    work = Workload(files, seed, **SIZES)
    for _ in range(3):
        for _ in range(STEPS):
            work.step()
        work.snapshot()
    for _ in range(STEPS):
        work.step()
    return work


def opened(files: MemoryFiles) -> Engine:
    return Peer.open(files, now_ms=START_MS, secret=SECRET, **SIZES).engine


@pytest.fixture
def few_files(monkeypatch):
    monkeypatch.setattr(limits, "LEDGER_FILES_MAX", 2)


@pytest.mark.parametrize("seeds", quickly(1, [2, 12]))
def test_the_ledger_adds_up_to_the_stats(seeds):
    events: set[str] = set()
    for seed in range(seeds):
        work = Workload(MemoryFiles(), seed)
        for step in range(300):
            work.step()
            if step % 90 == 89:
                work.snapshot()
        check_sums(work.engine)
        events |= {row["event"] for row in rows_of(work.engine)}
    told = {event.name.lower() for event in Event} - NOT_IN_THE_WORKLOAD
    assert events <= told
    assert events == told or seeds < 12


@pytest.mark.parametrize("seed", quickly(1, range(3)))
def test_snapshots_change_nothing_in_the_ledger(seed, few_files):
    plain = Workload(MemoryFiles(), seed, **SIZES)
    work = play(MemoryFiles(), seed)
    for _ in range(4 * STEPS):
        plain.step()

    def without_entry(rows):
        return [{name: row[name] for name in row if name not in ("entry", "row")} for row in rows]

    assert without_entry(rows_of(work.engine)) == without_entry(rows_of(plain.engine))


@pytest.mark.slow
@pytest.mark.usefixtures("few_files")
@pytest.mark.parametrize("late", [False, True], ids=["before its effect", "after its effect"])
def test_a_crash_at_any_operation_loses_no_row_and_doubles_none(late):
    files = MemoryFiles()
    work = play(files, 7)
    told = rows_of(work.engine)
    total = files.operations
    crashed_with_ledger = merged = 0
    for crash_at in range(1, total + 1):
        files = MemoryFiles(crash_at=crash_at, crash_late=late)
        with pytest.raises(SimulatedCrash):
            play(files, 7)
        for survival in survivals():
            after = files.crash(survival)
            found = spans(after)
            crashed_with_ledger += bool(found)
            merged += any(one.inside(other) for one in found for other in found)
            engine = opened(after)
            entries = engine.core.index
            expected = [row for row in told if row["entry"] <= entries]
            assert rows_of(engine) == expected, (crash_at, survival)
    assert crashed_with_ledger > 100, "most crashes are after the first snapshot"
    assert merged > 10, "a crash after a merge is among them"


def test_a_snapshot_without_room_keeps_the_rows_for_the_next():
    refused = 0
    for full_at in range(1, 12):
        files = MemoryFiles()
        work = Workload(files, 3, **SIZES)
        for _ in range(STEPS):
            work.step()
        made = work.peer.begin_snapshot(work.now_ms)
        told = rows_of(work.engine)
        files.full_at = files.operations + full_at
        try:
            made.save()
            work.engine.snapshots.finish(made)
        except DiskFull:
            refused += 1
            work.engine.snapshots.drop()
        assert told
        assert rows_of(work.engine) == told
        work.step()
        work.snapshot()
        assert rows_of(work.engine)[: len(told)] == told
        assert rows_of(opened(files.crash("none"))) == rows_of(work.engine)
    assert refused == 7  # create, write, rename; and of the snapshot also its reservation

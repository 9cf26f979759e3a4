"""The power fails at every single operation of a log's life; nothing that was confirmed is lost."""

from dataclasses import dataclass, field
from random import Random

import pytest

from quiver.storage.frame import LogRecord
from quiver.storage.wal import Wal
from quiver.testing import MemoryFiles, SimulatedCrash
from tests.unit.storage.logs import assert_holds, open_directory, record, save_state


@dataclass
class Story:
    """What was asked of the log, and what it has confirmed."""

    written: list[LogRecord] = field(default_factory=list)
    confirmed: int = 0


def live_at(index: int) -> list[int]:
    """Which batches the snapshot of entry `index` needs: an old one, and some recent ones."""
    return [each for each in (1, *range(max(2, index - 3), index + 1)) if each % 3]


def live_through(files: MemoryFiles, story: Story) -> None:
    """Appends of several sizes, syncs, rolls, snapshots, removals, a close and a second opening."""
    wal = open_directory(files)[0]
    for turn in range(1, 13):
        append(wal, story, turn % 3 + 1)
        if turn % 2:
            append(wal, story, 1)
        wal.sync()
        story.confirmed = wal.synced_index
        if turn % 4 == 0:
            save_state(files, wal, live_at(wal.synced_index))
        if turn == 6:
            wal.close()
            wal = open_directory(files)[0]


def append(wal: Wal, story: Story, count: int) -> None:
    records = [record(wal.last_index + 1 + number) for number in range(count)]
    story.written += records
    wal.append(records, urgent=False)


def assert_recovers(files: MemoryFiles, story: Story) -> None:
    wal, found, after, live = open_directory(files)
    assert story.confirmed <= wal.last_index <= len(story.written)
    assert_holds(wal, found, story.written[after : wal.last_index])
    for index in live:
        assert wal.read(index) == story.written[index - 1].batch
    more = record(wal.last_index + 1, take=2)
    wal.append([more], urgent=False)
    wal.sync()
    again, found, after, _ = open_directory(files.crash("none"))
    assert_holds(again, found, [*story.written[after : wal.last_index - 1], more])


def operations() -> int:
    files = MemoryFiles()
    live_through(files, Story())
    return files.operations


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("survives", ["none", "all", "some"])
def test_a_crash_at_any_operation_loses_nothing_confirmed(survives, late):
    for crash_at in range(1, operations() + 1):
        files, story = MemoryFiles(crash_at=crash_at, crash_late=late), Story()
        with pytest.raises(SimulatedCrash):
            live_through(files, story)
        for seed in range(5 if survives == "some" else 1):
            chance = Random(crash_at * 1_000 + seed) if survives == "some" else survives
            assert_recovers(files.crash(chance), story)


def test_a_killed_process_and_a_power_failure_after_it_lose_nothing_confirmed():
    """The next process finds what was written and not synced; it must not take it for durable."""
    for crash_at in range(1, operations() + 1):
        files, story = MemoryFiles(crash_at=crash_at), Story()
        with pytest.raises(SimulatedCrash):
            live_through(files, story)
        files.crash_at = None  # the process has ended, the machine has not
        wal = open_directory(files)[0]
        del story.written[wal.last_index :]
        append(wal, story, 1)
        wal.sync()
        story.confirmed = wal.synced_index
        assert_recovers(files.crash("none"), story)


def test_a_crash_while_recovering_from_a_crash_loses_nothing_either():
    chance = Random(11)
    for crash_at in range(1, operations() + 1, 3):
        files, story = MemoryFiles(crash_at=crash_at), Story()
        with pytest.raises(SimulatedCrash):
            live_through(files, story)
        for second in range(1, 12):
            found = files.crash(chance)
            found.crash_at = second
            try:
                open_directory(found)
            except SimulatedCrash:
                assert_recovers(found.crash(chance), story)
            else:
                break

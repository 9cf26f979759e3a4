"""A log on a full disk: all the room there is gets used, and a drained log can be let go of whole."""

import pytest

from quiver.errors import DiskFull
from quiver.storage.frame import LogRecord
from quiver.testing import MemoryFiles
from tests.unit.storage.logs import assert_holds, fill, open_directory, open_log, record, save_state


def fill_up(wal, **how):
    """Append until there is no room; the entries that found some."""
    found: list[LogRecord] = []
    for _ in range(1_000):
        entry = record(wal.last_index + 1)
        try:
            wal.append([entry], **how)
        except DiskFull:
            wal.sync()
            return found
        found.append(entry)
    raise AssertionError("the disk never ran full")


def test_what_is_lent_is_a_snapshots_and_the_last_file_can_go_too():
    files = MemoryFiles()
    wal, _ = open_log(files)
    fill(wal, 2)
    wal.lend()
    save_state(files, wal, [])
    assert [name for name in files.names() if name.startswith("wal-")] == [
        "wal-00000000000000000003.log"
    ]
    kept = fill(wal, 2)
    wal.close()
    again, found, after, _ = open_directory(files)
    assert after == 2
    assert_holds(again, found, kept)


def test_lending_twice_with_nothing_between_harms_nothing():
    files = MemoryFiles()
    wal, _ = open_log(files)
    before = fill(wal, 2)
    wal.lend()
    wal.lend()
    wal.take_back()
    after = fill(wal, 2)
    wal.close()
    again, found = open_log(files)
    assert_holds(again, found, before + after)


@pytest.mark.parametrize("capacity", range(1_000, 3_000, 177))
def test_a_full_disk_takes_urgent_entries_and_after_them_nothing(capacity):
    files = MemoryFiles(capacity_bytes=capacity)
    wal, _ = open_log(files)
    ordinary = fill_up(wal, urgent=False)
    urgent = fill_up(wal, urgent=True)
    assert urgent, "the reserve is for them"
    files.capacity_bytes = None
    later = fill(wal, 3)
    wal.close()
    again, found = open_log(files)
    assert_holds(again, found, ordinary + urgent + later)

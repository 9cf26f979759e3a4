"""The fake disk is as unkind as it says."""

from random import Random

import pytest

from quiver.errors import DiskFull, StorageFailed
from quiver.testing import MemoryFiles, SimulatedCrash


def written(*, synced: bytes, later: bytes) -> MemoryFiles:
    files = MemoryFiles()
    file = files.create("a")
    file.write(0, [synced])
    file.sync()
    files.sync_directory()
    file.write(len(synced), [later])
    return files


def test_synced_bytes_survive_and_others_may_not():
    files = written(synced=b"kept", later=b"lost")
    assert files.crash("none").open("a").read(0, 10) == b"kept"
    assert files.crash("all").open("a").read(0, 10) == b"keptlost"


def test_a_sync_covers_what_was_written_when_it_began():
    files = written(synced=b"kept", later=b"then")
    file = files.open("a")
    finish = file.start_sync()
    file.write(8, [b"late"])
    assert files.crash("none").open("a").read(0, 20) == b"kept"
    finish()
    assert files.crash("none").open("a").read(0, 20) == b"keptthen"
    file.sync()
    assert files.crash("none").open("a").read(0, 20) == b"keptthenlate"


def test_a_sync_that_ends_after_a_later_one_takes_nothing_back():
    files = written(synced=b"kept", later=b"then")
    file = files.open("a")
    finish = file.start_sync()
    file.truncate(2)
    file.sync()
    finish()
    assert files.crash("none").open("a").read(0, 20) == b"ke"


def test_a_write_can_survive_in_parts():
    files = written(synced=b"", later=b"x" * 2048)
    found = {files.crash(Random(seed)).open("a").read(0, 4096) for seed in range(100)}
    assert b"" in found
    assert b"x" * 2048 in found
    assert any(0 < len(each) < 2048 and set(each) == {ord("x")} for each in found)  # a beginning
    assert any(each.startswith(bytes(512)) and each.count(b"x") for each in found)  # some sectors


def test_a_name_that_was_not_synced_may_be_lost():
    files = written(synced=b"kept", later=b"")
    files.rename("a", "b")
    files.create("c")
    assert files.crash("none").names() == ["a"]
    assert files.crash("all").names() == ["b", "c"]
    found = {tuple(files.crash(Random(seed)).names()) for seed in range(50)}
    assert found == {("a",), ("b",), ("a", "c"), ("b", "c")}


def test_a_name_may_be_durable_before_its_content():
    files = MemoryFiles()
    files.create("a").write(0, [b"lost"])
    files.sync_directory()
    assert files.crash("none").open("a").read(0, 10) == b""


def test_the_same_seed_is_the_same_crash():
    files = written(synced=b"", later=bytes(range(256)) * 16)
    once, again = (files.crash(Random(5)).open("a").read(0, 5000) for _ in range(2))
    assert once == again


@pytest.mark.parametrize("late", [False, True])
def test_a_crash_comes_before_or_after_its_operation(late):
    files = MemoryFiles(crash_at=2, crash_late=late)
    file = files.create("a")
    with pytest.raises(SimulatedCrash):
        file.write(0, [b"abc"])
    assert files.crash("all").open("a").read(0, 3) == (b"abc" if late else b"")
    with pytest.raises(SimulatedCrash):
        files.sync_directory()


def test_a_full_disk_refuses_and_takes_again():
    files = MemoryFiles(capacity_bytes=10)
    file = files.create("a")
    file.allocate(8)
    with pytest.raises(DiskFull):
        file.allocate(11)
    assert file.size() == 8
    file.write(0, [b"12345678"])
    with pytest.raises(DiskFull):
        files.create("b").write(0, [b"123"])
    files.capacity_bytes = 11
    files.open("b").write(0, [b"123"])
    assert files.used_bytes == 11


def test_a_failing_sync_makes_nothing_durable():
    files = written(synced=b"kept", later=b"lost")
    files.fail_sync = True
    with pytest.raises(StorageFailed):
        files.open("a").sync()
    assert files.crash("none").open("a").read(0, 10) == b"kept"
    files.fail_sync = False
    files.open("a").sync()  # as Linux has it
    assert files.crash("none").open("a").read(0, 10) == b"kept"

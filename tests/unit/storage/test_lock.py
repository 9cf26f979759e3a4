"""One process owns a directory."""

import os
import subprocess
import sys
import threading

import pytest

from quiver.errors import DirectoryInUse, InvalidRequest, StorageError, StorageFailed
from quiver.storage.lock import NAME, DirectoryLock, unowned

HOLD = """
import sys
from quiver.storage.lock import DirectoryLock
lock = DirectoryLock.acquire(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_directory_is_made_and_owned(tmp_path):
    path = tmp_path / "a" / "b"
    lock = DirectoryLock.acquire(path)
    assert (path / NAME).is_file()
    lock.release()
    lock.release()
    DirectoryLock.acquire(path).release()


def test_new_directories_are_made_durable(tmp_path, monkeypatch):
    synced: list[object] = []
    monkeypatch.setattr("quiver.storage.lock.sync_directory", synced.append)
    DirectoryLock.acquire(tmp_path / "a" / "b").release()
    assert synced == [tmp_path / "a", tmp_path]
    DirectoryLock.acquire(tmp_path / "a" / "b").release()
    assert len(synced) == 2


def test_a_directory_that_cannot_be_made_is_said_to_be_one():
    with pytest.raises(StorageFailed, match="cannot make the directory /proc/none") as caught:
        DirectoryLock.acquire("/proc/none/data")
    assert "backup" not in str(caught.value)


@pytest.mark.process
def test_another_process_is_told_who_has_it_and_what_to_do(tmp_path, holder):
    with pytest.raises(DirectoryInUse) as caught:
        DirectoryLock.acquire(tmp_path)
    for part in (str(tmp_path), f"process {holder.pid} on ", "-c", "since 20", "One process owns"):
        assert part in str(caught.value)


@pytest.mark.process
def test_the_lock_ends_with_its_process(tmp_path, holder):
    holder.kill()
    holder.wait()
    DirectoryLock.acquire(tmp_path).release()


def test_the_same_process_cannot_have_it_twice(tmp_path):
    lock = DirectoryLock.acquire(tmp_path)
    with pytest.raises(DirectoryInUse, match=f"process {os.getpid()} on .*, which is this one"):
        DirectoryLock.acquire(tmp_path)
    lock.release()


def test_who_only_reads_is_waited_for(tmp_path, monkeypatch):
    DirectoryLock.acquire(tmp_path).release()
    with unowned(tmp_path) as nobodys:
        assert nobodys
        monkeypatch.setattr("quiver.limits.READERS_SECONDS_MAX", 0)
        with pytest.raises(DirectoryInUse):
            DirectoryLock.acquire(tmp_path)
        monkeypatch.undo()
        locks: list[DirectoryLock] = []
        opening = threading.Thread(target=lambda: locks.append(DirectoryLock.acquire(tmp_path)))
        opening.start()
    opening.join()
    with unowned(tmp_path) as nobodys:
        assert not nobodys
    locks[0].release()


def test_an_owner_that_has_not_said_who_it_is_still_owns(tmp_path):
    lock = DirectoryLock.acquire(tmp_path)
    (tmp_path / NAME).write_text("")
    with pytest.raises(DirectoryInUse, match="in use by another process"):
        DirectoryLock.acquire(tmp_path)
    lock.release()


def test_a_forked_child_neither_gives_away_nor_keeps_the_lock(tmp_path, monkeypatch):
    lock = DirectoryLock.acquire(tmp_path)
    child = DirectoryLock(os.dup(lock._descriptor))  # what a child has after a fork
    child._pid = -1
    child.release()
    with pytest.raises(DirectoryInUse):
        DirectoryLock.acquire(tmp_path)
    inherited = os.dup(lock._descriptor)
    lock.release()
    DirectoryLock.acquire(tmp_path).release()
    os.close(inherited)


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_file_is_no_directory(tmp_path, path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="Give the path of a directory"):
        DirectoryLock.acquire(tmp_path / path)


def test_a_directory_that_may_not_be_written_is_named(tmp_path, monkeypatch):
    def refuse(*_arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StorageError, match=rf"{NAME}: Permission denied. Give this user .* access"):
        DirectoryLock.acquire(tmp_path)

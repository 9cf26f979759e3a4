"""The real disk and the one in memory keep the same contract."""

import errno
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from quiver.errors import DiskFull, StorageFailed
from quiver.storage import system
from quiver.storage.files import DiskFiles, publish
from quiver.testing import MemoryFiles

DESCRIPTORS = Path("/proc/self/fd")


def failing(number: int):
    def fail(*_arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


def test_what_is_written_can_be_read(files):
    file = files.create("a")
    file.write(3, [b"de", memoryview(b"f"), b""])
    file.write(0, [b"abc"])
    assert file.read(0, 6) == b"abcdef"
    assert file.read(4, 100) == b"ef"
    assert file.read(100, 1) == b""
    assert (file.name, file.size()) == ("a", 6)


def test_a_file_grows_with_zeros_and_shrinks(files):
    file = files.create("a")
    file.write(0, [b"abc"])
    file.allocate(8)
    assert file.read(0, 10) == b"abc" + bytes(5)
    file.allocate(4)
    assert file.size() == 8
    file.truncate(2)
    file.truncate(4)
    assert file.read(0, 10) == b"ab" + bytes(2)


def test_names_come_sorted_and_can_be_changed(files):
    for name in ("b", "a", "c"):
        files.create(name).write(0, [name.encode()])
    files.rename("a", "z")
    files.rename("b", "c")
    files.sync_directory()
    assert files.names() == ["c", "z"]
    assert files.open("c").read(0, 1) == b"b"


def test_a_removed_file_stays_readable(files):
    file = files.create("a")
    file.write(0, [b"abc"])
    files.remove("a")
    assert files.names() == []
    assert file.read(0, 3) == b"abc"


def test_files_that_should_not_exist_or_should(files):
    files.create("a")
    with pytest.raises(StorageFailed, match="a: "):
        files.create("a")
    for refused in (
        lambda: files.open("b"),
        lambda: files.remove("b"),
        lambda: files.rename("b", "c"),
    ):
        with pytest.raises(StorageFailed):
            refused()
    assert files.names() == ["a"]


def test_a_closed_file_is_closed(files):
    file = files.create("a")
    file.close()
    file.close()
    with pytest.raises(StorageFailed):
        file.read(0, 1)


def test_publish_makes_a_file_at_once(files):
    files.create("a.tmp").write(0, [b"left by a crash, and longer than what is to come"])
    publish(files, "a", [b"con", b"tent"], allocate=10)
    assert files.names() == ["a"]
    assert files.open("a").read(0, 100) == b"content" + bytes(3)


@pytest.mark.parametrize("full_at", [1, 2, 3, 5])  # create, write, allocate, rename
def test_publish_leaves_nothing_on_a_full_disk(full_at):
    files = MemoryFiles(full_at=full_at)
    with pytest.raises(DiskFull):
        publish(files, "a", [b"content"], allocate=10)
    assert files.names() == []


# -- the real disk ---------------------------------------------------------------------------------


def test_more_buffers_than_the_system_takes_at_once(tmp_path):
    file = DiskFiles(tmp_path).create("a")
    pieces = [b"%06d" % number for number in range(2 * system.BUFFERS_MAX + 1)]
    file.write(0, pieces)
    assert file.read(0, file.size()) == b"".join(pieces)


def test_short_writes_and_reads_are_continued(tmp_path, monkeypatch):
    real_write, real_read = os.pwritev, os.pread
    monkeypatch.setattr(os, "pwritev", lambda fd, views, at: real_write(fd, [views[0][:2]], at))
    monkeypatch.setattr(os, "pread", lambda fd, count, at: real_read(fd, min(count, 3), at))
    file = DiskFiles(tmp_path).create("a")
    file.write(1, [b"abc", b"", b"defgh"])
    assert file.read(0, 100) == b"\0abcdefgh"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_from_a_broken_one(tmp_path, monkeypatch, number):
    files = DiskFiles(tmp_path)
    file = files.create("a")
    for name in ("pwritev", "posix_fallocate", "fdatasync", "fsync"):
        monkeypatch.setattr(os, name, failing(number))
    with pytest.raises(DiskFull, match=r"a: .* Free some disk space"):
        file.write(0, [b"x"])
    with pytest.raises(DiskFull):
        file.allocate(10)
    with pytest.raises(StorageFailed, match="Check the disk"):
        file.sync()
    with pytest.raises(StorageFailed):
        files.sync_directory()
    monkeypatch.setattr(os, "open", failing(number))
    with pytest.raises(DiskFull):
        files.create("b")


def test_other_errors_name_the_file_and_say_what_to_do(tmp_path, monkeypatch):
    file = DiskFiles(tmp_path).create("a")
    monkeypatch.setattr(os, "pwritev", failing(errno.EIO))
    with pytest.raises(StorageFailed, match=r"/a: Input/output error. Check the disk"):
        file.write(0, [b"x"])
    monkeypatch.setattr(os, "pwritev", failing(errno.EROFS))
    with pytest.raises(StorageFailed, match="mount it writable"):
        file.write(0, [b"x"])


@pytest.mark.parametrize(("number", "falls_back"), [(errno.ENOTSUP, True), (errno.EIO, False)])
def test_where_fsync_is_not_enough_only_a_missing_call_is_replaced_by_it(
    tmp_path, monkeypatch, number, falls_back
):
    """macOS: a disk that fails must not be asked in another way until it says yes."""
    synced: list[int] = []
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(system, "_FULL_SYNC", 51)
    monkeypatch.setattr(system._LOCKS, "fcntl", failing(number))
    file = DiskFiles(tmp_path).create("a")
    with nullcontext() if falls_back else pytest.raises(StorageFailed):
        file.sync()
    assert len(synced) == falls_back


def test_a_failed_reservation_gives_back_what_it_got(tmp_path, monkeypatch):
    file = DiskFiles(tmp_path).create("a")

    def partly(descriptor: int, start: int, _count: int) -> None:
        os.ftruncate(descriptor, start + 1)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", partly)
    with pytest.raises(DiskFull):
        file.allocate(100)
    assert file.size() == 0


def test_files_are_private_and_reserved_space_is_real(tmp_path):
    file = DiskFiles(tmp_path).create("a")
    file.allocate(1 << 20)
    status = (tmp_path / "a").stat()
    assert status.st_mode & 0o777 == 0o600
    assert status.st_blocks * 512 >= 1 << 20


def test_a_descriptor_is_closed_when_nobody_refers_to_the_file(tmp_path):
    files = DiskFiles(tmp_path)
    before = len(list(DESCRIPTORS.iterdir()))
    file = files.create("a")
    assert len(list(DESCRIPTORS.iterdir())) == before + 1
    del file
    assert len(list(DESCRIPTORS.iterdir())) == before


def test_a_read_only_view_reads(tmp_path):
    DiskFiles(tmp_path).create("a").write(0, [b"abc"])
    file = DiskFiles(tmp_path, read_only=True).open("a")
    assert file.read(0, 3) == b"abc"
    with pytest.raises(StorageFailed):
        file.write(0, [b"x"])

"""The only door to the operating system: a flat directory of files, and what can be done to them.

`Files` and `File` are protocols, so that `quiver.testing.MemoryFiles` can play a disk that crashes.
What the rest of the package relies on:

- what was written is durable after `sync()`, and only then; before, any part of it may survive a
  crash;
- a name made, changed or removed is durable after `sync_directory()`, and only then;
- a rename is atomic and replaces what had the new name;
- a `File` stays readable after its name was removed, for as long as somebody refers to it;
- `DiskFull` means that the disk is as it was, except that a refused `write` may have left some of
  its bytes behind. `ReadFailed` means that the disk could not be read, and nothing else: the
  file may be whole. Everything else that goes wrong is `StorageFailed`, and a sync that fails
  always is: the system may have dropped the data by then, so a second sync that succeeds would
  prove nothing.

Which of the system's calls do that is said in `system`.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from quiver.errors import DiskFull, ReadFailed, StorageFailed
from quiver.storage import system

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Buffer

PRIVATE: Final = 0o600  # messages, and the key that signs receipts
TEMPORARY: Final = ".tmp"


class File(Protocol):
    """An open file. Reading is safe from any thread."""

    @property
    def name(self) -> str:
        """The name it was opened by."""

    def size(self) -> int:
        """Its length in bytes, reserved ones included."""

    def read(self, position: int, count: int) -> bytes:
        """`count` bytes from `position`, fewer only at the end of the file."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write the buffers one after the other, all of them or raise."""

    def allocate(self, size: int) -> None:
        """Have room on disk for `size` bytes; a shorter file grows to that with zeros."""

    def truncate(self, size: int) -> None:
        """Make the file exactly `size` bytes long."""

    def begin_sync(self) -> None:
        """Let the disk begin with what was written, and do not wait: the `sync` that follows is shorter."""

    def start_sync(self) -> Callable[[], None]:
        """What returns when everything written until now is durable; any thread may call it."""

    def sync(self) -> None:
        """Return when everything written is durable."""

    def close(self) -> None:
        """Let go of it; a second time does nothing."""


class Files(Protocol):
    """A flat directory."""

    def names(self) -> list[str]:
        """All names, sorted."""

    def open(self, name: str) -> File:
        """Open what exists."""

    def create(self, name: str) -> File:
        """Make an empty file of a new name."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, at once."""

    def remove(self, name: str) -> None:
        """Forget a name."""

    def sync_directory(self) -> None:
        """Return when all names are durable."""

    def path(self, name: str) -> str:
        """Where other programs find a file."""

    def room(self) -> tuple[int, int]:
        """How many bytes the disk has, and how many of them are free for us."""


@contextmanager
def publishing(files: Files, name: str) -> Iterator[File]:
    """A file to be written in this block, which is there completely or not at all, whatever happens.

    That its name is durable is seen to by the caller, who may have several of them.
    """
    temporary = name + TEMPORARY
    if temporary in files.names():
        files.remove(temporary)
    try:
        file = files.create(temporary)
        yield file
        file.sync()
        file.close()
        files.rename(temporary, name)
    except DiskFull:
        if temporary in files.names():  # the space it took may be what others wait for
            files.remove(temporary)
        raise


def publish(files: Files, name: str, buffers: Sequence[Buffer], *, allocate: int = 0) -> None:
    """Make a file of this content, durable under its name."""
    with publishing(files, name) as file:
        file.write(0, buffers)
        file.allocate(allocate)
    files.sync_directory()


class DiskFiles:
    """A real directory, which must exist."""

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        system.demand_supported()
        self._path = Path(path)
        self._mode = os.O_RDONLY if read_only else os.O_RDWR

    def names(self) -> list[str]:
        with translated(self._path):
            return sorted(entry.name for entry in self._path.iterdir())

    def open(self, name: str) -> DiskFile:
        path = self._path / name
        with translated(path, reads=True):
            return DiskFile(path, os.open(path, self._mode))

    def create(self, name: str) -> DiskFile:
        path = self._path / name
        with translated(path, wants_room=True):
            return DiskFile(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))

    def rename(self, old: str, new: str) -> None:
        with translated(self._path / new, wants_room=True):
            (self._path / old).replace(self._path / new)

    def remove(self, name: str) -> None:
        path = self._path / name
        with translated(path):
            path.unlink()

    def sync_directory(self) -> None:
        sync_directory(self._path)

    def path(self, name: str) -> str:
        return str(self._path.absolute() / name)

    def room(self) -> tuple[int, int]:
        with translated(self._path):
            disk = os.statvfs(self._path)
        return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize


class DiskFile:
    """A real file. Its descriptor is closed by `close`, or when nobody refers to it any more."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def __del__(self) -> None:
        self.close()

    @property
    def name(self) -> str:
        return self._path.name

    def size(self) -> int:
        with translated(self._path):
            return os.fstat(self._descriptor).st_size

    def read(self, position: int, count: int) -> bytes:
        with translated(self._path, reads=True):
            data = os.pread(self._descriptor, count, position)
            while 0 < len(data) < count:  # at the end of the file, or interrupted
                more = os.pread(self._descriptor, count - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        left = sum([view.nbytes for view in views])
        with translated(self._path, wants_room=True):
            while left:
                count = system.write(self._descriptor, views, position)
                position += count
                left -= count
                views = _behind(views, count) if left else []

    def allocate(self, size: int) -> None:
        before = self.size()
        if size <= before:
            return
        with translated(self._path, wants_room=True):
            try:
                system.reserve(self._descriptor, before, size)
            except OSError:
                os.ftruncate(self._descriptor, before)  # a part of it may have succeeded
                raise

    def truncate(self, size: int) -> None:
        with translated(self._path):
            os.ftruncate(self._descriptor, size)

    def begin_sync(self) -> None:
        system.begin_sync(self._descriptor)

    def start_sync(self) -> Callable[[], None]:
        return self.sync

    def sync(self) -> None:
        with translated(self._path):
            system.sync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Return when the names in `path` are durable."""
    with translated(path):
        descriptor = os.open(path, os.O_RDONLY | system.DIRECTORY)
        try:
            system.sync_all(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def making(directory: Path) -> Iterator[None]:
    """Around the making of a directory: no advice for a file that was there, and is missing, fits."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        advice = _ADVICE_NO_PARENT if error.errno == errno.ENOENT else _advice(error)
        raise StorageFailed(f"cannot make the directory {directory}: {reason}. {advice}") from error


class translated:  # noqa: N801  # reads as a verb; as a generator it would take thrice as long
    """The one place where the system's errors become ours."""

    __slots__ = ("_path", "_reads", "_wants_room")

    def __init__(self, path: Path, *, reads: bool = False, wants_room: bool = False) -> None:
        self._path = path
        self._reads = reads
        self._wants_room = wants_room

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError):
            return
        reason = error.strerror or str(error)
        if self._wants_room and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"{self._path}: {reason}. {_ADVICE_FULL}") from error
        if self._reads and error.errno in _UNREADABLE:
            raise unread(self._path, error) from error
        raise StorageFailed(f"{self._path}: {reason}. {_advice(error)}") from error


def _advice(error: OSError) -> str:
    return _ADVICE.get(error.errno or 0, _ADVICE_OTHER)


def unread(path: str | os.PathLike[str], error: OSError) -> ReadFailed:
    """What to say of a file that the system could not read."""
    reason = error.strerror or str(error)
    name = errno.errorcode.get(error.errno or 0, "no number")
    return ReadFailed(
        f"{path} could not be read: {reason} ({name}). Nothing was changed. Try again; if it stays "
        "so, check the disk and the system's log, copy what can be read, and restore the file from "
        "a backup.",
        str(path),
        error.errno or 0,
    )


# What a disk, or a file system over a network, says when it cannot give what it may well have.
_UNREADABLE: Final = tuple(
    getattr(errno, name)
    for name in ("EIO", "ESTALE", "ETIMEDOUT", "EREMOTEIO", "ENODATA")
    if hasattr(errno, name)  # EREMOTEIO is Linux's
)

_ADVICE_FULL: Final = "Free some disk space; writing goes on by itself as soon as there is room."
_ADVICE_NO_PARENT: Final = "No directory can be made there: choose another place."
_ADVICE_OTHER: Final = "Check the disk and the system's log, then open the queue again."
_ADVICE: Final = {
    errno.EACCES: "Give this user read and write access to it, or choose another directory.",
    errno.EPERM: "Give this user read and write access to it, or choose another directory.",
    errno.EROFS: "The file system is read-only: mount it writable, or choose another directory.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n), then open the queue again.",
    errno.ENOENT: "Put it back, from a backup if need be, then open the queue again.",
}


def _behind(views: list[memoryview], count: int) -> list[memoryview]:
    """What is left of `views` after their first `count` bytes."""
    for done, view in enumerate(views):
        if count < view.nbytes:
            return [view[count:], *views[done + 1 :]]
        count -= view.nbytes
    return []

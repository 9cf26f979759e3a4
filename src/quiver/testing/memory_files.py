"""A disk in memory that forgets what was not synced, runs full, and fails when it is told to.

It is as unkind as the contract of `quiver.storage.files` allows. Writes that were not synced and
names that were not synced survive a crash or not, each by itself; of a write some sectors may
survive. A sync covers what was written when it began.

    files = MemoryFiles(crash_at=17)
    try:
        work(files)
    except SimulatedCrash:
        files = files.crash(random.Random(7))     # the disk as the next process finds it

Operations that change the disk are numbered from 1 (`operations` counts them), so that a test can
let each of them be the last one, or the one that meets a full disk.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from quiver import limits
from quiver.errors import DiskFull, StorageFailed
from quiver.storage.files import unread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from random import Random

    from typing_extensions import Buffer

SECTOR_BYTES: Final = 512


class SimulatedCrash(BaseException):
    """The machine stopped. Like a real stop it is no `Exception` that a program could handle."""


class MemoryFiles:
    """A flat directory in memory: `quiver.storage.files.Files`.

    `crash_at`: the operation of this number does not return, nor does any after it; it has had
    its effect if `crash_late`. `full_at`: the operation of this number finds no room, once.
    `capacity_bytes`: the room there is. `fail_sync`: every sync fails, and later ones do not make up
    for it. `unreadable`: the names of files that the disk cannot read. All may be changed at any time.
    """

    def __init__(
        self,
        *,
        crash_at: int | None = None,
        crash_late: bool = False,
        full_at: int | None = None,
        capacity_bytes: int | None = None,
        fail_sync: bool = False,
    ) -> None:
        self.crash_at = crash_at
        self.crash_late = crash_late
        self.full_at = full_at
        self.capacity_bytes = capacity_bytes
        self.fail_sync = fail_sync
        self.unreadable: Collection[str] = ()
        self.operations = 0
        self._contents: dict[str, _Content] = {}
        self._durable: dict[str, _Content] = {}
        self._unsynced: list[_Naming] = []

    def crash(self, survives: Random | Literal["none", "all"]) -> MemoryFiles:
        """The disk after a power failure: of the unsynced all, none, or what chance says."""
        names = dict(self._durable)
        for naming in self._unsynced:
            if _chance(survives):
                naming.apply(names)
        disk = MemoryFiles(capacity_bytes=self.capacity_bytes)
        disk._durable = {name: _Content(names[name].after(survives)) for name in sorted(names)}
        disk._contents = dict(disk._durable)
        return disk

    @property
    def used_bytes(self) -> int:
        """The length of all files together."""
        return sum(len(content.data) for content in self._contents.values())

    # -- Files -------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return sorted(self._contents)

    def open(self, name: str) -> MemoryFile:
        return MemoryFile(self, name, self._existing(name))

    def create(self, name: str) -> MemoryFile:
        with self._operation(name, wants_room=True):
            if name in self._contents:
                raise StorageFailed(f"{name}: exists already.")
            content = _Content()
            self._name(_Naming(name, content))
            return MemoryFile(self, name, content)

    def rename(self, old: str, new: str) -> None:
        with self._operation(new, wants_room=True):
            self._name(_Naming(new, self._existing(old), old))

    def remove(self, name: str) -> None:
        with self._operation(name):
            self._existing(name)
            self._name(_Naming(old=name))

    def sync_directory(self) -> None:
        with self._operation("the directory"):
            self._check_sync("the directory")
            self._durable = dict(self._contents)
            self._unsynced.clear()

    def path(self, name: str) -> str:
        return name

    def room(self) -> tuple[int, int]:
        capacity = limits.SIZE_BYTES_MAX if self.capacity_bytes is None else self.capacity_bytes
        return capacity, capacity - self.used_bytes

    # -- what happens to operations ----------------------------------------------------------------

    @contextmanager
    def _operation(self, name: str, *, wants_room: bool = False) -> Iterator[None]:
        self.operations += 1
        crash_at = self.operations + 1 if self.crash_at is None else self.crash_at
        if self.operations > crash_at or (self.operations == crash_at and not self.crash_late):
            raise SimulatedCrash(f"operation {self.operations}")
        if wants_room and self.operations == self.full_at:
            raise DiskFull(f"{name}: simulated.")
        yield
        if self.operations == crash_at:
            raise SimulatedCrash(f"operation {self.operations}")

    def _check_sync(self, name: str) -> None:
        if self.fail_sync:
            raise StorageFailed(f"{name}: simulated failure of a sync.")

    def _room(self) -> int | None:
        return None if self.capacity_bytes is None else self.capacity_bytes - self.used_bytes

    def _existing(self, name: str) -> _Content:
        if name not in self._contents:
            raise StorageFailed(f"{name}: does not exist.")
        return self._contents[name]

    def _name(self, naming: _Naming) -> None:
        naming.apply(self._contents)
        self._unsynced.append(naming)


class MemoryFile:
    """A file of `MemoryFiles`: `quiver.storage.files.File`."""

    def __init__(self, disk: MemoryFiles, name: str, content: _Content) -> None:
        self._disk = disk
        self._name = name
        self._content = content
        self._closed = False

    @property
    def name(self) -> str:
        return self._name

    def size(self) -> int:
        self._check_open()
        return len(self._content.data)

    def read(self, position: int, count: int) -> bytes:
        self._check_open()
        if self._name in self._disk.unreadable:
            raise unread(self._name, OSError(errno.EIO, os.strerror(errno.EIO)))
        return bytes(self._content.data[position : position + count])

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        self._check_open()
        data = b"".join(memoryview(buffer).cast("B") for buffer in buffers)
        try:
            with self._disk._operation(self._name, wants_room=True):
                self._demand_room(position + len(data))
                self._content.change(_Write(position, data))
        except DiskFull:  # as unkind as the contract allows: some of it is there
            fitting = max(0, min(len(data) - 1, self.size() - position))
            self._content.change(_Write(position, data[:fitting]))
            raise

    def allocate(self, size: int) -> None:
        self._check_open()
        with self._disk._operation(self._name, wants_room=True):
            self._demand_room(size)
            self._content.change(_Resize(size, cut=False))

    def truncate(self, size: int) -> None:
        self._check_open()
        with self._disk._operation(self._name):
            self._content.change(_Resize(size, cut=True))

    def begin_sync(self) -> None:
        self._check_open()

    def start_sync(self) -> Callable[[], None]:
        self._check_open()
        last = self._content.unsynced[-1] if self._content.unsynced else None
        return partial(self._finish_sync, last)

    def sync(self) -> None:
        self.start_sync()()

    def _finish_sync(self, last: _Write | _Resize | None) -> None:
        """Make durable what was there when the sync began: nothing behind its `last` change."""
        self._check_open()
        with self._disk._operation(self._name):
            if self._disk.fail_sync:
                self._content.forget()
            self._disk._check_sync(self._name)
            self._content.sync(last)

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise StorageFailed(f"{self._name}: is closed.")

    def _demand_room(self, size: int) -> None:
        room = self._disk._room()
        if room is not None and size - len(self._content.data) > max(0, room):
            raise DiskFull(f"{self._name}: no room for {size} bytes (simulated).")


# -- what survives ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Naming:
    """A change of the directory: `new` is now the name of `content`, `old` is none any more."""

    new: str = ""
    content: _Content | None = None
    old: str = ""

    def apply(self, names: dict[str, _Content]) -> None:
        names.pop(self.old, None)
        if self.content is not None:
            names[self.new] = self.content


@dataclass(frozen=True, slots=True)
class _Write:
    position: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        end = self.position + len(self.data)
        if self.data:
            content.extend(bytes(max(0, end - len(content))))
            content[self.position : end] = self.data

    def surviving(self, survives: Random | Literal["none", "all"]) -> list[_Write]:
        """All of it, nothing, a beginning, or some sectors."""
        if isinstance(survives, str):
            return [self] if survives == "all" else []
        match survives.randrange(4):
            case 0:
                return [self]
            case 1:
                return []
            case 2:
                return [_Write(self.position, self.data[: survives.randrange(len(self.data) + 1)])]
            case _:
                return [sector for sector in self._sectors() if _chance(survives)]

    def _sectors(self) -> Iterator[_Write]:
        end = self.position + len(self.data)
        start = self.position
        while start < end:
            stop = min(end, start - start % SECTOR_BYTES + SECTOR_BYTES)
            yield _Write(start, self.data[start - self.position : stop - self.position])
            start = stop


@dataclass(frozen=True, slots=True)
class _Resize:
    size: int
    cut: bool

    def apply(self, content: bytearray) -> None:
        content.extend(bytes(max(0, self.size - len(content))))
        if self.cut:
            del content[self.size :]

    def surviving(self, survives: Random | Literal["none", "all"]) -> list[_Resize]:
        return [self] if _chance(survives) else []


@dataclass(slots=True, eq=False)
class _Content:
    """What a file holds, what of that is durable, and the changes between."""

    durable: bytes = b""
    data: bytearray = field(init=False)
    unsynced: list[_Write | _Resize] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.data = bytearray(self.durable)

    def change(self, change: _Write | _Resize) -> None:
        change.apply(self.data)
        self.unsynced.append(change)

    def sync(self, last: _Write | _Resize | None) -> None:
        count = next((at for at, one in enumerate(self.unsynced, 1) if one is last), 0)
        covered, self.unsynced = self.unsynced[:count], self.unsynced[count:]
        content = bytearray(self.durable)
        for change in covered:
            change.apply(content)
        self.durable = bytes(content)

    def forget(self) -> None:
        """A sync failed: the system shows what was written, and the next sync takes it for done."""
        self.unsynced = [change for change in self.unsynced if isinstance(change, _Resize)]

    def after(self, survives: Random | Literal["none", "all"]) -> bytes:
        """What is left after a crash."""
        content = bytearray(self.durable)
        for change in self.unsynced:
            for part in change.surviving(survives):
                part.apply(content)
        return bytes(content)


def _chance(survives: Random | Literal["none", "all"]) -> bool:
    return survives == "all" if isinstance(survives, str) else survives.random() < 0.5

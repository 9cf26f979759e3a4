"""A backup: a directory with copies of a queue's files, and a manifest that says which of them count.

    backup/
      manifest.json      which files make up the queue, as of which entry, with their checksums
      files/             the copies; `orders@1.0-…-0.parquet~1048576-1a2b3c4d`: name, size, CRC-32C

A copy is complete and durable before it gets its name, and never changed: a file of the queue that has
grown is another copy. So the renaming of the manifest is the moment at which a new backup counts; before
it the last one does, after it copies that no manifest names are removed. What a queue never changes
(segments, complete log files, snapshots) is copied once: a file of the same name, size and time of
change as at the last backup is not read again.

A damaged file does not replace a good copy of it: a copy is read, and its checksums compared, before it
gets its name. This module knows files and not what is in them; which are needed, and what says whether
one is whole, is given by the caller.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from crc32c import crc32c

from quiver import limits
from quiver.errors import (
    CorruptBackup,
    CorruptLog,
    CorruptSegment,
    DirectoryInUse,
    InvalidRequest,
    UnsupportedFormat,
)
from quiver.storage import system
from quiver.storage.files import TEMPORARY, DiskFiles, making, publish, sync_directory, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from quiver.storage.files import File

MANIFEST: Final = "manifest.json"
FILES: Final = "files"
VERSION: Final = 1


class Needed(NamedTuple):
    """A file of the queue, how much of it (None is all), and what raises if a copy is damaged."""

    name: str
    nbytes: int | None = None
    demand_whole: Callable[[File], None] | None = None


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file in a backup."""

    name: str
    bytes: int
    crc32c: int
    changed_ns: int  # the original's time of change

    @property
    def stored(self) -> str:
        """The name of its copy."""
        return f"{self.name}~{self.bytes}-{self.crc32c:08x}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup has: everything up to an entry."""

    queue: str  # which one: no other has the same
    entry: int
    time_ms: int  # of that entry
    files: tuple[KeptFile, ...]

    def encode(self) -> bytes:
        """As it is stored: JSON, with a checksum of the rest of it."""
        content = {"version": VERSION, **asdict(self)}
        return json.dumps({**content, "crc32c": _checksum(content)}, indent=1).encode()

    @classmethod
    def decode(cls, data: bytes, where: Path) -> Manifest:
        """What `encode` gave."""
        try:
            content: dict[str, Any] = json.loads(data)
            found, version = content.pop("crc32c"), content.pop("version")
            if version == VERSION and found == _checksum({"version": version, **content}):
                files = tuple(KeptFile(**one) for one in content["files"])
                return cls(content["queue"], content["entry"], content["time_ms"], files)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptBackup(f"{where} is damaged: {error}. {REMEDY}") from error
        if isinstance(version, int) and version > VERSION:
            raise UnsupportedFormat(
                f"{where} has format {version} and this Quiver knows formats up to {VERSION}. "
                "Restore it with the newer Quiver that made it."
            )
        raise CorruptBackup(f"{where} is damaged. {REMEDY}")


REMEDY: Final = "Nothing was changed. Use another backup, or make a new one in an empty directory."


def _checksum(content: dict[str, Any]) -> int:
    return crc32c(json.dumps(content, sort_keys=True).encode())


class Vault:
    """The directory of a backup, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = DiskFiles(path / FILES)
        self.copied = self.copied_bytes = 0
        last = read(path)
        self._queue = last.queue if last else None
        self._last = {kept.name: kept for kept in last.files} if last else {}

    def demand_same(self, queue: str) -> None:
        """Refuse to replace the backup of another queue: it may be all that is left of that."""
        if self._queue not in (None, queue):
            raise InvalidRequest(
                f"{self._path} is the backup of another queue (one that was made anew under the same "
                "path is another, too); give a new directory, or remove that backup if nobody needs it"
            )

    def add(self, source: Path, needed: Needed) -> KeptFile:
        """Have a copy of a file of the queue in `source`."""
        path = source / needed.name
        with translated(path, reads=True):
            status = path.stat()
        nbytes = status.st_size if needed.nbytes is None else needed.nbytes
        known = self._last.get(needed.name)
        same = known is not None and (known.bytes, known.changed_ns) == (nbytes, status.st_mtime_ns)
        if known is not None and same and self._has(known):
            return known
        copied = self._copy(path, nbytes, needed.demand_whole)
        kept = replace(copied, changed_ns=status.st_mtime_ns)
        self._last[kept.name] = kept  # if there is another try
        return kept

    def publish(self, manifest: Manifest) -> None:
        """From now on this is the backup; copies of older ones alone go."""
        self._files.sync_directory()
        publish(DiskFiles(self._path), MANIFEST, [manifest.encode()])
        wanted = {kept.stored for kept in manifest.files}
        for name in self._files.names():
            if name not in wanted:
                self._files.remove(name)

    def _has(self, kept: KeptFile) -> bool:
        path = self._path / FILES / kept.stored
        return path.exists() and path.stat().st_size == kept.bytes

    def _copy(
        self, path: Path, nbytes: int, demand_whole: Callable[[File], None] | None
    ) -> KeptFile:
        file = DiskFiles(path.parent, read_only=True).open(path.name)
        temporary = path.name + TEMPORARY
        if temporary in self._files.names():
            self._files.remove(temporary)
        made = self._files.create(temporary)
        try:
            crc = at = 0
            for data in _pieces(file, nbytes):
                made.write(at, [data])
                crc, at = crc32c(data, crc), at + len(data)
            made.sync()
            if demand_whole is not None:
                demand_whole(made)  # what was just written is in memory: no disk is read again
        except (CorruptLog, CorruptSegment):
            self._files.remove(temporary)
            raise
        finally:
            made.close()
            file.close()
        kept = KeptFile(path.name, at, crc, 0)
        self._files.rename(temporary, kept.stored)
        self.copied += 1
        self.copied_bytes += at
        return kept


@contextmanager
def opened(path: Path, source: Path) -> Iterator[Vault]:
    """The backup in `path`, made if it is not there, for the queue in `source`."""
    if path.resolve() == source.resolve() or source.resolve() in path.resolve().parents:
        raise InvalidRequest(f"{path} is in the directory of the queue; give another place")
    with translated(path):
        _demand_ours(path)
    with making(path):
        (path / FILES).mkdir(parents=True, exist_ok=True)
    with translated(path):
        descriptor = os.open(path, os.O_RDONLY | system.DIRECTORY)
    try:
        with translated(path):
            try:
                system.lock(descriptor)
            except BlockingIOError:
                raise DirectoryInUse(
                    f"another process is just making a backup in {path}; wait for it"
                ) from None
        sync_directory(path.resolve().parent)
        yield Vault(path)
    finally:
        os.close(descriptor)


def _demand_ours(path: Path) -> None:
    """Refuse a directory with anything but a backup in it."""
    if path.exists() and not path.is_dir():
        raise InvalidRequest(f"{path} is a file; give a directory for the backup")
    names = [entry.name for entry in path.iterdir()] if path.exists() else []
    others = [name for name in names if name not in (MANIFEST, FILES, MANIFEST + TEMPORARY)]
    if others:
        raise InvalidRequest(
            f"{path} has other files ({', '.join(sorted(others)[:3])}); give a new or empty "
            "directory, or that of the last backup"
        )


def read(path: Path) -> Manifest | None:
    """The manifest of the backup in `path`; None if there is none."""
    where = path / MANIFEST
    if not where.exists():
        return None
    with translated(where, reads=True):
        return Manifest.decode(where.read_bytes(), where)


def verify(path: Path) -> Manifest:
    """Read all of a backup; what it is, or what is wrong with it."""
    manifest = read(path)
    if manifest is None:
        raise InvalidRequest(f"there is no backup in {path}: it has no {MANIFEST}")
    files = DiskFiles(path / FILES, read_only=True)
    for kept in manifest.files:
        where = path / FILES / kept.stored
        if not where.exists():
            raise CorruptBackup(f"{where} is missing. {REMEDY}")
        file = files.open(kept.stored)
        crc = 0
        for data in _pieces(file, file.size()):
            crc = crc32c(data, crc)
        if (file.size(), crc) != (kept.bytes, kept.crc32c):
            raise CorruptBackup(f"{where} is damaged: its bytes have changed. {REMEDY}")
        file.close()
    return manifest


def restore(path: Path, names: Iterable[KeptFile], files: DiskFiles) -> None:
    """Write these files of a backup, in this order, each durable before the next is there."""
    stored = DiskFiles(path / FILES, read_only=True)
    for kept in names:
        file = stored.open(kept.stored)
        publish(files, kept.name, list(_pieces(file, kept.bytes)))
        file.close()


def _pieces(file: File, nbytes: int) -> Iterator[bytes]:
    """The first bytes of a file, a piece at a time."""
    at = 0
    while at < nbytes:
        data = file.read(at, min(limits.BACKUP_STEP_BYTES, nbytes - at))
        if not data:
            raise CorruptBackup(f"{file.name} is shorter than it should be. {REMEDY}")
        yield data
        at += len(data)

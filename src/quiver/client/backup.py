"""A backup of a queue that may be open meanwhile, and the queue of a backup.

What is copied is found as a reader beside the owner finds it (`node.replica`): a snapshot, the
segments and log files that it needs, and the log up to what is confirmed. Those files never change,
but the owner removes them when it has a newer snapshot. Then the newer one is looked at; what was
copied already is not copied again.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from quiver import limits
from quiver.client.paths import directory, names_in
from quiver.errors import InvalidRequest, Overloaded, StorageError
from quiver.model.replies import Backup
from quiver.node.replica import Replica
from quiver.storage import backup as storage
from quiver.storage.backup import KeptFile, Manifest, Needed, Vault
from quiver.storage.files import DiskFiles
from quiver.storage.lock import DirectoryLock, unowned
from quiver.storage.mark import Mark

ACCESS: Final = "access.toml"  # who may use a node of the queue


def backup(source: Path, dest: str | os.PathLike[str]) -> Backup:
    """Have everything that is confirmed in the queue of `source` in the backup `dest`."""
    path = directory(dest)
    files = DiskFiles(source, read_only=True)
    with storage.opened(path, source) as vault:
        replica = Replica(files, lambda: unowned(source))
        problem: StorageError | None = None
        for _ in range(limits.BACKUP_TRIES_MAX):
            manifest, needed = replica.needed_files()
            if replica.damage is not None:
                raise replica.damage
            vault.demand_same(manifest.queue)
            try:
                kept = [vault.add(source, one) for one in needed]
            except StorageError as error:
                there = files.names()
                if all(one.name in there for one in needed):
                    raise
                problem = error
                continue
            if ACCESS in files.names():
                kept.append(vault.add(source, Needed(ACCESS)))
            made = replace(manifest, files=tuple(kept))
            vault.publish(made)
            return _told(made, vault)
    raise problem or Overloaded("the files of the queue change faster than they can be copied")


def restore(source: str | os.PathLike[str], path: str | os.PathLike[str]) -> Backup:
    """Make the queue of the backup in `source` anew, in the directory `path`, which must be empty.

    All checksums are compared before anything is written. The result can be opened as the original
    could: `quiver.connect(path)`.

    Args:
        source: The directory of a backup.
        path: A directory that is empty or not there.
    """
    origin, target = directory(source), directory(path)
    if names_in(target):
        raise InvalidRequest(f"{target} is not empty; give a new or empty directory")
    manifest = storage.verify(origin)
    lock = DirectoryLock.acquire(target)
    try:
        files = DiskFiles(target)
        # With the mark there first and the log last, a part of it all cannot be opened.
        mark = Mark(files)
        mark.write(manifest.entry, manifest.entry)
        mark.sync()
        mark.close()
        storage.restore(origin, sorted(manifest.files, key=_order), files)
    finally:
        lock.release()
    total = sum(kept.bytes for kept in manifest.files)
    return Backup(manifest.entry, manifest.time_ms, len(manifest.files), total,
                  len(manifest.files), total)  # fmt: skip


def _told(made: Manifest, vault: Vault) -> Backup:
    total = sum(kept.bytes for kept in made.files)
    return Backup(
        made.entry, made.time_ms, len(made.files), total, vault.copied, vault.copied_bytes
    )


def _order(kept: KeptFile) -> tuple[int, str]:
    """Log files behind all others, in their order."""
    return int(kept.name.startswith("wal-")), kept.name

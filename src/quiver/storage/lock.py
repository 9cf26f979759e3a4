"""One process owns a data directory, for as long as it has it open.

The lock is the system's (`flock` on `quiver.lock`), so it ends with its process, however that
ends. The file says who the owner is, for the message others get; its time of change says since
when. It is never removed: whoever holds the lock on a removed file would hold nothing.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quiver import limits
from quiver.errors import DirectoryInUse, InvalidRequest
from quiver.storage import system
from quiver.storage.files import PRIVATE, making, sync_directory, translated

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME: Final = "quiver.lock"
_OWNER_BYTES_MAX: Final = 4096
_COMMAND_CHARS_MAX: Final = 200


class DirectoryLock:
    """A held lock. `release` it, or end the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pid = os.getpid()

    @classmethod
    def acquire(cls, path: str | os.PathLike[str]) -> DirectoryLock:
        """Own the directory `path`, made if it is not there, or say who does."""
        system.demand_supported()
        directory = Path(path)
        _make(directory)
        lock = directory / NAME
        with translated(lock):
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, PRIVATE)
            try:
                _lock(descriptor)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, _this_process(), 0)
            except BlockingIOError:
                message = _in_use(directory, descriptor)
                os.close(descriptor)
                raise DirectoryInUse(message) from None
            except OSError:
                os.close(descriptor)
                raise
        return cls(descriptor)

    def release(self) -> None:
        """Let others have the directory; a second time does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        if self._pid == os.getpid():  # a forked child must not give away its parent's lock,
            system.unlock(descriptor)  # nor keep it when the parent is done
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Get the lock, or `BlockingIOError`. Readers have a share of it for a moment and are waited for."""
    until = time.monotonic() + limits.READERS_SECONDS_MAX
    while True:
        try:
            system.lock(descriptor)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
        else:
            return
        system.lock(descriptor, shared=True)  # not if it is an owner who has it
        system.unlock(descriptor)
        time.sleep(limits.BACKOFF_SECONDS_MIN)


def owner_of(path: str | os.PathLike[str]) -> str | None:
    """Who owns the directory `path` now, None if nobody does. Nothing is changed.

    The lock is shared for an instant to find out: whoever opens the directory in that very instant
    waits for it.
    """
    lock = Path(path) / NAME
    if not lock.exists():
        return None
    with translated(lock):
        descriptor = os.open(lock, os.O_RDONLY)
        try:
            system.lock(descriptor, shared=True)
        except BlockingIOError:
            return _owner(descriptor)
        finally:
            os.close(descriptor)
    return None


@contextmanager
def unowned(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Whether nobody owns the directory `path`; then nobody does until the block has ended.

    Whoever wants to open it meanwhile waits, but not for long, so the block should be short.
    """
    lock = Path(path) / NAME
    if not lock.exists():  # a copy, made by somebody who has left it out
        yield True
        return
    with translated(lock):
        descriptor = os.open(lock, os.O_RDONLY)
    try:
        try:
            system.lock(descriptor, shared=True)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _make(directory: Path) -> None:
    """Make the directory and its parents, durably: a synced file in a lost directory is lost."""
    with making(directory):
        missing = [path for path in (directory, *directory.parents) if not path.exists()]
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise InvalidRequest(
                f"{directory} is a file, or lies in one. Give the path of a directory."
            ) from error
    for path in missing:
        sync_directory(path.parent)


def _this_process() -> bytes:
    command = shlex.join(sys.argv)[:_COMMAND_CHARS_MAX]
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "command": command}
    return json.dumps(owner).encode()


def _in_use(directory: Path, descriptor: int) -> str:
    """What to tell somebody who comes second."""
    this = ", which is this one: use the queue that it has" if _is_ours(descriptor) else ""
    return (
        f"{directory} is in use by {_owner(descriptor)}{this}. One process owns a directory at a time: "
        "close it there, or, if that is a node (quiver serve), use its address, such as "
        "quiver://127.0.0.1:7070."
    )


def _is_ours(descriptor: int) -> bool:
    try:
        owner = json.loads(os.pread(descriptor, _OWNER_BYTES_MAX, 0))
        return bool(owner["pid"] == os.getpid() and owner["host"] == socket.gethostname())
    except (ValueError, KeyError, TypeError):  # it is just about to write it
        return False


def _owner(descriptor: int) -> str:
    """Who has the lock, and since when."""
    since = datetime.fromtimestamp(os.fstat(descriptor).st_mtime, UTC)
    try:
        owner = json.loads(os.pread(descriptor, _OWNER_BYTES_MAX, 0))
        who = f"process {owner['pid']} on {owner['host']} ({owner['command']})"
    except (ValueError, KeyError, TypeError):  # it is just about to write it
        who = "another process"
    return f"{who} since {since:%Y-%m-%d %H:%M:%S} UTC"

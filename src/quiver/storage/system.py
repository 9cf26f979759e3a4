"""What the systems that can hold a queue call by different names, and the refusal of those that cannot.

Linux has all of it. macOS syncs, reserves and locks, but not under all of these names. Windows has no
lock of `flock`'s kind and no writes at a position, so a directory cannot be a queue there; but every
module can be imported, because clients of a node need no more than that.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import TYPE_CHECKING, Any, Final

from quiver.errors import PlatformNotSupported

try:
    import fcntl as _fcntl
except ImportError:  # Windows
    _LOCKS: Any = None
else:
    _LOCKS = _fcntl

if TYPE_CHECKING:
    from collections.abc import Sequence

# What one pwritev takes; where that is not known, what POSIX promises at least.
BUFFERS_MAX: Final[int] = os.sysconf("SC_IOV_MAX") if hasattr(os, "sysconf") else 16
DIRECTORY: Final[int] = getattr(os, "O_DIRECTORY", 0)

_FULL_SYNC: Final = getattr(_LOCKS, "F_FULLFSYNC", None)  # macOS
_NO_FULL_SYNC: Final = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY)  # some file systems lack it
_WHOLE: Final = (ctypes.c_int64(0), ctypes.c_int64(0))
_SYNC_FILE_RANGE_WRITE: Final = 2
# `os` has no name for it; a library that is not loaded by its name is what Windows does not have.
_sync_file_range: Final[Any] = (
    getattr(ctypes.CDLL(None), "sync_file_range", None) if _LOCKS is not None else None
)


def demand_supported() -> None:
    """Refuse a system on which no directory can be a queue."""
    if _LOCKS is None:
        raise PlatformNotSupported(
            "a directory cannot be a queue on this system, which has no flock (Windows): run the queue "
            "as a node on Linux or macOS (quiver serve), and give its address, such as "
            '"quiver://host:7070"'
        )


def lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> None:
    """Get the lock of an open file; if another has it, wait, or raise `BlockingIOError`."""
    demand_supported()
    kind = _LOCKS.LOCK_SH if shared else _LOCKS.LOCK_EX
    _LOCKS.flock(descriptor, kind if wait else kind | _LOCKS.LOCK_NB)


def unlock(descriptor: int) -> None:
    """Let go of the lock of an open file."""
    _LOCKS.flock(descriptor, _LOCKS.LOCK_UN)


def write(descriptor: int, views: Sequence[memoryview], position: int) -> int:
    """Write buffers one after the other, as many as the system takes; how many bytes those were."""
    if hasattr(os, "pwritev"):
        return os.pwritev(descriptor, views[:BUFFERS_MAX], position)
    return os.pwrite(descriptor, views[0], position)


def reserve(descriptor: int, start: int, size: int) -> None:
    """Have room on disk for the bytes from `start` to `size`; the file grows to that with zeros.

    macOS has no call for it: there the file grows, and a full disk is met by the write that comes later.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, start, size - start)
    else:
        os.ftruncate(descriptor, size)


def begin_sync(descriptor: int) -> None:
    """Let the disk begin with what was written, where it can be asked to; `sync` tells what goes wrong."""
    if _sync_file_range is not None:
        _sync_file_range(descriptor, *_WHOLE, _SYNC_FILE_RANGE_WRITE)


def sync(descriptor: int) -> None:
    """Return when what was written to a file is durable."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        sync_all(descriptor)


def sync_all(descriptor: int) -> None:
    """Return when a file or directory is durable with all that the system knows of it.

    On macOS `fsync` leaves it in the memory of the disk, which a loss of power empties; there is another
    call for what other systems mean by it.
    """
    if _FULL_SYNC is not None:
        try:
            _LOCKS.fcntl(descriptor, _FULL_SYNC)
        except OSError as error:
            if error.errno not in _NO_FULL_SYNC:
                raise
        else:
            return
    os.fsync(descriptor)

"""Runs a program as on another system, or without the extra `server`: `elsewhere.py WHERE CODE ARGUMENTS…`.

The libraries are this system's, imported before; what is not there elsewhere is taken away before Quiver is
imported.
"""

import ctypes
import errno
import os
import select
import signal
import sys
from importlib import import_module

SERVER = ("httptools", "prometheus_client", "starlette", "uvloop")
UNIX = ("fcntl", "grp", "pwd", "resource", "termios", "tty")
LIBRARIES = ("asyncio", "crc32c", "msgspec", "multiprocessing.connection", "pyarrow.compute",
             "pyarrow.parquet", "rich.console", "rich.live", "rich.progress", "rich.table", "rich.text",
             "ssl", "subprocess", "tempfile", "typer.main", "typer.rich_utils")  # fmt: skip
NOT_ON_MACOS = ("fdatasync", "posix_fallocate", "sched_getaffinity")
NOT_ON_WINDOWS = (*NOT_ON_MACOS, "O_DIRECTORY", "fork", "geteuid", "getuid", "pread", "preadv", "pwrite",
                  "pwritev", "register_at_fork", "statvfs", "sysconf")  # fmt: skip


class NoLibrary:
    """`ctypes.CDLL` without sync_file_range; on Windows it has no library without a name."""

    def __init__(self, name: str | None) -> None:
        if sys.platform == "win32" and name is None:
            raise TypeError("argument 1 must be str, not None")


def take(module: object, *names: str) -> None:
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


def become(where: str) -> None:
    for name in LIBRARIES:
        import_module(name)
    # A client on Windows is installed without the extra, which cannot be installed there.
    missing = {"windows": (*UNIX, *SERVER), "macos": (), "client": SERVER}[where]
    for loaded in [name for name in sys.modules if name.partition(".")[0] in missing]:
        del sys.modules[loaded]
    vars(sys)["modules"].update(dict.fromkeys(missing))
    if where == "client":
        return
    take(errno, "EREMOTEIO")
    vars(ctypes)["CDLL"] = NoLibrary
    sys.platform = {"windows": "win32", "macos": "darwin"}[where]
    take(os, *(NOT_ON_WINDOWS if where == "windows" else NOT_ON_MACOS))
    if where == "windows":
        take(select, "poll", "epoll")
        take(signal, "SIGHUP", "SIGKILL", "SIGALRM", "SIGUSR1", "pthread_sigmask", "set_wakeup_fd")


if __name__ == "__main__":
    become(sys.argv[1])
    assert not any(name.partition(".")[0] == "quiver" for name in sys.modules)
    code = sys.argv.pop(2)
    del sys.argv[1]
    exec(code, {"__name__": "__main__"})

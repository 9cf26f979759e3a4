"""A process for SQL as the node sees it: started, asked, and ended whatever it is doing."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from threading import Lock
from typing import Any, Final

import msgspec
import pyarrow as pa

from quiver import limits
from quiver.client.sql import too_much
from quiver.errors import (
    ExtraMissing,
    InvalidRequest,
    LimitExceeded,
    Overloaded,
    QueryFailed,
    QuiverError,
)
from quiver.server.sql import frames

NOT_LINKED: Final = 127  # so the system's linker ends a program for which it gets no memory
SPILL: Final = "quiver-node-sql-"  # how directories for temporary files begin
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
KNOWN: Final[dict[str, type[QuiverError]]] = {
    error.code: error for error in (ExtraMissing, InvalidRequest, LimitExceeded, QueryFailed)
}
PASSED_ON: Final = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ")  # of the environment; no secrets
ENDED_SECONDS: Final = 10.0  # a process that was killed is gone long before


class SqlProcess:
    """One process. `start`, `call` and `close` take a while; `kill` may come meanwhile, and ends them."""

    def __init__(self) -> None:
        self._ended_for = ""  # why, if the node did it
        self._busy = Lock()  # one call at a time, and none of its descriptors is closed meanwhile
        self._held = ExitStack()
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it has begun."""
        with self._busy:
            if self._ended_for:  # its client has gone; `close` may have been called already
                raise QueryFailed("the process of the query was ended before it had started")
            self._open()
            self._channel.settimeout(limits.SQL_START_SECONDS)
            try:
                self._read()
            except TimeoutError:
                raise Overloaded(
                    f"the process for SQL has not begun for {limits.SQL_START_SECONDS:g} seconds: the "
                    "machine is busy; retry later"
                ) from None
            self._channel.settimeout(None)

    def _open(self) -> None:
        try:
            self._popen = self._run()
        except OSError as error:
            raise Overloaded(
                f"no process for SQL can be started: {error.strerror}; retry later. The node may "
                "need more memory, processes, open files or room for temporary files"
            ) from error
        self._held.callback(self._reap)
        if self._ended_for:  # before there was anything to kill
            self._popen.kill()

    def _run(self) -> "subprocess.Popen[bytes]":
        remove_what_is_left()
        spill = TemporaryDirectory(prefix=SPILL, ignore_cleanup_errors=True)
        self._held.enter_context(spill)
        self._channel, theirs = socket.socketpair()
        self._held.callback(self._channel.close)
        with theirs:
            watched, lifeline = os.pipe()
            self._held.callback(os.close, lifeline)
            try:
                with locked(Path(spill.name)) as lock:
                    return _started(theirs.fileno(), watched, lock, spill.name)
            finally:
                os.close(watched)

    def call(self, method: str, *arguments: Any, table: pa.Table | None = None) -> Any:
        """What a method of the evaluator there returns or raises."""
        with self._busy:
            try:
                frames.write(self._channel, frames.SqlRequest(method, list(arguments)), table)
            except OSError:
                raise self._why() from None
            reply, answer = self._read()
        if reply.error:
            raise KNOWN.get(reply.error, QueryFailed)(reply.message)
        return answer if answer is not None else reply.value

    def _read(self) -> tuple[frames.Reply, pa.Table | None]:
        try:
            reply, answer = frames.read(self._channel, frames.Reply, limits.SQL_REPLY_BYTES_MAX)
            if answer is not None:
                answer.validate()
            return reply, answer
        except frames.TooLarge:
            self.kill("answer")
        except (msgspec.DecodeError, pa.ArrowException):  # its memory is not as it should be
            self.kill("garbled")
        except TimeoutError:
            raise
        except (EOFError, OSError):
            pass
        raise self._why()

    @property
    def pid(self) -> int:
        """Its number; 0 before it is started."""
        return self._popen.pid if self._popen is not None else 0

    def resident_bytes(self) -> int:
        """The memory it has; 0 if it has ended."""
        try:
            fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        except OSError:
            return 0
        return int(fields[1]) * PAGE_BYTES

    def kill(self, reason: str) -> None:
        """End it at once; whatever waits for it fails."""
        self._ended_for = self._ended_for or reason
        if self._popen is not None:
            self._popen.kill()

    def close(self) -> None:
        """End it, and let go of what it had."""
        self.kill("closed")
        with self._busy:
            self._held.close()

    def _reap(self) -> None:
        assert self._popen is not None
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(ENDED_SECONDS)

    def _why(self) -> QuiverError:
        """Why it has ended, as an error of the query that it was asked."""
        assert self._popen is not None
        self._reap()
        code = self._popen.returncode
        match self._ended_for:
            case "memory":
                return LimitExceeded(
                    f"the query was ended: {too_much(limits.SQL_PROCESS_BYTES_MAX)}"
                )
            case "answer":
                return LimitExceeded(
                    f"the answer has more than {limits.SQL_REPLY_BYTES_MAX:,} bytes: select fewer "
                    "columns or rows, or export the topic"
                )
            case "" if code == NOT_LINKED:
                return LimitExceeded(f"the query was ended: {too_much(limits.SQL_HEAP_BYTES_MAX)}")
            case "" if code == -signal.SIGKILL:
                return LimitExceeded(
                    "the process of the query was killed from outside, by the system if its memory is "
                    "short: ask about less, or give the node more memory"
                )
        name = signal.Signals(-code).name if code is not None and code < 0 else f"code {code}"
        return QueryFailed(
            f"the process of the query ended with {name}; the node goes on. Ask in another way, and "
            "about less at once"
        )


def remove_what_is_left() -> None:
    """Remove the temporary files of processes whose nodes were killed: their locks have gone with them.

    A directory that was just made may be one that another thread or node is about to lock.
    """
    before = time.time() - limits.SQL_START_SECONDS
    for path in Path(gettempdir()).glob(f"{SPILL}*"):
        with suppress(OSError):  # it is in use, or another user's
            if path.stat().st_mtime < before:
                with locked(path):
                    shutil.rmtree(path)


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Lock a directory in this block, and for as long as a process lives that was started in it with the
    descriptor. `BlockingIOError` if somebody else has it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)


def _started(channel: int, lifeline: int, lock: int, spill: str) -> "subprocess.Popen[bytes]":
    """A new program, which has nothing of the node's but two descriptors, and the lock of its directory."""
    code = [sys.executable, "-P", "-m", "quiver.server.sql.worker"]
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return subprocess.Popen(  # noqa: S603  # ourselves
        [*code, str(channel), str(lifeline), spill],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        cwd=spill, env={**environment, "PYTHONPATH": path}, pass_fds=(channel, lifeline, lock),
        start_new_session=True,
    )  # fmt: skip

"""The process that evaluates SQL for a node: it reads requests from a socket until the node ends.

    python -m quiver.server.sql.worker SOCKET LIFELINE SPILL

It has little besides these two descriptors and a directory for temporary files, which it locks. The
kernel ends it when the node is gone, whatever it computes then: nothing has ever been written to LIFELINE,
whose other end the node holds, so the only thing that can happen to it is its end.
"""

import fcntl
import os
import resource
import select
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from quiver import limits
from quiver.client.sql import Evaluator, too_much
from quiver.errors import InvalidRequest, LimitExceeded, QueryFailed, QuiverError
from quiver.server.sql import frames

METHODS: Final = ("check", "places", "question", "table", "rows", "answer", "clear")
FILES_MAX: Final = 256  # descriptors: temporary files, besides a few of Python's
FIRST_TO_END: Final = "1000"  # if the machine has no memory left


def main() -> None:
    """Serve one node."""
    channel, lifeline = int(sys.argv[1]), int(sys.argv[2])
    end_with(lifeline)
    for number in (signal.SIGINT, signal.SIGTERM):  # the node is told, too, and ends what it has
        signal.signal(number, signal.SIG_IGN)
    tempfile.tempdir = sys.argv[3]
    bound_itself()
    serve(socket.socket(fileno=channel))


def end_with(lifeline: int) -> None:
    """Have the kernel end this process when the other end of a pipe is closed."""
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # it was closed before
        sys.exit()


def bound_itself() -> None:
    """Take no more than this process should ever need, and be the first to end where that is too much."""
    for kind, most in (
        (resource.RLIMIT_DATA, limits.SQL_HEAP_BYTES_MAX),
        (resource.RLIMIT_NOFILE, FILES_MAX),
        (resource.RLIMIT_CORE, 0),  # which would have messages in it
    ):
        hard = resource.getrlimit(kind)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_END)


def serve(channel: socket.socket) -> None:
    """Answer requests until there are no more."""
    evaluator = Evaluator()
    frames.write(channel, frames.Reply())  # it has begun
    while True:
        try:
            request, table = frames.read(channel, frames.SqlRequest, limits.SQL_REQUEST_BYTES_MAX)
        except EOFError:
            return
        frames.write(channel, *reply(evaluator, request, table))
        del table


def reply(
    evaluator: Evaluator, request: frames.SqlRequest, table: pa.Table | None
) -> tuple[frames.Reply, pa.Table | None]:
    """What a call returns or raises. Of what nobody has foreseen only the kind of error is told."""
    try:
        found = called(evaluator, request, table)
    except QuiverError as error:
        return frames.Reply(error=error.code, message=str(error)), None
    except MemoryError:
        text = f"the query cannot be answered: {too_much(limits.SQL_HEAP_BYTES_MAX)}"
        return frames.Reply(error=LimitExceeded.code, message=text), None
    except Exception as error:  # noqa: BLE001  # the node goes on, and so does this process
        text = f"the query cannot be answered: {type(error).__name__}, which is a bug"
        return frames.Reply(error=QueryFailed.code, message=text), None
    if isinstance(found, pa.Table):
        return frames.Reply(), found
    return frames.Reply(found), None


def called(evaluator: Evaluator, request: frames.SqlRequest, table: pa.Table | None) -> Any:
    """Do one call."""
    if request.method not in METHODS:
        raise InvalidRequest(f"there is no method {request.method!r}")
    arguments = [*request.arguments, *([table] if table is not None else [])]
    return getattr(evaluator, request.method)(*arguments)


if __name__ == "__main__":
    main()

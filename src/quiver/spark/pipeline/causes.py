"""Which error of ours is behind one of Spark's, whose processes tell of it only as text."""

import re
from contextlib import suppress
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError

from quiver import errors
from quiver.errors import PipelineFailed, QuiverError

OURS: Final = re.compile(r"quiver\.errors\.(\w+): (.+)")
# What ends a trace of Python's, or follows it as the reason in Java.
REASON: Final = re.compile(r"^(?:[\w.]*(?:Error|Exception))?: (.+)", re.MULTILINE)


def cause(
    error: BaseException, what: str = "Spark gave up a batch, which the next run does again"
) -> QuiverError:
    """The error of ours that Spark's tells of, or one that says what Spark says."""
    if isinstance(error, QuiverError):
        return error
    text = _said(error)
    for name, message in reversed(OURS.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, QuiverError):
            return kind(message.strip())
    return PipelineFailed(f"{what}: {_reason(text) or repr(error)}")


def _said(error: BaseException) -> str:
    """What an error says. One of Java's asks Java for it, which may have ended meanwhile."""
    if not isinstance(error, Py4JNetworkError | ConnectionError):
        with suppress(Py4JError, OSError):
            return str(error)
    return "the Java that it runs in has ended"


def _reason(text: str) -> str:
    """The last reason before Java says where it was, or what is said first."""
    found = REASON.findall(text.partition("\n\tat ")[0])
    return (found[-1] if found else text.strip().partition("\n")[0]).rstrip(".")

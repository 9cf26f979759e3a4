"""Which error of ours is behind one of Spark's, whose processes tell of it only as text."""

import re
from typing import Final

from quiver import errors
from quiver.errors import PipelineFailed, QuiverError
from quiver.spark.pipeline.expressions import first_line

OURS: Final = re.compile(r"quiver\.errors\.(\w+): (.+)")
# What ends a trace of Python's, or follows it as the reason in Java.
REASON: Final = re.compile(r"^(?:[\w.]*(?:Error|Exception))?: (.+)", re.MULTILINE)


def cause(
    error: BaseException, what: str = "Spark gave up a batch, which the next run does again"
) -> QuiverError:
    """The error of ours that Spark's tells of, or one that says what Spark says."""
    if isinstance(error, QuiverError):
        return error
    text = str(error)
    for name, message in reversed(OURS.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, QuiverError):
            return kind(message.strip())
    return PipelineFailed(f"{what}: {_reason(text) or first_line(error) or repr(error)}")


def _reason(text: str) -> str | None:
    """The last reason before Java says where it was."""
    found = REASON.findall(text.partition("\n\tat ")[0])
    return found[-1].rstrip(".") if found else None

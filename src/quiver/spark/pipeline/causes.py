"""Which error of ours is behind one of Spark's, whose processes tell of it only as text."""

import re
from typing import Final

from quiver import errors
from quiver.errors import PipelineFailed, QuiverError
from quiver.spark.pipeline.expressions import first_line

OURS: Final = re.compile(r"quiver\.errors\.(\w+): (.+)")


def cause(error: BaseException) -> QuiverError:
    """The error of ours that Spark's tells of, or one that says what Spark says."""
    if isinstance(error, QuiverError):
        return error
    for name, message in reversed(OURS.findall(str(error))):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, QuiverError):
            return kind(message.strip())
    said = first_line(error) if isinstance(error, Exception) else repr(error)
    return PipelineFailed(f"Spark gave up a batch, which the next run does again: {said}")

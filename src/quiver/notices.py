"""What a caller should know though nothing failed: Python warnings at the caller's own line.

A node's callers are elsewhere: it lists the warnings of a request, and the client there gives them.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from quiver import limits
from quiver.errors import BehindRetention, UnreadableMessages

Notice: TypeAlias = BehindRetention | UnreadableMessages

_collected: ContextVar[list[Notice] | None] = ContextVar("_collected", default=None)


@contextmanager
def collected() -> Iterator[list[Notice]]:
    """Warnings of this task, not given but listed."""
    found: list[Notice] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def warn(notice: Notice) -> None:
    """Warn at the first line that is not Quiver's."""
    found = _collected.get()
    if found is not None:
        if len(found) < limits.NOTICES_MAX:
            found.append(notice)
        return
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("quiver."):
        frame = frame.f_back
        level += 1
    warnings.warn(notice, stacklevel=level)

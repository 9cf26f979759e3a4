"""Python's search for cyclic garbage, and when it is in the way."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_gc() -> Iterator[None]:
    """Around the making of many objects that stay, or go all at once.

    Python would look for cycles among them again and again, which takes most of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

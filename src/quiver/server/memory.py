"""The allocator: bodies come and go by the megabyte, and the next one may use the same memory."""

import ctypes
from typing import Final

from quiver import limits

# Names of glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed() -> None:
    """Have the allocator keep some freed memory for the next request.

    By itself glibc gives a megabyte back as soon as it is free, and the next one costs a page fault
    for every 4 KiB: several times as much as copying it. Other C libraries are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, limits.ALLOCATOR_MAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, limits.ALLOCATOR_KEEP_BYTES)

"""The allocators: bodies and answers come and go by the megabyte, and the next may use the same memory.

By themselves they keep too little or too much. glibc gives a megabyte back as soon as it is free, and the
next one costs a page fault for every 4 KiB: several times as much as copying it. Arrow's pool keeps
what is free until something else is allocated, which after the last of many large answers may be never;
so do glibc's arenas, one for each of several threads.

So freed memory is kept while the node has large bodies or answers, and given back when it has had none
for a moment.

Python's garbage collector is told once, before the node serves, that modules are no garbage.
"""

import ctypes
import gc
import os
from pathlib import Path
from typing import Final

import pyarrow as pa

from quiver import limits
from quiver.server.traffic import Traffic

# Names of glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def keep_freed() -> None:
    """Have the allocator keep some freed memory for the next request. Only glibc's can be told."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, limits.ALLOCATOR_MAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, limits.ALLOCATOR_KEEP_BYTES)


def restrain_gc() -> None:
    """Have Python's search for cyclic garbage come less often, and pass over all that there is: modules.

    A full search looked at all of them again, after every few hundred requests: a sixth of their time.
    Requests leave nothing behind that only a search finds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(limits.GC_NEW_OBJECTS, *gc.get_threshold()[1:])


def give_back() -> None:
    """Have the allocators give all memory that is free to the system; takes some milliseconds."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Slack:
    """Knows when freed memory should be given back: it has grown, and nobody needs it any more."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._least = resident_bytes()  # what the node needs when it is quiet
        self._quiet_since: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether to `give_back` now, and tell `gave_back` then."""
        resident = resident_bytes()
        self._least = min(self._least, resident)
        grown = resident - self._least > limits.ALLOCATOR_KEEP_BYTES
        if not grown or self._traffic.bytes > limits.ALLOCATOR_KEEP_BYTES:
            self._quiet_since = None
            return False
        if self._quiet_since is None:
            self._quiet_since = now
        return now - self._quiet_since >= limits.ALLOCATOR_QUIET_SECONDS

    def gave_back(self) -> None:
        """What is still there is needed."""
        self._least = resident_bytes()
        self._quiet_since = None


def resident_bytes() -> int:
    """How much memory this process has; 0 where the system does not say."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0

"""Decoded batches of the log and of segments, kept for readers: the least recently used one goes first."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock

import pyarrow as pa

from quiver import limits


class BatchCache:
    """At most `bytes_max` of batches, by log index, or by segment and row group; used from every thread."""

    def __init__(self, bytes_max: int = limits.CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._batches: OrderedDict[Hashable, tuple[pa.RecordBatch, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> pa.RecordBatch | None:
        with self._lock:
            found = self._batches.get(key)
            if found is None:
                return None
            self._batches.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, batch: pa.RecordBatch) -> None:
        nbytes = batch.get_total_buffer_size() + limits.CACHED_BATCH_BYTES
        with self._lock:
            if key in self._batches or nbytes > self._bytes_max:
                return
            self._batches[key] = (batch, nbytes)
            self._bytes += nbytes
            while self._bytes > self._bytes_max:
                _, (_, freed) = self._batches.popitem(last=False)
                self._bytes -= freed

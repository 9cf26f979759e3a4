"""Which partition a message goes to, and the numbers that stand for keys.

Hashes are part of the format: they decide where a key's messages are, on every machine and for
ever. Python's own `hash` differs between processes, so it will not do; BLAKE2b does not, and its
values are spread so well that two keys of a topic hardly ever share one.
"""

from bisect import bisect_right
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from quiver import limits
from quiver.batches.schema import column
from quiver.model.commands import Run
from quiver.model.topic import TopicPolicy

PLACE: Final = pa.int32()


@lru_cache(limits.KEY_HASHES_CACHED)
def key_hash(key: str) -> int:
    """An unsigned 64-bit number for the key, never 0: that means "no key"."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "little") or 1


def tenant_hash(key: str) -> int:
    """The hash of the key's part before its first "/": fairness is between those."""
    return key_hash(key.partition("/")[0])


class Partitioner:
    """A topic's choice of partitions. `turn` is the sender's counter, which shares out the rest."""

    __slots__ = ("_count", "_keyless", "_split_keys")

    def __init__(self, policy: TopicPolicy) -> None:
        self._count = policy.partitions
        self._keyless = policy.partitions == 1 or policy.partition_by == "round-robin"
        self._split_keys = policy.split_keys if policy.partition_by == "range" else None

    def one(self, key: str | None, turn: int) -> int:
        """The partition of one message."""
        if key is None or self._keyless:
            return turn % self._count
        return self._place(key)

    def split(self, batch: pa.RecordBatch, turn: int) -> tuple[pa.RecordBatch, tuple[Run, ...]]:
        """The batch with each partition's rows together, in their order, and where these runs go.

        Rows without a key go where `one` would send the first of them. The bytes of several runs
        are the batch's, shared out by rows.
        """
        keys = column(batch, "key")
        if self._keyless or keys is None:
            return batch, (Run(turn % self._count, batch.num_rows, batch.nbytes),)
        distinct = keys.dictionary_encode()
        places = pa.array([self._place(key) for key in distinct.dictionary.to_pylist()], PLACE)
        by_row = places.take(distinct.indices).fill_null(turn % self._count)
        order = pc.array_sort_indices(by_row)  # stable: rows of a partition keep their order
        counted = pc.value_counts(by_row.take(order))
        runs = _runs(counted.field(0).to_pylist(), counted.field(1).to_pylist(), batch)
        return (batch if len(runs) == 1 else batch.take(order)), runs

    def _place(self, key: str) -> int:
        if self._split_keys is not None:
            return bisect_right(self._split_keys, key)
        return key_hash(key) % self._count


def _runs(places: list[int], counts: list[int], batch: pa.RecordBatch) -> tuple[Run, ...]:
    nbytes = batch.nbytes
    ends = [nbytes * rows // batch.num_rows for rows in accumulate(counts)]
    return tuple(
        Run(place, rows, end - start)
        for place, rows, start, end in zip(places, counts, [0, *ends[:-1]], ends, strict=True)
    )

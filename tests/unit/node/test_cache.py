"""Decoded batches that are kept for readers."""

from quiver import limits
from quiver.batches.rows import make_row, pack
from quiver.node.cache import BatchCache


def test_a_batch_counts_with_all_that_it_takes_and_the_oldest_goes_first():
    cache = BatchCache(10 * limits.CACHED_BATCH_BYTES)
    for number in range(100):
        cache.put(number, pack([make_row(b"x")], 0))
    kept = [number for number in range(100) if cache.get(number) is not None]
    assert kept == list(range(91, 100))

"""Which offsets go to which task, and how far a batch goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quiver import limits
from quiver.spark.spans import Span, advanced, shares

pytestmark = pytest.mark.spark

PARTITIONS = st.dictionaries(
    st.integers(0, 20), st.tuples(st.integers(0, 10**9), st.integers(0, 10**7)), max_size=8
)


@given(PARTITIONS, st.floats(0, 10**7))
def test_every_offset_goes_to_one_task(sizes, density):
    wanted = [Span(number, start, start + size) for number, (start, size) in sizes.items()]
    made = shares(1, wanted, density)
    assert len(made) <= limits.SPARK_SPLITS_MAX + len(wanted)
    found: dict[int, list[Span]] = {}
    for share in made:
        assert share.spans
        for span in share.spans:
            assert span.size > 0
            found.setdefault(span.partition, []).append(span)
    for span in wanted:
        pieces = sorted(found.pop(span.partition, []))
        edges = [span.start, *(piece.end for piece in pieces)]
        assert [piece.start for piece in pieces] == edges[:-1]
        assert edges[-1] == span.end
    assert not found


def test_large_partitions_are_cut_and_small_ones_go_together():
    rows = limits.SPARK_SPLIT_BYTES // 100
    assert len(shares(1, [Span(0, 0, 4 * rows)], 100)) == 4
    assert len(shares(1, [Span(number, 0, 10) for number in range(100)], 100)) == 1


@given(PARTITIONS, st.none() | st.integers(1, 10**6))
def test_a_batch_goes_ahead_and_not_too_far(sizes, most):
    at = {number: start for number, (start, _) in sizes.items()}
    ends = {number: start + size for number, (start, size) in sizes.items()}
    reached = advanced(at, ends, most)
    assert reached.keys() == at.keys()
    assert all(at[number] <= reached[number] <= ends[number] for number in at)
    total = sum(ends.values()) - sum(at.values())
    steps = sum(reached.values()) - sum(at.values())
    assert steps == (total if most is None else min(total, most))


def test_nobody_waits_for_ever_for_a_small_batch():
    at = {0: 0, 1: 0, 2: 0}
    for _ in range(9):
        at = advanced(at, {0: 3, 1: 3, 2: 3}, 1)
    assert at == {0: 3, 1: 3, 2: 3}

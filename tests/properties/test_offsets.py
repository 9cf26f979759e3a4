"""Sets and ranges of offsets do what plain sets of numbers do."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from quiver.core.delivery.offsets import SIZE, OffsetSet
from quiver.model.ranges import merge, subtract

END = 3 * SIZE
# Mostly near the edges of chunks, where something can go wrong.
edges = st.builds(
    lambda chunk, by: max(chunk * SIZE + by, 0), st.integers(0, 3), st.integers(-2, 2)
)
offsets = edges | st.integers(0, END)
ranges = st.tuples(offsets, offsets)
small = st.tuples(st.integers(0, 40), st.integers(0, 40))


def numbers(pieces):
    return {offset for start, end in pieces for offset in range(start, end)}


class OffsetSetMachine(RuleBasedStateMachine):
    """A set of offsets beside a set of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.real = OffsetSet()
        self.plain: set[int] = set()

    @rule(start=offsets)
    def begin_with_everything_below(self, start: int) -> None:
        self.real = OffsetSet.below(start)
        self.plain = set(range(start))

    @rule(piece=ranges)
    def add(self, piece: tuple[int, int]) -> None:
        before = len(self.plain)
        self.plain |= numbers([piece])
        assert self.real.add(*piece) == len(self.plain) - before

    @rule(start=offsets, length=st.sampled_from([1, SIZE - 1, SIZE, SIZE + 1, 3 * SIZE]))
    def add_about_a_chunk(self, start: int, length: int) -> None:
        self.add((start, start + length))

    @rule(piece=ranges)
    def look_for_gaps(self, piece: tuple[int, int]) -> None:
        found = list(self.real.gaps(*piece))
        assert numbers(found) == numbers([piece]) - self.plain
        assert found == merge(found)
        assert self.real.covers(*piece) == (not found)

    @rule(piece=ranges, limit=st.integers(1, 2 * SIZE))
    def look_for_some_gaps(self, piece: tuple[int, int], limit: int) -> None:
        found = list(self.real.gaps(*piece, limit))
        assert sorted(numbers(found)) == sorted(numbers([piece]) - self.plain)[:limit]
        assert all(start < end for start, end in found)

    @rule(offset=offsets)
    def ask_for_one(self, offset: int) -> None:
        assert (offset in self.real) == (offset in self.plain)

    @rule()
    def save_and_load(self) -> None:
        dumped = self.real.dump()
        self.real = OffsetSet.load(dumped)
        assert self.real.dump() == dumped

    @invariant()
    def count_and_low_are_right(self) -> None:
        assert self.real.count == len(self.plain)
        low = next(offset for offset in range(END + 4 * SIZE) if offset not in self.plain)
        assert self.real.low == low


TestOffsetSet = OffsetSetMachine.TestCase


@given(st.lists(small))
def test_merged_ranges_are_the_same_offsets_in_order_and_apart(pieces):
    merged = merge(list(pieces))
    assert numbers(merged) == numbers(pieces)
    assert all(start < end for start, end in merged)
    assert all(one[1] < two[0] for one, two in pairwise(merged))


@given(st.lists(small), st.lists(small))
def test_subtracting_ranges_is_subtracting_offsets(pieces, holes):
    left = subtract(merge(list(pieces)), merge(list(holes)))
    assert numbers(left) == numbers(pieces) - numbers(holes)
    assert left == merge(left) or all(start < end for start, end in left)

"""Tags of staged messages: they add up where ranges touch, and fit nothing else."""

from itertools import combinations

import pytest

from quiver.errors import InvalidRequest
from quiver.node.staged import is_of, joined, tag

SECRET = bytes(range(32))
TOPIC = 7
MINE = [(0, 0, 3), (0, 3, 5), (0, 9, 12), (1, 0, 2)]  # with others' between them, and behind


def tag_of(*ranges: tuple[int, int, int], owner: str = "me", topic: int = TOPIC) -> str:
    return tag(topic, ranges, owner, SECRET)


def fits(given: str, *ranges: tuple[int, int, int]) -> bool:
    return is_of(given, TOPIC, ranges, "me", SECRET)


def test_a_tag_fits_its_ranges_in_any_order_and_cut_anyhow():
    given = tag_of((0, 0, 5), (1, 0, 2))
    assert fits(given, (0, 0, 5), (1, 0, 2))
    assert fits(given, (1, 0, 2), (0, 3, 5), (0, 0, 3))


def test_tags_of_parts_are_joined_to_that_of_all():
    assert joined(tag_of(one) for one in MINE) == tag_of((0, 0, 5), (0, 9, 12), (1, 0, 2))
    assert fits(joined([]))


def test_it_fits_no_other_topic_owner_or_secret():
    given = tag_of((0, 0, 5))
    assert not is_of(given, TOPIC + 1, [(0, 0, 5)], "me", SECRET)
    assert not is_of(given, TOPIC, [(0, 0, 5)], "you", SECRET)
    assert not is_of(given, TOPIC, [(0, 0, 5)], "me", bytes(32))


def test_from_all_of_my_tags_none_of_a_range_with_others_messages_can_be_made():
    known = {
        joined(tag_of(one) for one in some)
        for count in range(len(MINE) + 1)
        for some in combinations(MINE, count)
    }
    unions = {(0, 0, 3), (0, 3, 5), (0, 0, 5), (0, 9, 12), (1, 0, 2)}  # that are one range
    for partition in (0, 1):
        for start, end in combinations(range(13), 2):
            one = partition, start, end
            assert any(fits(given, one) for given in known) == (one in unions)


@pytest.mark.parametrize(
    "ranges",
    [[(0, 5, 9), (0, 5, 9)], [(0, 0, 9), (0, 3, 9)], [(0, 0, 9), (0, 3, 5)], [(0, 0, 12), (0, 5, 9)]],
)  # fmt: skip
def test_ranges_that_overlap_have_no_tag(ranges: list[tuple[int, int, int]]):
    """Marks would cancel out: twice the same range has the tag of nothing."""
    assert not fits(tag_of(*ranges), *ranges)
    assert not fits("0" * 32, *ranges)


@pytest.mark.parametrize("given", ["", "x", "0", "é" * 32, "0" * 31, "g" * 32, "0" * 64])
def test_what_is_no_tag_fits_nothing(given: str):
    assert not fits(given, (0, 0, 5))


def test_what_is_no_tag_cannot_be_joined():
    with pytest.raises(InvalidRequest, match="not what stage has returned"):
        joined(["no tag"])
    assert not fits(joined(["", tag_of((0, 0, 3))]), (0, 0, 5))

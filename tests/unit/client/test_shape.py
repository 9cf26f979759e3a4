"""How long and how deep a text in SQL may be."""

import pytest

from quiver import limits
from quiver.client.shape import measure
from quiver.errors import InvalidRequest


def words(text: str) -> list[str]:
    return text.split()


def refused(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^where may have at most {said}"):
        measure(words(text), "where")


@pytest.mark.parametrize(
    ("unit", "most", "end", "said"),
    [
        (". a ", limits.SQL_PATH_NAMES_MAX - 1, "", "32 names joined by dots"),
        ("( ", limits.SQL_DEPTH_MAX, "1 " + ") " * limits.SQL_DEPTH_MAX, "100 brackets and cases"),
        ("case when x then ", limits.SQL_DEPTH_MAX, "y", "100 brackets and cases"),
        ("- ", limits.SQL_CHAIN_TOKENS_MAX - 2, "1", "500 words and signs without"),
        ("not ", limits.SQL_CHAIN_TOKENS_MAX - 2, "true", "500 words and signs without"),
        (", x ", (limits.SQL_TOKENS_MAX - 1) // 2, "", "20,000 words and signs; ask"),
    ],
)
def test_a_bound_is_where_it_is_said_to_be(unit: str, most: int, end: str, said: str):
    measure(words("a " + unit * most + end), "where")
    refused("a " + unit * (most + 1) + end, said)


def test_brackets_that_follow_each_other_are_not_inside_each_other():
    measure(words("a = ( b ) and " * 1_000 + "c"), "where")
    measure(words(") " * 400), "where")


def test_brackets_make_no_chain_shorter():
    refused("a " + "[ 0 ] " * limits.SQL_CHAIN_TOKENS_MAX, "500 words and signs without")


def test_paths_that_follow_each_other_are_not_one():
    measure(words("a . b , " * 1_000 + "c"), "where")
    measure(words("a . b c . d " * 50), "where")


def test_names_in_quotes_are_names():
    refused('"A" ' + '. "b" ' * limits.SQL_PATH_NAMES_MAX, "32 names")

"""The kind of a reason: what it always was, and long texts cost no more than they are long."""

import re
import sys

from hypothesis import given
from hypothesis import strategies as st

from quiver import limits
from quiver.core.delivery.reasons import NONE, Reasons, kind_of

SPACES = "".join(char for char in map(chr, range(sys.maxunicode + 1)) if char.isspace())
DIGITS = "07\u0663\u0be8\U0001d7d8\u00b2\u2460"  # the last two are digits to some, and not here
TEXTS = st.text(st.one_of(st.sampled_from(SPACES + DIGITS + "ab:#-"), st.characters()))


def kind_by_one_expression(reason: str) -> str:
    """What logs were replayed with: on a long word without digits it looks at each pair of places."""
    line = reason.strip().split("\n", 1)[0].split(":", 1)[0]
    words = " ".join(re.sub(r"\S*\d\S*", "#", line).split())
    return words[: limits.REASON_KIND_CHARS_MAX].strip() or NONE


@given(TEXTS)
def test_the_kind_is_what_it_always_was(reason):
    assert kind_of(reason) == kind_by_one_expression(reason)


def test_a_long_reason_takes_no_longer_than_it_is_long():
    reason = "x" * 5_000_000  # to look at each pair of its places would take a day
    assert kind_of(reason) == "x" * limits.REASON_KIND_CHARS_MAX


def test_many_messages_with_one_reason_cost_the_reason_once():
    kind_of.cache_clear()
    reasons = Reasons()
    for _ in range(1_000):
        reasons.add("Timeout: order 17", 1)
    assert reasons == {"Timeout": 1_000}
    assert kind_of.cache_info().misses == 1

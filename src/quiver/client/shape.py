"""The shape of a text in SQL: how long and how deep it may be.

DuckDB looks for all meanings of `a.b.c.…`, in quadratic time and without hearing an interrupt, and what
is nested costs it stack. So tokens are counted before it does more than split the text into them.
"""

from collections.abc import Iterable
from typing import Final

from quiver import limits
from quiver.errors import InvalidRequest

OPENING: Final = frozenset("([{") | {"case"}
CLOSING: Final = frozenset(")]}") | {"end"}
# After one of these something new begins, beside what was before and not inside or on top of it.
SEPARATORS: Final = frozenset(
    [
        *",;", "and", "or", "when", "then", "else", "with", "select", "from", "join", "on", "using",
        "where", "group", "having", "order", "limit", "union", "except", "intersect", "values",
    ]
)  # fmt: skip


def measure(tokens: Iterable[str], what: str) -> None:
    """Refuse a text that is too long, too deep, or one long chain; `what` is what it is called."""
    bounds = _bounds()
    dots = 0
    chains = [0]  # tokens since the last separator, for each level of brackets
    after_name = False
    for total, found in enumerate(tokens, 1):
        word = found.lower()
        named = _is_name(word)
        if word == ".":
            dots += 1
        elif after_name or not named:
            dots = 0
        after_name = named
        if word in SEPARATORS:
            chains[-1] = 0
        elif word in CLOSING and len(chains) > 1:
            chains.pop()
        else:
            chains[-1] += 1
        if word in OPENING:
            chains.append(0)
        counts = total, len(chains) - 1, dots + 1, chains[-1]
        for count, (most, of) in zip(counts, bounds, strict=True):
            if count > most:
                raise InvalidRequest(f"{what} may have at most {most:,} {of}")


def _bounds() -> tuple[tuple[int, str], ...]:
    """The most of each count, of what it is, and what to do instead."""
    return (
        (limits.SQL_TOKENS_MAX, "words and signs; ask in several parts"),
        (limits.SQL_DEPTH_MAX, "brackets and cases inside each other; name parts in a `with`"),
        (
            limits.SQL_PATH_NAMES_MAX,
            "names joined by dots; a deep field of JSON is json->>'$.a.b.c'",
        ),
        (
            limits.SQL_CHAIN_TOKENS_MAX,
            "words and signs without a comma, `and` or `or` between them; name parts in a `with`",
        ),
    )


def _is_name(token: str) -> bool:
    return token[:1].isalpha() or token[:1] in ('"', "_")

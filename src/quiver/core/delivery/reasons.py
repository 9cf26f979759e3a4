"""Why messages were given up, counted by kind: an output of the core, not a part of its state.

A consumer's reason is free text, often with an order's number or a traceback in it. Of that only
the kind is counted: the first line up to a colon, without the words that have digits in them.
"""

import re
from functools import lru_cache
from typing import Final

from quiver import limits

NONE: Final = "unspecified"
REST: Final = "other"
_DIGIT: Final = re.compile(r"\d")


class Reasons(dict[str, int]):
    """How many messages were given up, by kind of reason; the rare ones last are `other`."""

    def add(self, reason: str, count: int) -> None:
        """So many messages were given up for it."""
        kind = kind_of(reason)
        if kind not in self and len(self) >= limits.REASON_KINDS_MAX:
            kind = REST
        self[kind] = self.get(kind, 0) + count


@lru_cache(maxsize=16)  # one settle gives thousands of ranges the same reason
def kind_of(reason: str) -> str:
    """What reasons of one kind have in common: `Timeout` of `Timeout: no answer for order 17`."""
    line = reason.strip().split("\n", 1)[0].split(":", 1)[0]
    words = " ".join("#" if _DIGIT.search(word) else word for word in line.split())
    return words[: limits.REASON_KIND_CHARS_MAX].strip() or NONE

"""How much a test does in a run of each length: `make test`, `check`, `ci` and `soak`.

A test, or a parameter of one, that is too long for a length has the mark of the next: `check`,
`slow` or `soak`. Where the length is a number of examples, it follows from hypothesis' profile,
which `make` names after the command.
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

PROFILE = "HYPOTHESIS_PROFILE"
EXAMPLES = {"test": 20, "check": 100, "ci": 100, "soak": 1_000, "hunt": 2_000}


def load_profile() -> None:
    """The same examples every time, so that a red run means a change; "hunt" looks for new ones."""
    for name, count in EXAMPLES.items():
        same = name != "hunt"
        settings.register_profile(
            name, deadline=None, max_examples=count, derandomize=same, print_blob=not same
        )
    settings.load_profile(os.environ.get(PROFILE, "test"))


def examples(count: int) -> int:
    """How many a test with `count` examples in `make check` has in this run."""
    return max(count * settings().max_examples // EXAMPLES["check"], 1)


def quickly(few: int, values: Iterable[Any]) -> list[Any]:
    """Parameters: a few of them in `make test`, all of them in `make check`."""
    return [
        pytest.param(value, marks=() if at < few else pytest.mark.check)
        for at, value in enumerate(values)
    ]

"""Other bounds for the levels of logs, so that a test meets them with a few messages."""

from dataclasses import replace

import pytest

from quiver.model import levels


def set_bounds(patch: pytest.MonkeyPatch, **bounds: int) -> None:
    """For cores that are made from now on, at every level; `receive_bytes_max=60`, say."""
    changed = {level: replace(known, **bounds) for level, known in levels.LEVELS.items()}
    patch.setattr(levels, "LEVELS", changed)


def add_level(patch: pytest.MonkeyPatch, **bounds: int) -> int:
    """One above all that are known, with these bounds and else those of the highest; its number."""
    highest = max(levels.LEVELS)
    made = {highest + 1: replace(levels.LEVELS[highest], **bounds)}
    patch.setattr(levels, "LEVELS", {**levels.LEVELS, **made})
    return highest + 1

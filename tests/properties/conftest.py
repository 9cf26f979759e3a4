"""Small segments, so that a life of a few steps has many of them; and levels to rise to."""

import pytest

from quiver import limits
from tests.bounds import add_level, set_bounds


def shrink(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(limits, "SEGMENT_BYTES", 200)
    patch.setattr(limits, "SEGMENT_GROUP_BYTES", 64)
    patch.setattr(limits, "SEGMENTS_SMALL_MAX", 2)
    patch.setattr(limits, "SEAL_STEP_BYTES", 4_096)
    patch.setattr(limits, "SEAL_PIECES_MAX", 2)
    set_bounds(patch, sweep_hole_min=2)
    add_level(patch, reserved_ms_min=50, stolen_ms_min=100)
    add_level(patch, reserved_ms_min=300, stolen_ms_min=20, sweep_hole_min=3)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    shrink(monkeypatch)

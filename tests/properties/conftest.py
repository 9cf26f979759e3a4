"""Small segments, so that a life of a few steps has many of them."""

import pytest

from quiver import limits


def shrink(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(limits, "SEGMENT_BYTES", 200)
    patch.setattr(limits, "SEGMENT_GROUP_BYTES", 64)
    patch.setattr(limits, "SEGMENTS_SMALL_MAX", 2)
    patch.setattr(limits, "SEAL_STEP_BYTES", 4_096)
    patch.setattr(limits, "SEAL_PIECES_MAX", 2)
    patch.setattr(limits, "SWEEP_HOLE_MIN", 2)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    shrink(monkeypatch)

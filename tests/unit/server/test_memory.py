"""When freed memory is given back: it has grown, and nothing large is under way for a moment.

And what the garbage collector is told.
"""

import gc

import pytest

from quiver.limits import ALLOCATOR_KEEP_BYTES, ALLOCATOR_QUIET_SECONDS
from quiver.server import memory
from quiver.server.config import NodeBounds
from quiver.server.traffic import Traffic

MUCH = ALLOCATOR_KEEP_BYTES + 1


class Process:
    """A node that has so many bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nbytes = 100
        monkeypatch.setattr(memory, "resident_bytes", lambda: self.nbytes)
        self.traffic = Traffic(NodeBounds())
        self.slack = memory.Slack(self.traffic)
        self.now = 0.0

    def is_due(self, after: float = 0.0) -> bool:
        self.now += after
        return self.slack.is_due(self.now)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(monkeypatch)


def test_a_node_that_has_not_grown_keeps_what_it_has(process: Process):
    process.nbytes += ALLOCATOR_KEEP_BYTES
    assert not process.is_due()
    assert not process.is_due(1_000)


def test_one_that_has_grown_gives_back_after_a_moment(process: Process):
    process.nbytes += MUCH
    assert not process.is_due()
    assert not process.is_due(ALLOCATOR_QUIET_SECONDS - 1)
    assert process.is_due(1)


def test_but_not_while_much_is_under_way(process: Process):
    process.nbytes += MUCH
    assert not process.is_due()
    process.traffic.bytes = MUCH
    assert not process.is_due(1_000)
    process.traffic.bytes = 0
    assert not process.is_due(1_000)
    assert process.is_due(ALLOCATOR_QUIET_SECONDS)


def test_what_cannot_be_given_back_is_needed(process: Process):
    process.nbytes += MUCH
    process.is_due()
    assert process.is_due(ALLOCATOR_QUIET_SECONDS)
    process.slack.gave_back()
    assert not process.is_due(1_000)
    process.nbytes += MUCH
    assert not process.is_due(1)
    assert process.is_due(ALLOCATOR_QUIET_SECONDS)


def test_this_process_has_some():
    assert memory.resident_bytes() > 1_000_000


def test_what_was_imported_is_not_searched_for_garbage():
    try:
        memory.restrain_gc()
        assert not any(found is Traffic for found in gc.get_objects())
    finally:
        gc.unfreeze()
    assert any(found is Traffic for found in gc.get_objects())

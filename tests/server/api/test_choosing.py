"""Conditions over a node are asked by the node: messages that are not meant stay where they are."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import quiver
from quiver import limits
from tests.server.nodes import start_node

pytest.importorskip("duckdb")
COUNT = 3 * limits.PAGE_MESSAGES_FIRST


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[quiver.Queue]:
    """A client that could not answer a condition by itself."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with start_node(tmp_path) as node, quiver.connect(f"quiver://127.0.0.1:{node.port}") as queue:
        queue.create_topic("t", partitions=2)
        queue.create_topic("other")
        for topic in ("t", "other"):
            queue.create_group(topic, "g")
        queue.send_batch("t", [f"{at}" for at in range(COUNT)])
        queue.send_batch("t", [f"{at}" for at in range(COUNT, 2 * COUNT)])
        yield queue


def left(queue: quiver.Queue, topic: str) -> list[int]:
    return sorted(int(record.text) for record in queue.read(topic))


def test_just_those_that_are_meant_are_moved(queue: quiver.Queue):
    where = "text::int % 3 = 0"
    third = 2 * COUNT // 3
    told: list[int] = []
    assert queue.redrive("t", where=where, to="other", dry_run=True) == third
    assert queue.redrive("t", where=where, to="other", limit=5, progress=told.append) == 5
    assert told == [5]
    assert queue.redrive("t", where=where, to="other", rate=100_000) == third - 5
    assert queue.redrive("t", where=where, to="other") == 0
    assert left(queue, "other") == list(range(0, 2 * COUNT, 3))
    assert queue.discard("t", where="text::int % 3 = 1") == third
    assert left(queue, "t") == list(range(2, 2 * COUNT, 3))


def test_what_is_no_condition_is_refused_also_where_there_is_nothing(queue: quiver.Queue):
    for topic in ("t", "other"):
        with pytest.raises(quiver.InvalidRequest, match="raeson"):
            queue.discard(topic, where="raeson = 'x'")
    with pytest.raises(quiver.InvalidRequest, match="fails for a message"):
        queue.discard("t", where="cast(text || 'x' as int) > 0")
    assert len(left(queue, "t")) == 2 * COUNT

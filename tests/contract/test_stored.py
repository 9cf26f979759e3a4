"""`stats().stored` is what `read` gives, also when single messages of a batch are gone."""

from typing import Any

import pytest

from quiver import Message
from tests.contract.verbs import bodies, drain, take

HOUR = 3600


def agree(world: Any, count: int) -> None:
    """Now, and after each way of opening."""
    for look in (lambda: world.queue, world.reopen, world.snapshot_and_reopen):
        queue = look()
        assert len(bodies(queue.read("t"))) == count
        stats = queue.stats("t")
        assert stats.stored == count
        assert stats.stored_bytes >= count  # one byte each at the least
    world.check()


def test_after_a_discard_in_the_middle_of_a_batch(world):
    world.queue.create_topic("t", retention="forever")
    world.queue.send_batch("t", [b"0", b"1", b"2", b"3"])
    world.queue.discard("t", where=lambda record: record.body == b"1")
    agree(world, 3)


def test_after_lives_that_ended_in_the_middle_of_a_batch(world, clock):
    world.queue.create_topic("t", retention="forever")
    world.queue.create_group("t", "g")
    world.queue.send_batch("t", [b"0", Message(b"1", ttl=10), b"2", b"3"])
    clock.advance(10)
    agree(world, 3)


def test_after_a_life_that_ended_under_a_lease(world, clock):
    world.queue.create_topic("t", retention="forever")
    world.queue.send_batch("t", [Message(b"0", ttl=10), b"1"])
    held = take(world.queue, lease=HOUR)
    assert held.body == b"0"
    clock.advance(10)
    agree(world, 1)


@pytest.mark.python
def test_after_a_compaction_in_the_middle_of_a_batch(world):
    world.queue.create_topic("t", retention="compact")
    world.queue.send_batch("t", [Message(key, key=key) for key in "abac"])
    world.queue.send("t", b"d", key="d")
    drain(world.queue)
    world.queue.compact("t")
    agree(world, 4)


def test_without_a_group_and_after_a_purge(world):
    world.queue.create_topic("t")
    world.queue.send_batch("t", [b"0", b"1"])
    agree(world, 2)
    world.queue.purge("t")
    agree(world, 0)


def test_after_retention_let_go_of_whole_batches(world, clock):
    world.queue.create_topic("t", retention="1h")
    world.queue.send_batch("t", [b"0", b"1"])
    clock.advance(HOUR / 2)
    world.queue.send_batch("t", [b"2", b"3"])
    world.queue.discard("t", where=lambda record: record.body == b"0")
    drain(world.queue)
    agree(world, 3)
    clock.advance(HOUR / 2)
    agree(world, 2)

"""A receive whose client goes away just when it is granted: nobody has seen the message."""

import threading
from pathlib import Path

import pytest

import quiver
from quiver.model.commands import Receive
from tests.inside import Inside, shard_of


@pytest.fixture
def queue(tmp_path: Path):
    with quiver.connect(tmp_path) as opened:
        opened.create_topic("t", max_attempts=1, dead_letter="dead")
        opened.create_topic("dead")
        opened.create_group("t", "g")
        opened.send("t", b"precious")
        yield opened


def is_there_again(queue) -> None:
    for _ in range(1_000):  # what is given back goes through the inbox, like anything else
        if queue.stats("t").groups["g"].ready:
            break
    got = queue.receive("t", "g")
    assert [(one.body, one.attempt) for one in got] == [(b"precious", 1)]
    assert queue.stats("dead").depth == 0


def test_after_it_was_answered(queue):
    shard = shard_of(queue._flows)
    number = shard.ask(Inside(lambda engine: engine.core.names["t"])).wait()
    ticket = shard.receive(Receive(number, "g", 1, 60_000), 0)
    ticket.wait()
    ticket.abandoned = True
    is_there_again(queue)


def test_while_it_is_synced(queue, monkeypatch):
    shard = shard_of(queue._flows)
    number = shard.ask(Inside(lambda engine: engine.core.names["t"])).wait()
    reached, gone = threading.Event(), threading.Event()
    real = shard._engine.wal.sync

    def sync(*args):
        real(*args)
        reached.set()
        assert gone.wait(10)

    monkeypatch.setattr(shard._engine.wal, "sync", sync)
    ticket = shard.receive(Receive(number, "g", 1, 60_000), 0)
    assert reached.wait(10)
    ticket.abandoned = True
    monkeypatch.undo()
    gone.set()
    is_there_again(queue)

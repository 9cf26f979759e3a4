"""A node that is about to end answers everybody who waits, also who comes just then."""

from pathlib import Path
from threading import Barrier, Event

import pytest

import quiver
from quiver.model.commands import Receive
from tests.inside import Inside, shard_of

PATIENCE_SECONDS = 30
WAIT_MS = 3_600_000


@pytest.fixture
def shard(tmp_path: Path):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t")
        queue.create_group("t", "known")
        yield shard_of(queue._flows)


@pytest.fixture
def receive(shard):
    number = shard.ask(Inside(lambda engine: engine.core.names["t"])).wait()
    return lambda group: shard.receive(Receive(number, group, 1, 60_000), WAIT_MS)


def is_answered_empty(ticket) -> bool:
    answered = Event()
    ticket.when_done(answered.set)
    return answered.wait(PATIENCE_SECONDS) and not ticket.get().received.slices


def test_who_waits(shard, receive):
    ticket = receive("known")
    shard.ask(Inside(lambda _: None)).wait()
    assert not ticket.done
    shard.stop_waiting()
    assert is_answered_empty(ticket)


@pytest.mark.parametrize("group", ["known", "new"])  # for a new one there is a commit
def test_who_comes_in_the_same_round(shard, receive, group):
    met = Barrier(2, timeout=PATIENCE_SECONDS)
    shard.ask(Inside(lambda _: (met.wait(), met.wait())))
    met.wait()  # it is busy until we meet again
    ticket = receive(group)
    shard.stop_waiting()
    met.wait()
    assert is_answered_empty(ticket)


def test_who_asked_before_and_arrives_after(shard, receive, monkeypatch):
    submit = shard.submit

    def submit_late(request):
        monkeypatch.undo()
        shard.stop_waiting()
        submit(request)

    monkeypatch.setattr(shard, "submit", submit_late)
    assert is_answered_empty(receive("known"))

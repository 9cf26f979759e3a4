"""A request may be made in the middle of another one, as a signal handler does."""

from pathlib import Path

import pytest

import quiver
from quiver import limits
from quiver.errors import QueueClosed
from tests.inside import Inside, shard_of

PATIENCE_SECONDS = 30


class MeanwhileOnce:
    """Stands for a bound. The first comparison with it does something else before."""

    def __init__(self, bound: int, do) -> None:
        self.bound = bound
        self.do = do

    def __le__(self, other: int) -> bool:
        do, self.do = self.do, lambda: None
        do()
        return self.bound <= other


def in_the_midst_of_submitting(monkeypatch, do) -> None:
    bound = MeanwhileOnce(limits.PENDING_REQUESTS_MAX, do)
    monkeypatch.setattr(limits, "PENDING_REQUESTS_MAX", bound)


def test_who_submits_in_the_midst_of_submitting_gets_an_answer(tmp_path: Path, monkeypatch):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t")
        shard = shard_of(queue._flows)
        answered = []

        def handler() -> None:
            ticket = shard.ask(Inside(lambda _: "from the handler"))
            answered.append(ticket.wait_for(PATIENCE_SECONDS) and ticket.get())

        in_the_midst_of_submitting(monkeypatch, handler)
        queue.send("t", b"x")
        assert answered == ["from the handler"]
        assert queue.stats("t").stored == 1


def test_what_is_submitted_when_all_has_ended_is_told(tmp_path: Path, monkeypatch):
    queue = quiver.connect(tmp_path)
    queue.create_topic("t")
    shard = shard_of(queue._flows)
    in_the_midst_of_submitting(monkeypatch, queue.close)
    ticket = shard.ask(Inside(lambda _: None))
    assert ticket.wait_for(PATIENCE_SECONDS)
    with pytest.raises(QueueClosed):
        ticket.get()

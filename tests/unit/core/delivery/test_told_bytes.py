"""A receive that may be told only so much: what does not fit is not leased, and comes with the next one."""

from typing import Any

import pytest

from quiver.core.delivery import DeliveryCore
from quiver.model.commands import (
    Command,
    CreateGroup,
    CreateTopic,
    Entry,
    Found,
    Held,
    Receive,
    Run,
    Send,
    Settle,
)
from quiver.model.levels import Bounds
from quiver.model.replies import Received
from quiver.model.topic import Guarantee, TopicPolicy

NOW_MS = 1_700_000_000_000
LETTERS = 10
GUARANTEES: list[Guarantee] = ["at-least-once", "at-most-once"]


class Letters:
    """A core with dead letters, each with a long reason of its own."""

    def __init__(self, guarantee: Guarantee) -> None:
        self.core = DeliveryCore()
        self.do(Found(b"secret", NOW_MS))
        made = TopicPolicy(dead_letter="dead", max_attempts=3)
        topic = self.do(CreateTopic("t", made)).topic
        self.dead = self.core.names["dead"]
        self.do(Send(topic, (Run(0, LETTERS, LETTERS),), (1,)))
        got = self.do(Receive(topic, "g", LETTERS, 60_000))
        for at in range(LETTERS):
            held = (Held(0, got.epoch, ((at, at + 1),)),)
            self.do(Settle(topic, got.group, "dead_letter", held, reason=f"{at}" + "é" * 500))
        self.do(CreateGroup(self.dead, "h", guarantee=guarantee))

    def do(self, command: Command) -> Any:
        outcome = self.core.apply(Entry(self.core.index + 1, NOW_MS, command))
        self.core.check()
        if isinstance(outcome.reply, Exception):
            raise outcome.reply
        return outcome.reply

    def receive(self, told_bytes: int | None, begin: int | None = None) -> Received:
        command = Receive(self.dead, "h", 100, 60_000, begin=begin, told_bytes=told_bytes)
        reply = self.do(command)
        assert isinstance(reply, Received)
        return reply


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("begin", [None, 2])
@pytest.mark.parametrize(("told_bytes", "count"), [(None, LETTERS), (4_000, 3), (1, 1), (0, 1)])
def test_each_comes_once_however_little_can_be_told_at_once(guarantee, begin, told_bytes, count):
    letters = Letters(guarantee)
    found: list[int] = []
    while got := letters.receive(told_bytes, begin).slices:
        assert sum(piece.count for piece in got) == min(count, LETTERS - len(found))
        assert (
            count == 1
            or told_bytes is None
            or sum(x.told_bytes(Bounds()) for x in got) <= told_bytes
        )
        found += [piece.offset + at for piece in got for at in range(piece.count)]
    assert found == list(range(LETTERS))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_could_not_be_told_does_not_count_as_delivered(guarantee):
    letters = Letters(guarantee)
    letters.receive(4_000)
    group = letters.core.stats(letters.dead, NOW_MS).groups["h"]
    assert (group.delivered, group.ready) == (3, LETTERS - 3)

"""A redrive needs the right to send to where each message died, also if that one died just now."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import quiver
from quiver.client.threads import run
from quiver.model.commands import Pick, Redrive


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[quiver.Queue]:
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("letters")
        for topic in ("mine", "theirs"):
            queue.create_topic(topic, dead_letter="letters")
        yield queue


def bury(queue: quiver.Queue, topic: str) -> None:
    queue.send(topic, topic)
    (delivery,) = queue.receive(topic, group="g")
    delivery.dead_letter()


def test_what_dies_after_the_question_is_not_moved(queue: quiver.Queue):
    """Offsets can be named before there is a message at them."""
    bury(queue, "mine")
    asked = []

    def demand(topic: str) -> None:
        asked.append(topic)
        bury(queue, "theirs")

    flows = queue._flows
    number = run(flows.find("letters")).number
    command = Redrive(number, (Pick(0, ((0, 10),)),), None)
    assert run(flows.move("letters", command, demand)) == 1
    assert asked == ["mine"]
    assert [record.body for record in queue.read("letters")] == [b"theirs"]

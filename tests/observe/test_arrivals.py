"""The in rate of a topic counts what arrives in whatever way."""

import quiver
from quiver.cli.board import Look, Rates


def rate(queue: quiver.Queue, topic: str, before: Look) -> float | None:
    """Messages a second that have arrived in a topic, if a second has passed."""
    now = Look(queue.overview(), before.seconds + 1)
    return Rates(now, before).of_topic(now.overview.topics[topic])


def test_dead_letters_redriven_and_published_ones_arrive_like_those_that_are_sent(tmp_path):
    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("jobs", max_attempts=1)
        queue.create_group("jobs", "workers")
        look = Look(queue.overview(), 0.0)
        queue.send_batch("jobs", ["a", "b", "c"])
        assert rate(queue, "jobs", look) == 3

        look = Look(queue.overview(), 0.0)
        queue.nack(queue.receive("jobs", "workers", max_messages=3), reason="broken")
        assert rate(queue, "jobs.dlq", look) == 3
        assert rate(queue, "jobs", look) == 0

        look = Look(queue.overview(), 0.0)
        assert queue.redrive("jobs.dlq") == 3
        assert rate(queue, "jobs", look) == 3
        assert rate(queue, "jobs.dlq", look) == 0

        look = Look(queue.overview(), 0.0)
        queue.publish("jobs", [queue.stage("jobs", ["d", "e"])], application="load", batch=1)
        assert rate(queue, "jobs", look) == 2

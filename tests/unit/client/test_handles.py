"""What is remembered of a topic, while others delete it."""

import threading
from pathlib import Path
from typing import Any

import pytest

from quiver.client.local import open_flows
from quiver.client.threads import run
from quiver.errors import TopicNotFound
from quiver.model.topic import TopicPolicy
from tests.inside import Inside


def test_who_asks_while_a_topic_is_deleted_does_not_keep_it(tmp_path: Path):
    flows, close = open_flows(tmp_path, 1_000, "disk")
    busy, go = threading.Event(), threading.Event()

    def block(_: Any) -> None:
        busy.set()
        assert go.wait(10)

    try:
        run(flows.create_topic("t", TopicPolicy()))
        run(flows.handle("t"))
        flows.broker.ask(Inside(block))
        assert busy.wait(10)
        deleting: Any = flows.delete_topic("t")
        deleted = next(deleting)  # in the inbox, and so is the question behind it
        flows.forget("t")
        asking: Any = flows.handle("t")
        asked = next(asking)
        go.set()  # both in one round: the question is answered first
        with pytest.raises(StopIteration):
            asking.send(asked.wait())
        with pytest.raises(StopIteration):
            deleting.send(deleted.wait())
        assert flows.known("t") is None
        with pytest.raises(TopicNotFound):
            run(flows.handle("t"))
    finally:
        go.set()
        close()

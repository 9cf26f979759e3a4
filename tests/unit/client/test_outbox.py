"""A producer that is interrupted while it sends."""

from pathlib import Path
from typing import Any

import pytest

import quiver
from quiver.errors import ProducerFailed


def test_what_was_under_way_is_not_known_and_nothing_passes_for_it(tmp_path: Path, monkeypatch):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t")
        producer = queue.producer("t", name="p", linger=60, max_messages=1)
        real = queue._flows.send_packed

        def interrupted(*args: Any) -> None:
            real(*args).wait()
            raise KeyboardInterrupt

        monkeypatch.setattr(queue._flows, "send_packed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.send("one")
        monkeypatch.undo()
        with pytest.raises(ProducerFailed, match="may be stored or not") as failed:
            producer.flush()
        assert [message.body for message in failed.value.unsent] == [b"one"]
        with pytest.raises(ProducerFailed, match="does not know what is stored"):
            producer.send("two")
        producer.close()
        with queue.producer("t", name="p") as again:
            again.send("two")
        assert [record.body for record in queue.read("t")] == [b"one", b"two"]

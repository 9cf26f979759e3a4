"""A producer that is interrupted while it sends, and while it closes."""

import asyncio
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


def test_a_close_that_was_interrupted_can_be_done_again(tmp_path: Path, monkeypatch):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t")
        producer = queue.producer("t", linger=60)
        producer.send("one")
        queue.delete_topic("t")

        def interrupted(**_: bool) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(producer, "_wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.close()
        monkeypatch.undo()
        with pytest.raises(ProducerFailed) as failed:
            producer.close()
        assert [message.body for message in failed.value.unsent] == [b"one"]
        producer.close()  # and there is nothing more to say


def test_so_can_one_that_was_cancelled(tmp_path: Path, monkeypatch):
    async def scenario() -> None:
        async with quiver.connect_async(tmp_path) as queue:
            await queue.create_topic("t")
            async with queue.producer("t", linger=60) as producer:
                await producer.send("one")
                await queue.delete_topic("t")

                async def cancelled(**_: bool) -> None:
                    raise asyncio.CancelledError

                monkeypatch.setattr(producer, "_wait", cancelled)
                with pytest.raises(asyncio.CancelledError):
                    await producer.aclose()
                monkeypatch.undo()
                with pytest.raises(ProducerFailed) as failed:
                    await producer.aclose()
                assert [message.body for message in failed.value.unsent] == [b"one"]

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["import", None])
def test_what_waits_behind_a_refused_batch_does_not_take_its_place(tmp_path: Path, name):
    """A named producer goes on at its `sequence`: under that number there must be no other message."""
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t", max_backlog=3)
        bodies = [b"%d" % at for at in range(6)]
        producer = queue.producer("t", name=name, linger=60)
        for body in bodies[:5]:
            producer.send(body)
        with producer._lock:
            producer._outbox.submit()  # as when the time of `linger` has passed
        for ticket in producer._outbox.awaited(all_of_them=True):
            ticket.wait_done()
        with pytest.raises(ProducerFailed) as failed:
            producer.send(bodies[5])
        producer.close()
        unsent = [message.body for message in failed.value.unsent]
        stored = [record.body for record in queue.read("t")]
        assert unsent + stored == bodies
        if name is not None:
            assert stored == []
            with queue.producer("t", name=name) as again:
                for body in bodies[again.sequence :][:3]:
                    again.send(body)
            assert [record.body for record in queue.read("t")] == bodies[:3]

"""A consumer whose node takes its time: an answer, or a wait for messages, may take longer than what
was begun may wait to be taken."""

import asyncio

import quiver
from quiver import limits
from quiver.client.steps import Pause

PATIENCE_SECONDS = 30


def test_what_arrives_is_handed_out(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "CONSUMER_BEGUN_SECONDS_MAX", 0.2)

    async def consumed():
        async with quiver.connect_async(tmp_path / "q") as queue:
            await queue.create_topic("t")
            await queue.send_batch("t", ["0", "1", "2"])
            fast = queue._flows.receive_messages

            def slow(*args):
                answer = yield from fast(*args)
                yield Pause(0.3)
                return answer

            monkeypatch.setattr(queue._flows, "receive_messages", slow)
            async with queue.consumer("t") as consumer:
                found = [await consumer.get(wait=PATIENCE_SECONDS) for _ in range(3)]
            return [one and one.text for one in found]

    assert asyncio.run(consumed()) == ["0", "1", "2"]

"""A batch of SQS that finds the node overloaded."""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from quiver import limits
from quiver.client.local import open_flows
from quiver.client.threads import run
from quiver.model.topic import TopicPolicy
from quiver.server.config import Sqs
from quiver.server.sqs.queues import SqsQueue
from quiver.server.sqs.sending import Parcel, _send
from quiver.server.sqs.shapes import Sendable
from tests.inside import Inside


def test_each_message_is_told_whether_it_is_stored(tmp_path: Path, monkeypatch):
    flows, close = open_flows(tmp_path, 1_000, "disk")
    busy, room = threading.Event(), threading.Event()

    def block(_: Any) -> None:
        busy.set()
        assert room.wait(10)

    context = SimpleNamespace(guard=SimpleNamespace(open=True))
    service = SimpleNamespace(flows=flows, message_id=lambda *_: "id", context=context)
    call: Any = SimpleNamespace(service=service, trace=None, bounds=Sqs())

    async def send() -> list[Any]:
        handle = flows.known("t")
        assert handle is not None
        queue = SqsQueue(handle.name, handle.policy)
        parcels = [Parcel(call, queue, Sendable(message_body=body)) for body in ("a", "b", "c")]
        sending = asyncio.create_task(_send(call, handle, queue, parcels))
        await asyncio.sleep(0)  # all that fit are submitted
        room.set()
        return await sending

    try:
        run(flows.create_topic("t", TopicPolicy()))
        run(flows.handle("t"))
        flows.broker.ask(Inside(block))
        assert busy.wait(10)
        monkeypatch.setattr(limits, "PENDING_REQUESTS_MAX", 1)
        first, *others = asyncio.run(send())
        assert first["MessageId"] == "id"
        assert [fault.status for fault in others] == [503, 503]
        assert run(flows.stats("t")).depth == 1
    finally:
        room.set()
        close()

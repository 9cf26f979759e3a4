"""What is left of a request that was refused: nothing that waits for the garbage collector."""

import asyncio
import gc
import json
from pathlib import Path
from typing import Any

import pytest

import quiver
from quiver.model import queries
from quiver.server.app import make_app
from quiver.server.auth import Guard
from quiver.server.config import NodeBounds, NodeConfig
from quiver.server.context import Context
from quiver.server.metrics import Metrics
from quiver.server.traffic import HeldBytes, Traffic
from quiver.wire.frames import MEDIA_TYPE, PATH, Verb, pack
from quiver.wire.values import named

JSON = (b"content-type", b"application/json")
FRAMES = (b"content-type", MEDIA_TYPE.encode())
BATCH = json.dumps({"messages": [{"body": "x"}]}).encode()
ASKED = b"".join(piece for piece in pack(Verb.ASK, 1, named(queries.ReadStats("none"))) if piece)


def to_sqs(action: str) -> tuple[bytes, bytes]:
    return b"x-amz-target", f"AmazonSQS.{action}".encode()


@pytest.mark.parametrize(
    ("path", "header", "body", "status"),
    [
        pytest.param("/v1/topics/none/batches", JSON, BATCH, 404, id="from the shard"),
        pytest.param("/v1/topics/none/batches", JSON, b"{}", 400, id="not understood"),
        pytest.param("/v1/nothing", JSON, BATCH, 404, id="no such path"),
        pytest.param("/", to_sqs("GetQueueUrl"), b'{"QueueName": "none"}', 400, id="sqs"),
        pytest.param("/", to_sqs("SendMessage"), b"[]", 400, id="sqs, not understood"),
        pytest.param(PATH, FRAMES, ASKED, 200, id="a frame"),
    ],
)
def test_a_request_that_was_refused_leaves_no_garbage(
    tmp_path: Path, path: str, header: tuple[bytes, bytes], body: bytes, status: int
):
    """An error and the frames that it has passed refer to each other, and those to the request's body."""

    async def ask(app: Any) -> int:
        arriving = [{"type": "http.request", "body": body, "more_body": False}]
        said: list[int] = []

        async def receive() -> Any:
            return arriving.pop() if arriving else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            said.extend([message["status"]] if "status" in message else [])

        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
            "root_path": "", "scheme": "http", "query_string": b"", "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 7070), "http_version": "1.1",
            "headers": [header, (b"host", b"localhost")],
        }  # fmt: skip
        await app(scope, receive, send)
        return said[0]

    async def go() -> int:
        async with quiver.connect_async(tmp_path) as queue:
            context = Context(queue, NodeConfig(), Guard(), Metrics())
            app = make_app(context, Traffic(NodeBounds()))
            gc.collect()
            gc.disable()
            try:
                for _ in range(10):
                    assert await ask(app) == status
                await asyncio.sleep(0)
                return sum(isinstance(found, HeldBytes) for found in gc.get_objects())
            finally:
                gc.enable()
                await asyncio.to_thread(context.questions.close)

    assert asyncio.run(go()) <= 1  # the last may be in hand still

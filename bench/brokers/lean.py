"""A client of the SQS protocol that costs little: kept connections, requests made ahead, no library.

What boto3 takes for a request (some 0.7 ms of processor) hides what a server takes. This one writes the
same bytes again and looks only at the status and the length of an answer; it says nothing of what a program
with boto3 gets, and all of what a server can do.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.content import texts
from bench.measure import Side

QUEUE = "lean"
ANSWER_SECONDS_MAX = 60.0


class _Connection(asyncio.Protocol):
    """Sends its request, and sends it again when the answer is there, until the time is up.

    A server that closes after each answer (moto) is connected to anew.
    """

    def __init__(self, port: int, request: bytes) -> None:
        self._port = port
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._connecting: asyncio.Task[Any] | None = None
        self._read = b""
        self._until = 0.0
        self.done = 0
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def begin(self, until: float) -> None:
        self.done, self._until, self.ended = 0, until, self._loop.create_future()
        self._send()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._read = read = self._read + data if self._read else data
        at = read.find(b"\r\n\r\n")
        if at < 0:
            return
        head = read[:at].lower()
        length = head.find(b"content-length:")
        assert length >= 0, head
        if len(read) < at + 4 + int(head[length + 15 :].split(b"\r", 1)[0]):
            return
        if b" 200 " not in head[:13]:
            self.ended.set_exception(AssertionError(f"refused: {read[:500]!r}"))
            return
        self._read = b""
        self.done += 1
        if b"connection: close" in head:
            self._transport.close()
        else:
            self._go_on()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self.ended.done():
            return
        if error is None and not self._read and self.done:
            self._go_on()
        else:
            self.ended.set_exception(error or ConnectionError("the server closed the connection"))

    def _go_on(self) -> None:
        if time.perf_counter() < self._until:
            self._send()
        else:
            self.ended.set_result(None)

    def _send(self) -> None:
        if self._transport is None:
            connecting = self._loop.create_connection(lambda: self, "127.0.0.1", self._port)
            self._connecting = self._loop.create_task(connecting)
        else:
            self._transport.write(self._request)


def _request(port: int, action: str, fields: dict[str, str]) -> bytes:
    """As SDKs of Amazon make it, with a signature that an open server does not look at."""
    body = json.dumps(fields)
    head = [
        "POST / HTTP/1.1", f"Host: 127.0.0.1:{port}", f"X-Amz-Target: AmazonSQS.{action}",
        "Content-Type: application/x-amz-json-1.0", f"Content-Length: {len(body)}",
        "Authorization: AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/sqs/aws4_request, "
        f"SignedHeaders=host;x-amz-date, Signature={'0' * 64}", "X-Amz-Date: 20260101T000000Z",
    ]  # fmt: skip
    return "\r\n".join([*head, "", body]).encode()


@contextmanager
def send_message(port: int, connections: int) -> Iterator[Side]:
    """`SendMessage` on so many kept connections, each with one request at a time."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:

        async def work(kept: list[_Connection], seconds: float) -> tuple[int, float]:
            start = time.perf_counter()
            for connection in kept:
                connection.begin(start + seconds)
            async with asyncio.timeout(seconds + ANSWER_SECONDS_MAX):
                await asyncio.gather(*(connection.ended for connection in kept))
            return sum(connection.done for connection in kept), time.perf_counter() - start

        async def clients(count: int, request: bytes) -> list[_Connection]:
            return [_Connection(port, request) for _ in range(count)]

        async def end(*clients: _Connection) -> None:
            for client in clients:
                client.close()
            await asyncio.sleep(0.01)  # the loop lets go of them

        creator = runner.run(clients(1, _request(port, "CreateQueue", {"QueueName": QUEUE})))
        runner.run(work(creator, 0))
        url = f"http://127.0.0.1:{port}/000000000000/{QUEUE}"
        send = _request(port, "SendMessage", {"QueueUrl": url, "MessageBody": texts(1)[0]})
        kept = runner.run(clients(connections, send))
        try:
            yield lambda seconds: runner.run(work(kept, seconds))
        finally:
            runner.run(end(*creator, *kept))

"""One request over HTTP/1.1 and its answer, as an application of ASGI has them.

The body of the request is handed over as it comes. The head of the answer is written together with the
beginning of its body: most answers are one write.

When it is over, nothing here refers to itself: all of a request is gone at once, and not when Python's
garbage collector comes by.
"""

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Message, Scope

from quiver import limits
from quiver.server import logs
from quiver.server.traffic import ServerState

STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
BODILESS: Final = (204, 304)  # answers without a body, and without a word about its length
CONTROLS: Final = bytes([*range(9), *range(10, 32), 127])  # which no line of a head may have in it
GO_AHEAD: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
FAILED: Final = b"Internal Server Error"
FAILED_HEADERS: Final = (
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"content-length", b"%d" % len(FAILED)),
    (b"connection", b"close"),
)


def lines_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as they are written."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


class FlowControl:
    """Whether more is read from a connection just now, and whether more may be written to it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._writable = asyncio.Event()
        self._writable.set()
        self.read_paused = False
        self.write_paused = False

    def pause_reading(self) -> None:
        """Read no more."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Too much is written that the client has not taken."""
        self.write_paused = True
        self._writable.clear()

    def resume_writing(self) -> None:
        """The client has taken most of it, or is gone."""
        self.write_paused = False
        self._writable.set()

    async def drain(self) -> None:
        """Wait until more may be written."""
        await self._writable.wait()


class HttpExchange:
    """A request whose head has come, until all of its answer is written."""

    __slots__ = (
        "_answered", "_chunked", "_flow", "_for_head", "_head", "_left", "_state", "_transport",
        "_until_close", "awaits_go_ahead", "body", "disconnected", "keep_alive", "message_event",
        "more_body", "response_complete", "response_started", "scope",
    )  # fmt: skip

    def __init__(
        self, scope: Scope, transport: asyncio.Transport, flow: FlowControl, state: ServerState,
        answered: Callable[[], None], *, keep_alive: bool, awaits_go_ahead: bool,
    ) -> None:  # fmt: skip
        """`answered` is called when all of the answer is written."""
        self.scope = scope
        self._transport = transport
        self._flow = flow
        self._state = state
        self._answered = answered
        self.keep_alive = keep_alive
        self.awaits_go_ahead = awaits_go_ahead  # the client sends no body until it is told to
        self.disconnected = False
        # The request
        self.body = bytearray()  # what has come and was not asked for yet
        self.more_body = True
        self.message_event = asyncio.Event()  # there is something to receive
        # The answer
        self.response_started = False
        self.response_complete = False
        self._for_head = scope["method"] == "HEAD"  # then it has no body, whatever its head says
        self._head = b""  # until it is written
        self._chunked = False
        self._until_close = False  # the body ends with the connection: HTTP/1.0 has no chunks
        self._left = 0  # bytes of the body, if the head says how many there are

    async def run(self, app: ASGIApp) -> None:
        """Have the application answer, or cut the answer off if the application fails in the middle."""
        try:
            await app(self.scope, self.receive, self.send)
            if self.response_complete or self.disconnected:
                return
            raise RuntimeError("the application has not answered")
        except asyncio.CancelledError:  # the node ends, and has waited long enough
            pass
        except Exception as error:  # noqa: BLE001  # a task's error would be told to nobody
            logs.failure("bug", error)
        if self.response_started:
            self._cut()
        else:
            await self.send(
                {"type": "http.response.start", "status": 500, "headers": FAILED_HEADERS}
            )
            await self.send({"type": "http.response.body", "body": FAILED})

    # -- what an application calls ------------------------------------------------------------------

    async def receive(self) -> Message:
        """The next part of the request's body; after it, or when the client is gone: its disconnection."""
        if self.awaits_go_ahead and not self._transport.is_closing():
            self._transport.write(GO_AHEAD)
            self.awaits_go_ahead = False
        if not self.disconnected and not self.response_complete:
            self._flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = self.body, bytearray()
        return {"type": "http.request", "body": bytes(body), "more_body": self.more_body}

    async def send(self, message: Message) -> None:
        """A part of the answer: its head, then its body."""
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        expected = "http.response.body" if self.response_started else "http.response.start"
        if message["type"] != expected or self.response_complete:
            raise RuntimeError(f"an answer has no {message['type']} here")
        if self.response_started:
            self._write(message.get("body", b""), more=message.get("more_body", False))
        else:
            self.response_started = True
            self.awaits_go_ahead = False
            self._head = self._head_of(message["status"], message.get("headers", ()))

    # -- the answer ---------------------------------------------------------------------------------

    def _head_of(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        sized = status in BODILESS or self._for_head
        lines = []
        for name, value in headers:
            if name == b"content-length":
                sized, self._left = True, int(value)
            elif name == b"connection" and value.lower() == b"close":
                self.keep_alive = False
                continue
            lines.append(b"%b: %b\r\n" % (name, value))
        said = b"".join(lines)
        if len(said.translate(None, CONTROLS)) != len(said) - 2 * len(lines):
            raise RuntimeError("a header of an answer has a control character")
        if not sized and self.scope["http_version"] != "1.1":
            self._until_close, self.keep_alive = True, False
        if not self.keep_alive:
            said += b"connection: close\r\n"
        if not sized and not self._until_close:
            self._chunked = True
            said += b"transfer-encoding: chunked\r\n"
        return b"%b%b%b\r\n" % (STATUS_LINES[status], self._state.common, said)

    def _write(self, body: bytes, *, more: bool) -> None:
        if self._for_head:
            body, self._left = b"", 0
        elif self._chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body += b"" if more else b"0\r\n\r\n"
        elif not self._until_close:
            if len(body) > self._left:
                raise RuntimeError("the body of an answer is longer than its head says")
            self._left -= len(body)
        head, self._head = self._head, b""
        if len(body) < limits.FRAME_JOINED_BYTES_MAX:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)
        if more:
            return
        if self._left:
            raise RuntimeError("the body of an answer is shorter than its head says")
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self._transport.close()
        self._answered()

    def _cut(self) -> None:
        """The answer ends where it is: what was made of it is written, and the client notices."""
        if not self.disconnected:
            self._transport.write(self._head)
        self._transport.close()

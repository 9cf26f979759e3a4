"""uvicorn's HTTP protocol with bounds in time, bytes and connections.

Nothing here needs a timer of its own: a connection knows by when it must have gone on (`_deadline`),
and the node looks at all of them now and then (`sweep`).

What a connection is doing on the side it reads from:

    IDLE ──first byte──► HEAD ──head is complete──► BODY ──body is complete──► DONE
      ▲                                                                         │
      └───────────────────────────── the answer is written ─────────────────────┘

A client that stops in HEAD or BODY is told so (408) and cut; one in IDLE is closed; one that does not
read its answer, or only trickles, is cut without a word. In DONE it is our turn, and there is no deadline.

Answers come in the order of requests. What we refuse by ourselves waits for those before it: a client
would take the refusal for the answer to a request that was served, and might repeat that.
"""

import asyncio
from collections.abc import Callable
from enum import Enum
from math import inf

import httptools
from uvicorn import Config
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from quiver import limits
from quiver.errors import InvalidRequest, Overloaded, QuiverError
from quiver.server.problems import PROBLEM, body_of
from quiver.server.requests import UNDELIVERED, new_id
from quiver.server.traffic import Traffic
from quiver.server.upgrade import UPGRADE, Begin, Handover
from quiver.wire.frames import PATH


class Doing(Enum):
    """What a connection reads."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    DONE = 3


class HeadAndBody:
    """The transport of one answer: its head is written together with the beginning of its body."""

    __slots__ = ("_cycle", "_head", "_transport")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._transport: asyncio.Transport = cycle.transport
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        """Write, or keep the head until there is more."""
        if not self._cycle.response_started:  # "100 Continue"
            self._transport.write(data)
        elif self._head is None:
            self._head = data
        elif self._head:
            head, self._head = self._head, b""
            self._transport.write(
                head + data if len(data) < limits.FRAME_JOINED_BYTES_MAX else head
            )
            if len(data) >= limits.FRAME_JOINED_BYTES_MAX:
                self._transport.write(data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Write what was kept, and close."""
        if self._head:
            self._transport.write(self._head)
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether nothing more is written."""
        return self._transport.is_closing()


class HttpConnection(HttpToolsProtocol):
    """One client's connection."""

    def __init__(
        self, config: Config, state: ServerState, traffic: Traffic, peer: str = ""
    ) -> None:
        """With `peer` it is counted already, under this address."""
        super().__init__(config, state, {})
        self._traffic = traffic
        self._bounds = traffic.bounds
        self._peer = peer
        self.entered = False  # it is open, or was
        self._doing = Doing.IDLE
        self._deadline = inf
        self._room = limits.HEAD_BYTES_MAX  # for bytes that are no body
        self._body_bytes = 0
        self._body_since = 0.0
        self._active: RequestResponseCycle | None = None  # whose answer comes next
        self._refusal: bytes | None = None  # the last that we say; then nothing is read any more
        self._unsent = 0  # when the client last read of its answer, and what the traffic counts
        self._unsent_until = inf
        self._offered: bytes | None = None  # another protocol, and what came behind its offer
        self._ahead = b""
        self._full_since = inf  # when there was too much to write, and how much that was
        self._full_bytes = 0

    # -- the connection ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.entered = True
        self._rest()
        if self._peer:
            return
        self._peer = self.client[0] if self.client else ""
        if self._traffic.enter(self._peer):
            self._refuse(503, Overloaded("too many connections are open; retry after a moment"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._traffic.leave(self._peer)
        self._count_unsent(0)
        if self._active is not None:
            complete = self._active.response_complete
            if not complete:
                self._active.disconnected = (
                    True  # uvicorn tells only the newest of pipelined requests
                )
                self._active.message_event.set()
            if self.flow.write_paused or not complete:
                self._lose_answer(self._active)
        super().connection_lost(exc)

    @staticmethod
    def _lose_answer(cycle: RequestResponseCycle) -> None:
        """The client is gone, and a part of its answer was not written."""
        undelivered: Callable[[], None] = cycle.scope.get(UNDELIVERED, _nothing)  # type: ignore[assignment]
        undelivered()

    def sweep(self, now: float) -> None:
        """Cut a connection whose time is up."""
        unsent = self.transport.get_write_buffer_size()
        if not unsent:
            self._unsent_until = inf
        elif unsent < self._unsent or self._unsent_until == inf:
            self._unsent_until = now + self._bounds.answer_pause_seconds
        if now >= self._unsent_until or self._is_read_too_slowly(unsent, now):
            self.transport.abort()
        self._count_unsent(unsent)
        if now >= self._deadline and not self.flow.read_paused and not self.transport.is_closing():
            self._cut()

    def _is_read_too_slowly(self, unsent: int, now: float) -> bool:
        granted = (self._full_bytes - unsent) / limits.ANSWER_BYTES_PER_SECOND_MIN
        return now >= self._full_since + self._bounds.answer_pause_seconds + granted

    def _count_unsent(self, nbytes: int) -> None:
        self._traffic.bytes += nbytes - self._unsent
        self._unsent = nbytes

    def _cut(self) -> None:
        if self._doing is Doing.IDLE:
            self.transport.close()
        elif self._doing is Doing.BODY and self.cycle.response_started:
            self.transport.abort()
        else:
            part = "head" if self._doing is Doing.HEAD else "body"
            self._refuse(408, InvalidRequest(f"the {part} of the request took too long to arrive"))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._count_unsent(self.transport.get_write_buffer_size())
        self._full_since, self._full_bytes = self.loop.time(), self._unsent

    def resume_writing(self) -> None:
        super().resume_writing()
        self._full_since = inf
        self._count_unsent(self.transport.get_write_buffer_size())

    # -- reading -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._offered is not None:  # it is not known yet which protocol this is
            self._ahead += data
            if len(self._ahead) >= limits.HEAD_BYTES_MAX:
                self.flow.pause_reading()
            return
        while data and self._refusal is None and not self.transport.is_closing():
            if self._doing is Doing.IDLE:
                self._begin()
            piece, data = data[: self._room], data[self._room :]
            self._room -= len(piece)
            self._parse(piece)  # there is new room after a head, and after each piece of a body
            if self._offered is not None:
                self._ahead += data
                return
            if not self._room:
                part = "trailers" if self._doing is Doing.BODY else "head"
                self._refuse(431, InvalidRequest(
                    f"the {part} of the request has more than {limits.HEAD_BYTES_MAX:,} bytes"
                ))  # fmt: skip

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            rest = data[offer.args[0] :]
            if self._may_hand_over():
                self._offered, self._ahead = self._header(b"upgrade"), rest
                rest = b""
            self._parse_without_offer(rest)
        except httptools.HttpParserError:
            self._refuse(400, InvalidRequest("this is not a request of HTTP/1.1"))

    def _may_hand_over(self) -> bool:
        """Whether the offer is of frames, so that what comes behind it is no HTTP; see `Handover`."""
        path, _, _ = self.url.partition(b"?")
        asked = path == PATH.encode() and self.parser.get_method() == b"GET"
        body = self._header(b"content-length") not in (b"", b"0") or self._header(
            b"transfer-encoding"
        )
        return asked and not body and b"quiver/" in self._header(b"upgrade").lower()

    def _header(self, name: bytes) -> bytes:
        return b",".join(value for key, value in self.headers if key == name)

    def _hand_over(self, protocol: str, begin: Begin) -> None:
        """The connection speaks another protocol from now on, and is no concern of ours any more."""
        cycle = self.cycle
        if cycle.disconnected or self.transport.is_closing():
            return
        headers = [
            *self.server_state.default_headers, (b"upgrade", protocol.encode()),
            (b"connection", b"Upgrade"),
        ]  # fmt: skip
        head = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.transport.write(STATUS_LINE[101] + head + b"\r\n")
        cycle.response_started = cycle.response_complete = True
        self.server_state.total_requests += 1
        self._count_unsent(0)
        self.connections.discard(self)
        begin(self.transport, self._ahead)

    def _parse_without_offer(self, rest: bytes) -> None:
        """Another protocol was offered (Java does so with HTTP/2): pass that over, and go on.

        The parser would not read the body of such a request.
        """
        method = self.parser.get_method()
        headers = [header for header in self.headers if header[0] != b"upgrade"]
        head = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.parser = httptools.HttpRequestParser(self)
        self._parse(b"%b %b HTTP/1.1\r\n%b\r\n" % (method, self.url, head) + rest)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._doing is not Doing.HEAD:
            self._begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._doing is not Doing.BODY:  # trailers are passed over
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= limits.PIPELINED_REQUESTS_MAX:
            self._refuse(429, Overloaded("wait for answers before you send more requests"))
            raise Refused
        if self.parser.get_method() == b"CONNECT":
            raise Refused
        if self.parser.should_upgrade():
            return  # it comes again, without the offer
        if self._offered is not None:
            self.scope[UPGRADE] = Handover(  # type: ignore[typeddict-unknown-key]
                self._offered, self._traffic, self.server_state, self._peer, self._hand_over
            )
        super().on_headers_complete()
        if self.parser.get_method() != b"HEAD":  # whose answer has no body to wait for
            self.cycle.transport = HeadAndBody(self.cycle)  # type: ignore[assignment]  # all it uses
        if self._offered is not None:  # else it ends with the answer
            self.cycle.keep_alive = False
        self._doing = Doing.BODY
        self._room = limits.HEAD_BYTES_MAX
        self._body_bytes = 0
        self._body_since = self.loop.time()
        self._await_body(self._body_since)

    def on_body(self, body: bytes) -> None:
        self._room = limits.HEAD_BYTES_MAX
        if self.cycle.response_complete:
            return
        self.cycle.body += body
        self.cycle.message_event.set()
        if len(self.cycle.body) >= limits.BODY_AHEAD_BYTES:
            self.flow.pause_reading()
        self._body_bytes += len(body)
        granted = self._body_since + self._body_bytes / limits.BODY_BYTES_PER_SECOND_MIN
        self._await_body(min(granted, self.loop.time()))

    def _await_body(self, since: float) -> None:
        """More of the body must come, and all of it must have come in time."""
        self._deadline = min(
            since + self._bounds.body_pause_seconds, self._body_since + self._bounds.body_seconds
        )

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._doing = Doing.DONE
        self._deadline = inf
        if self.cycle.response_complete:
            self._rest()

    def _begin(self) -> None:
        self._doing = Doing.HEAD
        self._room = limits.HEAD_BYTES_MAX
        self._deadline = self.loop.time() + self._bounds.head_seconds

    def _rest(self) -> None:
        self._doing = Doing.IDLE
        self._deadline = self.loop.time() + self._bounds.idle_seconds

    # -- answering ---------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._active = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            if self._active is not None and self._active.keep_alive:  # we have not closed it
                self._lose_answer(self._active)
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._refusal is not None:
            self._end(self._refusal)
        elif self._doing is Doing.DONE:
            self._rest()
        elif self._doing is Doing.BODY:  # nobody wants the rest of it
            self._deadline = self.loop.time() + limits.LINGER_SECONDS_MAX

    def _refuse(self, status: int, error: QuiverError) -> None:
        """Answer by ourselves as soon as all requests before have their answers, and close.

        What comes until then is read, and dropped: else nobody would notice that the client has gone.
        """
        if self._refusal is not None or self.transport.is_closing():
            return
        self._refusal = self._problem(status, error)
        self._deadline = inf
        due = self._active is not None and not self._active.response_complete
        if self._doing is Doing.BODY:  # of the newest request, which gets no other answer
            if self.pipeline:
                self.pipeline.popleft()
            elif self.cycle.response_started:
                self._refusal = b""  # it has one
            else:
                due = False
        if not due:
            self._end(self._refusal)

    def _problem(self, status: int, error: QuiverError) -> bytes:
        body = body_of(error, status)
        headers = [
            *self.server_state.default_headers,
            (b"x-request-id", new_id().encode()),
            (b"content-type", PROBLEM.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        head = b"".join(b"%b: %b\r\n" % header for header in headers)
        return STATUS_LINE[status] + head + b"\r\n" + body

    def _end(self, last: bytes) -> None:
        self.transport.write(last)
        self.transport.close()


def _nothing() -> None:
    """Most answers carry nothing that could be given back."""


class Refused(Exception):
    """Tells the parser that it need not go on."""

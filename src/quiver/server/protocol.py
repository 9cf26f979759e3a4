"""HTTP/1.1 with bounds in time, bytes and connections: bytes become exchanges, which are answered.

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
from collections import deque
from collections.abc import Callable
from enum import Enum
from math import inf
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp, Scope

from quiver import limits
from quiver.errors import InvalidRequest, Overloaded, QuiverError
from quiver.server.exchange import STATUS_LINES, FlowControl, HttpExchange, lines_of
from quiver.server.problems import PROBLEM, body_of
from quiver.server.requests import UNDELIVERED, new_id
from quiver.server.traffic import ServerState, Traffic
from quiver.server.upgrade import UPGRADE, Begin, Handover
from quiver.wire.frames import PATH


class Doing(Enum):
    """What a connection reads."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    DONE = 3


class HttpConnection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, app: ASGIApp, state: ServerState, traffic: Traffic, peer: str = "") -> None:
        """With `peer` it is counted already, under this address."""
        self._app = app
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._parser = _parser(self)
        self.transport: asyncio.Transport
        self._flow: FlowControl
        # The request that is read
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._awaits_go_ahead = False
        self._exchange: HttpExchange | None = None  # the newest
        self._pipeline: deque[HttpExchange] = deque()  # read, while one before is answered
        self._traffic = traffic
        self._bounds = traffic.bounds
        self._peer = peer
        self.entered = False  # it is open, or was
        self._doing = Doing.IDLE
        self._deadline = inf
        self._room = limits.HEAD_BYTES_MAX  # for bytes that are no body
        self._body_bytes = 0
        self._body_since = 0.0
        self._active: HttpExchange | None = None  # whose answer comes next
        self._refusal: bytes | None = None  # the last that we say; then nothing is read any more
        self._unsent = 0  # when the client last read of its answer, and what the traffic counts
        self._unsent_until = inf
        self._offered: bytes | None = None  # another protocol, and what came behind its offer
        self._ahead = b""
        self._full_since = inf  # when there was too much to write, and how much that was
        self._full_bytes = 0

    # -- the connection ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._flow = FlowControl(transport)
        self._state.connections.add(self)
        server, client = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        self._origin: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
            "server": tuple(server[:2]) if server else None,
            "client": tuple(client[:2]) if client else None,
            "root_path": "",
        }
        self.entered = True
        self._rest()
        if self._peer:
            return
        self._peer = client[0] if client else ""
        if self._traffic.enter(self._peer):
            self._refuse(503, Overloaded("too many connections are open; retry after a moment"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(self)
        self._traffic.leave(self._peer)
        self._count_unsent(0)
        active = self._active
        if active is not None and (self._flow.write_paused or not active.response_complete):
            self._lose_answer(active)
        for exchange in (active, self._exchange):
            if exchange is not None:
                exchange.disconnected = exchange.disconnected or not exchange.response_complete
                exchange.message_event.set()
        self._flow.resume_writing()
        if exc is None:
            self.transport.close()
        self._forget()

    def _forget(self) -> None:
        """Let go of what refers to us: all is gone at once, and not when the garbage collector comes."""
        self._pipeline.clear()
        self._active = self._exchange = None
        del self._parser

    def shutdown(self) -> None:
        """The node is about to end: what was asked is answered, and nothing else."""
        if self._exchange is None or self._exchange.response_complete:
            self.transport.close()
        else:
            self._exchange.keep_alive = False

    @staticmethod
    def _lose_answer(exchange: HttpExchange) -> None:
        """The client is gone, and a part of its answer was not written."""
        undelivered: Callable[[], None] = exchange.scope.get(UNDELIVERED, _nothing)
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
        if now >= self._deadline and not self._flow.read_paused and not self.transport.is_closing():
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
        elif self._doing is Doing.BODY and self._newest.response_started:
            self.transport.abort()
        else:
            part = "head" if self._doing is Doing.HEAD else "body"
            self._refuse(408, InvalidRequest(f"the {part} of the request took too long to arrive"))

    def pause_writing(self) -> None:
        self._flow.pause_writing()
        self._count_unsent(self.transport.get_write_buffer_size())
        self._full_since, self._full_bytes = self._loop.time(), self._unsent

    def resume_writing(self) -> None:
        self._flow.resume_writing()
        self._full_since = inf
        self._count_unsent(self.transport.get_write_buffer_size())

    # -- reading -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._offered is not None:  # it is not known yet which protocol this is
            self._ahead += data
            if len(self._ahead) >= limits.HEAD_BYTES_MAX:
                self._flow.pause_reading()
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
            self._parser.feed_data(data)
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
        path, _, _ = self._url.partition(b"?")
        asked = path == PATH.encode() and self._parser.get_method() == b"GET"
        body = self._header(b"content-length") not in (b"", b"0") or self._header(
            b"transfer-encoding"
        )
        return asked and not body and b"quiver/" in self._header(b"upgrade").lower()

    def _header(self, name: bytes) -> bytes:
        return b",".join(value for key, value in self._headers if key == name)

    def _hand_over(self, protocol: str, begin: Begin) -> None:
        """The connection speaks another protocol from now on, and is no concern of ours any more."""
        if self.transport.is_closing():
            return
        exchange = self._newest
        said = lines_of([(b"upgrade", protocol.encode()), (b"connection", b"Upgrade")])
        self.transport.write(STATUS_LINES[101] + self._state.common + said + b"\r\n")
        exchange.response_started = exchange.response_complete = True
        self._count_unsent(0)
        self._state.connections.discard(self)
        self._forget()
        begin(self.transport, self._ahead)

    def _parse_without_offer(self, rest: bytes) -> None:
        """Another protocol was offered (Java does so with HTTP/2): pass that over, and go on.

        The parser would not read the body of such a request.
        """
        method = self._parser.get_method()
        head = lines_of([header for header in self._headers if header[0] != b"upgrade"])
        self._parser = httptools.HttpRequestParser(self)
        self._parse(b"%b %b HTTP/1.1\r\n%b\r\n" % (method, self._url, head) + rest)

    # The parser calls these.

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._awaits_go_ahead = False
        if self._doing is not Doing.HEAD:
            self._begin()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._doing is Doing.BODY:  # trailers are passed over
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._awaits_go_ahead = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if len(self._pipeline) >= limits.PIPELINED_REQUESTS_MAX:
            self._refuse(429, Overloaded("wait for answers before you send more requests"))
            raise Refused
        method = self._parser.get_method()
        if method == b"CONNECT":
            raise Refused
        if self._parser.should_upgrade():
            return  # it comes again, without the offer
        version = self._parser.get_http_version()
        exchange = HttpExchange(
            self._scope(method, version), self.transport, self._flow, self._state, self._answered,
            keep_alive=version != "1.0" and self._parser.should_keep_alive(),
            awaits_go_ahead=version != "1.0" and self._awaits_go_ahead,  # it would not know such an answer
        )  # fmt: skip
        if self._offered is not None:
            exchange.scope[UPGRADE] = Handover(
                self._offered, self._traffic, self._state, self._peer, self._hand_over
            )
            exchange.keep_alive = False  # unless it is handed over
        before, self._exchange = self._exchange, exchange
        if before is None or before.response_complete:
            self._start(exchange)
        else:
            self._flow.pause_reading()
            self._pipeline.append(exchange)
        self._doing = Doing.BODY
        self._room = limits.HEAD_BYTES_MAX
        self._body_bytes = 0
        self._body_since = self._loop.time()
        self._await_body(self._body_since)

    def on_body(self, body: bytes) -> None:
        self._room = limits.HEAD_BYTES_MAX
        exchange = self._newest
        if exchange.response_complete:
            return
        exchange.body += body
        exchange.message_event.set()
        if len(exchange.body) >= limits.BODY_AHEAD_BYTES:
            self._flow.pause_reading()
        self._body_bytes += len(body)
        granted = self._body_since + self._body_bytes / limits.BODY_BYTES_PER_SECOND_MIN
        self._await_body(min(granted, self._loop.time()))

    def _await_body(self, since: float) -> None:
        """More of the body must come, and all of it must have come in time."""
        self._deadline = min(
            since + self._bounds.body_pause_seconds, self._body_since + self._bounds.body_seconds
        )

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        self._doing = Doing.DONE
        self._deadline = inf
        exchange = self._newest
        if exchange.response_complete:
            self._rest()
            return
        exchange.more_body = False
        exchange.message_event.set()

    @property
    def _newest(self) -> HttpExchange:
        """The exchange whose request was begun last."""
        assert self._exchange is not None
        return self._exchange

    def _scope(self, method: bytes, version: str) -> Scope:
        url = httptools.parse_url(self._url)
        path = url.path.decode("ascii")
        return {
            **self._origin,
            "http_version": version,
            "method": method.decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": self._headers,
        }

    def _begin(self) -> None:
        self._doing = Doing.HEAD
        self._room = limits.HEAD_BYTES_MAX
        self._deadline = self._loop.time() + self._bounds.head_seconds

    def _rest(self) -> None:
        self._doing = Doing.IDLE
        self._deadline = self._loop.time() + self._bounds.idle_seconds

    # -- answering ---------------------------------------------------------------------------------

    def _start(self, exchange: HttpExchange) -> None:
        self._active = exchange
        task = self._loop.create_task(exchange.run(self._app))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    def _answered(self) -> None:
        """The answer that was due is written."""
        if self.transport.is_closing():
            if self._active is not None and self._active.keep_alive:  # we have not closed it
                self._lose_answer(self._active)
            return
        self._flow.resume_reading()
        if self._pipeline:
            self._start(self._pipeline.popleft())
        elif self._refusal is not None:
            self._end(self._refusal)
        elif self._doing is Doing.DONE:
            self._rest()
        elif self._doing is Doing.BODY:  # nobody wants the rest of it
            self._deadline = self._loop.time() + limits.LINGER_SECONDS_MAX

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
            if self._pipeline:
                self._pipeline.pop()
            elif self._newest.response_started:
                self._refusal = b""  # it has one
            else:
                due = False
        if not due:
            self._end(self._refusal)

    def _problem(self, status: int, error: QuiverError) -> bytes:
        body = body_of(error, status)
        headers = [
            (b"x-request-id", new_id().encode()),
            (b"content-type", PROBLEM.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        return STATUS_LINES[status] + self._state.common + lines_of(headers) + b"\r\n" + body

    def _end(self, last: bytes) -> None:
        self.transport.write(last)
        self.transport.close()


def _parser(connection: HttpConnection) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(connection)
    # What comes behind a request that ends the connection does not cost it its answer.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _nothing() -> None:
    """Most answers carry nothing that could be given back."""


class Refused(Exception):
    """Tells the parser that it need not go on."""

"""How answers of an application are written: whole if they are whole, and cut off if they are wrong."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from quiver.server.config import NodeBounds
from quiver.server.exchange import HttpExchange
from quiver.server.protocol import HttpConnection
from quiver.server.traffic import ServerState, Traffic

COMMON = b"date: today\r\n"
Headers = list[tuple[bytes, bytes]]


class Connection:
    """An application's connection; `written` is what it wrote, a piece for each write."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self.written: list[bytes] = []
        self.closed = self.gone = False
        self.protocol = HttpConnection(app, ServerState(common=COMMON), Traffic(NodeBounds()))
        transport: Any = self
        self.protocol.connection_made(transport)

    async def ask(self, *pieces: bytes) -> bytes:
        """What is written until nothing happens any more."""
        for piece in pieces:
            self.protocol.data_received(piece)
            for _ in range(5):
                await asyncio.sleep(0)
        return b"".join(self.written)

    async def leave(self) -> None:
        """The client goes."""
        self.closed = self.gone = True
        self.protocol.connection_lost(None)
        del self.protocol  # as transports do
        for _ in range(5):
            await asyncio.sleep(0)

    # As a transport

    def write(self, data: bytes) -> None:
        if self.gone:
            raise RuntimeError("the handler is closed")  # as uvloop says it
        if data:
            self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name.endswith("name") else None

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


def says(*bodies: bytes, status: int = 200, headers: Headers | None = None) -> Callable[..., Any]:
    """An application that answers so; its length is said if nothing else is."""
    said = [(b"content-length", b"%d" % len(b"".join(bodies)))] if headers is None else headers

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": said})
        for at, body in enumerate(bodies, 1):
            more = at < len(bodies)
            await send({"type": "http.response.body", "body": body, "more_body": more})

    return app


def asked(app: Callable[..., Any], *pieces: bytes) -> Connection:
    async def main() -> Connection:
        connection = Connection(app)
        await connection.ask(*pieces)
        return connection

    return asyncio.run(main())


def request(method: str = "GET", *headers: str, body: bytes = b"") -> bytes:
    return "\r\n".join([f"{method} /a%20b?c HTTP/1.1", "Host: x", *headers, "", ""]).encode() + body


def test_an_answer_is_one_write():
    connection = asked(says(b"hello"), request())
    assert connection.written == [
        b"HTTP/1.1 200 OK\r\n" + COMMON + b"content-length: 5\r\n\r\nhello"
    ]
    assert not connection.closed


def test_its_parts_go_as_they_come_and_a_large_one_is_not_copied():
    large = bytes(100_000)
    connection = asked(says(large, b"", b"end"), request())
    head, *bodies = connection.written
    assert head.endswith(b"content-length: 100003\r\n\r\n")
    assert bodies == [large, b"end"]


def test_one_that_does_not_say_its_length_is_chunked():
    (head, end) = asked(says(b"", b"hello", headers=[]), request()).written
    assert head.endswith(b"transfer-encoding: chunked\r\n\r\n")
    assert end == b"5\r\nhello\r\n0\r\n\r\n"


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_one_without_a_body_has_none(method, status):
    body = b"hello" if method == "HEAD" else b""
    connection = asked(says(body, status=status, headers=[]), request(method))
    assert connection.written[0].endswith(COMMON + b"\r\n")
    assert not connection.closed


def test_the_connection_ends_if_one_of_both_says_so():
    said = [(b"content-length", b"0"), (b"connection", b"close")]
    for connection in (
        asked(says(b"", headers=said), request()),
        asked(says(b""), request("GET", "Connection: close")),
        asked(says(b""), b"GET / HTTP/1.0\r\nHost: x\r\n\r\n"),
    ):
        (written,) = connection.written
        assert written.endswith(b"content-length: 0\r\nconnection: close\r\n\r\n")
        assert connection.closed


async def raises(scope: Any, receive: Any, send: Any) -> None:
    raise KeyError("a bug")


async def says_nothing(scope: Any, receive: Any, send: Any) -> None:
    pass


@pytest.mark.parametrize("app", [raises, says_nothing])
def test_an_application_that_does_not_answer_has_failed(app):
    connection = asked(app, request())
    assert connection.written[0].startswith(b"HTTP/1.1 500 ")
    assert connection.closed


@pytest.mark.parametrize(
    ("app", "written"),
    [
        pytest.param(says(b"hello", headers=[(b"content-length", b"4")]), b": 4\r\n\r\n", id="too long"),
        pytest.param(
            says(b"hello", headers=[(b"content-length", b"6")]), b"hello", id="too short"
        ),
        pytest.param(says(b"", headers=[(b"a", b"b\r\nc: d")]), b"", id="a line in a header"),
        pytest.param(says(b"", headers=[(b"a", b"b\x00")]), b"", id="NUL in a header"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_cut_off(app, written):
    connection = asked(app, request())
    assert b"".join(connection.written).endswith(written)
    assert b"c: d" not in b"".join(connection.written)
    assert connection.closed


def test_an_application_gets_what_was_asked():
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        while (message := await receive())["type"] == "http.request":
            seen.append((message["body"], message["more_body"]))
            if not message["more_body"]:
                await says(b"")(scope, receive, send)

    head = request("POST", "Content-Length: 6", "X-Y: z")
    asked(app, head + b"one", b"two")
    scope, *bodies = seen
    assert bodies == [(b"one", True), (b"two", False)]
    assert {name: scope[name] for name in ("method", "path", "raw_path", "query_string")} == {
        "method": "POST", "path": "/a b", "raw_path": b"/a%20b", "query_string": b"c",
    }  # fmt: skip
    assert scope["headers"] == [(b"host", b"x"), (b"content-length", b"6"), (b"x-y", b"z")]
    assert (scope["http_version"], scope["scheme"]) == ("1.1", "http")


def test_a_client_that_asks_for_it_is_told_to_go_on_when_its_body_is_wanted():
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await says(b"")(scope, receive, send)

    head = request("POST", "Content-Length: 1", "Expect: 100-continue")
    first, *rest = asked(app, head, b"x").written
    assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert rest[0].startswith(b"HTTP/1.1 200 ")
    assert b"100 Continue" not in b"".join(asked(says(b""), head, b"x").written)


def test_answers_come_in_the_order_of_the_requests():
    waiting: list[asyncio.Event] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["query_string"] == b"slow":
            waiting.append(asyncio.Event())
            await waiting[0].wait()
        await says(scope["query_string"])(scope, receive, send)

    async def main() -> bytes:
        connection = Connection(app)
        asked = [f"GET /?{name} HTTP/1.1\r\nHost: x\r\n\r\n" for name in ("slow", "b", "c")]
        assert await connection.ask("".join(asked).encode()) == b""
        waiting[0].set()
        return await connection.ask(b"", b"")

    answers = asyncio.run(main()).split(b"HTTP/1.1 200 OK\r\n")
    assert [answer.rpartition(b"\r\n\r\n")[2] for answer in answers] == [b"", b"slow", b"b", b"c"]


def test_requests_leave_no_garbage():
    """What is left waits for a search, and the searches took a sixth of the time of a request."""

    async def main() -> int:
        connection = Connection(says(b"hello"))
        for _ in range(10):
            await connection.ask(request("POST", "Content-Length: 1", body=b"x"))
        return sum(isinstance(found, HttpExchange) for found in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(main()) == 1  # the last one
    finally:
        gc.enable()


def test_nor_does_a_connection_that_has_ended():
    async def waits(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def main() -> None:
        for app in (says(b"hello"), waits):
            connection = Connection(app)
            await connection.ask(request() * 3)
            await connection.leave()

    gc.collect()
    gc.disable()
    try:
        asyncio.run(main())
        kinds = (HttpConnection, HttpExchange)
        assert not [found for found in gc.get_objects() if isinstance(found, kinds)]
    finally:
        gc.enable()


def test_an_application_that_fails_when_its_client_has_gone_writes_nothing():
    """Such as one that is cut at the end of a node: uvloop raises when a transport is gone."""
    errors: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            pass
        raise KeyError("a bug")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        connection = Connection(app)
        await connection.ask(request())
        await connection.leave()
        assert connection.written == []
        gc.collect()

    asyncio.run(main())
    assert errors == []


def test_http_1_0_has_neither_chunks_nor_answers_before_the_answer():
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["body"] == b"x"
        await says(b"one", b"two", headers=[])(scope, receive, send)

    head = b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
    connection = asked(app, head + b"x")
    said = b"HTTP/1.1 200 OK\r\n" + COMMON + b"connection: close\r\n\r\none"
    assert connection.written == [said, b"two"]
    assert connection.closed


def test_one_that_is_cancelled_is_no_bug(caplog):
    """A node that ends cancels what it does not want to wait for any more."""

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    async def main() -> Connection:
        connection = Connection(waits)
        await connection.ask(request())
        (task,) = connection.protocol._state.tasks
        task.cancel()
        await asyncio.wait((task,))
        return connection

    connection = asyncio.run(main())
    assert connection.written[0].startswith(b"HTTP/1.1 500 ")
    assert connection.closed
    assert not caplog.records

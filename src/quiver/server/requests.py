"""What holds for every request, whichever door it goes to.

It has an id, which is in the answer and in the logs. It calls the node by a name of its own: a page
of somebody else's, open in a browser on this machine, must not get at a node without credentials,
be it by a form (Origin), a picture (Sec-Fetch-Site) or a name that suddenly means 127.0.0.1 (Host).
Its answer, unless it is for an SDK, carries headers that keep browsers from guessing, storing and
framing. Whatever goes wrong has an answer.
"""

import asyncio
import ipaddress
import logging
import re
import time
from collections.abc import Callable, Coroutine
from random import getrandbits
from typing import Any, Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quiver import limits
from quiver.errors import Forbidden, InvalidRequest, QuiverError
from quiver.server import logs
from quiver.server.auth import PRINCIPAL
from quiver.server.metrics import Metrics
from quiver.server.problems import InternalError, let_go, problem
from quiver.server.traffic import HeldBytes, Traffic

T = TypeVar("T")

ID: Final = re.compile(rb"[A-Za-z0-9._:-]{1,%d}" % limits.REQUEST_ID_CHARS_MAX)
# RFC 3986, section 3.2.2: an address in brackets or a name, which may be empty, and a port.
HOST: Final = re.compile(
    rb"(\[[0-9A-Za-z:._~-]+\]|([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(:[0-9]*)?"
)
ALWAYS: Final[tuple[tuple[bytes, bytes], ...]] = (  # on every answer; the protocol adds them
    (b"x-content-type-options", b"nosniff"),
)
FOR_BROWSERS: Final[tuple[tuple[bytes, bytes], ...]] = (  # a door may say something else
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
HEADERS: Final = "quiver.headers"  # where the scope has the request's by their names, see `header`
REQUEST_ID: Final = "quiver.request_id"  # and the request's id
UNDELIVERED: Final = "quiver.undelivered"  # what to do if the answer cannot be written
DOOR: Final = "quiver.door"  # and the name of the door that it came to, for those who count
AMAZON_ID: Final = b"x-amzn-requestid"  # as SDKs read it
OWN_SITES: Final = (b"same-origin", b"none")  # "none": typed, or opened from outside the browser


class UnknownHost(Forbidden):
    """The request's Host header is not a name of this node."""


class BadHost(InvalidRequest):
    """The request does not have one valid Host header, as HTTP/1.1 demands."""


class OtherSite(Forbidden):
    """A browser asks for a page of another site."""


class NoSuchPath(InvalidRequest):
    """There is nothing at this path, or not with this method."""


def new_id() -> str:
    """The id of a request that has none; no secret, so it need not come from the system."""
    return f"{getrandbits(64):016x}"


class RequestMiddleware:
    """The application around all doors."""

    def __init__(
        self, doors: ASGIApp, hosts: tuple[str, ...], traffic: Traffic, metrics: Metrics
    ) -> None:
        self._doors = doors
        self._metrics = metrics
        self._hosts = frozenset(host.lower() for host in hosts) | {"localhost"}
        self._known: set[bytes] = set()  # Host headers that name this node
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        started = time.perf_counter()
        headers = scope[HEADERS] = dict(reversed(scope["headers"]))
        given = headers.get(b"x-request-id")
        request_id = given.decode() if given and ID.fullmatch(given) else new_id()
        held = HeldBytes(self._traffic)
        scope.update({"app": self, REQUEST_ID: request_id, DOOR: "node", HeldBytes.KEY: held})
        status = nbytes = 0
        held_back = b"expect" in headers  # the body, until it is asked for

        async def ask() -> Message:
            nonlocal nbytes, held_back
            held_back = False
            message = await receive()
            size = len(message.get("body", b""))
            nbytes += size
            self._metrics.received(scope[DOOR], size)
            return message

        async def answer(message: Message) -> None:
            nonlocal status, nbytes
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _completed(message.get("headers", ()), scope)
                if held_back:  # and will not come: the next request could not be told from it
                    message["headers"].append((b"connection", b"close"))
            else:
                size = len(message.get("body", b""))
                nbytes += size
                self._metrics.answered(scope[DOOR], size)
            await send(message)

        try:
            self._demand_known_host(scope)
            await self._doors(scope, ask, answer)
        except ClientDisconnect:
            pass
        except Exception as error:  # doors count what they answer themselves
            seconds = time.perf_counter() - started
            self._metrics.request("node", "refuse", _code_of(error), seconds)
            if status:  # too late for another answer; the connection is closed
                raise
            told = _answer_to(error, scope[REQUEST_ID])
            let_go(error)
            await told(scope, receive, answer)
        finally:
            held.release()
            if PRINCIPAL in scope:
                scope[PRINCIPAL].spend(nbytes)
            level = logging.WARNING if status >= 500 else logging.DEBUG
            if logs.LOGGER.isEnabledFor(level):
                logs.event(
                    "request", level=level, request=scope[REQUEST_ID], method=scope["method"],
                    path=scope["path"], status=status, client=(scope["client"] or [""])[0],
                    principal=scope[PRINCIPAL].name if PRINCIPAL in scope else None,
                    seconds=round(time.perf_counter() - started, 6),
                )  # fmt: skip

    def _demand_known_host(self, scope: Scope) -> None:
        host = _host(scope)
        if host is not None and host not in self._known:
            self._learn(host)
        headers = scope[HEADERS]
        site = headers.get(b"sec-fetch-site")
        if site is not None and site not in OWN_SITES:
            raise OtherSite("a page of another site may not use this node")
        origin = headers.get(b"origin")
        if origin is not None and origin.partition(b"://")[2] != host:
            raise OtherSite(f"a page of {origin.decode('latin-1')[:80]!r} may not use this node")

    def _learn(self, host: bytes) -> None:
        """Refuse what is no name of this node; remember what is one."""
        if not HOST.fullmatch(host):
            raise BadHost(
                f"Host: {host.decode('latin-1')[:80]!r} is not a name or an address, with or without "
                "a port"
            )
        name = re.sub(r":\d*$", "", host.decode("latin-1")).lower()
        if name not in self._hosts and not _is_address(name):
            raise UnknownHost(
                f"{host.decode('latin-1')[:80]!r} is not a name of this node; whoever runs it can "
                "add it to `hosts` in the configuration"
            )
        if len(self._known) >= limits.HOSTS_REMEMBERED_MAX:
            self._known.clear()
        self._known.add(host)


def _host(scope: Scope) -> bytes | None:
    """The Host header: one, as RFC 9112, section 3.2, demands. HTTP/1.0 may leave it out.

    With two of them, a proxy and the node could each go by another one.
    """
    hosts: list[bytes] = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) > 1:
        raise BadHost("the request has several Host headers; send one")
    if not hosts:
        if scope["http_version"] != "1.0":
            raise BadHost("the request has no Host header; HTTP/1.1 needs one")
        return None
    return hosts[0]


def _is_address(name: str) -> bool:
    try:
        return bool(ipaddress.ip_address(name.strip("[]")))
    except ValueError:
        return False


def _code_of(error: Exception) -> str:
    match error:
        case QuiverError():
            return error.code
        case HTTPException():
            return InvalidRequest.code
    return InternalError.code


def _answer_to(error: Exception, request_id: str) -> Response:
    match error:
        case QuiverError():
            return problem(error)
        case HTTPException():  # there is no such route, or not with this method
            answer = problem(NoSuchPath(f"{error.detail}: see /openapi.json"), error.status_code)
            answer.headers.update(error.headers or {})
            return answer
    logs.failure("bug", error, request=request_id)
    return problem(
        InternalError(f"the node has a bug; its log has more about request {request_id}")
    )


def header(scope: Scope, name: bytes) -> bytes | None:
    """The value of a request's header; of several, the first one's."""
    found: bytes | None = scope[HEADERS].get(name)
    return found


def by_browser(scope: Scope) -> bool:
    """Whether a browser seems to have sent it: any page can make one GET an address.

    Most say so (Sec-Fetch-Site and others), but only to addresses that they deem safe.
    """
    names = [name for name, _ in scope["headers"]]
    if b"referer" in names or any(name.startswith(b"sec-fetch-") for name in names):
        return True
    return (header(scope, b"user-agent") or b"").startswith(b"Mozilla/")


def _completed(headers: Any, scope: Scope) -> list[tuple[bytes, bytes]]:
    """What an answer says of itself.

    An SDK gets what an SDK reads: parsing the rest took boto3 a thirtieth of a send, and no page can
    make a browser post with `X-Amz-Target`.
    """
    said, asked = list(headers), scope[HEADERS]
    names = [name for name, _ in said]
    for_sdk = AMAZON_ID in names and scope["method"] == "POST" and b"x-amz-target" in asked
    if not for_sdk:
        said += [pair for pair in FOR_BROWSERS if pair[0] not in names]
    if not for_sdk or b"x-request-id" in asked:
        said.append((b"x-request-id", scope[REQUEST_ID].encode()))
    return said


async def until_gone(
    request: Request, work: Coroutine[Any, Any, T], give_back: Callable[[T], Any] = lambda _: None
) -> T:
    """The result of `work`, which is cancelled if the client goes away meanwhile.

    The body must have been read. A receive that is cancelled leases nothing to nobody; what was done in
    the very moment in which the client went is given back.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    wanted = False
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        wanted = not gone.done()
        if not wanted:
            raise ClientDisconnect
        return task.result()
    finally:
        for pending in (task, gone):
            pending.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)
        if not wanted and not task.cancelled() and task.exception() is None:
            give_back(task.result())


async def demand_there(request: Request, give_back: Callable[[], Any]) -> None:
    """Give back what an answer carries if the client is gone, or goes before it has been written."""
    if await request.is_disconnected():
        give_back()
        raise ClientDisconnect
    request.scope[UNDELIVERED] = give_back


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

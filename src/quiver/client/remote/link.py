"""The connection to nodes: a thread with an event loop, two pools, and the rules of trying again.

What waits for messages has a pool of its own, so that any number of it leaves room for the rest.

A request is tried again by itself if it cannot have arrived (there was no connection), if the node
says that it did nothing and that waiting helps, or if doing it twice is doing it once (`repeat`).
Any other, when the connection breaks before the answer, or somebody between us and the node answers
in its place, is `OutcomeUnknown`. Waits between attempts grow and are drawn by chance, so that many
clients do not come back all at once. The address's patience begins with the first failure; when it
is over and every host was tried, it is `Unreachable`.

Threads may share a link. A process that was forked from one with a link gets a thread and
connections of its own with its first call.
"""

import asyncio
import atexit
import ctypes
import os
import random
import re
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from threading import Lock, Thread
from typing import Any, Final, TypeVar
from weakref import WeakSet

import aiohttp
import msgspec
import pyarrow as pa

from quiver import limits
from quiver.batches.codec import BytesLike
from quiver.client.remote import wire
from quiver.client.remote.address import Address
from quiver.client.remote.lanes import Lanes
from quiver.errors import (
    InvalidRequest,
    OutcomeUnknown,
    Overloaded,
    QueueClosed,
    QuiverError,
    QuotaExceeded,
    ReadOnly,
    ReceiptExpired,
    StorageFailed,
    Unauthenticated,
    UnavailableError,
    Unreachable,
)
from quiver.node.tickets import Ticket
from quiver.tracing import carried

T = TypeVar("T")

# What waiting may help against. A full topic or disk is the caller's to know about, as in a directory.
PASSING: Final = (Overloaded.code, QuotaExceeded.code, UnavailableError.code, QueueClosed.code)
UNSURE: Final = ("internal_error", StorageFailed.code)  # the node may have done it all the same
ASKS: Final = re.compile(r"/v1/(sql|topics/[^/]+/read)")  # POST, because the question is long
WHERE_TOKENS_GO: Final = "Give one in QUIVER_TOKEN, or in the address: quiver://TOKEN@host:port"
MAYBE_DONE: Final = (aiohttp.ClientError, TimeoutError, ConnectionError, OSError)


@dataclass(frozen=True, slots=True)
class Request:
    """A call: `repeat` says that doing it twice is doing it once."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    _: KW_ONLY
    repeat: bool
    wait_seconds: float = 0  # how long the node itself may take its time
    opens: bool = False  # the first of a link, with a patience of its own
    patience_seconds: float | None = None  # for a node that is away; None: the address's

    @property
    def only_reads(self) -> bool:
        """Whether nothing is changed by it."""
        return self.method == "GET" or (self.method == "POST" and bool(ASKS.fullmatch(self.path)))

    def after(self, seconds: float) -> "Request":
        """The same, when so much of its wait is over."""
        if not self.wait_seconds:
            return self
        left = max(self.wait_seconds - seconds, 0)
        body = msgspec.json.encode(msgspec.json.decode(self.body) | {"wait": left})
        return replace(self, body=body, wait_seconds=left)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a node answered; `repeated` if an earlier attempt may have arrived as well."""

    status: int
    headers: Mapping[str, str]
    body: BytesLike
    repeated: bool = False

    def json(self, kind: type[T]) -> T:
        """The answer, or the error that it is, raised."""
        if self.status >= 400:
            raise self.error()
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._strange() from None

    def problem(self) -> wire.Problem | None:
        """What is wrong, if a node says so."""
        try:
            return msgspec.json.decode(self.body, type=wire.Problem)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def error(self) -> QuiverError:
        """The error that the answer tells."""
        told = self.problem()
        if told is None:
            return self._strange()
        kind = _errors().get(told.code, QuiverError)
        if issubclass(kind, ReceiptExpired):
            return kind(told.detail, tuple(told.refused))
        if issubclass(kind, Unauthenticated):
            return kind(f"{told.detail}. {WHERE_TOKENS_GO}")
        after = self.headers.get("retry-after", "")
        if issubclass(kind, QuotaExceeded) and after.isdecimal():
            return kind(told.detail, float(after))
        return kind(told.detail)

    def _strange(self) -> QuiverError:
        return InvalidRequest(
            f"the answer, of status {self.status}, is not of a Quiver node; check the address"
        )


class _Intercepted(aiohttp.ClientError):
    """An answer of a failing proxy, not of a node: what the node did with the request is not known."""


class _Body(aiohttp.BytesPayload):
    """A body in one piece, however large: this loop has nothing better to do than to send it."""

    def __init__(self, value: bytes) -> None:
        aiohttp.Payload.__init__(self, value)
        self._size = len(value)


class _Call(Ticket[T]):
    """A ticket whose request ends when nobody wants it any more."""

    __slots__ = ("_abandoned", "task")

    def __init__(self) -> None:
        self.task: Callable[[], Any] | None = None
        super().__init__()

    @property
    def abandoned(self) -> bool:
        return self._abandoned

    @abandoned.setter
    def abandoned(self, value: bool) -> None:
        self._abandoned = value
        if value and self.task is not None:
            self.task()


class Link:
    """Calls to the nodes of an address, from any thread."""

    def __init__(self, address: Address, *, read_only: bool = False) -> None:
        self.address = address
        self._read_only = read_only
        self._tls = address.tls()
        self._chance = random.Random()  # noqa: S311  # it spreads retries, it guards nothing
        self._ahead_ms: float | None = None  # of the node's clock before our monotonic one
        self._closed = False
        self._forget()
        _LINKS.add(self)

    def _forget(self) -> None:
        """There is no thread (any more): the next call makes one."""
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._sessions: dict[bool, aiohttp.ClientSession] = {}  # for what waits, and for the rest
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = 0  # requests that wait for messages
        self._at = 0  # the node that answered last
        self.lanes = Lanes()

    @property
    def closed(self) -> bool:
        """Whether no further call can be made."""
        return self._closed

    def now_ms(self) -> int:
        """The node's time, as far as we know it."""
        if self._ahead_ms is None:
            return int(time.time() * 1000)
        return int(self._ahead_ms + time.monotonic() * 1000)

    def call(self, request: Request, convert: Callable[[Reply], T]) -> Ticket[T]:
        """Make a request; the ticket gets what `convert` makes of the answer."""
        if self._read_only and not request.only_reads:
            raise ReadOnly()
        request = self._compressed(request)
        ticket: _Call[T] = _Call()
        with self._lock:
            if self._closed:
                raise QueueClosed("the queue is closed; connect again")
            loop = self._started()
            loop.call_soon_threadsafe(self._start, loop, request, convert, ticket)
        return ticket

    def close(self) -> None:
        """End what is under way, and the thread."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._end(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = Thread(
                target=self._run, args=(self._loop,), name="quiver-link", daemon=True
            )
            self._thread.start()
        return self._loop

    def _compressed(self, request: Request) -> Request:
        headers = {"accept-encoding": "identity" if self.address.local else "zstd"}
        body = request.body
        worth_it = len(body) >= limits.COMPRESS_BYTES_MIN and not self.address.local
        if worth_it and not request.wait_seconds:  # these are small, and may change: see `after`
            body = pa.compress(body, "zstd", asbytes=True)
            headers["content-encoding"] = "zstd"
        if self.address.token is not None:
            headers["authorization"] = f"Bearer {self.address.token}"
        return replace(request, body=body, headers=carried({**headers, **request.headers}))

    # -- in the thread -----------------------------------------------------------------------------

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.run_forever()  # and a link that nobody closed stays until `_exiting`

    def _start(
        self,
        loop: asyncio.AbstractEventLoop,
        request: Request,
        convert: Callable[[Reply], T],
        ticket: _Call[T],
    ) -> None:
        if ticket.abandoned:
            return
        task = loop.create_task(self._serve(request, convert, ticket))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def cancel() -> None:
            with suppress(RuntimeError):  # the loop is closed, so the task is over
                loop.call_soon_threadsafe(task.cancel)

        ticket.task = cancel

    async def _serve(
        self, request: Request, convert: Callable[[Reply], T], ticket: _Call[T]
    ) -> None:
        try:
            value = convert(await self._persist(request))
        except asyncio.CancelledError:
            ticket.fail(_interrupted(request))
            raise
        except QuiverError as error:
            ticket.fail(error)
        except Exception as error:  # noqa: BLE001  # whatever it was, nobody may wait for ever
            known = OutcomeUnknown(
                f"the answer of {self._host} cannot be read ({type(error).__name__}: {error}): "
                "it may have been done or not"
            )
            known.__cause__ = error
            ticket.fail(known)
        else:
            ticket.resolve(value)

    async def _persist(self, request: Request) -> Reply:
        """The answer, after as many attempts as it takes, or why there is none."""
        if not request.wait_seconds:
            return await self._insist(request)
        if self._waiting >= limits.POOL_WAITING_MAX:
            raise Overloaded(
                f"{limits.POOL_WAITING_MAX:,} receives of this queue wait for messages already; wait "
                "with fewer, or connect once more"
            )
        self._waiting += 1
        try:
            return await self._insist(request)
        finally:
            self._waiting -= 1

    async def _insist(self, given: Request) -> Reply:
        """Try until there is an answer, or patience is over and every host was asked."""
        request = given
        begun = time.monotonic()
        deadline = begun + self._open_seconds if request.opens else None
        repeated = False
        tried: str | None
        for attempt in range(1_000_000):
            at = self._at
            try:
                reply = await self._try(request)
                if not _passing(reply) or _is_over(deadline):
                    return replace(reply, repeated=repeated)
                tried = None
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                self._refuse_strangers(error)
                tried = _why(error)
            except MAYBE_DONE as error:
                if self._ahead_ms is None and not isinstance(error, TimeoutError):
                    await self._check_it_is_a_node(error)
                if not request.repeat:
                    raise OutcomeUnknown(
                        f"the connection to {self._host} broke before the answer, or somebody else "
                        f"answered ({_why(error)}): it may have been done or not. Look before you do "
                        "it again; what is sent with a dedup_id, or through a producer, is safe to repeat"
                    ) from None
                repeated = repeated or not request.only_reads
                tried = _why(error)
            if deadline is None:
                patience = given.patience_seconds
                patience = self.address.patience_seconds if patience is None else patience
                deadline = time.monotonic() + patience
            everywhere = attempt + 1 >= len(self.address.hosts)
            if tried is not None and everywhere and _is_over(deadline):
                tried += f"; tried {_times(attempt + 1)} in {time.monotonic() - begun:.1f} s"
                raise self._unreachable(tried, repeated=repeated) from None
            self._at = at + 1  # perhaps another node answers
            await asyncio.sleep(self._pause(attempt, deadline))
            request = given.after(time.monotonic() - begun)
        raise AssertionError("patience is finite")

    def _pause(self, attempt: int, deadline: float) -> float:
        longest = min(
            limits.BACKOFF_SECONDS_MAX, limits.BACKOFF_SECONDS_MIN * 2 ** min(attempt, 30)
        )
        left = max(deadline - time.monotonic(), 0.001)
        return min(self._chance.uniform(longest / 2, longest), left)

    async def _try(self, request: Request) -> Reply:
        waits = request.wait_seconds > 0
        if waits not in self._sessions:
            self._sessions[waits] = self._opened(waits=waits)
        url = self.address.urls[self._at % len(self.address.urls)] + request.path
        seconds = limits.ANSWER_SECONDS_MAX + request.wait_seconds
        if request.opens:  # each host has its share
            share = self._open_seconds / len(self.address.hosts)
            seconds = max(share, limits.OPEN_ATTEMPT_SECONDS_MIN)
        timeout = aiohttp.ClientTimeout(
            total=seconds, sock_connect=min(seconds, limits.CONNECT_SECONDS_MAX)
        )
        async with self._sessions[waits].request(
            request.method, url, data=_Body(request.body) if request.body else None,
            headers=request.headers, params=request.query, timeout=timeout, allow_redirects=False,
        ) as answer:  # fmt: skip
            content = await _content(answer)
            if told := answer.headers.get(wire.TIME_HEADER, ""):
                self._ahead_ms = int(told) - time.monotonic() * 1000
            if answer.headers.get("content-encoding") == "zstd":
                content = _decompressed(content)
            reply = Reply(answer.status, answer.headers, content)
            if reply.status >= 500 and reply.problem() is None:
                raise _Intercepted(f"status {reply.status}, and not from a node")
            return reply

    def _opened(self, *, waits: bool) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=limits.POOL_WAITING_MAX if waits else limits.POOL_CONNECTIONS_MAX,
            keepalive_timeout=limits.POOL_IDLE_SECONDS,
            ssl=True if self._tls is None else self._tls,
        )
        return aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            read_bufsize=limits.READ_BUFFER_BYTES,
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(_attempt,),
            skip_auto_headers=("user-agent", "content-type"),
        )

    @property
    def _open_seconds(self) -> float:
        return min(self.address.open_seconds, self.address.patience_seconds)

    @property
    def _host(self) -> str:
        return self.address.hosts[self._at % len(self.address.hosts)]

    def _refuse_strangers(self, error: aiohttp.ClientConnectorError | TimeoutError) -> None:
        """What answered is not what TLS expects: trying again would not help."""
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            raise Unreachable(f"{self._host} is not whom we trust: {error}") from None
        cause = error.os_error if isinstance(error, aiohttp.ClientSSLError) else None
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            raise Unreachable(
                f"{self._host} does not speak TLS as we do ({cause.reason}): check the port, and "
                "call a node without TLS quiver://, not quivers://"
            ) from None

    async def _check_it_is_a_node(self, error: Exception) -> None:
        """Nobody has ever answered us: it may be something else that listens there."""
        if isinstance(error, aiohttp.ClientResponseError):
            raise InvalidRequest(
                f"what answers at {self._host} does not speak HTTP, so it is no node; check the port"
            ) from None
        if not self.address.secure and await _speaks_tls(self._host):
            raise Unreachable(
                f"{self._host} speaks TLS: call it quivers://, not quiver://"
            ) from None

    def _unreachable(self, tried: str, *, repeated: bool) -> QuiverError:
        text = f"no answer from {' or '.join(self.address.hosts)} in time: {tried}"
        if repeated:
            return OutcomeUnknown(f"{text}. It may have been done or not")
        return Unreachable(f"{text}. Is `quiver serve` running there?")

    async def _end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in self._sessions.values():
            await session.close()


async def _attempt(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """aiohttp would repeat a PUT or DELETE by itself when the connection breaks: we decide that."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(str(error) or type(error).__name__) from error


async def _speaks_tls(host: str) -> bool:
    """Whether somebody there answers a TLS handshake; whoever it is, they are told nothing."""
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    name, _, port = host.rpartition(":")
    try:
        async with asyncio.timeout(limits.CONNECT_SECONDS_MAX):
            _, writer = await asyncio.open_connection(name.strip("[]"), int(port), ssl=anybody)
    except OSError:  # and TimeoutError, and what ssl raises
        return False
    writer.transport.abort()
    return True


def _why(error: Exception) -> str:
    """What broke, in few words."""
    if isinstance(error, OSError) and error.errno:
        known = os.strerror(error.errno) if error.errno > 0 else error.strerror  # or of a name
        return known or str(error)
    return str(error) or type(error).__name__


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _passing(reply: Reply) -> bool:
    """Whether the node did nothing, and waiting may help."""
    told = reply.problem() if reply.status in (429, 503) else None
    return told is not None and told.code in PASSING


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _interrupted(request: Request) -> QuiverError:
    """What a request is told that was under way when the queue was closed."""
    if request.only_reads or request.wait_seconds:  # the leases of a lost answer end by themselves
        return QueueClosed("the queue was closed while this waited for its answer")
    return OutcomeUnknown(
        "the queue was closed while this waited for its answer: it may have been done or not"
    )


async def _content(answer: aiohttp.ClientResponse) -> BytesLike:
    """The body; a large one in memory of Arrow's, which is at hand: the system would clear new pages."""
    length = answer.content_length or 0
    if not limits.READ_BUFFER_BYTES < length <= limits.API_ARROW_BYTES_MAX:
        return await answer.read()
    body = pa.allocate_buffer(length)
    view, at = memoryview(body).cast("B"), 0
    async for piece in answer.content.iter_any():
        view[at : at + len(piece)] = piece
        at += len(piece)
    if at < length:  # an answer that must not have a body, and claims one
        raise aiohttp.ClientPayloadError(f"{length:,} bytes were announced, and {at:,} came")
    return body


def _decompressed(body: BytesLike) -> BytesLike:
    with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
        whole: bytes = stream.read()
    return whole


_ERRORS: dict[str, type[QuiverError]] = {}


def _errors() -> dict[str, type[QuiverError]]:
    if not _ERRORS:
        _ERRORS.update(wire.errors())
    return _ERRORS


_LINKS: WeakSet[Link] = WeakSet()


def _forked() -> None:
    """In a child process threads and connections of the parent are gone, or not ours.

    The parent's loop shares its epoll instance with ours, so that letting go of a connection here would
    make the parent deaf to it.
    """
    for link in list(_LINKS):
        _keep_for_ever(link)
        link._forget()


@atexit.register
def _exiting() -> None:
    """A program may end without `close`: the system ends its connections, and nobody complains."""
    for link in list(_LINKS):
        _keep_for_ever(link)


def _keep_for_ever(link: Link) -> None:
    """Never finalise what it has opened, not even at exit."""
    if link._loop is not None:
        opened = (link._loop, link._sessions, link._tasks)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(opened))


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_forked)

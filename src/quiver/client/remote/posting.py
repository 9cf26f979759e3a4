"""The channel for where an upgrade is not passed on: each frame is posted, over HTTP as everybody knows it.

Each call is a request of its own, made by the thread that waits for it, or by one of a few if none does.
What settles is done before whatever was asked for after it; all else may overtake each other.

A request that is not wanted any more, or whose queue is closed, ends with its connection: so the node does
not go on with it, and takes back what it was about to give.
"""

import http.client
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, RLock, Thread, get_ident
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakSet

from quiver import limits
from quiver.client.remote.address import Address
from quiver.client.remote.blocking import finish, why
from quiver.client.remote.calls import Call
from quiver.client.remote.deferred import DeferredWork, not_here
from quiver.client.remote.handshake import Busy, headers, no_http, problem_of
from quiver.client.remote.session import (
    Finish,
    NodeClock,
    Session,
    demand_room,
    interrupted,
    unzipped,
)
from quiver.client.remote.sockets import demand_no_tls, hung_up, may_be_tls, open_socket, shut
from quiver.client.threads import is_held
from quiver.errors import InvalidRequest, ProtocolError, QueueClosed, QuiverError
from quiver.wire.frames import MEDIA_TYPE, PATH, Frame, FrameReader, Verb, pack
from quiver.wire.problems import Trouble
from quiver.wire.values import ErrorHead, encode

BREAKS: Final = (OSError, http.client.HTTPException, ProtocolError, Busy)


class PostingChannel:
    """Calls, each a request of HTTP."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None, clock: NodeClock) -> None:
        self._address = address
        self._tls = tls
        self._clock = clock
        self._closed = False
        self._at = 0  # the host that answered last
        self._idle: list[PostConnection] = []
        self._making: dict[Call[Any], Making] = {}
        self._begin()

    def forget(self) -> None:
        """In a process that was forked: connections are the parent's, and locks may be held for ever."""
        made = [making.connection for making in self._making.values()]
        for connection in (*self._idle, *made):
            if connection is not None:
                connection.forget()
        self._begin()

    def _begin(self) -> None:
        self._lock = RLock()  # a signal handler may call, too; around these:
        self._deferred = DeferredWork(self._lock)
        self._open: WeakSet[Call[Any]] = WeakSet()  # whoever takes a call out tells it its end
        self._settles: deque[Call[Any]] = deque()  # of them, if not made yet
        self._making = {}  # by whom
        self._idle = []
        self._settling = RLock()  # around these, one after the other
        self._crews = {
            False: PostingCrew(self.wait, limits.POSTING_THREADS_MAX),
            True: PostingCrew(self.wait, limits.WIRE_WAITING_MAX),  # for what waits for messages
        }
        self._ended = Lock()  # a pause sleeps on it; free when the channel is closed
        self._ended.acquire()

    # -- from any thread ---------------------------------------------------------------------------

    def start(self, call: Call[Any]) -> None:
        """Ask, when somebody waits."""
        try:
            with self._lock:
                if self._closed:
                    raise QueueClosed("the queue is closed; connect again")
                if call.request.wait_ms:
                    demand_room(self._open)
                self._open.add(call)
                if _settles(call):
                    self._settles.append(call)
        finally:
            self._catch_up()

    def wait(self, call: Call[Any], seconds: float | None = None) -> None:
        """Make what settles and was asked for before this call, and this one.

        It may take longer than somebody has: then a thread of ours makes it.
        """
        if self._deferred.inside and not call.done:
            if seconds is None:
                raise not_here()
            return  # nothing comes of it before the thread goes on
        try:
            if seconds is not None:
                if call not in self._making:
                    self._watch(call)
                    self._catch_up()
                call.sleep(seconds)
                return
            with self._settling:
                for _ in range(len(self._settles)):
                    self._settle_first(call)
            self._make(call)
        finally:
            self._catch_up()

    def _settle_first(self, call: Call[Any]) -> None:
        """Make the first of what settles, unless this call has no need of it any more."""
        with self._lock:
            first = self._settles[0] if self._settles and not call.done else None
        if first is not None:
            self._make(first)
            with self._lock:
                if first in self._settles:
                    self._settles.remove(first)

    def watch(self, call: Call[Any]) -> None:
        """Make it in a thread of our own."""
        self._do(partial(self._watch, call))

    def nudge(self, call: Call[Any]) -> None:
        """Let go of a thread that sleeps until the call is made; one that makes it goes on."""
        call.ring()

    def cancel(self, call: Call[Any]) -> None:
        """Its answer is not wanted; what it leases nevertheless is given back."""
        self._do(partial(self._cancel, call))

    def is_interrupted(self) -> bool:
        """Whether this thread is in the middle of what it does for all: then a signal handler asks, who
        would wait here for himself. Other calls do not matter: each has a connection of its own."""
        return self._deferred.inside or is_held(self._settling)

    def close(self) -> None:
        """End what is under way."""
        self._do(self._close)

    def open(self, call: Call[Any], seconds: float) -> None:
        """The first call, for whose answer a host has so long."""
        self.start(call)
        self._make(call, seconds)
        call.get()

    # -- what a signal handler may leave to the thread that it has interrupted ---------------------------

    def _do(self, work: Callable[[], None]) -> None:
        """Do it now; or, if this thread is inside the lock already, when it has let go of that."""
        if self._deferred.inside:
            self._deferred.leave(work)
            return
        try:
            work()
        finally:
            self._catch_up()

    def _catch_up(self) -> None:
        """Do what was left; whoever is about to wait does this before."""
        while self._deferred.works:
            self._deferred.do()

    def _watch(self, call: Call[Any]) -> None:
        with self._lock:
            if not self._closed and not call.done:
                self._crews[call.request.wait_ms > 0].do(call)

    def _cancel(self, call: Call[Any]) -> None:
        with self._lock:
            if call not in self._open:
                return  # its answer is just being told
            self._open.discard(call)
            if call in self._settles:
                self._settles.remove(call)
            making = self._making.get(call)
            if making is not None:
                making.end()
        call.failed(QueueClosed("this call was given up"))

    def _close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            calls, self._open = list(self._open), WeakSet()
            self._settles.clear()
            for making in self._making.values():
                making.end()
            idle, self._idle = self._idle, []
            self._ended.release()
            for crew in self._crews.values():
                crew.end()
        for connection in idle:
            connection.close()
        for call in calls:
            call.failed(interrupted(call))

    # -- one call ----------------------------------------------------------------------------------

    def _make(self, call: Call[Any], seconds: float | None = None) -> None:
        """Post until there is an answer, or a reason why there will be none."""
        mine = Making()
        try:
            with self._lock:
                making = mine if call.done else self._making.setdefault(call, mine)
            if making is mine:
                self._go_on(call, seconds)
            elif making.thread == mine.thread:  # which a signal handler has interrupted
                raise not_here()
            else:
                while not call.done:
                    call.sleep()
        finally:
            try:
                self._made(call, mine)
            finally:  # an interrupt came between
                self._made(call, mine)

    def _made(self, call: Call[Any], mine: "Making") -> None:
        with self._lock:
            if self._making.get(call) is mine:
                del self._making[call]

    def _go_on(self, call: Call[Any], seconds: float | None) -> None:
        if call.done:
            return
        session = Session(self._address, self._clock, self._at)
        session.add(call)
        try:
            while call in self._open:
                self._attempt(session, call, seconds)
        except BaseException:  # Ctrl-C: it may be the call of another thread, which goes on with it
            self._tell(call, lambda: session.broke("interrupted", time.monotonic()))
            raise

    def _attempt(self, session: Session, call: Call[Any], seconds: float | None) -> None:
        """One attempt, when it is time for it."""
        now = time.monotonic()
        pause = max(session.retry_at - now, session.due(now))
        if pause > 0:
            self._catch_up()
            if self._ended.acquire(timeout=min(pause, limits.BACKOFF_SECONDS_MAX)):
                self._ended.release()
            return
        if session.leaving:
            session.left()
        host = session.host
        try:
            connection = self._connection(host, seconds)
        except (OSError, ValueError) as error:  # or what is no name of a host
            self._failed(session, call, host, error)
            return
        except QuiverError as error:
            self._give_up(session, call, error)
            return
        pieces = session.to_write(time.monotonic())
        try:
            self._making_over(call, connection)
            longest = limits.ANSWER_SECONDS_MAX if seconds is None else seconds
            status, kind, data = connection.post(
                b"".join(pieces), headers(self._address), longest + call.request.wait_ms / 1000
            )
            frames = self._understood(host, call, status, kind, data)
        except BREAKS as error:
            connection.close()
            self._broke(session, call, host, error)
        except QuiverError as error:
            connection.close()
            self._give_up(session, call, error)
        except BaseException:
            connection.close()
            raise
        else:
            self._at = session.at
            self._give_back(connection)
            due: list[Finish] = []
            try:
                self._tell(call, lambda: session.take(frames, time.monotonic(), due), session)
            except ProtocolError as error:
                self._tell(call, lambda: due)  # by what came before that frame
                self._broke(session, call, host, error)
        finally:
            self._making_over(call, None)

    def _understood(
        self, host: str, call: Call[Any], status: int, kind: str, data: bytes
    ) -> list[Frame]:
        """The frames of an answer, or what it is instead."""
        if status == http.client.OK and kind == MEDIA_TYPE:
            return _frames(data)
        told = problem_of(data)
        if told is not None and status not in (404, 405):  # of a node that did nothing
            head = ErrorHead(self._clock.now_ms(), Trouble(told.code, told.detail))
            return _frames(pack(Verb.ERROR, call.progress.number, encode(head))[0])
        if status >= 500 or (status < 300 and self._clock.known):
            raise Busy(f"status {status}, and not from a node")
        raise InvalidRequest(
            f"the answer of {host}, of status {status}, is not of a Quiver node; check the address"
        )

    # -- its end -----------------------------------------------------------------------------------

    def _tell(
        self, call: Call[Any], tell: Callable[[], list[Finish]], taking: Session | None = None
    ) -> None:
        """Finish the call, if that is what follows, and somebody else has not done so."""
        finished: list[Finish] = []
        try:
            with self._lock:
                wanted = call in self._open
                if not wanted and taking is not None:
                    taking.cancel(call)  # so that what it has got is given back
                finished = tell() if wanted or taking is not None else []
                if wanted and finished:
                    self._open.discard(call)
            finish(finished)
        except BaseException:  # Ctrl-C: nobody else would tell it
            finish(finished)
            raise

    def _failed(self, session: Session, call: Call[Any], host: str, error: Exception) -> None:
        """There was no connection, so nothing can have arrived."""
        try:
            self._look_for_tls(host, error)
        except QuiverError as found:
            self._give_up(session, call, found)
        else:
            self._tell(call, lambda: session.failed(why(error), time.monotonic()))

    def _broke(self, session: Session, call: Call[Any], host: str, error: Exception) -> None:
        try:
            self._look_for_tls(host, error)
            strange = isinstance(error, http.client.BadStatusLine) and not isinstance(
                error, OSError
            )
            if strange and not self._clock.known:
                raise no_http(host)
        except QuiverError as found:
            self._give_up(session, call, found)
        else:
            self._tell(call, lambda: session.broke(why(error), time.monotonic()))

    def _give_up(self, session: Session, call: Call[Any], error: QuiverError) -> None:
        self._tell(call, lambda: session.give_up(error))

    def _look_for_tls(self, host: str, error: Exception) -> None:
        """It may be something else that listens there."""
        if may_be_tls(self._tls, error, known=self._clock.known):
            demand_no_tls(host)

    # -- connections -------------------------------------------------------------------------------

    def _connection(self, host: str, seconds: float | None) -> "PostConnection":
        while True:
            with self._lock:
                known = [one for one in self._idle if one.host == host]
                if not known:
                    break
                self._idle.remove(known[-1])
            if not known[-1].hung_up:
                return known[-1]
            known[-1].close()
        self._catch_up()
        return PostConnection(
            host, self._tls, limits.CONNECT_SECONDS_MAX if seconds is None else seconds
        )

    def _making_over(self, call: Call[Any], connection: "PostConnection | None") -> None:
        with self._lock:
            making = self._making.get(call)
            if making is not None:
                making.connection = connection
                if call not in self._open:
                    making.end()
        self._catch_up()

    def _give_back(self, connection: "PostConnection") -> None:
        with self._lock:
            if not self._closed and len(self._idle) < limits.POOL_CONNECTIONS_MAX:
                self._idle.append(connection)
                return
        connection.close()


class Making:
    """Which thread makes a call, and over which connection."""

    __slots__ = ("connection", "thread")

    def __init__(self) -> None:
        self.thread = get_ident()
        self.connection: PostConnection | None = None

    def end(self) -> None:
        """Break the connection; the thread wakes up."""
        if self.connection is not None:
            self.connection.end()


class PostConnection:
    """A connection of HTTP, for one request after the other."""

    def __init__(self, host: str, tls: ssl.SSLContext | None, seconds: float) -> None:
        self.host = host
        parts = urlsplit(f"//{host}")
        assert parts.hostname is not None
        self._http = http.client.HTTPConnection(parts.hostname, parts.port)
        self._http.auto_open = 0
        self._sock = self._http.sock = open_socket(tls, host, seconds)

    @property
    def hung_up(self) -> bool:
        """Whether it can be used no more: the other side has ended it, or sends what nobody asked for."""
        return self._http.sock is None or hung_up(self._sock)

    def post(self, body: bytes, said: dict[str, str], seconds: float) -> tuple[int, str, bytes]:
        """Status, kind and content of an answer."""
        self._sock.settimeout(seconds)
        self._http.request(
            "POST", PATH, body, {"content-type": MEDIA_TYPE, "connection": "keep-alive", **said}
        )
        answer = self._http.getresponse()
        data = answer.read()
        if answer.headers.get("content-encoding", "").lower() == "zstd":  # by who is in between
            data = bytes(unzipped(data))
        return answer.status, answer.headers.get_content_type(), data

    def end(self) -> None:
        """Break it; a thread that waits for it wakes up."""
        shut(self._sock)

    def close(self) -> None:
        self._http.close()
        self._sock.close()

    def forget(self) -> None:
        """It belongs to the process from which this one was forked: close our copy of it, silently."""
        with suppress(OSError):
            socket.close(self._sock.detach())


class PostingCrew:
    """Threads that make calls for which no thread waits; they end a while after the last."""

    def __init__(self, make: Callable[[Call[Any]], None], most: int) -> None:
        self._make = make
        self._most = most
        self._lock = RLock()
        self._jobs: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._free = self._count = 0
        self._ended = False

    def do(self, call: Call[Any]) -> None:
        """Make it soon."""
        self._jobs.put(call)
        with self._lock:
            if self._free >= self._jobs.qsize() or self._count >= self._most:
                return
            self._count += 1
        thread = Thread(target=self._work, name="quiver-posting", daemon=True)
        try:
            thread.start()
        except (
            BaseException
        ):  # an interrupt: it may have begun all the same, then there is one more
            with self._lock:
                self._count -= not thread.is_alive()
            raise

    def end(self) -> None:
        """Nothing more is to be done."""
        self._ended = True
        self._jobs.put(None)

    def _work(self) -> None:
        while True:
            with self._lock:
                self._free += 1
            call = self._next()
            with self._lock:
                self._free -= 1
                if self._ended:
                    self._jobs.put(None)  # for the next
                if self._ended or (call is None and self._jobs.empty()):
                    self._count -= 1
                    return
            if call is not None:
                self._make(call)

    def _next(self) -> Call[Any] | None:
        try:
            return self._jobs.get(timeout=limits.ATTENDANT_IDLE_SECONDS)
        except Empty:
            return None


def _settles(call: Call[Any]) -> bool:
    """Whether it must be made in its turn."""
    return call.request.verb == Verb.SETTLE


def _frames(data: bytes) -> list[Frame]:
    """The frames of an answer."""
    found = FrameReader().whole(data)
    if not found:
        raise ProtocolError("the answer is empty")
    return found

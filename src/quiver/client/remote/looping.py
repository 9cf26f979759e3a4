"""The channel of an event loop: a protocol of the loop it is used in. No thread.

Everything happens in the loop's thread; what is asked from another one is handed over to it.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import suppress
from typing import Any, Final, cast

from quiver import limits
from quiver.client.remote.address import Address
from quiver.client.remote.blocking import BREAKS, finish, why
from quiver.client.remote.calls import NEVER, Call
from quiver.client.remote.handshake import Busy, Handshake, NoUpgrade
from quiver.client.remote.session import Finish, NodeClock, Session
from quiver.client.remote.sockets import (
    demand_no_tls,
    may_be_tls,
    notice_the_dead,
    refuse_strangers,
)
from quiver.errors import QueueClosed, QuiverError
from quiver.wire.frames import Frame, FrameReader


class LoopChannel:
    """Calls of one event loop, over one connection at a time."""

    def __init__(
        self, address: Address, tls: ssl.SSLContext | None, clock: NodeClock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:  # fmt: skip
        self._address = address
        self._tls = tls
        self._clock = clock
        self._loop = loop
        self._session = Session(address, clock)
        self._connection: LoopConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._closed = False
        self._guard: AsyncGenerator[None, None] | None = None  # is ended with the loop

    # -- from any thread ---------------------------------------------------------------------------

    def start(self, call: Call[Any]) -> None:
        """Ask, in this turn of the loop."""
        if self._closed or self._loop.is_closed():
            raise QueueClosed("the queue is closed; connect again")
        if self._is_here():
            self._add(call)
        else:
            self._loop.call_soon_threadsafe(self._add_safely, call)

    def wait(self, call: Call[Any], seconds: float | None = None) -> None:
        """Sleep until it is done or nudged, or the time is over; not for the loop's own thread."""
        assert not self._is_here(), "an event loop must not be blocked"
        while not (call.done or call.nudged):
            call.sleep(seconds)
            if seconds is not None:
                return

    def nudge(self, call: Call[Any]) -> None:
        """Let go of a thread that waits for the call."""
        call.ring()

    def watch(self, call: Call[Any]) -> None:
        """The loop sees to every call."""

    def cancel(self, call: Call[Any]) -> None:
        """Tell the node that nobody waits for the call."""
        if self._is_here():
            self._cancel(call)
        else:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._cancel, call)

    def forget(self) -> None:
        """In a process that was forked: never let go of it, or the parent's loop, which shares its epoll
        instance with ours, would not hear of the connection any more."""
        _OF_PARENTS.append(self)

    def is_interrupted(self) -> bool:
        """Never: what a signal handler of a loop does waits for its turn."""
        return False

    def close(self) -> None:
        """End what is under way."""
        if self._closed:
            return
        self._closed = True
        if self._is_here() or not self._loop.is_running():
            self._end()
        else:
            ended = asyncio.run_coroutine_threadsafe(self._ended(), self._loop)
            ended.result()

    # -- in the loop -------------------------------------------------------------------------------

    def _is_here(self) -> bool:
        """Whether this is the loop's own thread."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    async def open(self, call: Call[Any], seconds: float) -> None:
        """Connect for the first time, and make the first call; `NoUpgrade` if frames do not get through."""
        self._session.add(call)
        while not call.done and self._connection is None:
            await self._attempt(seconds, opens=True)
        done = asyncio.Event()
        call.when_done(done.set)
        self._later()
        await done.wait()
        call.get()

    def _add_safely(self, call: Call[Any]) -> None:
        try:
            self._add(call)
        except QuiverError as error:
            call.failed(error)

    def _add(self, call: Call[Any]) -> None:
        self._session.add(call)
        self._flush_soon()

    def _cancel(self, call: Call[Any]) -> None:
        finish(self._session.cancel(call))
        self._flush_soon()

    def _flush_soon(self) -> None:
        """What is asked in one turn of the loop leaves together."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._closed:
            return
        self._leave_if_drained()
        connection = self._connection
        if connection is not None and not connection.full:
            pieces = self._session.to_write(time.monotonic())
            if pieces:
                connection.transport.writelines(pieces)
                connection.unsent = connection.transport.get_write_buffer_size()
        elif connection is None and self._connecting is None and not self._session.idle:
            self._connecting = self._loop.create_task(self._connect())
        self._later()

    def _later(self) -> None:
        """See to it that what becomes due is seen to."""
        seconds = self._session.due(time.monotonic())
        if self._connection is None or seconds == NEVER:
            return
        if self._connection.full:  # what is to be written goes when there is room
            seconds = max(seconds, limits.WIRE_STUCK_SECONDS)
        at = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(at, self._tick), at

    def _tick(self) -> None:
        self._timer = None
        if self._connection is not None:
            try:
                if self._connection.sends():
                    self._session.moves(time.monotonic())
                self._session.tick(time.monotonic())
            except BREAKS as error:
                self.lost(self._connection, error)
        self._flush()

    # -- the connection ----------------------------------------------------------------------------

    async def _connect(self) -> None:
        try:
            while self._connection is None and not self._session.idle and not self._closed:
                await self._attempt(limits.CONNECT_SECONDS_MAX)
        finally:
            self._connecting = None
        self._flush()

    async def _attempt(self, seconds: float, *, opens: bool = False) -> None:
        """One attempt to connect, when it is time for it."""
        if self._guard is None:  # before there is anything to be guarded: the loop may be ending
            self._guard = self._until_the_loop_ends()
            await anext(self._guard)
        await asyncio.sleep(max(self._session.retry_at - time.monotonic(), 0))
        host = self._session.host
        try:
            connection = await self._reach(host, seconds)
        except NoUpgrade as error:
            if opens:
                raise
            self._failed(str(error))
        except QuiverError as error:
            finish(self._session.give_up(error))
        except Exception as error:  # noqa: BLE001  # whatever it is, no call may wait for ever
            self._failed(why(error))
        else:
            if self._closed:  # meanwhile
                connection.transport.abort()
                return
            self._connection = connection
            self._session.connected(time.monotonic())
            connection.begin(self)
            if connection.transport.is_closing():  # it was lost before it knew whom to tell
                self.lost(connection, ConnectionResetError("the node has closed the connection"))
            self._flush_soon()

    async def _reach(self, host: str, seconds: float) -> "LoopConnection":
        """A connection; an error of ours if something else listens there."""
        try:
            return await self._handshake(host, seconds)
        except (OSError, Busy) as error:
            if may_be_tls(self._tls, error, known=self._clock.known):
                await asyncio.to_thread(demand_no_tls, host)
            raise

    async def _handshake(self, host: str, seconds: float) -> "LoopConnection":
        name, _, port = host.rpartition(":")
        name = name.strip("[]")
        handshake = Handshake(self._address, host)
        try:
            async with asyncio.timeout(min(seconds, limits.CONNECT_SECONDS_MAX)):
                transport, protocol = await self._loop.create_connection(
                    lambda: LoopConnection(handshake), name, int(port), ssl=self._tls,
                    server_hostname=None if self._tls is None else name,
                )  # fmt: skip
        except OSError as error:
            refuse_strangers(host, error)
            raise
        connection = protocol
        notice_the_dead(transport.get_extra_info("socket"))
        try:
            async with asyncio.timeout(seconds):
                await connection.ready
        except BaseException as error:
            transport.abort()
            if isinstance(error, TimeoutError):
                raise TimeoutError("no answer to the handshake") from None
            raise
        return connection

    def _failed(self, reason: str) -> None:
        finish(self._session.failed(reason, time.monotonic()))

    def flush(self) -> None:
        """There is room to write again."""
        self._flush_soon()

    def take(self, frames: Collection[Frame]) -> None:
        """Frames have come, or a part of one."""
        if not frames:
            self._session.moves(time.monotonic())
            return
        answered: list[Finish] = []
        try:
            self._session.take(frames, time.monotonic(), answered)
        finally:  # those before a frame that breaks the connection have their answers
            finish(answered)
        self._leave_if_drained()
        self._flush_soon()

    def _leave_if_drained(self) -> None:
        """The node is about to end, and owes us nothing any more."""
        if self._session.drained and self._connection is not None:
            connection, self._connection = self._connection, None
            self._session.left()
            connection.leave()

    def lost(self, connection: "LoopConnection", error: BaseException) -> None:
        """A connection is gone."""
        if connection is self._connection:
            self._connection = None
            connection.leave()
            finish(self._session.broke(why(error), time.monotonic()))
            self._flush_soon()

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        """`asyncio.run` ends generators before it closes its loop: the connection must not outlast it."""
        try:
            yield
        finally:
            self._closed = True
            self._end()

    # -- the end -----------------------------------------------------------------------------------

    async def _ended(self) -> None:
        connecting = self._connecting
        self._end()
        if connecting is not None:
            await asyncio.wait((connecting,))
        await asyncio.sleep(0)  # what was aborted has its end in the next turn

    def _end(self) -> None:
        finished: list[Finish] = self._session.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._connecting is not None and not self._loop.is_closed():
            self._connecting.cancel()
        if self._connection is not None and not self._loop.is_closed():
            self._connection.leave()
        finish(finished)


_OF_PARENTS: Final[list[LoopChannel]] = []


class LoopConnection(asyncio.BufferedProtocol):
    """One connection: first its handshake, then frames."""

    def __init__(self, handshake: Handshake) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport
        self._handshake = handshake
        self._reader = FrameReader()
        self._channel: LoopChannel | None = None
        self._early = bytearray(limits.HEAD_BYTES_MAX)
        self.full = False  # more waits to be sent than should
        self.unsent = 0  # bytes that waited to be sent when that was looked at last

    def sends(self) -> bool:
        """Whether the node has taken something since."""
        before, self.unsent = self.unsent, self.transport.get_write_buffer_size()
        return self.unsent < before

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._handshake.request())

    def begin(self, channel: LoopChannel) -> None:
        """From now on frames are the channel's."""
        self._channel = channel
        rest = self._handshake.rest
        while rest and self._channel is not None:  # or it was lost by what came first
            count = self._reader.fill(rest)
            rest = rest[count:]
            self._take(count)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._early) if self._channel is None else self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._channel is not None:
            self._take(nbytes)
            return
        data = bytes(self._early[:nbytes])
        if self.ready.done():  # and the channel has not begun yet
            self._handshake.rest += data
            return
        self._shake(data)

    def _shake(self, data: bytes) -> None:
        try:
            if self._handshake.feed(data):
                self.ready.set_result(None)
        except Exception as error:  # noqa: BLE001  # it is for whoever connects
            self.ready.set_exception(error)
            self.transport.abort()

    def _take(self, count: int) -> None:
        assert self._channel is not None
        try:
            self._channel.take(list(self._reader.received(count)))
        except BREAKS as error:
            self._channel.lost(self, error)

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        if self._channel is not None:
            self._channel.flush()

    def eof_received(self) -> None:
        if not self.ready.done():
            self._shake(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        error = exc or ConnectionResetError("the node has closed the connection")
        if not self.ready.done():
            self.ready.set_exception(error)
        if self._channel is not None:
            self._channel.lost(self, error)

    def leave(self) -> None:
        """Close it; what comes still is not read."""
        self._channel = None
        self.transport.abort()

"""One connection after its upgrade: frames in, frames out.

Requests are begun in the order of their frames. One that must find out something before it is begun holds
up those behind it, which wait in the lane; answers go in any order, and those that are ready together are
written together.

What bounds a connection: so many requests without an answer, so many bytes of them, so many bytes of
answers that were not read. Past one of them, and while a request is in the lane, nothing more is read: the
client's system stops sending, and pings and what is cancelled wait, too. Our clients keep within the first,
which they know from `limits`. A frame that has begun must go on coming, and an answer must be read, as over
HTTP.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from math import inf
from time import perf_counter
from typing import Any

from quiver import __version__, limits
from quiver.batches.codec import BytesLike
from quiver.errors import (
    InvalidRequest,
    Overloaded,
    ProtocolError,
    QuiverError,
    UnavailableError,
)
from quiver.server import logs
from quiver.server.auth import Standing
from quiver.server.config import NodeBounds
from quiver.server.traffic import HeldBytes, ServerState, Traffic
from quiver.server.wire.calls import Packed, WireCall, WireReply
from quiver.server.wire.executor import BOUNDS
from quiver.server.wire.service import WireService
from quiver.wire.frames import Frame, FrameReader, Verb, pack
from quiver.wire.problems import Trouble
from quiver.wire.values import ErrorHead, Welcome, encode


class WireConnection(asyncio.BufferedProtocol):
    """One client's connection."""

    def __init__(
        self, service: WireService, standing: Standing, traffic: Traffic, state: ServerState, peer: str,
        *, zstd: bool,
    ) -> None:  # fmt: skip
        """It is counted already, under the address of the peer. `zstd` says what the client can read."""
        self._service = service
        self._standing = standing
        self._traffic = traffic
        self._bounds: NodeBounds = traffic.bounds
        self._connections = state.connections
        self._peer = peer
        self._zstd = zstd
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self._reader = FrameReader(head_bytes_max=limits.WIRE_HEAD_BYTES_MAX, bounds=BOUNDS)
        self._counted = 0  # of a large frame that is coming, by the traffic
        self._open: dict[int, WireCall] = {}
        self._open_bytes = 0
        self._lane: OrderedDict[int, tuple[Frame, HeldBytes]] = OrderedDict()  # wait for their turn
        self._advancing = False
        self._before: WireCall | None = None  # whom they wait for
        self._ending = False  # no request is begun any more
        self._lost = False
        self._paused = self._full = False  # nothing is read; too much is unread
        self._roomless: list[WireCall] = []  # whose next part waits until more was read
        # Writing
        self._out: list[BytesLike] = []
        self._out_bytes = 0
        self._written = self._unsent = 0  # in all, and what of it the client has not taken yet
        self._undelivered: deque[tuple[int, Callable[[], Any]]] = deque()  # and up to where it goes
        self._taken, self._taken_at = 0, inf  # of what was written, and when that was last more
        self._slow_since, self._slow_taken = inf, 0  # when it began to be much, and `_taken` then
        # Reading
        self._frame_since = self._frame_until = inf
        self._frame_bytes = 0

    # -- the connection ----------------------------------------------------------------------------

    def begin(self, transport: asyncio.Transport, ahead: bytes) -> None:
        """Take over from HTTP; `ahead` came behind the head of the upgrade."""
        self.transport = transport
        self._connections.add(self)
        transport.set_write_buffer_limits(high=limits.WIRE_UNREAD_BYTES_MAX)
        transport.pause_reading()
        transport.set_protocol(self)
        transport.resume_reading()
        welcome = Welcome(__version__, self._service.now_ms())
        self._write(pack(Verb.WELCOME, 0, encode(welcome)))
        view = memoryview(ahead)
        while view and not self._lost:
            count = self._reader.fill(view)
            view = view[count:]
            self._received(count)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: what it waits for is given up, and what it has not taken is given back."""
        self._lost = True
        self._connections.discard(self)
        self._traffic.leave(self._peer)
        for call in list(self._open.values()):
            self._give_up(call)
        for _, held in self._lane.values():
            held.release()
        self._lane.clear()
        self._let_go_of_frame()
        taken = self._written - self._unsent
        for until, undelivered in self._undelivered:
            if until > taken:
                undelivered()
        self._undelivered.clear()
        self._traffic.bytes -= self._unsent
        self._unsent = 0

    def eof_received(self) -> bool:
        """The client sends no more; then it is gone, as over HTTP."""
        self._look()
        return False

    def shutdown(self) -> None:
        """The node is about to end: what was asked is answered, and nothing else."""
        self._ending = True
        self._write(pack(Verb.GOAWAY, 0))
        self.flush()

    @property
    def busy(self) -> int:
        """How many requests have no answer yet."""
        return len(self._open) + len(self._lane)

    def sweep(self, now: float) -> None:
        """Cut a client that reads nothing, or only trickles, or has stopped within a frame."""
        self._look(now)
        if self._is_read_too_slowly(now):
            self.transport.abort()
        elif now >= self._frame_until and not self._paused:
            self._refuse(InvalidRequest("a frame took too long to arrive"))

    # -- reading -----------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to receive to."""
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes came."""
        if self._lost or self.transport.is_closing():
            return
        self._service.metrics.received("wire", nbytes)
        if self._unsent:
            self._look()
        try:
            self._received(nbytes)
            self.flush()
        except Exception as error:  # noqa: BLE001  # one connection's is no other's
            logs.failure("bug", error)
            self.transport.abort()

    def _received(self, count: int) -> None:
        whole = False
        try:
            for frame in self._reader.received(count):
                whole = True
                self._let_go_of_frame()
                self._take(frame)
            self._await_frame(count, fresh=whole)
        except ProtocolError as error:
            self._refuse(error)
        except MemoryError:
            self._refuse(
                Overloaded("there is no memory for so large a frame; retry after a moment")
            )
        except QuiverError as error:  # there is no room for a large frame
            self._let_go_of_frame()
            self._answer_dropped(self._reader.drop(), error)

    def _take(self, frame: Frame) -> None:
        match frame.verb:
            case Verb.PING:
                self._write(pack(Verb.PONG, frame.id))
            case Verb.CANCEL:
                self._cancel(frame.id)
            case _:
                self._queue(frame)

    def _queue(self, frame: Frame) -> None:
        """Begin a request, or put it behind those that are to be begun before it."""
        if not frame.id or frame.id in self._open or frame.id in self._lane:
            raise ProtocolError(f"a request has the id {frame.id}, which is taken")
        held = HeldBytes(self._traffic)
        if frame.nbytes > limits.BODY_FREE_BYTES:
            try:
                held.add(frame.nbytes)
            except Overloaded as error:
                self._answer_dropped(frame, error)
                return
        else:
            held.note(frame.nbytes)
        self._open_bytes += frame.nbytes
        if self._lane or not self._may_begin():
            self._lane[frame.id] = frame, held
            self._pause_if_needed()
        else:
            self._begin(frame, held)

    def _may_begin(self) -> bool:
        return (
            self._before is None and not self._full and len(self._open) < limits.WIRE_REQUESTS_MAX
        )

    def _begin(self, frame: Frame, held: HeldBytes) -> None:
        call = WireCall(frame, self, self._standing, self._service.returns, held, zstd=self._zstd)
        self._open[frame.id] = call
        if self._ending:
            call.refuse(UnavailableError("the node is about to end; ask another, or retry later"))
            return
        call.start(self._service.executor.flow)
        if not call.began:
            self._before = call
        if self._open_bytes > limits.WIRE_OPEN_BYTES_MAX:
            self._pause_if_needed()

    def begun(self, call: WireCall) -> None:
        """Those behind it may be begun, too."""
        if self._before is call:
            self._before = None
            self._advance()

    def _advance(self) -> None:
        if self._advancing:  # what is answered at once comes here again
            return
        self._advancing = True
        try:
            while self._lane and self._may_begin() and not self._lost:
                _, (frame, held) = self._lane.popitem(last=False)
                self._begin(frame, held)
        finally:
            self._advancing = False
        self._resume_if_possible()

    def _pause_if_needed(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def _resume_if_possible(self) -> None:
        if not self._paused or self._lane or self._full or self.transport.is_closing():
            return
        if self._open_bytes > limits.WIRE_OPEN_BYTES_MAX and self._open:
            return
        self._paused = False
        self._frame_since = self._loop.time()  # what it has lost meanwhile was our time
        self._frame_bytes = 0
        if self._reader.partial:
            self._await_frame(0, fresh=True)
        self.transport.resume_reading()

    def _cancel(self, number: int) -> None:
        if number in self._lane:
            frame, held = self._lane.pop(number)
            held.release()
            self._open_bytes -= frame.nbytes
            self._resume_if_possible()
            return
        call = self._open.get(number)
        if call is not None:
            self._give_up(call)
            self._advance()

    def _give_up(self, call: WireCall) -> None:
        call.give_up()
        self._forget(call)
        if self._before is call:
            self._before = None

    def _await_frame(self, count: int, *, fresh: bool) -> None:
        """More of a frame that has begun must come, and all of it in time; what is large is counted."""
        reader, bounds = self._reader, self._bounds
        if not reader.partial:
            self._frame_until = inf
            return
        now = self._loop.time()
        if fresh or self._frame_until == inf:
            self._frame_since, self._frame_bytes = now, 0
        else:
            self._frame_bytes += count
        granted = self._frame_since + self._frame_bytes / limits.BODY_BYTES_PER_SECOND_MIN
        self._frame_until = min(
            min(granted, now) + bounds.body_pause_seconds, self._frame_since + bounds.body_seconds
        )
        if reader.held > limits.BODY_FREE_BYTES:
            held = HeldBytes(self._traffic)
            held.add(reader.held - self._counted)
            self._counted = reader.held

    def _let_go_of_frame(self) -> None:
        """It is complete, and counted as a request's from now on; or it will never be."""
        self._traffic.bytes -= self._counted
        self._counted = 0

    def _answer_dropped(self, frame: Frame, error: QuiverError) -> None:
        """There is no room for a frame: it is passed over, and the connection goes on."""
        if not frame.id or frame.id in self._open or frame.id in self._lane:
            self._refuse(ProtocolError(f"a request has the id {frame.id}, which is taken"))
            return
        call = WireCall(
            frame, self, self._standing, self._service.returns, HeldBytes(self._traffic)
        )
        self._open[frame.id] = call
        self._open_bytes += frame.nbytes
        call.refuse(error)

    def _refuse(self, error: QuiverError) -> None:
        """What comes is no frame, or comes too slowly: say so, and end."""
        if self.transport.is_closing():
            return
        self._ending = True
        told = ErrorHead(self._service.now_ms(), Trouble.of(error))
        self._write(pack(Verb.ERROR, 0, encode(told)))
        self.flush()
        self._service.count("refuse", error.code, 0.0)
        self.transport.close()

    # -- answers -----------------------------------------------------------------------------------

    def answered(self, call: WireCall, reply: WireReply) -> None:
        """A request has its answer."""
        if call.frame.verb == Verb.AUTHENTICATE:
            self._standing = call.standing
        self._write(call.answer(self._service.turn_ms(), reply), call)
        if reply.undelivered is not None:
            self._undelivered.append((self._written + self._out_bytes, reply.undelivered))
        self._finish(call)

    def failed(self, call: WireCall, error: QuiverError) -> None:
        """It has none."""
        self._write(call.error(self._service.turn_ms(), error), call)
        self._finish(call)

    def more(self, call: WireCall, payload: BytesLike) -> bool:
        """A part of an answer that goes on."""
        if self.transport.is_closing():  # then it is not written, and `connection_lost` gives it up
            return False
        self._write(call.part(self._service.turn_ms(), payload), call)
        self.flush()
        if not self._full:
            return True
        self._roomless.append(call)
        return False

    def _finish(self, call: WireCall) -> None:
        self._forget(call)
        self._service.count(call.operation, call.told, perf_counter() - call.started)
        if self._lane or self._paused:
            self._advance()

    def _forget(self, call: WireCall) -> None:
        if self._open.pop(call.frame.id, None) is not None:
            self._open_bytes -= call.frame.nbytes

    # -- writing -----------------------------------------------------------------------------------

    def _write(self, frame: Packed, call: WireCall | None = None) -> None:
        if self._lost:
            return
        start, rest = frame
        self._out.append(start)
        nbytes = len(start)
        if rest is not None:
            self._out.append(rest)
            nbytes += len(rest)
        self._out_bytes += nbytes
        if call is not None:
            call.principal.spend(nbytes)

    def flush(self) -> None:
        """Write what has been told in this turn of the loop."""
        out = self._out
        if not out or self._lost or self.transport.is_closing():
            return  # what is not written any more is not delivered
        self._out, nbytes = [], self._out_bytes
        self._out_bytes = 0
        self._written += nbytes
        self._service.metrics.answered("wire", nbytes)
        if len(out) == 1:
            self.transport.write(out[0])
        elif nbytes <= limits.FRAME_BUFFER_BYTES:
            self.transport.write(b"".join(out))
        else:
            self.transport.writelines(out)
        self._look()

    def pause_writing(self) -> None:
        """More is unread than may be."""
        self._full = True
        self._pause_if_needed()

    def resume_writing(self) -> None:
        """Most of it was read."""
        self._full = False
        self._look()
        waiting, self._roomless = self._roomless, []
        for call in waiting:
            call.has_room()
        self._advance()

    def _look(self, now: float | None = None) -> None:
        """How much of what was written the client has taken."""
        unsent = self.transport.get_write_buffer_size()
        self._traffic.bytes += unsent - self._unsent
        self._unsent = unsent
        taken = self._written - unsent
        undelivered = self._undelivered
        while undelivered and undelivered[0][0] <= taken:
            undelivered.popleft()
        if not unsent:
            self._taken_at = self._slow_since = inf
            self._taken = taken
            return
        now = self._loop.time() if now is None else now
        if taken > self._taken or self._taken_at == inf:
            self._taken, self._taken_at = taken, now
        if self._slow_since == inf:
            self._slow_since, self._slow_taken = now, taken

    def _is_read_too_slowly(self, now: float) -> bool:
        pause = self._bounds.answer_pause_seconds
        granted = (self._taken - self._slow_taken) / limits.ANSWER_BYTES_PER_SECOND_MIN
        return now >= self._taken_at + pause or now >= self._slow_since + pause + granted

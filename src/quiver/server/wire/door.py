"""The ways in: a request that becomes a connection of frames, and frames that are posted one by one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from time import perf_counter
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from quiver import limits
from quiver.batches.codec import BytesLike
from quiver.errors import InvalidRequest, ProtocolError, QuiverError
from quiver.server.auth import Standing
from quiver.server.body import read_body
from quiver.server.problems import problem
from quiver.server.requests import DOOR as KEY
from quiver.server.requests import demand_there, header, until_gone
from quiver.server.traffic import HeldBytes
from quiver.server.upgrade import UPGRADE, Handover
from quiver.server.wire.calls import Packed, WireCall, WireReply
from quiver.server.wire.connection import WireConnection
from quiver.server.wire.executor import BOUNDS
from quiver.server.wire.service import DOOR, WireService
from quiver.wire.frames import MEDIA_TYPE, PROTOCOL, Frame, FrameReader, Verb

POSTED: Final = (Verb.PING, Verb.CANCEL, Verb.AUTHENTICATE)  # mean something on a connection only


class UpgradeRequired(InvalidRequest):
    """This path is for another protocol than the request names."""

    http_status = 426


class WireDoor:
    """The endpoint, for both ways."""

    def __init__(self, service: Callable[[], WireService]) -> None:
        """`service` is asked for in the event loop of the node."""
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[KEY] = DOOR
        if scope["method"] == "POST":
            answer = await self._posted(Request(scope, receive))
            await answer(scope, receive, send)
            return
        service = self._service()
        standing = service.context.guard.standing(scope)
        handover: Handover | None = scope.get(UPGRADE)
        if handover is None or not _names(PROTOCOL, handover.offered):
            error = UpgradeRequired(
                f"this node speaks {PROTOCOL} here: ask for it with Upgrade: {PROTOCOL}, or post "
                f"frames as {MEDIA_TYPE}"
            )
            answer = problem(error)
            answer.headers["upgrade"] = PROTOCOL
            await answer(scope, receive, send)
            return
        made = WireConnection(
            service, standing, handover.traffic, handover.state, handover.peer, zstd=_zstd(scope)
        )
        handover.accept(PROTOCOL, made.begin)

    async def _posted(self, request: Request) -> Response:
        """One frame, and its answer in as many frames as it has."""
        service = self._service()
        standing = service.context.guard.standing(request.scope)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != MEDIA_TYPE:
            raise InvalidRequest(f"Content-Type must be {MEDIA_TYPE}, not {kind[:80]!r}")
        most = max(BOUNDS.values()) + limits.API_SMALL_BYTES_MAX
        data = await read_body(request, most)
        small = len(data) <= limits.INLINE_BYTES_MAX
        frame = _only(data) if small else await asyncio.to_thread(_only, data)
        posted = Posted(service, standing, frame, HeldBytes.by(request), zstd=_zstd(request.scope))
        return await posted.answer(request)


def _zstd(scope: Scope) -> bool:
    """Whether the client can read payloads that are compressed."""
    return b"zstd" in (header(scope, b"accept-encoding") or b"").lower()


def _names(wanted: str, offered: bytes) -> bool:
    """Whether a protocol is among those of an Upgrade header."""
    return wanted.encode() in [name.strip().lower() for name in offered.split(b",")]


def _only(data: bytes) -> Frame:
    """The frame in a body."""
    found = FrameReader(head_bytes_max=limits.WIRE_HEAD_BYTES_MAX, bounds=BOUNDS).whole(data)
    if len(found) != 1 or found[0].verb in POSTED:
        raise ProtocolError("the body must be one frame with a request")
    return found[0]


class Posted:
    """The outlet of a frame that was posted: its answer is the body of the response."""

    def __init__(
        self, service: WireService, standing: Standing, frame: Frame, held: HeldBytes, *, zstd: bool
    ) -> None:
        self._service = service
        self._held = held
        self._call = WireCall(frame, self, standing, service.returns, held, zstd=zstd)
        self._pieces: list[bytes | memoryview] = []  # of the frames that are to be sent
        self._ready = asyncio.Event()
        self._undelivered: Callable[[], Any] = _nothing

    async def answer(self, request: Request) -> Response:
        """Do what the frame asks for; if the client goes meanwhile, nobody waits for it."""
        await until_gone(request, self._some(), lambda _: self._undelivered())
        await demand_there(request, self._undelivered)
        if not self._call.over:
            return StreamingResponse(self._rest(), media_type=MEDIA_TYPE)
        body = b"".join(self._pieces)
        del self._call  # which refers to us
        self._held.note(len(body))
        return Response(body, media_type=MEDIA_TYPE)

    async def _some(self) -> None:
        try:
            self._call.start(self._service.executor.flow)
            await self._ready.wait()
        except asyncio.CancelledError:
            self._give_up()
            raise

    async def _rest(self) -> AsyncIterator[bytes]:
        """The parts of an answer, each made when the one before it was sent."""
        try:
            while self._pieces:
                pieces, self._pieces = self._pieces, []
                self._ready.clear()
                yield b"".join(pieces)
                if not self._call.over:
                    self._call.has_room()
                    await self._ready.wait()
        finally:
            self._give_up()

    def _give_up(self) -> None:
        self._call.give_up()
        del self._call

    # -- the outlet --------------------------------------------------------------------------------

    def answered(self, call: WireCall, reply: WireReply) -> None:
        """Here it is."""
        self._add(call.answer(self._service.turn_ms(), reply))
        self._undelivered = reply.undelivered or _nothing
        self._finish()

    def failed(self, call: WireCall, error: QuiverError) -> None:
        """There is none."""
        self._add(call.error(self._service.turn_ms(), error))
        self._finish()

    def more(self, call: WireCall, payload: BytesLike) -> bool:
        """A part of it; there is room for the next one when it was sent."""
        self._add(call.part(self._service.turn_ms(), payload))
        self._ready.set()
        return False

    def begun(self, call: WireCall) -> None:
        """Nobody waits behind it."""

    def flush(self) -> None:
        """The response is written as a whole."""

    def _add(self, frame: Packed) -> None:
        pieces = [piece for piece in frame if piece is not None]
        self._pieces += pieces
        self._call.principal.spend(sum(map(len, pieces)))

    def _finish(self) -> None:
        call = self._call
        self._service.count(call.operation, call.told, perf_counter() - call.started)
        self._ready.set()


def _nothing() -> None:
    """Most answers carry nothing that could be given back."""

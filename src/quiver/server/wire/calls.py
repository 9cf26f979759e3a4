"""One request: a flow, what it waits for, and what it is told.

What a verb does is a flow: a generator that yields what must be waited for. Here it is driven by
callbacks, without a task: most requests wait for one ticket and no more. Tickets are set by the shard's
thread; all that are set at once come back to the event loop together (`go_on`).

A flow may begin with what must be known before the request reaches the shard: it says so with `First`,
and the later requests of its connection wait for that.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Raw

from quiver import limits
from quiver.batches.codec import BytesLike
from quiver.client.steps import Flow, Pause, Step, Work
from quiver.client.tasks import Returns
from quiver.errors import LimitExceeded, QuiverError
from quiver.node.tickets import Ticket
from quiver.notices import Notice
from quiver.server import logs
from quiver.server.auth import Principal, Standing
from quiver.server.problems import InternalError, let_go
from quiver.server.traffic import HeldBytes
from quiver.wire.frames import Flag, Frame, Verb, pack
from quiver.wire.problems import Trouble, Warned
from quiver.wire.values import AnswerHead, ErrorHead, encode

T = TypeVar("T")

NIL: Final = encode(None)
NOBODY: Final = Principal("nobody", allow=())


@dataclass(frozen=True, slots=True)
class First(Generic[T]):
    """Something that must be known before the request is begun."""

    step: "Ticket[T] | Work[T] | Await[T]"


@dataclass(frozen=True, slots=True)
class Await(Generic[T]):
    """Something that takes a task; it is cancelled with the request."""

    work: Coroutine[Any, Any, T]


@dataclass(frozen=True, slots=True)
class More:
    """A part of an answer that goes on: it is told at once, and there is room for the next one after it."""

    payload: BytesLike


class WireReply(NamedTuple):
    """What a request is told: a value in MessagePack, and what goes with it.

    If it cannot be delivered, `undelivered` lets go of what is in it.
    """

    value: bytes
    payload: BytesLike = b""
    undelivered: Callable[[], Any] | None = None
    flags: int = 0


Packed: TypeAlias = tuple[bytes, memoryview | None]  # a frame as `pack` makes it
Steps: TypeAlias = Generator[Step | First[Any] | Await[Any] | More, Any, T]


def first(step: Ticket[T] | Work[T] | Await[T]) -> Steps[T]:
    """Wait for what must be known before the request is begun."""
    answer: T = yield First(step)
    return answer


def firsts(flow: Flow[T]) -> Steps[T]:
    """Wait so for all that a flow waits for."""
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            step: Any = flow.throw(error) if error is not None else flow.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer, error = None, None
        try:
            answer = yield First(step)
        except Exception as problem:  # noqa: BLE001  # the flow decides what to do about it
            error = problem


def awaited(work: Coroutine[Any, Any, T]) -> Steps[T]:
    """Wait for a task."""
    answer: T = yield Await(work)
    return answer


class Outlet(Protocol):
    """Where a call's answer goes."""

    def answered(self, call: "WireCall", reply: WireReply) -> None:
        """Here it is."""

    def failed(self, call: "WireCall", error: QuiverError) -> None:
        """There is none, because of this."""

    def more(self, call: "WireCall", payload: BytesLike) -> bool:
        """A part of it; whether there is room for the next one, or the call is told when there is."""

    def begun(self, call: "WireCall") -> None:
        """Requests that came later may be begun, too."""

    def flush(self) -> None:
        """What was told in this turn of the loop may go."""


def go_on(calls: "Iterable[WireCall]") -> None:
    """Calls whose tickets are set come back from the shard's thread to the event loop."""
    outlets = {call.outlet: None for call in calls if call.returned()}
    for outlet in outlets:
        outlet.flush()


class WireCall:
    """A request, from its frame to its answer."""

    __slots__ = (
        "_flow",
        "_waits_for",
        "began",
        "frame",
        "held",
        "operation",
        "outlet",
        "over",
        "principal",
        "returns",
        "standing",
        "started",
        "sync",
        "told",
        "warned",
        "zstd",
    )  # fmt: skip

    def __init__(
        self, frame: Frame, outlet: Outlet, standing: Standing, returns: "Returns[WireCall]",
        held: HeldBytes, *, zstd: bool = False,
    ) -> None:  # fmt: skip
        self.frame = frame
        self.outlet = outlet
        self.standing = standing
        self.returns = returns
        self.held = held  # what it keeps in memory
        self.zstd = zstd  # what is large may be compressed for who asks
        self.principal = NOBODY  # until it is known
        self.operation = "refuse"
        self.sync = bool(frame.flags & Flag.SYNC)
        self.warned: list[Notice] = []
        self.started = perf_counter()
        self.began = False  # it has reached the shard, or needs not
        self.over = False
        self.told = "ok"
        self._flow: Steps[WireReply] | None = None
        self._waits_for: Ticket[Any] | asyncio.Future[Any] | None = None

    # -- its life ----------------------------------------------------------------------------------

    def start(self, make: "Callable[[WireCall], Steps[WireReply]]") -> None:
        """Make its flow, and go as far as is possible without waiting."""
        try:
            self._flow = make(self)
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is this request's
            self._end(None, problem)
        else:
            self._go_on(None, None)

    def refuse(self, error: QuiverError) -> None:
        """It is not done."""
        self._end(None, error)

    def returned(self) -> bool:
        """Its ticket is set, perhaps said twice; whether it went on."""
        ticket = self._waits_for
        if self.over or not isinstance(ticket, Ticket) or not ticket.done:
            return False
        self._waits_for = None
        if ticket.error is None:
            self._go_on(ticket.value, None)
        else:
            self._go_on(None, ticket.error)
        return True

    def has_room(self) -> None:
        """The next part of its answer may be made."""
        if not self.over and self._waits_for is None:
            self._go_on(None, None)
            self.outlet.flush()

    def give_up(self) -> None:
        """Nobody waits for it any more: what it gets from now on is given back."""
        if self.over:
            return
        self.over = True
        self.told = "cancelled"
        waits_for, self._waits_for = self._waits_for, None
        if isinstance(waits_for, Ticket):
            waits_for.abandoned = True
        elif waits_for is not None:
            waits_for.cancel()
        self._close()

    def _close(self) -> None:
        flow, self._flow = self._flow, None
        if flow is not None:
            with suppress(QuiverError):  # of letting go: leases end by themselves
                flow.close()
        self.held.release()

    # -- what is told -------------------------------------------------------------------------------

    def answer(self, now_ms: int, reply: WireReply) -> Packed:
        """The frame of its answer."""
        warnings = Warned.all_of(self.warned) if self.warned else ()
        head = encode(AnswerHead(now_ms, Raw(reply.value), warnings))
        return pack(Verb.ANSWER, self.frame.id, head, reply.payload, reply.flags)

    def part(self, now_ms: int, payload: BytesLike) -> Packed:
        """The frame of an answer that goes on."""
        head = encode(AnswerHead(now_ms, Raw(NIL)))
        return pack(Verb.ANSWER, self.frame.id, head, payload, Flag.MORE)

    def error(self, now_ms: int, error: QuiverError) -> Packed:
        """The frame that says why there is none."""
        warnings = Warned.all_of(self.warned) if self.warned else ()
        head = encode(ErrorHead(now_ms, Trouble.of(error), warnings))
        return pack(Verb.ERROR, self.frame.id, head)

    # -- its flow ----------------------------------------------------------------------------------

    def _go_on(self, answer: Any, error: BaseException | None) -> None:
        flow = self._flow
        assert flow is not None
        while True:
            try:
                step = flow.throw(error) if error is not None else flow.send(answer)
            except StopIteration as stop:
                self._end(stop.value, None)
                return
            except Exception as problem:  # noqa: BLE001  # whatever it is, it is this request's
                self._end(None, problem)
                return
            answer = error = None
            is_first = isinstance(step, First)
            try:
                waits = self._waits(step.step if isinstance(step, First) else step)
            except Exception as problem:  # noqa: BLE001  # the flow decides what to do about it
                error = problem
                continue
            if not is_first:
                self._begin()
            if waits:
                return

    def _waits(self, step: Any) -> bool:
        """Begin what a flow waits for; False if it may go on at once."""
        match step:
            case Ticket():
                self._waits_for = step
                step.when_done(self._set)
            case Work():
                loop = asyncio.get_running_loop()
                self._wait_in_loop(loop.run_in_executor(None, step.do))
            case Await():
                self._wait_in_loop(asyncio.ensure_future(step.work))
            case Pause():
                self._wait_in_loop(asyncio.ensure_future(asyncio.sleep(step.seconds)))
            case More():
                return not self.outlet.more(self, step.payload)
        return True

    def _set(self) -> None:
        self.returns.add(self)

    def _wait_in_loop(self, future: asyncio.Future[Any]) -> None:
        self._waits_for = future
        future.add_done_callback(self._worked)

    def _worked(self, future: asyncio.Future[Any]) -> None:
        if self.over or self._waits_for is not future:
            if not future.cancelled():
                future.exception()  # seen
            return
        self._waits_for = None
        error = InternalError("it was cancelled") if future.cancelled() else future.exception()
        self._go_on(None if error is not None else future.result(), error)
        self.outlet.flush()

    def _begin(self) -> None:
        if not self.began:
            self.began = True
            self.outlet.begun(self)

    def _end(self, reply: WireReply | None, error: BaseException | None) -> None:
        self.over = True
        self._flow = None
        if reply is not None and len(reply.value) > limits.FRAME_HEAD_BYTES_MAX // 2:
            error = LimitExceeded(f"the answer has {len(reply.value):,} bytes; ask for less")
            if reply.undelivered is not None:
                reply.undelivered()
        if error is None:
            assert reply is not None
            self.outlet.answered(self, reply)
        else:
            told = self._told(error)
            self.told = told.code
            self.outlet.failed(self, told)
            let_go(error)
        self._begin()
        self.held.release()

    def _told(self, error: BaseException) -> QuiverError:
        if isinstance(error, QuiverError):
            return error
        logs.failure("bug", error, request=f"{self.operation} {self.frame.id}")
        return InternalError(
            f"the node has a bug; its log has more about request {self.frame.id} ({self.operation})"
        )

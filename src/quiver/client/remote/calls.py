"""What is asked of a node, and the ticket that waits for its answer. No IO."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from quiver import limits, notices
from quiver.batches.codec import BytesLike
from quiver.errors import OutcomeUnknown, QuiverError
from quiver.node.tickets import Ticket
from quiver.wire.frames import Verb
from quiver.wire.problems import Trouble, Warned

T = TypeVar("T")

NEVER: Final = float("inf")
MAYBE: Final = "it may have been done or not"


class Told(NamedTuple):
    """What a node answered; `repeated` if an earlier attempt may have arrived as well."""

    value: msgspec.Raw
    payloads: list[memoryview]
    time_ms: int
    warnings: tuple[Warned, ...]
    repeated: bool

    @property
    def payload(self) -> BytesLike:
        """What came beside the value, if it came in one piece."""
        return self.payloads[0] if self.payloads else b""


@dataclass(slots=True)
class Request(Generic[T]):
    """A frame to be sent, and how its answer is read.

    `repeat` says that doing it twice is doing it once. `refused` makes an answer of a node's error, or
    raises what the caller is told; it also gets to know whether an earlier attempt may have arrived.
    """

    verb: Verb
    head: bytes
    read: Callable[[Told], T]
    payload: BytesLike = b""
    flags: int = 0
    repeat: bool = True
    only_reads: bool = False
    wait_ms: int = 0  # how long the node itself may take its time
    shorter: Callable[[int], bytes] | None = None  # its head, with so much left to wait
    refused: Callable[[Trouble, bool], T] | None = None
    undo: Callable[[T], Any] | None = None  # for an answer that is not wanted any more

    def head_after(self, seconds: float) -> bytes:
        """Its head, when so much of its wait is over."""
        if self.shorter is None:
            return self.head
        return self.shorter(max(self.wait_ms - int(seconds * 1000), 0))


class Channel(Protocol):
    """Brings calls to a node, and their answers back."""

    def start(self, call: "Call[Any]") -> None:
        """Ask, after all that was asked before; never waits."""

    def wait(self, call: "Call[Any]", seconds: float | None = None) -> None:
        """Return when the call is done or nudged, or the time is over."""

    def nudge(self, call: "Call[Any]") -> None:
        """Let go of a thread that waits for the call, which is nudged."""

    def watch(self, call: "Call[Any]") -> None:
        """The call has a callback: it must be done also if no thread waits for it."""

    def cancel(self, call: "Call[Any]") -> None:
        """The call is not wanted any more."""

    def is_interrupted(self) -> bool:
        """Whether a signal handler asks, in the middle of what its thread does here for all who wait."""

    def close(self) -> None:
        """End what is under way."""


@dataclass(slots=True)
class Progress:
    """How far a call is. Times are those of the monotonic clock."""

    asked: float
    patience_seconds: float
    number: int = 0  # of its frame on the present connection
    repeated: bool = False  # an earlier attempt may have arrived, and may have changed something
    deadline: float | None = None  # of its patience, from the first failure on
    not_before: float = 0.0  # when to try again what the node was too busy for
    failures: int = 0
    written: float = -NEVER
    answer_by: float = NEVER
    payloads: list[memoryview] = field(default_factory=list)  # of an answer that goes on


class Call(Ticket[T]):
    """A request under way. Its answer is read by whoever wants it, not by the thread that receives it."""

    __slots__ = (
        "__weakref__", "_abandoned", "_bell", "_channel", "_told", "nudged", "progress", "request",
    )  # fmt: skip

    def __init__(
        self, channel: Channel, request: Request[T], now: float, patience_seconds: float
    ) -> None:
        self._channel = channel
        self._bell = Lock()  # a thread that waits sleeps on it
        self._bell.acquire()
        self._told: Told | None = None
        self.nudged = False  # who waits for it shall look up
        self.request = request
        self.progress = Progress(now, patience_seconds)
        super().__init__()

    @property
    def abandoned(self) -> bool:
        return self._abandoned

    @abandoned.setter
    def abandoned(self, value: bool) -> None:
        self._abandoned = value
        if not value:
            return
        self._channel.cancel(self)
        if self.done:  # perhaps just now
            self._undo()

    @property
    def stuck(self) -> bool:
        return not self.done and self._channel.is_interrupted()

    def _undo(self) -> None:
        if self.error is not None:
            return
        undo, self.request.undo = self.request.undo, None
        if undo is not None:
            with suppress(QuiverError):  # leases end by themselves
                undo(self.get())

    # -- for channels: whoever was interrupted in one of these does it again -------------------------

    def answered(self, told: Told) -> None:
        """Here is the answer."""
        if self._is_new():
            self._told = told
            self.resolve(None)  # type: ignore[arg-type]  # `get` reads it
        self._finished()

    def refused(self, trouble: Trouble) -> None:
        """The node has told an error."""
        if self._is_new():
            try:
                if self.request.refused is None:
                    raise trouble.error()
                self.resolve(self.request.refused(trouble, self.progress.repeated))
            except QuiverError as error:
                self.fail(error)
        self._finished()

    def failed(self, error: QuiverError) -> None:
        """There is no answer, because of `error`."""
        if self._is_new():
            self.fail(error)
        self._finished()

    def _is_new(self) -> bool:
        """Whether it has no end yet. Else who told it was interrupted, perhaps before the callback."""
        if self.done:
            self.call_back()
        return not self.done

    def _finished(self) -> None:
        self.ring()
        if self._abandoned:
            self._undo()

    def sleep(self, seconds: float | None = None) -> None:
        """Until it is done, `ring` says that there is something to do, or the time is over."""
        self._bell.acquire(timeout=-1 if seconds is None else max(seconds, 0))
        if self.done:
            self.ring()  # others may wait for it, too

    def ring(self) -> None:
        """Wake the thread that sleeps, or the next that wants to."""
        with suppress(RuntimeError):  # it was rung before
            self._bell.release()

    # -- for whoever waits -------------------------------------------------------------------------

    def wait_done(self) -> None:
        """Block this thread until it is set; an interrupt (Ctrl-C) abandons it."""
        if self.done:
            return
        try:
            self._channel.wait(self)
        except BaseException:
            self.give_up()
            raise

    def wait_for(self, seconds: float | None) -> bool:
        """Block this thread until it is set, `nudge` is called, or the time is over; whether it is set."""
        if not self.done:
            try:
                self._channel.wait(self, seconds)
            finally:
                self.nudged = False
        return self.done

    def nudge(self) -> None:
        """Let go of a thread that is in `wait_for`, or of the next one."""
        if not self.done:
            self.nudged = True
            self._channel.nudge(self)

    def when_done(self, callback: Callable[[], Any]) -> None:
        """Call back when it is set, from whichever thread sets it; at once if it is set already."""
        super().when_done(callback)
        if not self.done:
            self._channel.watch(self)

    def get(self) -> T:
        """The answer of a call that is done, or its error raised."""
        told = self._told
        if told is not None and self.error is None:
            for warning in told.warnings:
                notices.warn(warning.notice())
            try:
                self.value = self.request.read(told)
            except QuiverError as error:
                self.error = error
            except Exception as error:  # noqa: BLE001  # whatever it was, it came from elsewhere
                self.error = OutcomeUnknown(
                    f"the answer cannot be read ({type(error).__name__}: {error}): {MAYBE}"
                )
                self.error.__cause__ = error
            self._told = None
        return super().get()


def pause(chance: float, failures: int) -> float:
    """How long to wait after so many failures; `chance` is from 0 to 1, and keeps clients apart."""
    grown: float = limits.BACKOFF_SECONDS_MIN * 2 ** min(failures, 30)
    longest = min(limits.BACKOFF_SECONDS_MAX, grown)
    return longest * (0.5 + chance / 2)

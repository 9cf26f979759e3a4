"""Calls to nodes that have no answer yet: what to write, what answers mean, and when to try again. No IO.

A request is tried again by itself if it cannot have arrived, if the node says that it did nothing and that
waiting helps, or if doing it twice is doing it once. Any other is `OutcomeUnknown` when its connection
breaks before the answer. Pauses between attempts grow, and are drawn by chance, so that many clients do not
come back all at once. A call's patience begins with its first failure; when it is over and every host was
tried, the call is `Unreachable`.

What is written again after a break keeps its order. Whoever has a session has a lock around it, passes
the time in, and finishes the calls that methods return after it has let go of the lock. Who may be
interrupted (Ctrl-C) passes in a list of its own for them: a call is put into it and forgotten here by one
call in C. A call that was moved halfway is to be written and written at once; `broke` makes it one again.

    start ─► to be written ─► written ─► answered
                  ▲              │
                  └── try again ─┴─► unknown, or patience is over
"""

import random
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from itertools import chain, compress, count, islice, repeat
from typing import Any, Final, TypeAlias, TypeVar

import pyarrow as pa

from quiver import limits
from quiver.batches.codec import BytesLike
from quiver.client.remote.address import Address
from quiver.client.remote.calls import MAYBE, NEVER, Call, Request, Told, pause
from quiver.errors import (
    OutcomeUnknown,
    Overloaded,
    ProtocolError,
    QueueClosed,
    QuiverError,
    QuotaExceeded,
    UnavailableError,
    Unreachable,
)
from quiver.wire.frames import IDS, Flag, Frame, Verb, pack
from quiver.wire.problems import Trouble
from quiver.wire.values import AnswerHead, ErrorHead, Welcome, head_of

T = TypeVar("T")

# What waiting may help against. A full topic or disk is the caller's to know about, as in a directory.
LEAVING: Final = (UnavailableError.code, QueueClosed.code)  # another node may be better off
PASSING: Final = (Overloaded.code, QuotaExceeded.code, *LEAVING)

GIVEN_UP: Final = "this call was given up"

Finish: TypeAlias = "partial[None]"  # to be called without the lock


class NodeClock:
    """A node's time, as far as its clients know."""

    def __init__(self) -> None:
        self._ahead_ms: float | None = None  # of the node's clock before our monotonic one

    @property
    def known(self) -> bool:
        """Whether a node has ever answered."""
        return self._ahead_ms is not None

    def now_ms(self) -> int:
        """The time of the node, or ours if it has not been told."""
        if self._ahead_ms is None:
            return int(time.time() * 1000)
        return int(self._ahead_ms + time.monotonic() * 1000)

    def told(self, time_ms: int, now: float, asked: float = -NEVER) -> None:
        """A node has said what the time was, at some moment since it was asked.

        An answer may wait for long until somebody reads it: what was known before counts within that.
        """
        least, most = time_ms - now * 1000, time_ms - asked * 1000
        known = least if self._ahead_ms is None else self._ahead_ms
        self._ahead_ms = min(max(known, least), most)


class Session:
    """The calls of one channel, which has one connection at a time."""

    def __init__(self, address: Address, clock: NodeClock, at: int = 0) -> None:
        """`at` says which host comes first."""
        self._address = address
        self._clock = clock
        self._chance = random.Random()  # noqa: S311  # it spreads retries, it guards nothing
        # In order, each by itself: whether one was in it is whether `pop` returns something that is true.
        self._unwritten: OrderedDict[Call[Any], Call[Any]] = OrderedDict()
        self._written: dict[int, Call[Any]] = {}
        self._cancelled: dict[int, Callable[[Told], None]] = {}  # what undoes answers that may come
        self._control: list[bytes] = []  # frames that belong to no call
        self._numbers = count()  # no generator: an interrupt would end it for ever
        self.at = at  # which host
        self._tried = 0  # hosts in a row, without an answer to anything
        self._heard = 0.0  # when something came last, or the connection was idle
        self._pinged: float | None = None
        self._look_at = 0.0  # when to look for answers that are too late
        self.retry_at = 0.0  # not to connect before
        self.leaving = (
            False  # the node is about to end: what it has been asked it answers, and no more
        )

    @property
    def host(self) -> str:
        """Which host to connect to."""
        return self._address.hosts[self.at % len(self._address.hosts)]

    @property
    def idle(self) -> bool:
        """Whether no call is without an answer."""
        return not self._written and not self._unwritten

    @property
    def drained(self) -> bool:
        """Whether a connection that is being left has nothing to wait for any more."""
        return self.leaving and not self._written

    # -- asking ------------------------------------------------------------------------------------

    def add(self, call: Call[Any]) -> None:
        """One more call."""
        if call.request.wait_ms:
            demand_room(self._written.values(), self._unwritten)
        self._unwritten[call] = call

    def cancel(self, call: Call[Any], due: list[Finish] | None = None) -> list[Finish]:
        """A call is not wanted any more."""
        found = [] if due is None else due
        number, request = call.progress.number, call.request
        written = self._is_written(call)
        if written and request.undo is not None:
            self._cancelled[number] = partial(_undo, request.read, request.undo)
            if len(self._cancelled) > limits.WIRE_CANCELLED_MAX:
                del self._cancelled[next(iter(self._cancelled))]
        self._end(call, partial(call.failed, QueueClosed(GIVEN_UP)), found)
        if written:  # else the node does not know it, or has answered it just now
            self._control.append(pack(Verb.CANCEL, number)[0])
        return found

    def to_write(self, now: float) -> list[BytesLike]:
        """The next bytes for the node, in order; none if there is nothing to say."""
        pieces: list[BytesLike] = list(self._control)
        self._control.clear()
        if self.leaving:
            return pieces
        room = max(limits.WIRE_REQUESTS_MAX - len(self._written), 0)
        ready = (call for call in self._unwritten if call.progress.not_before <= now)
        for call in tuple(islice(ready, room)):
            if call in self._unwritten and not (call.done or self._is_written(call)):
                pieces += self._frame(call, now)
            self._unwritten.pop(call, None)  # a signal handler may have written it meanwhile
        return pieces

    def _is_written(self, call: Call[Any]) -> bool:
        return self._written.get(call.progress.number) is call

    def _frame(self, call: Call[Any], now: float) -> list[BytesLike]:
        if not self._written:
            self._heard = now
        progress, request = call.progress, call.request
        progress.number = 1 + next(self._numbers) % (IDS - 1)
        progress.payloads = []
        progress.written, progress.answer_by = now, _answer_by(request, now)
        self._written[progress.number] = call
        head = request.head_after(now - progress.asked) if request.shorter else request.head
        first, rest = pack(request.verb, progress.number, head, request.payload, request.flags)
        return [first] if rest is None else [first, rest]

    # -- answers -----------------------------------------------------------------------------------

    def take(self, frames: Iterable[Frame], now: float, due: list[Finish]) -> list[Finish]:
        """Frames have come. The calls that they answer are in `due`, also if a later frame raises."""
        self._heard, self._pinged = now, None
        for frame in frames:
            match frame.verb:
                case Verb.ANSWER:
                    self._answer(frame, now, due)
                case Verb.ERROR:
                    self._error(frame, now, due)
                case Verb.WELCOME:
                    welcome: Welcome = head_of(frame)
                    self._clock.told(welcome.time_ms, now)
                case Verb.GOAWAY:
                    self.leaving = True
                case Verb.PONG:
                    pass
                case _:
                    raise ProtocolError(
                        f"a node sent a frame of kind {frame.verb}, which is not for it"
                    )
        return due

    def _answer(self, frame: Frame, now: float, found: list[Finish]) -> None:
        answer: AnswerHead = head_of(frame)
        call = self._written.get(frame.id)
        self._clock.told(answer.time_ms, now, _written(call))
        if call is None:
            undo = self._cancelled.pop(frame.id, None)
            if undo is not None:
                found.append(partial(undo, _told(answer, [_plain(frame)])))
            return
        payloads = call.progress.payloads
        if len(frame.payload):
            payloads.append(_plain(frame))
        if frame.flags & Flag.MORE:
            call.progress.answer_by = _answer_by(call.request, now)
            return
        told = _told(answer, payloads, repeated=call.progress.repeated)
        self._tried = 0
        self._end(call, partial(call.answered, told), found)

    def _error(self, frame: Frame, now: float, found: list[Finish]) -> None:
        said: ErrorHead = head_of(frame)
        self._clock.told(said.time_ms, now, _written(self._written.get(frame.id)))
        if not frame.id:
            raise ProtocolError(f"the node has refused what it was sent: {said.trouble.detail}")
        self._cancelled.pop(frame.id, None)
        call = self._written.get(frame.id)
        if call is None:
            return
        self._tried = 0
        if self._is_tried_again(call, said.trouble, now):
            del self._written[frame.id]
        else:
            self._end(call, partial(call.refused, said.trouble), found)

    def _is_tried_again(self, call: Call[Any], trouble: Trouble, now: float) -> bool:
        """The node did nothing; if waiting helps, and there is time, the call goes on."""
        if trouble.code not in PASSING:
            return False
        progress = call.progress
        if progress.deadline is None:
            progress.deadline = now + progress.patience_seconds
        if now >= progress.deadline:
            return False
        wait = max(pause(self._chance.random(), progress.failures), trouble.after or 0.0)
        progress.failures += 1
        progress.not_before = min(now + wait, progress.deadline)
        self._unwritten[call] = call
        self.leaving = self.leaving or (trouble.code in LEAVING and len(self._address.hosts) > 1)
        return True

    def _end(self, call: Call[Any], finish: Finish, found: list[Finish]) -> None:
        """It is to be told, and is forgotten: by one call in C, so that no interrupt comes between."""
        forgotten = chain(
            map(self._written.pop, (call.progress.number,), (None,)),
            map(self._unwritten.pop, (call,), (None,)),
        )
        found.extend(compress(repeat(finish), forgotten))

    # -- failures ----------------------------------------------------------------------------------

    def connected(self, now: float) -> None:
        """There is a new connection."""
        self._heard, self._pinged = now, None
        self.leaving = False

    def left(self) -> None:
        """The connection is closed, because the node wanted that: another may be asked."""
        self.leaving = False
        self._control.clear()
        self._cancelled.clear()
        self.at += 1

    def broke(self, why: str, now: float, due: list[Finish] | None = None) -> list[Finish]:
        """The connection is gone. What was written is to be written again, or its outcome is unknown."""
        found = [] if due is None else due
        if self.idle:  # nothing has failed
            self.left()
            return found
        self._control.clear()
        self._cancelled.clear()
        for call in tuple(self._written.values()):
            if call in self._unwritten:  # an interrupt came before it was forgotten here
                continue
            self._may_have_arrived(call)
            if not call.request.repeat:
                self._end(call, partial(call.failed, OutcomeUnknown(
                    f"the connection to {self.host} broke before the answer, or somebody else "
                    f"answered ({why}): {MAYBE}. Look before you do it again; what is sent with a "
                    "dedup_id, or through a producer, is safe to repeat"
                )), found)  # fmt: skip
        again = chain(self._written.values(), self._unwritten)
        self._unwritten = OrderedDict((call, call) for call in again)
        self._written.clear()
        self.leaving = False
        return self.failed(why, now, found)

    def failed(self, why: str, now: float, due: list[Finish] | None = None) -> list[Finish]:
        """An attempt has failed; those whose patience is over are told."""
        found = [] if due is None else due
        wait = pause(self._chance.random(), self._tried)
        self._tried += 1
        self.at += 1  # perhaps another node answers
        first = NEVER
        for call in tuple(self._unwritten):
            progress = call.progress
            progress.failures += 1
            if progress.deadline is None:
                progress.deadline = now + progress.patience_seconds
            if now >= progress.deadline and self._tried >= len(self._address.hosts):
                self._end(call, partial(call.failed, self._unreachable(call, why, now)), found)
            else:
                first = min(first, progress.deadline)
        self.retry_at = now + max(min(wait, first - now), 0.001)
        return found

    def give_up(self, error: QuiverError, due: list[Finish] | None = None) -> list[Finish]:
        """No node will do any of this: all are told so, and whether it may have been done before."""
        found = [] if due is None else due
        for call in self._written.values():
            self._may_have_arrived(call)
        for call in (*self._written.values(), *self._unwritten):
            told = _doubted(error) if call.progress.repeated else error
            self._end(call, partial(call.failed, told), found)
        return found

    def close(self) -> list[Finish]:
        """The queue is closed."""
        found: list[Finish] = []
        for call in (*self._written.values(), *self._unwritten):
            self._end(call, partial(call.failed, interrupted(call)), found)
        return found

    @staticmethod
    def _may_have_arrived(call: Call[Any]) -> None:
        call.progress.repeated = call.progress.repeated or not call.request.only_reads

    def _unreachable(self, call: Call[Any], why: str, now: float) -> QuiverError:
        progress = call.progress
        tried = "once" if progress.failures == 1 else f"{progress.failures} times"
        text = (
            f"no answer from {' or '.join(self._address.hosts)} in time: {why}; tried {tried} in "
            f"{now - progress.asked:.1f} s"
        )
        if progress.repeated:
            return OutcomeUnknown(f"{text}. It may have been done or not")
        return Unreachable(f"{text}. Is `quiver serve` running there?")

    # -- time --------------------------------------------------------------------------------------

    def due(self, now: float) -> float:
        """How many seconds from now on there is something to do although nothing comes."""
        at = NEVER
        if self._written:
            at = (
                self._heard + limits.WIRE_PING_SECONDS
                if self._pinged is None
                else self._pinged + limits.WIRE_PONG_SECONDS
            )
        full = len(self._written) >= limits.WIRE_REQUESTS_MAX
        if not full and not (self.leaving and self._written):  # else answers must come first
            for call in self._unwritten:
                at = min(at, call.progress.not_before or now)
        return max(at - now, 0.0)

    def moves(self, now: float) -> None:
        """Some of a frame came, or went. A large one may take its time, and pings wait behind it."""
        self._heard, self._pinged = now, None
        for call in self._written.values():
            call.progress.answer_by = _answer_by(call.request, now)

    def tick(self, now: float) -> None:
        """Ask for a sign of life after a silence; `TimeoutError` if the connection is dead."""
        if not self._written:
            return
        if self._pinged is not None and now >= self._pinged + limits.WIRE_PONG_SECONDS:
            raise TimeoutError(f"no sign of life for {now - self._heard:.0f} s")
        if self._pinged is None and now >= self._heard + limits.WIRE_PING_SECONDS:
            self._pinged = now
            self.ping()
        if now >= self._look_at:
            self._look_at = now + 1
            if any(call.progress.answer_by <= now for call in self._written.values()):
                raise TimeoutError(f"no answer within {limits.ANSWER_SECONDS_MAX:g} s")

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._control.append(pack(Verb.PING, 0)[0])


def _answer_by(request: Request[Any], now: float) -> float:
    return now + limits.ANSWER_SECONDS_MAX + request.wait_ms / 1000


def _written(call: Call[Any] | None) -> float:
    return -NEVER if call is None else call.progress.written


def demand_room(*under_way: Collection[Call[Any]]) -> None:
    """Refuse one more call for which the node takes its time, if that is as many as there may be."""
    most = limits.WIRE_WAITING_MAX
    if sum(map(len, under_way)) < most:
        return
    if sum(call.request.wait_ms > 0 for call in chain(*under_way)) >= most:
        raise Overloaded(
            f"{most:,} receives of this queue wait for messages already; wait with fewer, or connect "
            "once more"
        )


def interrupted(call: Call[Any]) -> QuiverError:
    """What a call is told that was under way when the queue was closed."""
    request = call.request
    if request.only_reads or request.wait_ms:  # the leases of a lost answer end by themselves
        return QueueClosed("the queue was closed while this waited for its answer")
    return OutcomeUnknown(f"the queue was closed while this waited for its answer: {MAYBE}")


def _told(answer: AnswerHead, payloads: list[memoryview], *, repeated: bool = False) -> Told:
    return Told(answer.value, payloads, answer.time_ms, answer.warnings, repeated)


def _doubted(error: QuiverError) -> OutcomeUnknown:
    """What is told of an error that says nothing of an earlier attempt, whose answer was lost."""
    unknown = OutcomeUnknown(f"an answer was lost: {MAYBE}. Then came: {error}")
    unknown.__cause__ = error
    return unknown


def _undo(read: Callable[[Told], T], undo: Callable[[T], Any], told: Told) -> None:
    """An answer has come that nothing waits for any more."""
    with suppress(Exception):  # leases end by themselves, and others are still to be told
        undo(read(told))


def _plain(frame: Frame) -> memoryview:
    """The payload of a frame, decompressed."""
    return unzipped(frame.payload) if frame.flags & Flag.ZSTD else frame.payload


def unzipped(data: BytesLike) -> memoryview:
    """What was compressed by somebody else, within bounds."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            whole = stream.read_buffer(limits.FRAME_BYTES_MAX + 1)
    except (OSError, pa.ArrowException):
        raise ProtocolError("a payload is not zstd, as it says") from None
    if whole.size > limits.FRAME_BYTES_MAX:
        raise ProtocolError(f"a payload has more than {limits.FRAME_BYTES_MAX:,} bytes")
    return memoryview(whole).cast("B")

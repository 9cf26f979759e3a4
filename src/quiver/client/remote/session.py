"""Calls to nodes that have no answer yet: what to write, what answers mean, and when to try again. No IO.

A request is tried again by itself if it cannot have arrived, if the node says that it did nothing and that
waiting helps, or if doing it twice is doing it once. Any other is `OutcomeUnknown` when its connection
breaks before the answer. Pauses between attempts grow, and are drawn by chance, so that many clients do not
come back all at once. A call's patience begins with its first failure; when it is over and every host was
tried, the call is `Unreachable`.

What is written again after a break keeps its order. Whoever has a session has a lock around it, passes
the time in, and finishes the calls that methods return after it has let go of the lock. Who may be
interrupted (Ctrl-C) passes in a list of its own for them: a call is in it before it is forgotten here.

    start ─► to be written ─► written ─► answered
                  ▲              │
                  └── try again ─┴─► unknown, or patience is over
"""

import random
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from copy import copy
from functools import partial
from itertools import count
from typing import Any, Final, TypeAlias

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
        self._unwritten: deque[Call[Any]] = deque()
        self._written: dict[int, Call[Any]] = {}
        self._cancelled: dict[int, Request[Any]] = {}  # whose answers may still come
        self._control: list[bytes] = []  # frames that belong to no call
        self._numbers = count()  # no generator: an interrupt would end it for ever
        self._waits = 0  # calls for which the node may take its time
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

    @property
    def waits_to_write(self) -> bool:
        """Whether what is not written yet is only to be written later."""
        return bool(self._unwritten)

    # -- asking ------------------------------------------------------------------------------------

    def add(self, call: Call[Any]) -> None:
        """One more call."""
        if call.request.wait_ms:
            if self._waits >= limits.WIRE_WAITING_MAX:
                raise Overloaded(
                    f"{limits.WIRE_WAITING_MAX:,} receives of this queue wait for messages already; wait "
                    "with fewer, or connect once more"
                )
            self._waits += 1
        self._unwritten.append(call)

    def cancel(self, call: Call[Any], due: list[Finish] | None = None) -> list[Finish]:
        """A call is not wanted any more."""
        found = [] if due is None else due
        number = call.progress.number
        if self._written.get(number) is call:
            found.append(self._gone(call, QueueClosed(GIVEN_UP)))
            del self._written[number]
            self._control.append(pack(Verb.CANCEL, number)[0])
            self._cancelled[number] = copy(call.request)  # the call's own forgets how to undo it
            if len(self._cancelled) > limits.WIRE_CANCELLED_MAX:
                del self._cancelled[next(iter(self._cancelled))]
        elif call in self._unwritten:
            found.append(self._gone(call, QueueClosed(GIVEN_UP)))
            self._unwritten.remove(call)
        return found  # or its answer is just being told

    def to_write(self, now: float) -> list[BytesLike]:
        """The next bytes for the node, in order; none if there is nothing to say."""
        pieces: list[BytesLike] = list(self._control)
        self._control.clear()
        later: list[Call[Any]] = []
        try:
            while self._unwritten and not self.leaving:
                if len(self._written) >= limits.WIRE_REQUESTS_MAX:
                    break
                call = self._unwritten[0]
                if call.progress.not_before > now:
                    later.append(call)
                elif not call.done:
                    pieces += self._frame(call, now)
                self._unwritten.popleft()
        finally:
            self._unwritten.extendleft(reversed(later))
        return pieces

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

    def take(
        self, frames: Iterable[Frame], now: float, due: list[Finish] | None = None
    ) -> list[Finish]:
        """Frames have come; the calls that they answer."""
        self._heard, self._pinged = now, None
        found = [] if due is None else due
        for frame in frames:
            match frame.verb:
                case Verb.ANSWER:
                    self._answer(frame, now, found)
                case Verb.ERROR:
                    self._error(frame, now, found)
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
        return found

    def _answer(self, frame: Frame, now: float, found: list[Finish]) -> None:
        answer: AnswerHead = head_of(frame)
        call = self._written.get(frame.id)
        self._clock.told(answer.time_ms, now, _written(call))
        if call is None:
            request = self._cancelled.pop(frame.id, None)
            if request is not None and request.undo is not None:
                found.append(partial(_undo, request, _told(answer, [_plain(frame)])))
            return
        payloads = call.progress.payloads
        if len(frame.payload):
            payloads.append(_plain(frame))
        if frame.flags & Flag.MORE:
            call.progress.answer_by = _answer_by(call.request, now)
            return
        told = _told(answer, payloads, repeated=call.progress.repeated)
        found.append(partial(call.answered, told))
        self._forget(call, frame.id)

    def _error(self, frame: Frame, now: float, found: list[Finish]) -> None:
        said: ErrorHead = head_of(frame)
        self._clock.told(said.time_ms, now, _written(self._written.get(frame.id)))
        if not frame.id:
            raise ProtocolError(f"the node has refused what it was sent: {said.trouble.detail}")
        self._cancelled.pop(frame.id, None)
        call = self._written.get(frame.id)
        if call is None:
            return
        if not self._is_tried_again(call, said.trouble, now):
            found.append(partial(call.refused, said.trouble))
        self._forget(call, frame.id)

    def _is_tried_again(self, call: Call[Any], trouble: Trouble, now: float) -> bool:
        """The node did nothing; if waiting helps, and there is time, the call goes on."""
        if trouble.code not in PASSING:
            return False
        progress = call.progress
        if progress.deadline is None:
            progress.deadline = now + progress.patience_seconds
        if now >= progress.deadline:
            return False
        wait = pause(self._chance.random(), progress.failures)
        progress.failures += 1
        progress.not_before = min(now + wait, progress.deadline)
        self._waits += call.request.wait_ms > 0
        self._unwritten.append(call)
        self.leaving = self.leaving or (trouble.code in LEAVING and len(self._address.hosts) > 1)
        return True

    def _forget(self, call: Call[Any], number: int) -> None:
        self._tried = 0
        del self._written[number]
        self._waits -= call.request.wait_ms > 0

    def _gone(self, call: Call[Any], error: QuiverError) -> Finish:
        self._waits -= call.request.wait_ms > 0
        return partial(call.failed, error)

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
        for number, call in reversed(list(self._written.items())):
            if call.done:
                pass
            elif call.request.repeat:
                call.progress.repeated = call.progress.repeated or not call.request.only_reads
                self._unwritten.appendleft(call)
            else:
                found.append(self._gone(call, OutcomeUnknown(
                    f"the connection to {self.host} broke before the answer, or somebody else "
                    f"answered ({why}): {MAYBE}. Look before you do it again; what is sent with a "
                    "dedup_id, or through a producer, is safe to repeat"
                )))  # fmt: skip
            del self._written[number]
        self.leaving = False
        return self.failed(why, now, found)

    def failed(self, why: str, now: float, due: list[Finish] | None = None) -> list[Finish]:
        """An attempt has failed; those whose patience is over are told."""
        found = [] if due is None else due
        wait = pause(self._chance.random(), self._tried)
        self._tried += 1
        self.at += 1  # perhaps another node answers
        kept: deque[Call[Any]] = deque()
        first = NEVER
        for call in self._unwritten:
            progress = call.progress
            progress.failures += 1
            if progress.deadline is None:
                progress.deadline = now + progress.patience_seconds
            if now >= progress.deadline and self._tried >= len(self._address.hosts):
                found.append(self._gone(call, self._unreachable(call, why, now)))
            else:
                first = min(first, progress.deadline)
                kept.append(call)
        self._unwritten = kept
        self.retry_at = now + max(min(wait, first - now), 0.001)
        return found

    def give_up(self, error: QuiverError, due: list[Finish] | None = None) -> list[Finish]:
        """No node will do any of this: all are told the same."""
        found = [] if due is None else due
        found += [self._gone(call, error) for call in (*self._written.values(), *self._unwritten)]
        self._unwritten, self._written = deque(), {}
        return found

    def close(self) -> list[Finish]:
        """The queue is closed."""
        calls, self._unwritten = [*self._written.values(), *self._unwritten], deque()
        self._written = {}
        return [self._gone(call, interrupted(call)) for call in calls]

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


def interrupted(call: Call[Any]) -> QuiverError:
    """What a call is told that was under way when the queue was closed."""
    request = call.request
    if request.only_reads or request.wait_ms:  # the leases of a lost answer end by themselves
        return QueueClosed("the queue was closed while this waited for its answer")
    return OutcomeUnknown(f"the queue was closed while this waited for its answer: {MAYBE}")


def _told(answer: AnswerHead, payloads: list[memoryview], *, repeated: bool = False) -> Told:
    return Told(answer.value, payloads, answer.time_ms, answer.warnings, repeated)


def _undo(request: Request[Any], told: Told) -> None:
    """An answer has come that nothing waits for any more."""
    assert request.undo is not None
    with suppress(QuiverError):  # leases end by themselves
        request.undo(request.read(told))


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

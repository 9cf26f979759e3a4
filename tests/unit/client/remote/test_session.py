"""The rules of trying again, step by step: every call ends once, and as it should."""

import sys
import weakref
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from types import FrameType
from typing import Any, Final

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quiver import limits
from quiver.client.remote import session
from quiver.client.remote.address import Address
from quiver.client.remote.blocking import finish
from quiver.client.remote.calls import Call, Request
from quiver.client.remote.session import Finish, NodeClock, Session
from quiver.errors import (
    OutcomeUnknown,
    Overloaded,
    ProtocolError,
    QueueClosed,
    QuotaExceeded,
    TopicNotFound,
    Unauthenticated,
    Unreachable,
)
from quiver.wire.frames import Flag, Frame, FrameReader, Verb, pack
from quiver.wire.problems import Trouble
from quiver.wire.values import AnswerHead, ErrorHead, encode
from tests.lengths import examples


class Silent:
    """A channel that only counts."""

    def start(self, call: Call[Any]) -> None: ...
    def wait(self, call: Call[Any], seconds: float | None = None) -> None: ...
    def nudge(self, call: Call[Any]) -> None: ...
    def watch(self, call: Call[Any]) -> None: ...
    def cancel(self, call: Call[Any]) -> None: ...

    def is_interrupted(self) -> bool:
        return False

    def close(self) -> None: ...


class Interrupted(BaseException):
    """As Ctrl-C is one."""


def interrupted(do: Callable[[], Any], step: int) -> bool:
    """Do something, interrupted before that bytecode of the session (0: not); whether it came so far."""
    steps = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal steps
        if frame.f_code.co_filename != session.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps += 1
            if steps == step:
                sys.settrace(None)
                raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace if step else before)
    try:
        do()
    except Interrupted:
        return True
    finally:
        sys.settrace(before)
    return False


def frames_of(pieces: list[Any]) -> list[Frame]:
    data, reader = b"".join(map(bytes, pieces)), FrameReader()
    found: list[Frame] = []
    while data:
        buffer = reader.buffer()
        count = min(len(buffer), len(data))
        buffer[:count], data = data[:count], data[count:]
        found += reader.received(count)
    return found


def answer_of(number: int, value: Any = 0) -> bytes:
    return pack(Verb.ANSWER, number, encode(AnswerHead(1, msgspec.Raw(encode(value)))))[0]


def error_of(number: int, code: str, after: float | None = None) -> bytes:
    return pack(Verb.ERROR, number, encode(ErrorHead(1, Trouble(code, "", after=after))))[0]


def no_answer_of(number: int) -> bytes:
    """A payload that is not what it says."""
    head = encode(AnswerHead(1, msgspec.Raw(encode(0))))
    return pack(Verb.ANSWER, number, head, b"no zstd", Flag.ZSTD)[0]


KINDS: Final[dict[str, dict[str, Any]]] = {
    "look": {"only_reads": True},
    "again": {},
    "once": {"repeat": False},
    "receive": {"wait_ms": 500},
}
STEPS: Final = st.integers(-900, 300).map(lambda step: max(step, 0))  # mostly 0: no interrupt


class Trying(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.session = Session(Address(("a:1", "b:1")), NodeClock())
        self.session._chance = Random(0)  # or examples could not be repeated
        self.session.connected(self.now)
        self.calls: list[Call[int]] = []
        self.there: dict[int, Call[int]] = {}  # frames that the node has, and has not answered
        self.arrived: dict[Call[int], int] = {}  # how often each was written
        self.ends: dict[Call[int], BaseException | None] = {}
        self.given_back: list[int] = []
        self.connected = True
        self.failures = 0  # since the last answer

    def does(self, do: Callable[[list[Finish]], Any], step: int) -> bool:
        """Do it, and finish what it has found out; whether it came to its end.

        An interrupt breaks the connection, as a channel of threads does then.
        """
        due: list[Finish] = []
        try:
            came = interrupted(lambda: do(due), step)
        except ProtocolError:
            came = True
        if came and self.connected:
            self.break_off(due)
        self.finish(due)
        return not came

    def finish(self, finished: list[Finish]) -> None:
        for one in finished:
            one()
        for call in self.calls:
            if call.done:
                assert self.ends.setdefault(call, call.error) is call.error

    def break_off(self, due: list[Finish]) -> None:
        fails = not self.session.idle
        self.session.broke("it broke", self.now, due)
        self.failures += fails
        self.there.clear()
        self.connected = False

    @rule(kind=st.sampled_from(list(KINDS)))
    def ask(self, kind: str) -> None:
        head = encode(len(self.calls))
        request = Request(
            Verb.ASK, head, lambda told: msgspec.msgpack.decode(told.value), **KINDS[kind]
        )
        if request.wait_ms:
            request.shorter = lambda left: head if left <= request.wait_ms else b""
            request.undo = self.given_back.append
        call = Call(Silent(), request, self.now, 5.0)
        self.session.add(call)
        self.calls.append(call)

    @precondition(lambda self: self.connected)
    @rule(step=STEPS)
    def write(self, step: int) -> None:
        pieces: list[Any] = []
        if self.does(lambda due: pieces.extend(self.session.to_write(self.now)), step):
            self.sent(frames_of(pieces))

    def sent(self, frames: list[Frame]) -> None:
        order = []
        for frame in frames:
            if frame.verb != Verb.ASK:
                continue
            call = self.calls[msgspec.msgpack.decode(frame.head)]
            assert not call.done
            assert call.request.repeat or not self.arrived.get(call)
            assert call not in self.there.values(), "it went out under two numbers"
            self.arrived[call] = self.arrived.get(call, 0) + 1
            self.there[frame.id] = call
            order.append(call)
        first = [call for call in order if not call.progress.not_before]
        assert first == sorted(first, key=self.calls.index)

    @precondition(lambda self: self.there)
    @rule(data=st.data(), step=STEPS, poisoned=st.booleans())
    def take(self, data: st.DataObject, step: int, poisoned: bool) -> None:
        """Some answers come in one read, and perhaps something behind them that ends the connection."""
        numbers = st.lists(st.sampled_from(sorted(self.there)), min_size=1, max_size=4, unique=True)
        told = {
            number: data.draw(st.sampled_from(["answer", "refuse", "busy"]))
            for number in data.draw(numbers)
        }
        before = {number: self.there.pop(number) for number in told}
        open_ = {number: call for number, call in before.items() if not call.done}
        read = b"".join(self.frame_of(number, how) for number, how in told.items())
        if poisoned:
            waiting = [number for number, call in self.there.items() if not call.done]
            read += data.draw(
                st.sampled_from([error_of(0, Overloaded.code), *map(no_answer_of, waiting)])
            )
        frames = frames_of([read])
        for number, call in before.items():
            self.arrived[call] -= told[number] == "busy"  # the node did nothing
        self.failures = 0 if open_ else self.failures
        self.does(lambda due: self.session.take(frames, self.now, due), step)
        if step:
            return
        assert self.connected == (not poisoned)
        for number, call in open_.items():
            assert call.done or told[number] == "busy"
            if told[number] == "answer":
                assert call.get() == number
        for number, call in before.items():
            if call.request.undo is not None and told[number] == "answer":
                assert number in open_ or number in self.given_back

    @staticmethod
    def frame_of(number: int, how: str) -> bytes:
        if how == "answer":
            return answer_of(number, number)
        return error_of(number, Overloaded.code if how == "busy" else TopicNotFound.code)

    @precondition(lambda self: self.connected)
    @rule(step=STEPS)
    def break_(self, step: int) -> None:
        unsure = {call for call in self.there.values() if not call.request.repeat and not call.done}
        self.does(self.break_off, step)
        self.nobody_is_late()
        assert all(isinstance(call.error, OutcomeUnknown) for call in unsure)

    @precondition(lambda self: not self.connected)
    @rule(step=STEPS)
    def fail(self, step: int) -> None:
        self.now = max(self.now, self.session.retry_at)
        if self.does(lambda due: self.session.failed("refused", self.now, due), step):
            self.failures += 1
            self.nobody_is_late()

    @precondition(lambda self: not self.connected)
    @rule(step=STEPS)
    def refuse(self, step: int) -> None:
        """No node wants to know us: what it may know already is not told as if it did nothing."""
        error = Unauthenticated("nobody has this token")
        open_ = [call for call in self.calls if not call.done]
        if not self.does(lambda due: self.session.give_up(error, due), step):
            return
        for call in open_:
            assert call.error is error or (
                isinstance(call.error, OutcomeUnknown) and call.error.__cause__ is error
            )

    def nobody_is_late(self) -> None:
        """After a failure nobody is kept whose patience is over, if every host was tried."""
        if self.failures >= 2:
            deadlines = [call.progress.deadline for call in self.calls if not call.done]
            assert all(deadline is None or self.now < deadline for deadline in deadlines)

    @precondition(lambda self: not self.connected)
    @rule()
    def connect(self) -> None:
        self.now = max(self.now, self.session.retry_at)
        self.session.connected(self.now)
        self.connected = True

    @rule(seconds=st.floats(0, 3))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: any(not call.done for call in self.calls))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from([call for call in self.calls if not call.done]))
        self.finish(self.session.cancel(call))
        assert isinstance(call.error, QueueClosed)

    @invariant()
    def each_is_under_way_or_ended(self) -> None:
        open_ = {call for call in self.calls if not call.done}
        assert {*self.session._unwritten, *self.session._written.values()} == open_
        assert self.session.idle == (not open_)
        for call in self.calls:
            if isinstance(call.error, Unreachable | Unauthenticated):
                assert not self.arrived.get(call) or call.request.only_reads

    def teardown(self) -> None:
        open_ = [call for call in self.calls if not call.done]
        self.finish(self.session.close())
        assert all(call.done for call in open_)
        assert self.session.idle


TestTrying = Trying.TestCase
TestTrying.settings = settings(max_examples=examples(400), stateful_step_count=40)


def test_the_time_of_an_answer_that_nobody_read_for_long_is_old():
    clock = NodeClock()
    session = Session(Address(("a:1",)), clock)
    session.connected(100.0)

    def answered_after(asked: float, at_ms: int, read: float) -> float:
        """How late the clock is, where second 100 is millisecond 0."""
        call: Call[int] = Call(Silent(), Request(Verb.ASK, b"", lambda told: 0), asked, 30.0)
        session.add(call)
        (frame,) = frames_of(session.to_write(asked))
        answer = encode(AnswerHead(1_000_000 + at_ms, msgspec.Raw(encode(0))))
        frames = frames_of([pack(Verb.ANSWER, frame.id, answer)[0]])
        finish(session.take(frames, read, []))
        assert clock._ahead_ms is not None
        return 900_000 - clock._ahead_ms

    assert answered_after(100.0, 10, 100.02) == 10  # as far as is known
    assert answered_after(101.0, 1_001, 131.0) == 10  # it waited for half a minute
    assert answered_after(140.0, 40_001, 140.002) == 1
    assert answered_after(150.0, 40_000, 150.5) == 10_000  # another node has another clock


def test_what_waits_for_answers_is_not_due_at_once():
    session = Session(Address(("a:1",)), NodeClock())
    session.connected(100.0)

    def ask() -> None:
        session.add(Call(Silent(), Request(Verb.ASK, b"", lambda told: 0), 100.0, 30.0))

    ask()
    session.to_write(100.0)
    session.take(frames_of([pack(Verb.GOAWAY, 0)[0]]), 100.0, [])
    ask()
    assert session.to_write(100.0) == []
    assert session.due(100.0) == limits.WIRE_PING_SECONDS


def session_of(*hosts: str) -> Session:
    made = Session(Address(hosts or ("a:1",)), NodeClock())
    made._chance = Random(0)
    made.connected(100.0)
    return made


def call_of(read: Callable[[Any], Any] = lambda told: 0, **about: Any) -> Call[int]:
    return Call(Silent(), Request(Verb.ASK, b"", read, **about), 100.0, 30.0)


class Interrupting:
    """A session with calls of every kind, of which one is to be written; and a node that has the others."""

    def __init__(self) -> None:
        self.session = session_of()
        self.given_back: list[int] = []
        self.calls: dict[str, Call[int]] = {}
        for name, about in KINDS.items():
            self.ask(name, **about)
        written = frames_of(self.session.to_write(100.0))
        self.numbers = dict(zip(KINDS, [frame.id for frame in written], strict=True))
        self.ask("late", **KINDS["receive"])
        self.now = 101.0

    def ask(self, name: str, **about: Any) -> None:
        undo = self.given_back.append if "wait_ms" in about else None
        call = call_of(lambda told: msgspec.msgpack.decode(told.value), undo=undo, **about)
        self.calls[name] = call
        self.session.add(call)

    def break_(self, due: list[Finish]) -> None:
        self.session.broke("it broke", self.now, due)

    def write(self, due: list[Finish]) -> None:
        self.session.to_write(self.now)

    def answer(self, due: list[Finish]) -> None:
        numbers = self.numbers.values()
        self.session.take(frames_of([answer_of(number) for number in numbers]), self.now, due)

    def refuse(self, due: list[Finish]) -> None:
        numbers = self.numbers.values()
        busy = frames_of([error_of(number, Overloaded.code) for number in numbers])
        self.session.take(busy, self.now, due)


@pytest.mark.parametrize(
    "what", [Interrupting.break_, Interrupting.write, Interrupting.answer, Interrupting.refuse]
)
def test_an_interrupt_at_any_bytecode_neither_loses_nor_doubles_a_call(what):
    """Whoever was interrupted breaks the connection; what may be repeated goes out once on the next."""
    for step in count(1):
        it, due = Interrupting(), list[Finish]()
        came = interrupted(partial(what, it, due), step)
        it.break_(due)
        finish(due)
        it.session.connected(it.now)
        it.now = 110.0
        open_ = [call for call in it.calls.values() if not call.done]
        frames = frames_of(it.session.to_write(it.now))
        assert len(frames) == len(open_), f"at bytecode {step}"
        finish(it.session.take(frames_of([answer_of(frame.id) for frame in frames]), it.now, []))
        assert it.session.idle
        assert all(call.done for call in it.calls.values())
        for name, call in it.calls.items():
            assert call.error is None or (name == "once" and isinstance(call.error, OutcomeUnknown))
        if not came:
            break
    assert step > 50


def test_an_interrupt_at_any_bytecode_of_a_cancel_lets_no_lease_go_astray():
    for step in count(1):
        it, due = Interrupting(), list[Finish]()
        call, number = it.calls["receive"], it.numbers["receive"]
        call._abandoned = True  # as who gives it up says first
        came = interrupted(partial(it.session.cancel, call, due), step)
        finish(due)
        finish(it.session.take(frames_of([answer_of(number, 7)]), it.now, []))
        assert call.done
        assert it.given_back == [7], f"at bytecode {step}"
        if not came:
            break
    assert step > 20


@pytest.mark.parametrize("last", [error_of(0, Overloaded.code), no_answer_of(2)])
def test_answers_are_told_though_something_behind_them_breaks_the_connection(last):
    it, first, second, due = session_of(), call_of(), call_of(), list[Finish]()
    it.add(first)
    it.add(second)
    it.to_write(100.0)
    with pytest.raises(ProtocolError):
        it.take(frames_of([answer_of(1) + last]), 100.0, due)
    finish(due)
    assert first.done
    assert not second.done


class Payload(bytearray):
    """One of which a test can see whether it is kept."""


def test_what_was_given_up_is_kept_only_as_far_as_it_is_to_be_undone():
    it, kept, undone = session_of(), list[weakref.ref[Payload]](), list[int]()
    for undo in (None, undone.append):
        payload = Payload(1_000)
        kept.append(weakref.ref(payload))
        call = call_of(lambda told: 7, payload=payload, undo=undo)
        it.add(call)
        it.to_write(100.0)
        finish(it.cancel(call))
        del call, payload
    assert [one() for one in kept] == [None, None]
    assert len(it._cancelled) == 1
    finish(it.take(frames_of([answer_of(1), answer_of(2)]), 100.0, []))
    assert undone == [7]


def test_an_answer_to_what_was_given_up_that_cannot_be_read_harms_no_other():
    it = session_of()
    strange = call_of(lambda told: msgspec.msgpack.decode(told.value, type=str), undo=print)
    other = call_of()
    it.add(strange)
    it.add(other)
    it.to_write(100.0)
    finish(it.cancel(strange))
    finish(it.take(frames_of([answer_of(1), answer_of(2)]), 100.0, []))
    assert other.get() == 0


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_refusal_tells_nothing_of_an_attempt_whose_answer_was_lost(kind):
    it, refused = session_of(), Unauthenticated("nobody has this token")
    call = call_of(**KINDS[kind])
    it.add(call)
    it.to_write(100.0)
    if call.request.repeat:
        it.broke("reset", 101.0)
    finish(it.give_up(refused))
    if call.request.only_reads:
        assert call.error is refused
    else:
        assert isinstance(call.error, OutcomeUnknown)
        assert call.error.__cause__ is refused
    never = call_of(**KINDS[kind])
    it.add(never)
    finish(it.give_up(refused))
    assert never.error is refused


@pytest.mark.parametrize(("after", "at"), [(7.0, 107.0), (60.0, 130.0), (-1.0, None), (None, None)])
def test_a_node_is_not_asked_again_before_it_said(after: float | None, at: float | None):
    """And not later than patience lasts; what it says is no reason to come back at once."""
    it, call = session_of(), call_of()
    it.add(call)
    it.to_write(100.0)
    it.take(frames_of([error_of(1, QuotaExceeded.code, after)]), 100.0, [])
    if at is None:
        assert 0 < it.due(100.0) <= limits.BACKOFF_SECONDS_MIN
    else:
        assert it.due(100.0) == at - 100.0


def test_receives_that_have_ended_make_room_for_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "WIRE_WAITING_MAX", 2)
    it = session_of()
    calls = [call_of(wait_ms=500) for _ in range(2)]
    for call in calls:
        it.add(call)
        it.add(call_of())
    with pytest.raises(Overloaded):
        it.add(call_of(wait_ms=500))
    finish(it.cancel(calls[0]))
    it.add(call_of(wait_ms=500))
    with pytest.raises(Overloaded):
        it.add(call_of(wait_ms=500))

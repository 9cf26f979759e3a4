"""The rules of trying again, step by step: every call ends once, and as it should."""

from random import Random
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quiver import limits
from quiver.client.remote.address import Address
from quiver.client.remote.calls import Call, Request
from quiver.client.remote.session import Finish, NodeClock, Session
from quiver.errors import OutcomeUnknown, Overloaded, QueueClosed, Unreachable
from quiver.wire.frames import Frame, FrameReader, Verb, pack
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
    def close(self) -> None: ...


def frames_of(pieces: list[Any]) -> list[Frame]:
    data, reader = b"".join(map(bytes, pieces)), FrameReader()
    found: list[Frame] = []
    while data:
        buffer = reader.buffer()
        count = min(len(buffer), len(data))
        buffer[:count], data = data[:count], data[count:]
        found += reader.received(count)
    return found


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
        self.done: dict[Call[int], int] = {}
        self.connected = True
        self.failures = 0  # since the last answer

    def finish(self, finished: list[Finish]) -> None:
        for one in finished:
            before = {call for call in self.calls if call.done}
            one()
            (call,) = {call for call in self.calls if call.done} - before
            self.done[call] = self.done.get(call, 0) + 1

    @rule(repeat=st.booleans(), wait_ms=st.sampled_from([0, 500]))
    def ask(self, repeat: bool, wait_ms: int) -> None:
        head = encode(len(self.calls))
        request = Request(
            Verb.ASK, head, lambda told: 0, repeat=repeat, wait_ms=wait_ms,
            shorter=lambda left: head if left <= wait_ms else b"",
        )  # fmt: skip
        call = Call(Silent(), request, self.now, 5.0)
        self.session.add(call)
        self.calls.append(call)

    @precondition(lambda self: self.connected)
    @rule()
    def write(self) -> None:
        order = []
        for frame in frames_of(self.session.to_write(self.now)):
            if frame.verb != Verb.ASK:
                continue
            call = self.calls[msgspec.msgpack.decode(frame.head)]
            assert not call.done
            assert call.request.repeat or not self.arrived.get(call)
            self.arrived[call] = self.arrived.get(call, 0) + 1
            self.there[frame.id] = call
            order.append(call)
        first = [call for call in order if not call.progress.not_before]
        assert first == sorted(first, key=self.calls.index)

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.there)))
        call = self.there.pop(number)
        head = encode(AnswerHead(1, msgspec.Raw(encode(0))))
        self.failures = 0 if not call.done else self.failures
        self.finish(self.session.take(frames_of([pack(Verb.ANSWER, number, head)[0]]), self.now))
        assert call.done
        assert call.error is None or isinstance(call.error, QueueClosed)

    @precondition(lambda self: self.there)
    @rule(data=st.data(), busy=st.booleans())
    def refuse(self, data: st.DataObject, busy: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.there)))
        call = self.there.pop(number)
        code = Overloaded.code if busy else "topic_not_found"
        self.failures = 0 if not call.done else self.failures
        head = encode(ErrorHead(1, Trouble(code, "")))
        self.finish(self.session.take(frames_of([pack(Verb.ERROR, number, head)[0]]), self.now))
        if busy and not call.done:  # the node did nothing
            self.arrived[call] -= 1
        else:
            assert call.done

    @precondition(lambda self: self.connected)
    @rule()
    def break_(self) -> None:
        unsure = {call for call in self.there.values() if not call.request.repeat and not call.done}
        self.there.clear()
        self.failures += not self.session.idle
        self.finish(self.session.broke("it broke", self.now))
        self.nobody_is_late()
        self.connected = False
        assert all(isinstance(call.error, OutcomeUnknown) for call in unsure)

    @precondition(lambda self: not self.connected)
    @rule()
    def fail(self) -> None:
        self.now = max(self.now, self.session.retry_at)
        self.failures += 1
        self.finish(self.session.failed("refused", self.now))
        self.nobody_is_late()

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
    def each_ends_once(self) -> None:
        assert all(count == 1 for count in self.done.values())
        open_ = [call for call in self.calls if not call.done]
        assert self.session.idle == (not open_)
        for call in self.calls:
            if isinstance(call.error, Unreachable):
                assert not call.progress.repeated or call.request.only_reads

    def teardown(self) -> None:
        open_ = [call for call in self.calls if not call.done]
        self.finish(self.session.close())
        assert all(call.done for call in open_)
        assert self.session.idle


TestTrying = Trying.TestCase
TestTrying.settings = settings(max_examples=examples(200), stateful_step_count=40)


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
        for finish in session.take(frames_of([pack(Verb.ANSWER, frame.id, answer)[0]]), read):
            finish()
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
    session.take(frames_of([pack(Verb.GOAWAY, 0)[0]]), 100.0)
    ask()
    assert session.to_write(100.0) == []
    assert session.due(100.0) == limits.WIRE_PING_SECONDS

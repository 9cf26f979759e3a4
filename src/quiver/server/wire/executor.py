"""What each verb does: the head of a frame, checked, becomes a call of the broker.

No transport is in here: the same serves connections and frames that were posted.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa

from quiver import limits, notices
from quiver.batches.codec import BytesLike
from quiver.batches.output import Piece
from quiver.client.steps import Work, done
from quiver.errors import MessageTooLarge, ProtocolError
from quiver.model import commands
from quiver.model.queries import FindPicks, FindTopic
from quiver.model.replies import Grant, Received, Slice
from quiver.node.placing import TopicHandle
from quiver.server.api.endpoint import making
from quiver.server.context import Context
from quiver.server.wire import checks, rights
from quiver.server.wire.calls import NIL, Steps, WireCall, WireReply, awaited, first
from quiver.server.wire.desk import Desk, unknown
from quiver.server.wire.errands import Errands
from quiver.server.wire.questions import WireQuestions, small
from quiver.wire import values
from quiver.wire.frames import Flag, Verb
from quiver.wire.values import (
    AuthenticateHead,
    BatchHead,
    NamedHead,
    PlacedOut,
    ReceivedOut,
    ReceiveHead,
    SendHead,
    SettleHead,
    TransactHead,
    encode,
    encode_pieces,
)

T = TypeVar("T")

# Bytes of a frame by its verb; larger ones are passed over, and refused.
BOUNDS: Final[dict[int, int]] = {
    Verb.SEND: limits.BODY_BYTES_MAX + limits.HEADERS_BYTES_MAX + limits.API_SMALL_BYTES_MAX,
    Verb.BATCH: limits.ENCODED_BYTES_MAX + limits.API_SMALL_BYTES_MAX,
    Verb.RECEIVE: limits.API_SMALL_BYTES_MAX,
    Verb.SETTLE: limits.WIRE_SETTLED_BYTES_MAX,
    Verb.TRANSACT: limits.FRAME_BYTES_MAX,
    Verb.PROPOSE: limits.WIRE_ASKED_BYTES_MAX,
    Verb.ASK: limits.WIRE_ASKED_BYTES_MAX,
    Verb.WATCH: limits.API_SMALL_BYTES_MAX,
    Verb.ERRAND: limits.ENCODED_BYTES_MAX + limits.API_SMALL_BYTES_MAX,
    Verb.CANCEL: limits.BODY_FREE_BYTES,
    Verb.AUTHENTICATE: limits.BODY_FREE_BYTES,
    Verb.PING: limits.BODY_FREE_BYTES,
}
WITH_PAYLOAD: Final = (Verb.SEND, Verb.BATCH, Verb.TRANSACT, Verb.ERRAND)
VERBS: Final[dict[int, str]] = {verb: verb.name.lower() for verb in Verb}  # as metrics call them


class Executor(Desk):
    """Does what frames ask for, in the name of who asks."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._questions = WireQuestions(self)
        self._errands = Errands(self)
        self._verbs: dict[int, Callable[[WireCall, Any], Steps[WireReply]]] = {
            Verb.SEND: self._send,
            Verb.BATCH: self._batch,
            Verb.RECEIVE: self._receive,
            Verb.SETTLE: self._settle,
            Verb.TRANSACT: self._transact,
            Verb.PROPOSE: self._propose,
            Verb.ASK: self._questions.ask,
            Verb.WATCH: self._questions.watch,
            Verb.ERRAND: self._errands.run,
            Verb.AUTHENTICATE: self._authenticate,
        }

    def flow(self, call: WireCall) -> Steps[WireReply]:
        """What a call does, from the reading of its head on."""
        frame = call.frame
        do = self._verbs.get(frame.verb)
        if do is None:
            raise ProtocolError(f"frames of kind {frame.verb} are not known here")
        call.operation = VERBS[frame.verb]
        if frame.verb != Verb.AUTHENTICATE:
            call.principal = call.standing.admit()
            call.principal.spend(frame.nbytes)
        if frame.dropped:
            raise MessageTooLarge(
                f"the frame has {frame.dropped:,} bytes, and those of its kind may have "
                f"{BOUNDS[frame.verb]:,}; send less at once"
            )
        if len(frame.payload) and frame.verb not in WITH_PAYLOAD:
            raise ProtocolError("a payload goes only with messages")
        if len(frame.head) <= limits.INLINE_BYTES_MAX:
            flow = do(call, values.head_of(frame))
        else:
            flow = self._read_first(call, do)
        return self._compressed(flow) if call.zstd else flow

    @staticmethod
    def _compressed(flow: Steps[WireReply]) -> Steps[WireReply]:
        """The same, with a large payload compressed."""
        reply = yield from flow
        if len(reply.payload) < limits.COMPRESS_BYTES_MIN:
            return reply
        try:
            payload = yield from done(Work(partial(_zstd, reply.payload)))
        except GeneratorExit:
            if reply.undelivered is not None:
                reply.undelivered()
            raise
        return reply._replace(payload=payload, flags=reply.flags | Flag.ZSTD)

    def _read_first(
        self, call: WireCall, do: Callable[[WireCall, Any], Steps[WireReply]]
    ) -> Steps[WireReply]:  # a large head is many objects: they are made in a thread
        frame = call.frame
        call.held.add(limits.WIRE_HEAD_FACTOR * len(frame.head))
        head = yield from first(Work(partial(values.head_of, frame)))
        return (yield from do(call, head))

    # -- sending -----------------------------------------------------------------------------------

    def _send(self, call: WireCall, head: SendHead) -> Steps[WireReply]:
        topic = self.known(call, head.topic, "send") or (
            yield from self.topic(call, head.topic, "send")
        )
        body = call.frame.payload
        if call.frame.flags & Flag.ZSTD:
            body = memoryview((yield from self.payload(call, limits.BODY_BYTES_MAX)))
        row = checks.row(head, bytes(body))
        placed, at = yield from done(self.broker.send_row(topic, row, sync=call.sync))
        out = PlacedOut(
            placed.partition, placed.offset + at, 1, placed.index, placed.row + at, placed.duplicate
        )
        return WireReply(encode(out))

    def _batch(self, call: WireCall, head: BatchHead) -> Steps[WireReply]:
        topic = self.known(call, head.topic, "send") or (
            yield from self.topic(call, head.topic, "send")
        )
        producer = checks.producer(head)
        data = yield from self.payload(call, limits.ENCODED_BYTES_MAX)
        relative = call.frame.flags & Flag.RELATIVE
        now_ms = self.broker.now_ms() if relative else None

        def submit() -> Any:
            batch = checks.batch(data, now_ms)
            return self.broker.send_batch(topic, batch, producer=producer, sync=call.sync)

        ticket = submit() if checks.is_small(data) else (yield from first(Work(submit)))
        sent = (yield from done(ticket)).answers[0]
        if isinstance(sent, Exception):
            raise sent
        return WireReply(encode(tuple(map(PlacedOut.of, sent.placed))))

    # -- receiving ---------------------------------------------------------------------------------

    def _receive(self, call: WireCall, head: ReceiveHead) -> Steps[WireReply]:
        topic = self.known(call, head.topic, "receive") or (
            yield from self.topic(call, head.topic, "receive")
        )
        call.held.demand_room()
        command = checks.receive(head)
        with self.context.waiting(call.principal, head.wait_ms):
            ticket = self.broker.receive(command, head.wait_ms, sync=call.sync)
            grant = yield from done(ticket)
        got = grant.received
        now_ms = self.broker.now_ms()
        for part in got.slices:
            self.context.metrics.age(topic.name, (now_ms - part.created_ms) / 1000, part.count)
        if not got.slices:
            return WireReply(encode(ReceivedOut.of(got, (), b"")))
        with self._unless_given_up(grant):
            return (yield from self._received(call, grant))

    def _received(self, call: WireCall, grant: Grant) -> Steps[WireReply]:
        got = grant.received
        undelivered = partial(self.broker.give_back, grant)
        if grant.source.at_hand and _rows(got) <= limits.INLINE_ROWS_MAX:
            with notices.collected() as warned:
                pieces = list(grant.source.readable(some=True))
            call.warned += warned
            if small(pieces):
                return WireReply(*self._leased(grant, pieces), undelivered)

        async def made() -> tuple[bytes, BytesLike]:
            if got.settled:  # what is delivered once at most cannot be given back
                return await asyncio.to_thread(read)
            async with making(call.held):
                return await asyncio.to_thread(read)

        def read() -> tuple[bytes, BytesLike]:
            with notices.collected() as warned:
                pieces = list(grant.source.readable(some=True))
            call.warned[:] = warned
            return self._leased(grant, pieces)

        try:
            found = yield from awaited(made())
        except Exception:  # whatever it is, nothing of this is delivered
            undelivered()
            raise
        return WireReply(*found, undelivered)

    @staticmethod
    def _leased(grant: Grant, pieces: list[Piece]) -> tuple[bytes, BytesLike]:
        """What is told of a lease, which has no more than a head can say: see `Receive.told_bytes`."""
        got = grant.received
        parts: Sequence[Slice] = [piece.part for piece in pieces]
        if sum(part.count for part in parts) == _rows(got):
            parts = got.slices  # which may be fewer: they are not cut where segments are
        return encode(ReceivedOut.of(got, parts, grant.tag)), encode_pieces(pieces)

    @contextmanager
    def _unless_given_up(self, grant: Grant) -> Iterator[None]:
        try:
            yield
        except GeneratorExit:
            self.broker.give_back(grant)
            raise

    # -- settling ----------------------------------------------------------------------------------

    def _settle(self, call: WireCall, head: SettleHead) -> Steps[WireReply]:
        call.operation = head.action  # acks have figures of their own
        settlement = yield from self._claimed(call, head)
        reply = yield from done(self.broker.settle(settlement, sync=call.sync))
        return WireReply(encode(reply))

    def _claimed(self, call: WireCall, head: SettleHead) -> Steps[Any]:
        """What a settle asks for, of who may receive from its topic."""
        few = sum(len(one.ranges) for one in head.held) <= limits.INLINE_ROWS_MAX
        check = partial(checks.settlement, head)
        settlement = check() if few else (yield from first(Work(check)))
        self.broker.verify((settlement,))  # who has no lease learns nothing
        name = yield from self.name_of(head.topic)
        if name is not None:  # else it was deleted, and the core says so
            call.standing.demand(call.principal, "receive", name)
        return settlement

    def _transact(self, call: WireCall, head: TransactHead) -> Steps[WireReply]:
        checks.parts(len(head.settles) + len(head.sends))
        yield from self.demand(call, rights.SENT[Verb.TRANSACT], head)
        settlements = []
        for one in head.settles:
            settlements.append((yield from self._claimed(call, one)))  # noqa: PERF401  # it waits
        topics = []
        for number, _ in head.sends:
            topics.append((yield from self.topic(call, number, "send")))
        data = memoryview((yield from self.payload(call, limits.FRAME_BYTES_MAX)))
        relative = call.frame.flags & Flag.RELATIVE
        now_ms = self.broker.now_ms() if relative else None
        pieces = checks.cut(data, [nbytes for _, nbytes in head.sends])

        def submit() -> Any:
            batches = [checks.batch(piece, now_ms) for piece in pieces]
            sends = list(zip(topics, batches, strict=True))
            return self.broker.transact(settlements, sends, sync=call.sync)

        few = len(pieces) <= 1 and all(map(checks.is_small, pieces))
        ticket = submit() if few else (yield from first(Work(submit)))
        reply = yield from done(ticket)
        return WireReply(encode([tuple(map(PlacedOut.of, one.placed)) for one in reply.sent]))

    # -- other commands ----------------------------------------------------------------------------

    def _propose(self, call: WireCall, head: NamedHead) -> Steps[WireReply]:
        given, rule = self.named(call, head, Verb.PROPOSE)
        topic = yield from self.demand(call, rule, given)
        command = yield from self.checked(call, partial(checks.command, given))
        match command:
            case commands.CreateTopic():
                self._demand_dead_letter(call, command.policy.dead_letter)
            case commands.AlterTopic():
                assert topic is not None
                command = yield from self._altered(call, topic, command)
            case commands.Redrive():
                assert topic is not None
                command = yield from self._redriven(call, topic, command)
        try:
            reply = yield from done(self.broker.propose(command, sync=call.sync))
        except GeneratorExit:  # it may be done all the same
            if topic is not None:
                self.flows.forget(topic.name)
            raise
        self._learn(topic, command)
        return WireReply(encode(reply))

    def _demand_dead_letter(self, call: WireCall, name: str | None) -> None:
        """Who makes a topic the place for dead letters, also by default, must be allowed to manage it."""
        if name is not None:
            call.standing.demand(call.principal, "manage", name)

    def _altered(self, call: WireCall, topic: TopicHandle, given: Any) -> Steps[Any]:
        known = yield from first(self.broker.ask(FindTopic(topic.name)))
        if known.number != topic.number:
            raise unknown(topic.number)
        made, fields = checks.alteration(topic.name, known.policy, given)
        if "dead_letter" in fields:
            self._demand_dead_letter(call, made.dead_letter)
        return replace(given, policy=made, fields=tuple(fields))

    def _redriven(self, call: WireCall, topic: TopicHandle, given: Any) -> Steps[Any]:
        """Messages go to a topic that the principal may send to: the target, or where they died."""
        if given.target is not None:
            yield from self.topic(call, given.target, "send")
            return given
        ticket = self.broker.ask(FindPicks(topic.name, topic.number, given.picks))
        found = yield from first(ticket)
        for origin in found.origins:
            call.standing.demand(call.principal, "send", origin)
        return replace(given, picks=found.there)  # what dies meanwhile was not asked about

    def _learn(self, topic: TopicHandle | None, command: Any) -> None:
        """All doors share what is known of topics."""
        match command:
            case commands.CreateTopic():
                self.flows.forget(command.name)
            case commands.DeleteTopic() if topic is not None:
                known = self.flows.known(topic.name)
                if known is not None and known.number == topic.number:
                    self.flows.forget(topic.name)
            case commands.AlterTopic() if topic is not None:
                changes = {name: getattr(command.policy, name) for name in command.fields}
                topic.policy = replace(topic.policy, **changes)

    # -- the connection ----------------------------------------------------------------------------

    def _authenticate(self, call: WireCall, head: AuthenticateHead) -> Steps[WireReply]:
        call.standing = self.context.guard.authenticated(head.token)
        call.principal = call.standing.admit()
        yield from ()
        return WireReply(NIL)


def _zstd(payload: BytesLike) -> bytes:
    found: bytes = pa.compress(payload, "zstd", asbytes=True)
    return found


def _rows(got: Received) -> int:
    return sum(part.count for part in got.slices)

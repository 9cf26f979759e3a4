"""The broker of a node: commands, queries and errands as frames, and answers as what they mean.

Whether a request may be repeated when its answer was lost follows from what it asks for, and is said here
where the request is made.
"""

import os
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cache, partial
from typing import Any, Final, NoReturn, TypeVar
from weakref import WeakSet

import msgspec
import pyarrow as pa

from quiver import limits
from quiver.batches.codec import BytesLike, encode_one, encode_whole
from quiver.batches.rows import Checked, Row, pack
from quiver.batches.schema import shifted
from quiver.client.remote.address import Address
from quiver.client.remote.calls import MAYBE, Call, Channel, Request, Told
from quiver.client.remote.channels import Channels, open_channels
from quiver.client.remote.lanes import RELATIVE, ProducerLanes
from quiver.client.remote.session import NodeClock
from quiver.client.steps import Awaited
from quiver.errors import (
    MemberFenced,
    OutcomeUnknown,
    ReadOnly,
    TopicNotFound,
)
from quiver.model import commands, errands, queries
from quiver.model.commands import Command, Held, ProducerStamp, Receive, Settle
from quiver.model.errands import Errand
from quiver.model.queries import Ability, PageFound, Query, Watched
from quiver.model.replies import (
    Done,
    Grant,
    Moved,
    Placed,
    SentMany,
    Settled,
    Transacted,
)
from quiver.model.settlement import Settlement
from quiver.node.placing import TopicHandle
from quiver.node.tickets import Ticket
from quiver.wire.frames import Flag, Verb
from quiver.wire.problems import UNSURE, Trouble
from quiver.wire.values import (
    BatchHead,
    Messages,
    PageOut,
    PlacedOut,
    ReceivedOut,
    ReceiveHead,
    SendHead,
    SettleHead,
    TransactHead,
    answer_type,
    encode,
    named,
    sent_of,
)

A = TypeVar("A")
T = TypeVar("T")

_READERS: Final[dict[type[Any], Callable[[Told], Any]]] = {}  # by what was asked
# Once more might do it to what was made, sent or settled meanwhile.
ONCE: Final = (commands.Seek, commands.Purge, commands.DeleteGroup)


def connected(
    address: Address, loop: AbstractEventLoop | None, *, read_only: bool = False
) -> "RemoteBroker":
    """The broker of nodes that have answered; for threads, or for the loop."""
    clock = NodeClock()
    seconds = min(address.open_seconds, address.patience_seconds)

    def ping(channel: Channel) -> Call[int]:
        return Call(channel, _asked(queries.Ping()), time.monotonic(), seconds)

    return RemoteBroker(
        address, clock, open_channels(address, clock, ping, loop), read_only=read_only
    )


class RemoteBroker:
    """A node, or several of which one answers."""

    abilities: frozenset[Ability] = frozenset({"write", "seal", "compact", "errands"})
    remote = True

    def __init__(
        self, address: Address, clock: NodeClock, channels: Channels, *, read_only: bool = False
    ) -> None:
        self.address = address
        self.now_ms = clock.now_ms
        self._channels = channels
        self._read_only = read_only
        self._patience_seconds = address.patience_seconds
        self._apart: WeakSet[RemoteBroker] = WeakSet()
        self._ended = _Ended()
        self.lanes = ProducerLanes()
        if read_only:
            self.abilities = frozenset({"errands"})
        _OPEN.add(self)

    @property
    def closed(self) -> bool:
        """Whether a call that was refused with `QueueClosed` will never be done."""
        return self._ended.ended

    @property
    def directory(self) -> str:
        """Its files are elsewhere."""
        return ""

    def patient(self, seconds: float) -> "RemoteBroker":
        """The same, which fails when a node could not be reached for so long."""
        made = copy(self)
        made._patience_seconds = min(seconds, self.address.patience_seconds)
        return made

    def apart(self) -> "RemoteBroker":
        """The same over a connection of its own."""
        made = copy(self)
        made._channels = self._channels.apart()
        made._apart, made._ended, made.lanes = WeakSet(), _Ended(), ProducerLanes()
        self._apart.add(made)
        _OPEN.add(made)
        if self._ended.ended:
            made.close()
        return made

    def forget(self) -> None:
        """In a process that was forked: connections are the parent's."""
        self._channels.forget()
        self.lanes = ProducerLanes()

    def close(self) -> None:
        """End what is under way."""
        self._ended.ended = True
        for broker in list(self._apart):
            broker.close()
        self._channels.close()

    # -- asking ------------------------------------------------------------------------------------

    def _call(self, request: Request[T]) -> Call[T]:
        if self._read_only and not request.only_reads:
            raise ReadOnly
        channel = self._channels.current()
        call = Call(channel, request, time.monotonic(), self._patience_seconds)
        try:
            channel.start(call)
        except BaseException:  # an interrupt: nothing will wait for it
            call.abandoned = True
            raise
        return call

    def ask(self, query: Query[A]) -> Ticket[A]:
        """The answer to a query."""
        return self._call(_asked(query))

    def watch(self, query: Watched[A], wait_ms: int) -> Ticket[A | None]:
        """The answer to a query as soon as it has one; None when the time is up."""
        return self._call(
            Request(
                Verb.WATCH, named(query, wait_ms), _reader(type(query)), only_reads=True,
                wait_ms=wait_ms, shorter=partial(named, query),
            )
        )  # fmt: skip

    def run(self, errand: Errand[A], batch: pa.RecordBatch | None = None) -> Ticket[A]:
        """Do an errand, with the batch that it may need."""
        payload, flags = (b"", 0) if batch is None else self._payload(batch)
        reads = isinstance(
            errand, errands.Choose | errands.DemandOrigins | errands.AskSql | errands.Trace
        )
        return self._call(
            Request(
                Verb.ERRAND, named(errand), _reader(type(errand)), payload, flags, only_reads=reads
            )
        )

    def seal(self) -> Awaited[None]:
        """Write everything that is kept into segments; done when they are durable."""
        return self.run(errands.SealAll())

    def compact(self, topic: TopicHandle) -> Awaited[int]:
        """Drop what newer messages of the same key have superseded; how many."""
        return self.run(errands.CompactTopic(topic.name))

    def propose(self, command: Command, *, sync: bool = True) -> Ticket[Any]:
        """Do a command that has no messages with it."""
        read = _reader(type(command))
        refused: Callable[[Trouble, bool], Any] | None = None
        match command:
            case commands.Redrive() | commands.Discard():
                read, refused = partial(_moved, command.picks, read), _doubted
            case commands.DeleteTopic():
                refused = partial(_done_before, TopicNotFound)
            case commands.Leave():
                refused = partial(_done_before, MemberFenced)
        return self._call(
            Request(
                Verb.PROPOSE, named(command), read, flags=_sync(sync),
                repeat=not isinstance(command, ONCE), refused=refused,
            )
        )  # fmt: skip

    # -- sending -----------------------------------------------------------------------------------

    def pack(self, rows: Sequence[Checked]) -> pa.RecordBatch:
        """The batch of these rows, whose delays and lives begin when the node has them."""
        batch = pack(rows, 0)
        if {"deliver_at", "expires_at"} & set(batch.schema.names):
            return batch.replace_schema_metadata(RELATIVE)
        return batch

    def send_row(
        self, topic: TopicHandle, row: Row, *, sync: bool = True
    ) -> Ticket[tuple[Placed, int]]:
        """Send one message; the node sends it together with others that arrive at the same time."""
        head = SendHead(
            topic.number, row.key, row.headers, row.priority, row.delay_ms or 0, row.ttl_ms or 0,
            row.dedup_id,
        )  # fmt: skip
        return self._call(
            Request(
                Verb.SEND, encode(head), _placed, row.body, _sync(sync),
                repeat=row.dedup_id is not None, refused=_doubted,
            )
        )  # fmt: skip

    def send_batch(
        self, topic: TopicHandle, batch: pa.RecordBatch, *, producer: ProducerStamp | None = None,
        staged: bool = False, sync: bool = True,
    ) -> Ticket[SentMany]:  # fmt: skip
        """Send a canonical batch as one request; those of a producer one after the other."""
        assert not staged, "a node stages by itself"
        if producer is None:
            return self._send(topic, sync, batch, None)
        send = partial(self._send, topic, sync)
        return self.lanes.add((topic.number, producer.name, sync), send, batch, producer)

    def _send(
        self, topic: TopicHandle, sync: bool, batch: pa.RecordBatch, producer: ProducerStamp | None
    ) -> Ticket[SentMany]:
        payload, flags = self._payload(batch)
        given = None if producer is None else (producer.name, producer.epoch, producer.sequence)
        place = batch.schema.get_field_index("dedup_id")
        known = place >= 0 and batch.column(place).null_count == 0
        return self._call(
            Request(
                Verb.BATCH, encode(BatchHead(topic.number, given)), _sent_many, payload,
                flags | _sync(sync), repeat=known or producer is not None, refused=_doubted,
            )
        )  # fmt: skip

    def _payload(self, batch: pa.RecordBatch) -> tuple[BytesLike, int]:
        """The bytes of a batch, and what is to be said of them."""
        flags = Flag.RELATIVE if batch.schema.metadata == RELATIVE else 0
        simple = batch.num_rows == 1 and batch.num_columns == 1
        if simple and batch.nbytes <= limits.ENVELOPE_BYTES_MAX:
            return encode_one(batch.column(0)[0].as_py()), flags
        return self._packed(encode_whole(batch), flags)

    def _packed(self, payload: BytesLike, flags: int) -> tuple[BytesLike, int]:
        if self.address.local or len(payload) < limits.COMPRESS_BYTES_MIN:
            return payload, flags
        return pa.compress(payload, "zstd", asbytes=True), flags | Flag.ZSTD

    # -- receiving and settling --------------------------------------------------------------------

    def receive(self, command: Receive, wait_ms: int, *, sync: bool = True) -> Ticket[Grant]:
        """Lease messages, waiting up to `wait_ms` for the first. Leases whose answer was lost end."""
        c = command

        def head(wait_ms: int) -> bytes:
            return encode(
                ReceiveHead(
                    c.topic, c.group, c.max_messages, c.lease_ms, wait_ms, c.consumer, c.per_key, c.begin
                )
            )  # fmt: skip

        return self._call(
            Request(
                Verb.RECEIVE, head(wait_ms), _granted, flags=_sync(sync), wait_ms=wait_ms,
                shorter=head, undo=self.give_back,
            )
        )  # fmt: skip

    def give_back(self, grant: Grant) -> None:
        """Let go of messages that were received and that nobody has seen."""
        got = grant.received
        held = tuple(
            Held(part.partition, got.epoch, ((part.offset, part.offset + part.count),))
            for part in got.slices
            if part.reserved or not got.settled
        )
        if held:
            reason = "the receiver was gone"
            command = Settle(got.topic, got.group, "release", held, reason=reason)
            self.settle(Settlement(command, (grant.tag,) * len(held)), sync=False)

    def settle(self, settlement: Settlement, *, sync: bool = True) -> Ticket[Settled]:
        """Settle what is held under leases that the node checks."""
        return self._call(
            Request(
                Verb.SETTLE, encode(SettleHead.of(settlement)), partial(_settled, settlement),
                flags=_sync(sync),
            )
        )  # fmt: skip

    def transact(
        self,
        settlements: Sequence[Settlement],
        sends: Sequence[tuple[TopicHandle, pa.RecordBatch]],
        *,
        sync: bool = True,
    ) -> Ticket[Transacted]:
        """Settle and send, all or nothing. With something to settle it can be done only once."""
        batches = [batch for _, batch in sends]
        relative = any(batch.schema.metadata == RELATIVE for batch in batches)
        if relative:  # then all of them are, and others count from here
            batches = [_relative(batch, self.now_ms()) for batch in batches]
        encoded = [encode_whole(batch) for batch in batches]
        head = TransactHead(
            tuple(map(SettleHead.of, settlements)),
            tuple(
                (topic.number, len(data)) for (topic, _), data in zip(sends, encoded, strict=True)
            ),
        )
        flags = _sync(sync) | (Flag.RELATIVE if relative else 0)
        payload, flags = self._packed(b"".join(map(memoryview, encoded)), flags)
        return self._call(
            Request(
                Verb.TRANSACT, encode(head), _transacted, payload, flags, repeat=bool(settlements),
                refused=_doubted,
            )
        )  # fmt: skip


class _Ended:
    """Whether a broker was closed, which those that are made of it share."""

    ended = False


# -- what answers mean -----------------------------------------------------------------------------


@cache
def _decoder(kind: Any) -> Callable[[msgspec.Raw], Any]:
    return msgspec.msgpack.Decoder(kind).decode


def _asked(query: Query[A]) -> Request[A]:
    return Request(Verb.ASK, named(query), _reader(type(query)), only_reads=True)


def _reader(kind: type[Any]) -> Callable[[Told], Any]:
    """What reads the answer to a command, query or errand."""
    found = _READERS.get(kind)
    if found is None:
        found = _READERS[kind] = _made_reader(kind)
    return found


def _made_reader(kind: type[Any]) -> Callable[[Told], Any]:
    if kind in (queries.ReadPage, queries.FetchPage):
        return _page
    if kind is queries.ReadLedger:
        return _tables
    answer = answer_type(kind)
    if answer is Any:
        return _table
    if kind in queries.WATCHED:
        answer = answer | None
    decode = _decoder(answer)
    return lambda told: decode(told.value)


def _page(told: Told) -> PageFound | None:
    page: PageOut | None = _decoder(PageOut | None)(told.value)
    return None if page is None else page.page(told.payload)


def _tables(told: Told) -> Iterator[pa.Table]:
    return (pa.ipc.open_stream(pa.py_buffer(payload)).read_all() for payload in told.payloads)


def _table(told: Told) -> pa.Table:
    return pa.concat_tables(_tables(told))


def _placed(told: Told) -> tuple[Placed, int]:
    placed: PlacedOut = _decoder(PlacedOut)(told.value)
    return placed.placed(), 0


def _sent_many(told: Told) -> SentMany:
    return SentMany((sent_of(_decoder(list[PlacedOut])(told.value)),))


def _transacted(told: Told) -> Transacted:
    found: list[list[PlacedOut]] = _decoder(list[list[PlacedOut]])(told.value)
    return Transacted(tuple(map(sent_of, found)))


def _granted(told: Told) -> Grant:
    out: ReceivedOut = _decoder(ReceivedOut)(told.value)
    got = out.received()
    return Grant(got, Messages.of(got.slices, told.payload), out.tag)


def _settled(settlement: Settlement, told: Told) -> Settled:
    """What was settled. If an earlier attempt may have arrived, a refusal may mean that it did it."""
    reply: Settled = _decoder(Settled)(told.value)
    action = settlement.command.action
    if (
        not reply.refused or not told.repeated or action in ("extend", "begin")
    ):  # these end no lease
        return reply
    if action == "release":  # it is not ours any more, whatever came first
        return Settled(reply.count)
    if action != "ack":
        raise OutcomeUnknown(f"an answer was lost: {MAYBE}. Then the lease did not hold any more")
    # The attempt whose answer was lost has ended the leases, or something else has. While they cannot
    # have ended by themselves that is as good as done: if an operator's seek or purge came first instead,
    # that had the last word anyway. Later it is what a consumer who was too slow is told, and must be able
    # to live with: it may come again.
    return reply if told.time_ms >= settlement.until_ms else Settled(reply.count)


def _moved(picks: Sequence[commands.Pick], read: Callable[[Told], Moved], told: Told) -> Moved:
    """How many were moved; an attempt whose answer was lost may have moved any of them."""
    if told.repeated:
        return Moved(sum(end - start for pick in picks for start, end in pick.ranges))
    return read(told)


def _doubted(trouble: Trouble, repeated: bool) -> NoReturn:
    """An error tells of the last attempt only, and not every error says that nothing was done."""
    error = trouble.error()
    if trouble.code in UNSURE:
        raise OutcomeUnknown(f"{MAYBE}: {error}") from error
    if repeated:
        raise OutcomeUnknown(f"an answer was lost: {MAYBE}. Then came: {error}") from error
    raise error


def _done_before(kind: type[Exception], trouble: Trouble, repeated: bool) -> Done:
    """The attempt whose answer was lost has done it, if this one finds that it is done."""
    error = trouble.error()
    if repeated and isinstance(error, kind):
        return Done()
    raise error


def _sync(sync: bool) -> int:
    return Flag.SYNC if sync else 0


def _relative(batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """The batch with its times counted from now."""
    return batch if batch.schema.metadata == RELATIVE else shifted(batch, -now_ms)


_OPEN: WeakSet[RemoteBroker] = WeakSet()


def _forked() -> None:
    for broker in list(_OPEN):
        broker.forget()


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_forked)

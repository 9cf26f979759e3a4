"""Messages: sent, received, settled, read."""

import asyncio
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET

from quiver import limits
from quiver.batches.output import Piece, table
from quiver.batches.rows import Row, as_json, make_row
from quiver.client import arguments
from quiver.client.flows import (
    Claims,
    Page,
    deliveries,
    expired,
    lease_of,
    records,
    sent_batch,
)
from quiver.client.results import AsyncDelivery, GrantedLease, Record, Sent, SentBatch
from quiver.client.steps import Flow, Work, done
from quiver.client.tasks import run
from quiver.errors import InvalidRequest, Overloaded, TopicNotFound
from quiver.model.commands import ProducerStamp
from quiver.model.replies import Durability, Grant, ProducerOpened, Published, SentMany, Staged
from quiver.model.settlement import Settlement
from quiver.model.units import EPOCH
from quiver.node.receipts import Receipt, tag, text
from quiver.server.api import arrow
from quiver.server.api.endpoint import ApiCall, ArrowStream, written
from quiver.server.requests import demand_there, until_gone
from quiver.wire import shapes

# -- sending ---------------------------------------------------------------------------------------


async def send(call: ApiCall, body: shapes.MessageIn) -> Sent:
    key = call.request.headers.get(shapes.IDEMPOTENCY_HEADER)
    if key is not None and body.dedup_id not in (None, key):
        raise InvalidRequest("Idempotency-Key and dedup_id say different things; give one of them")
    row = row_in(body, key)
    return await run(call.flows.send(call.topic, row, call.query.durability))


async def send_batch(call: ApiCall, body: shapes.MessagesIn | None) -> SentBatch:
    flows, query = call.flows, call.query
    producer = None
    if query.producer is not None:
        for number in (query.epoch, query.sequence):
            arguments.whole(number, "epoch and sequence", 0, 2**62)
        producer = ProducerStamp(
            arguments.name(query.producer, "producer"), query.epoch, query.sequence
        )

    batch = await _batch_of(call, body)
    return await run(_send_packed(call, batch, flows.given(query.durability), producer))


async def _batch_of(call: ApiCall, body: shapes.MessagesIn | None) -> pa.RecordBatch:
    """The messages of a request, made into a batch off the event loop if that takes long."""

    def made() -> pa.RecordBatch:
        if body is None:
            return arrow.read_batch(call.data)
        return call.flows.batch_of([row_in(message) for message in body.messages])

    size = len(call.data) if body is None else limits.INLINE_BYTES_MAX
    return made() if size < limits.INLINE_BYTES_MAX else await asyncio.to_thread(made)


def _send_packed(
    call: ApiCall, batch: pa.RecordBatch, durability: Durability, producer: ProducerStamp | None
) -> Flow[SentBatch]:
    """Split and encode off the event loop, if that takes long."""
    flows = call.flows

    def submit() -> Flow[SentMany]:
        handle = yield from flows.handle(call.topic)
        send = partial(
            flows.broker.send_batch, handle, batch, producer=producer, sync=durability == "disk"
        )
        small = batch.nbytes < limits.INLINE_BYTES_MAX
        ticket = send() if small else (yield from done(Work(send)))
        return (yield from done(ticket))

    try:
        reply = yield from submit()
    except TopicNotFound:
        flows.forget(call.topic)
        reply = yield from submit()
    return sent_batch(reply.answers[0], durability)


async def open_producer(call: ApiCall) -> ProducerOpened:
    handle = await run(call.flows.handle(call.topic))
    return await run(call.flows.open_producer(handle, call.name("producer")))


async def stage(call: ApiCall, body: shapes.MessagesIn | None) -> Staged:
    batch = await _batch_of(call, body)
    return await run(call.flows.stage_packed(call.topic, batch, call.principal.name))


async def publish(call: ApiCall, body: shapes.PublishIn) -> Published:
    fields = body.staged, body.application, body.batch, body.run, call.principal.name
    return await run(call.flows.publish(call.topic, *fields))


async def unstage(call: ApiCall, body: shapes.StagedIn) -> shapes.Count:
    flow = call.flows.unstage(call.topic, body.staged, call.principal.name)
    return shapes.Count(count=await run(flow))


async def published(call: ApiCall) -> shapes.ApplicationOut:
    found = await run(call.flows.published(call.topic, call.name("application")))
    return shapes.ApplicationOut(batch=found)


def row_in(message: shapes.MessageIn, dedup_id: str | None = None) -> Row:
    """The checked row of a message in JSON."""
    if (message.body is UNSET) == (message.base64 is UNSET):
        raise InvalidRequest(
            "a message needs body (text, or any JSON) or base64 (bytes), one of them"
        )
    headers: Any = message.headers
    content: str | bytes
    if isinstance(message.body, msgspec.Raw):
        content = _written(bytes(message.body))
        headers = headers if isinstance(content, str) else as_json(headers)
    else:
        try:
            content = b64decode(str(message.base64), validate=True)
        except (Base64Error, ValueError):
            raise InvalidRequest("base64 is not the standard form of base64") from None
    return make_row(
        content, key=message.key, headers=headers, priority=message.priority,
        delay=message.delay, ttl=message.ttl, dedup_id=dedup_id or message.dedup_id,
    )  # fmt: skip


def _written(body: bytes) -> str | bytes:
    """A body as JSON has it: the text that it is, or itself."""
    try:
        return (
            msgspec.json.decode(body, type=str) if body.startswith(b'"') else body.decode().encode()
        )
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is not text: {error}") from None


# -- receiving -------------------------------------------------------------------------------------


async def receive(call: ApiCall, body: shapes.ReceiveIn) -> Any:
    if not call.arrow:
        _few(body.max_messages, "messages", "ask for fewer, or for Arrow with Accept")
    flow = call.flows.receive(
        call.topic, call.group, body.max_messages, body.lease, body.wait, body.consumer, body.begin
    )
    with call.context.waiting(call.principal, body.wait):
        grant, lease = await until_gone(call.request, run(flow), call.flows.give_back)
    give_back = partial(call.flows.give_back, (grant, lease))
    if lease.settled:  # what is delivered once at most cannot be given back
        answer = await _received(call, grant, lease)
        await demand_there(call.request, give_back)
        return answer
    try:
        async with call.making():
            answer = await _received(call, grant, lease)
            # Inside: the answer is counted before the next one is let in.
            await demand_there(call.request, give_back)
    except Overloaded:
        give_back()
        raise
    return answer


async def _received(call: ApiCall, grant: Grant, lease: GrantedLease) -> Any:
    now_ms = call.flows.now_ms()
    for piece in grant.received.slices:
        call.context.metrics.age(call.topic, (now_ms - piece.created_ms) / 1000, piece.count)
    if not call.arrow:

        def received() -> shapes.ReceivedMessages:
            found = deliveries(AsyncDelivery, _no_settling, grant, lease)
            return shapes.ReceivedMessages(messages=[message_out(item) for item in found])

        return await written(received)

    def made() -> ArrowStream:
        pieces = list(grant.source.readable(some=True))
        owner = lease.topic_number, lease.group_number
        about = shapes.LeaseAbout(
            group=lease.group, epoch=lease.epoch, deadline_ms=lease.deadline_ms,
            settled=lease.settled,
            receipts={
                part.partition: text(
                    Receipt(*owner, part.partition, part.offset, lease.epoch), lease.tag
                )
                for _, _, part in pieces
            },
            reserved=sum(part.count for _, _, part in pieces if part.reserved),
        )  # fmt: skip
        return ArrowStream(arrow.slim(table(pieces, with_where=True)), about)

    return await asyncio.to_thread(made)


def _no_settling(*_: Any, **__: Any) -> None:
    raise AssertionError("a node's consumers settle by receipts")


def message_out(item: Record) -> shapes.MessageOut:
    """A message as JSON has it."""
    text: str | None
    try:
        text = item.body.decode()
    except UnicodeDecodeError:
        text = None
    origin = item.origin
    return shapes.MessageOut(
        id=item.id,
        partition=item.partition,
        offset=item.offset,
        created_at=item.created_at.isoformat(),
        body=text,
        base64=None if text is not None else b64encode(item.body).decode(),
        key=item.key,
        headers=dict(item.headers),
        priority=item.priority,
        **_lease_of(item),
        origin=None if origin is None else shapes.OriginOut(
            topic=origin.topic, partition=origin.partition, offset=origin.offset,
            group=origin.group, attempts=origin.attempts, reason=origin.reason,
            time=(EPOCH + timedelta(milliseconds=origin.time_ms)).isoformat(),
        ),
    )  # fmt: skip


def _lease_of(item: Record) -> dict[str, Any]:
    if not isinstance(item, AsyncDelivery):
        return {}
    receipt = None if item.lease.settled and not item.reserved else item.receipt
    return {
        "attempt": item.attempt,
        "epoch": item.epoch,
        "receipt": receipt,
        "reserved": item.reserved,
    }


# -- settling --------------------------------------------------------------------------------------


async def settle(call: ApiCall, body: shapes.SettlePart) -> shapes.SettledOut:
    settlements = await _settles(call, [body])
    await _demand(call, settlements)
    begun_ms = call.flows.now_ms()  # the log's entries are not before it
    refused, _ = await run(call.flows.settle_all(settlements))
    held = [held for one in settlements for held in one.command.held]
    total = sum(end - start for one in held for start, end in one.ranges)
    if refused:
        secret = call.context.broker.secret
        texts = [text(one, tag(one.topic, one.group, one.epoch, secret)) for one in refused]
        raise expired(texts, len(texts), total)
    lease_ms = lease_of(body.action, body.lease)
    if lease_ms is None:
        return shapes.SettledOut(count=total)
    return shapes.SettledOut(count=total, deadline_ms=begun_ms + lease_ms)


async def transact(call: ApiCall, body: shapes.TransactionIn) -> list[SentBatch]:
    settlements = await _settles(call, body.settle)
    await _demand(call, settlements)
    for part in body.send:
        call.principal.demand("send", arguments.name(part.topic, "topic"))
    checked = call.flows.checked
    sends = await asyncio.to_thread(
        lambda: [(part.topic, checked(list(map(row_in, part.messages)))) for part in body.send]
    )
    return await run(call.flows.transact(settlements, sends))


async def _demand(call: ApiCall, settlements: list[Settlement]) -> None:
    """The receipts say which topics it is about."""
    numbers = {one.command.topic: None for one in settlements}
    for topic in await run(call.flows.names_of(numbers)):
        call.principal.demand("receive", topic)


async def _settles(call: ApiCall, parts: list[shapes.SettlePart]) -> list[Settlement]:
    """What was asked for, about leases that were given out here: nobody learns anything of others."""
    count = sum(len(part.receipts) for part in parts)
    _few(count, "receipts", "settle in several requests, or ranges of a lease that came as Arrow:")
    pieces = count + sum(len(held.ranges) for part in parts for held in part.held)

    def made() -> list[Settlement]:
        found = [settlement for part in parts for settlement in settles(part)]
        call.context.broker.verify(found)
        return found

    return made() if pieces < limits.INLINE_ROWS_MAX else await asyncio.to_thread(made)


def _few(count: int, what: str, instead: str) -> None:
    if count > limits.API_ROWS_MAX:
        raise InvalidRequest(
            f"JSON may have {limits.API_ROWS_MAX:,} {what} at once, not {count:,}; {instead} "
            f"{shapes.ARROW}"
        )


def settles(part: shapes.SettlePart) -> list[Settlement]:
    """What settles these receipts and ranges, one for each topic and group."""
    claims = Claims()
    for one in part.receipts:
        claims.add_receipt(one)
    for held in part.held:
        claims.add_receipt(held.receipt, ranges_in(held.ranges))
    return claims.settlements(part.action, part.delay, part.lease, part.reason)


def ranges_in(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges from outside, checked: the core trusts them."""
    if not ranges or not all(0 <= start < end < 2**62 for start, end in ranges):
        raise InvalidRequest("a range is its first offset and the one after its last: [3, 5]")
    if sum(end - start for start, end in ranges) > limits.RECEIVE_MESSAGES_MAX:
        raise InvalidRequest(f"ranges may have {limits.RECEIVE_MESSAGES_MAX:,} offsets at once")
    return ranges


# -- reading ---------------------------------------------------------------------------------------


async def read(call: ApiCall, body: shapes.ReadIn) -> Any:
    flows = call.flows
    most = limits.PAGE_MESSAGES_MAX if call.arrow else limits.API_ROWS_MAX
    limit = min(100, most) if body.limit is None else arguments.whole(body.limit, "limit", 0, most)
    if body.cursor is not None:
        cursor = await _checked(call, shapes.read_cursor(body.cursor))
    else:
        start = flows.read_start(call.topic, body.start, body.offset, body.end, body.partition)
        cursor = shapes.Cursor(*await run(start))
    async with call.making():
        return await _read(call, cursor, limit, pending=body.pending)


async def _read(call: ApiCall, cursor: shapes.Cursor, limit: int, *, pending: bool) -> Any:
    found = await run(_page(call, cursor, limit, pending=pending))
    cursor = shapes.Cursor(cursor.topic, {**cursor.positions, **found.ahead}, cursor.ends)
    text = shapes.write_cursor(cursor)
    if call.arrow:
        made = await asyncio.to_thread(lambda: arrow.slim(table(found.pieces, with_where=True)))
        return ArrowStream(made, shapes.PageAbout(cursor=text))
    more = text if cursor.more else None
    return await written(lambda: shapes.ReadOut(messages=found.messages(call.topic), cursor=more))


async def _checked(call: ApiCall, cursor: shapes.Cursor) -> shapes.Cursor:
    """A cursor from outside, of the topic that is meant."""
    topic = await run(call.flows.find(call.topic))
    if cursor.topic != topic.number or any(p >= topic.policy.partitions for p in cursor.positions):
        raise InvalidRequest("the cursor is of another topic; begin again without one")
    return cursor


def _page(call: ApiCall, cursor: shapes.Cursor, limit: int, *, pending: bool) -> Flow["PagePart"]:
    if not limit or not cursor.more:
        return PagePart([], {})
    page = yield from call.flows.read_page(
        cursor.topic, cursor.positions, cursor.ends, pending=pending, limit=limit
    )
    return (yield from done(Work(lambda: part_of(page, page.source.readable(some=False)))))


@dataclass(frozen=True, slots=True)
class PagePart:
    """As much of a page as one answer may carry, and where to go on."""

    pieces: list[Piece]
    ahead: dict[int, int]

    def messages(self, topic: str) -> list[shapes.MessageOut]:
        """As JSON has them."""
        return [message_out(record) for record in records(topic, self.pieces)]


def part_of(page: Page, pieces: Iterable[Piece]) -> PagePart:
    """The first messages of a page, up to a number of bytes, but at least one."""
    found: list[Piece] = []
    nbytes = 0
    full: dict[int, int] = {}
    for piece in pieces:
        if full:
            full.setdefault(piece.part.partition, piece.part.offset)
            continue
        room = limits.RECEIVE_BYTES_MAX - nbytes
        count, size = _fitting(piece, room, at_least=0 if found else 1)
        nbytes += size
        if count:
            found.append(Piece(piece.batch, piece.at, piece.part.cut(0, count)))
        if count < piece.part.count:
            full[piece.part.partition] = piece.part.offset + count
    return PagePart(found, {**page.ahead, **full})


def _fitting(piece: Piece, room: int, at_least: int) -> tuple[int, int]:
    """How many rows of a piece fit, and their bytes; bodies are what counts."""
    bodies = piece.batch.column(0).slice(piece.at, piece.part.count)
    if bodies.nbytes <= room:
        return piece.part.count, bodies.nbytes
    count, nbytes = 0, 0
    for length in pc.binary_length(bodies).to_pylist():
        if nbytes + length > room and count >= at_least:
            break
        count, nbytes = count + 1, nbytes + length
    return count, nbytes

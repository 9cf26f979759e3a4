"""Actions on messages: send, receive, delete, change visibility; one by one and in batches."""

import asyncio
import re
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b, sha256
from typing import Any, Final, TypeVar

from quiver import limits
from quiver.batches.rows import Row, make_row
from quiver.client.aio import finished, run
from quiver.client.flows import deliveries
from quiver.client.results import AsyncDelivery
from quiver.errors import QuiverError, ReceiptError, ReceiptExpired
from quiver.model.commands import Discard, Pick
from quiver.node.engine import Engine
from quiver.node.receipts import Receipt, verify
from quiver.node.shard import TopicHandle
from quiver.server.requests import until_gone
from quiver.server.sqs import faults, messages, queues, shapes
from quiver.server.sqs.faults import Fault, bad_receipt, invalid, invalid_parameter, missing
from quiver.server.sqs.queues import Queue
from quiver.server.sqs.service import Call, Repeatable
from quiver.server.sqs.shapes import Output, Sendable

SYSTEM: Final = (
    "SenderId", "SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp",
    "SequenceNumber", "MessageDeduplicationId", "MessageGroupId", "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
)  # fmt: skip
ENTRY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
ATTEMPT_MS: Final = 300_000
NOT_FOR_TYPE: Final = "The request include parameter that is not valid for this queue type."
FIRST_SEQUENCE: Final = 10**19  # so that sequence numbers have 20 digits

E = TypeVar(
    "E",
    shapes.SendMessageBatchRequestEntry,
    shapes.DeleteMessageBatchRequestEntry,
    shapes.ChangeMessageVisibilityBatchRequestEntry,
)


# -- sending ---------------------------------------------------------------------------------------


class Parcel:
    """A checked message on its way: what is stored, and what its sender is told."""

    __slots__ = ("digests", "nbytes", "row")

    def __init__(self, call: Call, queue: Queue, message: Sendable) -> None:
        text = message.message_body
        if not text:
            raise missing("MessageBody")
        messages.check_body(text)
        body = text.encode()
        attributes = message.message_attributes
        self.nbytes = len(body)
        self.digests = {"MD5OfMessageBody": messages.digest(body)}
        if attributes:
            self.nbytes += messages.check_attributes(attributes)
            self.digests["MD5OfMessageAttributes"] = messages.digest_attributes(attributes)
        trace = call.trace
        system = message.message_system_attributes
        if system:
            trace = messages.check_system(system)
            self.digests["MD5OfMessageSystemAttributes"] = messages.digest_attributes(system)
        delay = _delay(call, queue, message)
        group, dedup_id = _fifo_ids(queue, message, body)
        sender = None if call.service.context.guard.open else call.principal.name
        headers = messages.to_headers(attributes, dedup_id, trace, sender)
        self.row: Row = make_row(
            body, key=group, headers=headers, delay=delay or None,
            dedup_id=_dedup_key(queue, group, dedup_id),
        )  # fmt: skip

    def check_size(self, queue: Queue) -> None:
        """Refuse more than the queue takes."""
        if self.nbytes > queue.max_bytes:
            raise invalid_parameter(
                "One or more parameters are invalid. Reason: Message must be shorter than "
                f"{queue.max_bytes} bytes."
            )


def _delay(call: Call, queue: Queue, message: Sendable) -> int:
    delay, most = message.delay_seconds, call.bounds.delay_seconds
    if delay is None:
        return queue.delay
    if not 0 <= delay <= most:
        raise invalid(delay, "DelaySeconds", f"DelaySeconds must be >= 0 and <= {most}.")
    if queue.fifo:
        if delay:
            raise invalid(delay, "DelaySeconds", NOT_FOR_TYPE)
        return queue.delay
    return delay


def _fifo_ids(queue: Queue, message: Sendable, body: bytes) -> tuple[str | None, str | None]:
    """Message group and deduplication id."""
    group, dedup_id = message.message_group_id, message.message_deduplication_id
    if not queue.fifo:
        if dedup_id is not None:
            raise invalid(dedup_id, "MessageDeduplicationId", NOT_FOR_TYPE)
        if group is not None:
            messages.check_token(group, "MessageGroupId")
        return group, None
    if group is None:
        raise missing("MessageGroupId")
    messages.check_token(group, "MessageGroupId")
    if dedup_id is not None:
        messages.check_token(dedup_id, "MessageDeduplicationId")
    elif queue.content_dedup:
        dedup_id = sha256(body).hexdigest()
    else:
        raise invalid_parameter(
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly"
        )
    return group, dedup_id


def _dedup_key(queue: Queue, group: str | None, dedup_id: str | None) -> str | None:
    """What the topic knows the message by: its id, if all of the queue is looked at, from its start."""
    if dedup_id is None or not (queue.by_group or queue.purges):
        return dedup_id
    scope = group if queue.by_group else ""
    parts = f"{queue.purges}\0{scope}\0{dedup_id}".encode()
    return "sqs-" + blake2b(parts, digest_size=16).hexdigest()


async def _send(
    call: Call, handle: TopicHandle, queue: Queue, parcels: Sequence[Parcel]
) -> list[Output | Fault]:
    """Store messages, all in one commit if nobody else is in between; each has its own answer."""
    flows = call.service.flows
    tickets = [flows.shard.send_row(handle, parcel.row, sync=True) for parcel in parcels]
    for ticket in tickets:
        ticket.submit()
    answers: list[Output | Fault] = []
    for parcel, ticket in zip(parcels, tickets, strict=True):
        await finished(ticket)
        try:
            placed, at = ticket.get()
        except QuiverError as error:
            answers.append(faults.of(error))
            continue
        answer: Output = {
            **parcel.digests,
            "MessageId": call.service.message_id(placed.index, placed.row + at),
        }
        if queue.fifo:
            answer["SequenceNumber"] = str(FIRST_SEQUENCE + placed.offset + at)
        answers.append(answer)
    return answers


async def send_message(call: Call, request: shapes.SendMessage) -> Output:
    handle = await call.topic(request.queue_url, "send")
    queue = call.service.look(handle)
    parcel = Parcel(call, queue, request)
    parcel.check_size(queue)
    (answer,) = await _send(call, handle, queue, [parcel])
    if isinstance(answer, Fault):
        raise answer
    return answer


async def send_message_batch(call: Call, request: shapes.SendMessageBatch) -> Output:
    handle = await call.topic(request.queue_url, "send")
    queue = call.service.look(handle)
    entries = _entries(call, request.entries, "SendMessageBatchRequestEntry")
    results = Results()
    parcels: dict[str, Parcel] = {}
    for name, entry in entries.items():
        try:
            parcels[name] = Parcel(call, queue, entry)
        except Fault as fault:
            results.fail(name, fault)
    total, most = sum(parcel.nbytes for parcel in parcels.values()), call.bounds.message_bytes
    if total > most:
        raise Fault(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {most} bytes. You have sent {total} bytes.",
        )
    for name in list(parcels):
        try:
            parcels[name].check_size(queue)
        except Fault as fault:
            results.fail(name, fault)
            del parcels[name]
    answers = await _send(call, handle, queue, list(parcels.values()))
    for name, answer in zip(parcels, answers, strict=True):
        if isinstance(answer, Fault):
            results.fail(name, answer)
        else:
            results.succeed(name, answer)
    return results.output(entries)


# -- batches ---------------------------------------------------------------------------------------


class Results:
    """What became of the entries of a batch."""

    def __init__(self) -> None:
        self._done: dict[str, Output] = {}
        self._failed: dict[str, Output] = {}

    def succeed(self, name: str, answer: Output | None = None) -> None:
        """It is done."""
        self._done[name] = {"Id": name, **(answer or {})}

    def fail(self, name: str, fault: Fault) -> None:
        """It was refused."""
        self._failed[name] = {
            "Id": name, "SenderFault": fault.sender, "Code": fault.code, "Message": fault.message,
        }  # fmt: skip

    def output(self, order: dict[str, Any]) -> Output:
        """Both lists, in the order of the entries; an empty one is left out."""
        done = [self._done[name] for name in order if name in self._done]
        failed = [self._failed[name] for name in order if name in self._failed]
        return {**({"Successful": done} if done else {}), **({"Failed": failed} if failed else {})}


def _entries(call: Call, entries: list[E] | None, kind: str) -> dict[str, E]:
    """The entries of a batch by their ids."""
    if not entries:
        raise Fault("EmptyBatchRequest", f"There should be at least one {kind} in the request.")
    most = call.bounds.batch_entries
    if len(entries) > most:
        raise Fault(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {most}. You have sent {len(entries)}.",
        )
    found: dict[str, E] = {}
    for at, entry in enumerate(entries, 1):
        if entry.id is None:
            raise missing(f"{kind}.{at}.Id")
        if not ENTRY_ID.fullmatch(entry.id):
            raise Fault(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                "It can be at most 80 letters long.",
            )
        if entry.id in found:
            raise Fault("BatchEntryIdsNotDistinct", f"Id {entry.id} repeated.")
        found[entry.id] = entry
    return found


# -- receiving -------------------------------------------------------------------------------------


async def receive_message(call: Call, request: shapes.ReceiveMessage) -> Output:
    handle = await call.topic(request.queue_url, "receive")
    queue, bounds = call.service.look(handle), call.bounds
    names = [*(request.attribute_names or ()), *(request.message_system_attribute_names or ())]
    for name in names:
        if name != "All" and name not in SYSTEM and name not in queues.KNOWN:
            raise faults.unknown_attribute(name)
    most = _within(
        request.max_number_of_messages, 1, "MaxNumberOfMessages", 1, bounds.receive_messages
    )
    visibility = _within(
        request.visibility_timeout, queue.visibility, "VisibilityTimeout", 0,
        bounds.visibility_seconds,
    )  # fmt: skip
    wait = request.wait_time_seconds
    if wait is None:
        wait = queue.wait
    elif not 0 <= wait <= bounds.wait_seconds:
        raise invalid(
            wait, "WaitTimeSeconds", f"Must be >= 0 and <= {bounds.wait_seconds}, if provided."
        )
    attempt = request.receive_request_attempt_id
    if attempt is not None and not queue.fifo:
        raise invalid(attempt, "ReceiveRequestAttemptId", NOT_FOR_TYPE)
    if attempt is not None:
        messages.check_token(attempt, "ReceiveRequestAttemptId")
        again = await _again(call, handle, attempt, visibility)
        if again is not None:
            return {"Messages": again}
    got = await _receive(call, handle, queue, most, visibility, wait)
    found = [_message(call, handle, queue, one, names, request) for one in got]
    if attempt is not None and found:
        _remember(call, handle, attempt, [one.receipt for one in got], found)
    if got:
        metrics, now_ms = call.service.context.metrics, call.service.now_ms()
        for one in got:
            metrics.age(handle.name, max(now_ms - one.created_ms, 0) / 1000)
    return {"Messages": found} if found else {}


def _within(value: int | None, default: int, name: str, low: int, high: int) -> int:
    if value is None:
        return default
    if not low <= value <= high:
        raise invalid(value, name, f"Must be between {low} and {high}, if provided.")
    return value


async def _receive(
    call: Call, handle: TopicHandle, queue: Queue, most: int, visibility: int, wait: int
) -> list[AsyncDelivery]:
    """Lease messages; one that is given for no time at all is given back at once."""
    flows = call.service.flows
    lease = visibility or limits.SQS_INSTANT_SECONDS
    per_key = most if queue.fifo else 1

    async def receive(wait: int) -> list[AsyncDelivery]:
        grant, held = await run(
            flows.receive(handle.name, queues.GROUP, most, lease, wait, "", per_key=per_key)
        )
        if not grant.received.slices:
            return []
        if grant.source.at_hand:
            return deliveries(AsyncDelivery, _no_settle, grant, held)
        return await asyncio.to_thread(deliveries, AsyncDelivery, _no_settle, grant, held)

    got = await receive(0)
    if not got and wait:
        with call.principal.waiting():
            got = await until_gone(call.request, receive(wait))
    if got and not visibility:
        await run(flows.settle("nack", got, delay=0))
    return got


def _no_settle(*_: Any, **__: Any) -> None:
    raise AssertionError("deliveries of SQS are settled by receipt")


def _message(
    call: Call, handle: TopicHandle, queue: Queue, one: AsyncDelivery, names: list[str],
    request: shapes.ReceiveMessage,
) -> Output:  # fmt: skip
    text, encoded = messages.to_text(one.body)
    attributes, extra = messages.from_headers(one.headers)
    if encoded:
        attributes[messages.ENCODING] = shapes.Attribute(data_type="String", string_value="base64")
    found: Output = {
        "MessageId": call.service.message_id(*one.place),
        "ReceiptHandle": one.receipt,
        "MD5OfBody": messages.digest(text.encode()),
        "Body": text,
    }
    system = _system(call, handle, queue, one, extra)
    if "All" not in names:
        system = {name: system[name] for name in names if name in system}
    if system:
        found["Attributes"] = system
    wanted = messages.chosen(attributes, request.message_attribute_names or ())
    if wanted:
        found["MD5OfMessageAttributes"] = messages.digest_attributes(wanted)
        found["MessageAttributes"] = messages.shown(wanted)
    return found


def _system(
    call: Call, handle: TopicHandle, queue: Queue, one: AsyncDelivery, extra: messages.Extra
) -> dict[str, str]:
    service = call.service
    now_ms = service.now_ms()
    place = (handle.number, one.partition, one.offset)
    first_ms, _ = service.received.get(place) or (now_ms, 0)
    service.received.put(place, (first_ms, now_ms))
    sent_ms, count = one.created_ms, one.attempt
    origin = one.origin
    buried = origin is not None and origin.topic != queue.name
    if origin is not None and buried:
        known = service.flows.known(origin.topic)
        buried = known is None or known.policy.dead_letter == queue.name
        if buried:
            count += origin.attempts
        if buried and queue.fifo:  # on standard queues a dead letter keeps its time
            sent_ms = origin.time_ms
    found = {
        "SenderId": extra.sender or call.bounds.account,
        "SentTimestamp": str(sent_ms),
        "ApproximateReceiveCount": str(count),
        "ApproximateFirstReceiveTimestamp": str(first_ms),
    }
    if queue.fifo:
        found["SequenceNumber"] = str(FIRST_SEQUENCE + one.offset)
        if extra.dedup_id is not None:
            found["MessageDeduplicationId"] = extra.dedup_id
    if one.key is not None:
        found["MessageGroupId"] = one.key
    if extra.trace is not None:
        found["AWSTraceHeader"] = extra.trace
    if origin is not None and buried:
        found["DeadLetterQueueSourceArn"] = call.arn(origin.topic)
    return found


def _remember(
    call: Call, handle: TopicHandle, attempt: str, receipts: list[str], found: list[Output]
) -> None:
    service = call.service
    until_ms = service.now_ms() + ATTEMPT_MS
    service.attempts.put((handle.number, attempt), Repeatable(until_ms, receipts, found))
    for receipt in receipts:
        service.attempt_of.put(receipt, (handle.number, attempt))


async def _again(
    call: Call, handle: TopicHandle, attempt: str, visibility: int
) -> list[Output] | None:
    """What this attempt was given before, if nobody has touched it since; it is hidden anew."""
    service = call.service
    known = service.attempts.get((handle.number, attempt))
    if known is None:
        return None
    if known.until_ms > service.now_ms() and visibility:
        try:
            await run(service.flows.settle("extend", known.receipts, lease=visibility))
        except ReceiptError:
            pass
        else:
            return known.messages
    service.attempts.pop((handle.number, attempt))
    return None


# -- settling --------------------------------------------------------------------------------------


def _receipt(call: Call, handle: TopicHandle, text: str | None) -> Receipt:
    if not text:
        raise missing("ReceiptHandle")
    try:
        receipt = verify(text, call.service.flows.shard.secret)
    except ReceiptError:
        raise bad_receipt(text) from None
    if receipt.topic != handle.number:
        raise bad_receipt(text)
    return receipt


def _touched(call: Call, texts: Sequence[str]) -> None:
    """A message was deleted or its visibility changed: no attempt is given it again."""
    for text in texts:
        key = call.service.attempt_of.pop(text)
        if key is not None:
            call.service.attempts.pop(key)


async def delete_message(call: Call, request: shapes.DeleteMessage) -> None:
    handle = await call.topic(request.queue_url, "receive")
    text = request.receipt_handle
    receipt = _receipt(call, handle, text)
    assert text is not None
    for fault in (await _delete(call, handle, {text: receipt})).values():
        raise fault


async def delete_message_batch(call: Call, request: shapes.DeleteMessageBatch) -> Output:
    handle = await call.topic(request.queue_url, "receive")
    entries = _entries(call, request.entries, "DeleteMessageBatchRequestEntry")
    results = Results()
    receipts: dict[str, Receipt] = {}
    for name, entry in entries.items():
        try:
            receipts[entry.receipt_handle or ""] = _receipt(call, handle, entry.receipt_handle)
        except Fault as fault:
            results.fail(name, fault)
    refused = await _delete(call, handle, receipts) if receipts else {}
    for name, entry in entries.items():
        text = entry.receipt_handle or ""
        if text in refused:
            results.fail(name, refused[text])
        elif text in receipts:
            results.succeed(name)
    return results.output(entries)


async def _delete(
    call: Call, handle: TopicHandle, receipts: dict[str, Receipt]
) -> dict[str, Fault]:
    """Settle messages. Of an expired receipt, FIFO queues complain; others still delete if they can."""
    _touched(call, list(receipts))
    refused: dict[str, Fault] = {}
    for text in await _settle(call, "ack", list(receipts)):
        receipt = receipts[text]
        if not await run(call.service.flows.asked(partial(_waits, receipt=receipt))):
            continue  # deleted before
        if call.service.look(handle).fifo:
            refused[text] = invalid(text, "ReceiptHandle", "The receipt handle has expired.")
        else:
            await _discard(call, handle, receipt)
    for receipt in receipts.values():
        call.service.received.pop((receipt.topic, receipt.partition, receipt.offset))
    return refused


async def _settle(call: Call, action: Any, texts: list[str], **options: Any) -> Sequence[str]:
    """Settle by receipts; those that have expired."""
    try:
        await run(call.service.flows.settle(action, texts, **options))
    except ReceiptExpired as expired:
        return expired.refused
    return ()


def _waits(engine: Engine, receipt: Receipt) -> bool:
    """Whether the message is still to be delivered, or is with somebody else."""
    topic = engine.core.topics.get(receipt.topic)
    group = topic.groups.get(queues.GROUP) if topic is not None else None
    if group is None or group.number != receipt.group:
        return False
    return receipt.offset not in group.views[receipt.partition].settled


async def _discard(call: Call, handle: TopicHandle, receipt: Receipt) -> None:
    """Delete a message that is visible again; if other groups want it too, they come first."""
    flows = call.service.flows
    groups = await run(flows.asked(lambda engine: len(engine.core.topics[receipt.topic].groups)))
    if groups == 1:
        picks = (Pick(receipt.partition, ((receipt.offset, receipt.offset + 1),)),)
        await run(flows.move(handle.name, Discard(receipt.topic, picks)))


async def change_message_visibility(call: Call, request: shapes.ChangeMessageVisibility) -> None:
    handle = await call.topic(request.queue_url, "receive")
    await _change(call, handle, request.receipt_handle, request.visibility_timeout)


async def change_message_visibility_batch(
    call: Call, request: shapes.ChangeMessageVisibilityBatch
) -> Output:
    handle = await call.topic(request.queue_url, "receive")
    entries = _entries(call, request.entries, "ChangeMessageVisibilityBatchRequestEntry")
    results = Results()

    async def change(name: str, entry: shapes.ChangeMessageVisibilityBatchRequestEntry) -> None:
        try:
            await _change(call, handle, entry.receipt_handle, entry.visibility_timeout)
        except Fault as fault:
            results.fail(name, fault)
        else:
            results.succeed(name)

    await asyncio.gather(*(change(name, entry) for name, entry in entries.items()))
    return results.output(entries)


async def _change(call: Call, handle: TopicHandle, text: str | None, seconds: int | None) -> None:
    receipt = _receipt(call, handle, text)
    assert text is not None
    if seconds is None:
        raise missing("VisibilityTimeout")
    most = call.bounds.visibility_seconds
    if not 0 <= seconds <= most:
        raise invalid(seconds, "VisibilityTimeout", f"Must be between 0 and {most}, if provided.")
    _, last_ms = call.service.received.get((receipt.topic, receipt.partition, receipt.offset)) or (
        0,
        call.service.now_ms(),
    )
    if seconds + (call.service.now_ms() - last_ms) // 1000 > most:
        raise invalid(
            seconds,
            "VisibilityTimeout",
            f"Total VisibilityTimeout for the message is beyond the limit [{most} seconds]",
        )
    _touched(call, [text])
    if seconds:
        refused = await _settle(call, "extend", [text], lease=seconds)
    else:
        refused = await _settle(call, "nack", [text], delay=0)
    if not refused:
        return
    if await run(call.service.flows.asked(partial(_waits, receipt=receipt))):
        raise Fault("MessageNotInflight", "The message referred to is not in flight.")
    raise invalid(
        text, "ReceiptHandle",
        "Message does not exist or is not available for visibility timeout change.",
    )  # fmt: skip

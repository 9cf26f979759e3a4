"""Actions that send."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b, sha256
from typing import Final

from quiver.batches.rows import Row, make_row
from quiver.client.tasks import finished
from quiver.errors import Overloaded, QuiverError, TopicNotFound
from quiver.node.placing import TopicHandle
from quiver.server.sqs import faults, messages, shapes
from quiver.server.sqs.batching import Results, entries_of
from quiver.server.sqs.faults import NOT_FOR_TYPE, Fault, invalid, invalid_parameter, missing
from quiver.server.sqs.queues import SqsQueue
from quiver.server.sqs.service import SqsCall
from quiver.server.sqs.shapes import Output, Sendable

FIRST_SEQUENCE: Final = 10**19  # so that sequence numbers have 20 digits


class Parcel:
    """A checked message on its way: what is stored, and what its sender is told."""

    __slots__ = ("digests", "nbytes", "row")

    def __init__(self, call: SqsCall, queue: SqsQueue, message: Sendable) -> None:
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

    def check_size(self, queue: SqsQueue, what: str = "are invalid") -> None:
        """Refuse more than the queue takes."""
        if self.nbytes > queue.max_bytes:
            raise invalid_parameter(
                f"One or more parameters {what}. Reason: Message must be shorter than "
                f"{queue.max_bytes} bytes."
            )


def _delay(call: SqsCall, queue: SqsQueue, message: Sendable) -> int:
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


def _fifo_ids(queue: SqsQueue, message: Sendable, body: bytes) -> tuple[str | None, str | None]:
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
        raise _undeduplicated()
    return group, dedup_id


def _undeduplicated() -> Fault:
    return invalid_parameter(
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
        "provided explicitly"
    )


def _check_ids(queue: SqsQueue, entries: Iterable[Sendable]) -> None:
    """A batch for a FIFO queue is refused whole if an id is missing, unlike for other faults."""
    for entry in entries if queue.fifo else ():
        if entry.message_deduplication_id is None and not queue.content_dedup:
            raise _undeduplicated()
        if entry.message_group_id is None:
            raise invalid_parameter("The request must contain the parameter MessageGroupId.")


def _dedup_key(queue: SqsQueue, group: str | None, dedup_id: str | None) -> str | None:
    """What the topic knows the message by: its id, if all of the queue is looked at, from its start."""
    if dedup_id is None or not (queue.by_group or queue.purges):
        return dedup_id
    scope = group if queue.by_group else ""
    parts = f"{queue.purges}\0{scope}\0{dedup_id}".encode()
    return "sqs-" + blake2b(parts, digest_size=16).hexdigest()


async def _send(
    call: SqsCall, handle: TopicHandle, queue: SqsQueue, parcels: Sequence[Parcel]
) -> list[Output | Fault]:
    """Store messages, all in one commit if nobody else is in between; each has its own answer."""
    flows = call.service.flows
    sync = flows.durability == "disk"
    tickets = [flows.broker.send_row(handle, parcel.row, sync=sync) for parcel in parcels]
    for ticket in tickets:
        try:
            ticket.submit()
        except Overloaded as error:  # those before it are on their way
            ticket.fail(error)
    answers: list[Output | Fault] = []
    for parcel, ticket in zip(parcels, tickets, strict=True):
        await finished(ticket)
        try:
            placed, at = ticket.get()
        except QuiverError as error:
            if isinstance(error, TopicNotFound):
                flows.forget(handle.name)
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


async def send_message(call: SqsCall, request: shapes.SendMessage) -> Output:
    handle = await call.topic(request.queue_url, "send")
    queue = call.service.look(handle)
    parcel = Parcel(call, queue, request)
    parcel.check_size(queue)
    (answer,) = await _send(call, handle, queue, [parcel])
    if isinstance(answer, Fault):
        raise answer
    return answer


async def send_message_batch(call: SqsCall, request: shapes.SendMessageBatch) -> Output:
    handle = await call.topic(request.queue_url, "send")
    queue = call.service.look(handle)
    entries = entries_of(call, request.entries, "SendMessageBatchRequestEntry")
    _check_ids(queue, entries.values())
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
            parcels[name].check_size(queue, "cannot be validated")  # the words for an entry
        except Fault as fault:
            results.fail(name, fault)
            del parcels[name]
    answers = await _send(call, handle, queue, list(parcels.values()))
    for name, answer in zip(parcels, answers, strict=True):
        if isinstance(answer, Fault):
            results.fail(name, answer)
        else:
            results.succeed(name, answer)
    output = results.output(entries)
    return {name: found for name, found in output.items() if found}  # unlike other batches

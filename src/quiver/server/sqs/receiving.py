"""The action that receives."""

import asyncio
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from quiver import limits
from quiver.client.flows import deliveries
from quiver.client.results import AsyncDelivery, GrantedLease
from quiver.client.steps import Flow, done
from quiver.client.tasks import run
from quiver.errors import Overloaded, ReceiptError, ReceiptExpired
from quiver.model.queries import CountInFlight
from quiver.model.replies import Grant
from quiver.node.placing import TopicHandle
from quiver.node.receipts import seal, unseal
from quiver.server.requests import until_gone
from quiver.server.sqs import messages, queues, shapes
from quiver.server.sqs.faults import NOT_FOR_TYPE, Fault, invalid, over_limit, unknown_attribute
from quiver.server.sqs.queues import SqsQueue
from quiver.server.sqs.sending import FIRST_SEQUENCE
from quiver.server.sqs.service import SqsCall
from quiver.server.sqs.shapes import Output

Granted = tuple[Grant, GrantedLease]

SYSTEM: Final = (
    "SenderId", "SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp",
    "SequenceNumber", "MessageDeduplicationId", "MessageGroupId", "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
)  # fmt: skip


async def receive_message(call: SqsCall, request: shapes.ReceiveMessage) -> Output:
    handle = await call.topic(request.queue_url, "receive")
    call.held.demand_room()
    queue, bounds = call.service.look(handle), call.bounds
    names = [*(request.attribute_names or ()), *(request.message_system_attribute_names or ())]
    for name in names:
        if name != "All" and name not in SYSTEM and name not in queues.KNOWN:
            raise unknown_attribute(name)
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
    for topic in {one.origin.topic for one in got if one.origin is not None}:
        with suppress(Fault):  # unless it was deleted, `_system` must find it known
            await call.service.handle(topic)
    found = [_message(call, handle, queue, one, names, request) for one in got]
    if attempt is not None and found and visibility:  # otherwise others may have them already
        handles = [one["ReceiptHandle"] for one in found]
        service = call.service
        service.attempts.put((handle.number, attempt), handles, found, service.now_ms())
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
    call: SqsCall, handle: TopicHandle, queue: SqsQueue, most: int, visibility: int, wait: int
) -> list[AsyncDelivery]:
    """Lease messages; one that is given for no time at all is given back at once."""
    flows = call.service.flows
    lease = visibility or limits.SQS_INSTANT_SECONDS
    per_key = most if queue.fifo else 1

    async def receive(patience: int) -> Granted | None:
        until = monotonic() + patience
        room = await run(_room(call, handle, patience))
        if not room:
            if wait or queue.fifo:
                return None
            raise over_limit()
        count, left = min(most, room), max(until - monotonic(), 0)
        granted = await run(
            flows.receive(handle.name, queues.GROUP, count, lease, left, "", per_key=per_key)
        )
        return granted if granted[0].received.slices else None

    def give_back(granted: Granted | None) -> None:
        if granted is not None:
            flows.give_back(granted)

    granted = await receive(0)
    if granted is None and wait:
        with call.principal.waiting(), call.service.context.metrics.waiting():
            granted = await until_gone(call.request, receive(wait), give_back)
    if granted is None:
        return []
    try:
        call.held.demand_room()
    except Overloaded:
        give_back(granted)
        raise

    def made() -> list[AsyncDelivery]:
        return deliveries(AsyncDelivery, _no_settle, *granted)

    got = made() if granted[0].source.at_hand else await asyncio.to_thread(made)
    known = call.service.in_flight
    known.put(handle.number, (known.get(handle.number) or 0) + len(got))
    if not visibility:
        with suppress(ReceiptExpired):  # an older receipt has deleted one just now
            await run(flows.settle("nack", got, delay=0))
    return got


def _room(call: SqsCall, handle: TopicHandle, patience: int) -> Flow[int]:
    """How many more messages may be in flight, after waiting until there is room for one.

    Deletes are not counted here, so it is asked when as many were received as there may be.
    """
    most, known = call.bounds.in_flight_messages, call.service.in_flight
    held = known.get(handle.number)
    if held is None or held >= most:
        query = CountInFlight(handle.number, queues.GROUP, most)
        held = yield from done(call.service.flows.broker.watch(query, patience * 1000))
        known.put(handle.number, most if held is None else held)
    return 0 if held is None else most - held


def _no_settle(*_: Any, **__: Any) -> None:
    raise AssertionError("deliveries of SQS are settled by receipt")


def _message(
    call: SqsCall, handle: TopicHandle, queue: SqsQueue, one: AsyncDelivery, names: list[str],
    request: shapes.ReceiveMessage,
) -> Output:  # fmt: skip
    text, encoded = messages.to_text(one.body)
    attributes, extra = messages.from_headers(one.headers)
    if encoded:
        attributes[messages.ENCODING] = shapes.Attribute(data_type="String", string_value="base64")
    found: Output = {
        "MessageId": call.service.message_id(*one.place),
        "ReceiptHandle": seal(one.receipt, call.service.secret),
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
    call: SqsCall, handle: TopicHandle, queue: SqsQueue, one: AsyncDelivery, extra: messages.Extra
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


async def _again(
    call: SqsCall, handle: TopicHandle, attempt: str, visibility: int
) -> list[Output] | None:
    """What this attempt was given before, if nobody has touched it since; it is hidden anew."""
    service, key = call.service, (handle.number, attempt)
    known = service.attempts.get(key, service.now_ms())
    if known is None:
        return None
    if visibility:
        receipts = [unseal(text, service.secret) for text in known.handles]
        try:
            await run(service.flows.settle("extend", receipts, lease=visibility))
        except ReceiptError:
            pass
        else:
            return known.messages()
    service.attempts.pop(key)
    return None

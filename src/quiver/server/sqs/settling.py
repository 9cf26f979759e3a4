"""Actions that delete messages or change how long they are hidden."""

import asyncio
from collections.abc import Iterable

from quiver.client import arguments
from quiver.client.tasks import finished, run
from quiver.errors import ReceiptError
from quiver.model.commands import Action, Held, Settle
from quiver.model.queries import FindHolding, Holding
from quiver.model.ranges import Range, merge
from quiver.model.replies import Settled
from quiver.node.placing import TopicHandle
from quiver.node.receipts import Receipt, unseal, verify
from quiver.server.sqs import shapes
from quiver.server.sqs.batching import Results, entries_of
from quiver.server.sqs.faults import Fault, bad_receipt, invalid, missing
from quiver.server.sqs.service import SqsCall
from quiver.server.sqs.shapes import Output


def _receipt(call: SqsCall, handle: TopicHandle, text: str | None) -> Receipt:
    if not text:
        raise missing("ReceiptHandle")
    secret = call.service.secret
    try:
        receipt = verify(unseal(text, secret), secret)
    except ReceiptError:
        raise bad_receipt(text) from None
    if receipt.topic != handle.number:
        raise bad_receipt(text)
    return receipt


async def delete_message(call: SqsCall, request: shapes.DeleteMessage) -> None:
    handle = await call.topic(request.queue_url, "receive")
    text = request.receipt_handle
    receipt = _receipt(call, handle, text)
    assert text is not None
    for fault in (await _delete(call, handle, {text: receipt})).values():
        raise fault


async def delete_message_batch(call: SqsCall, request: shapes.DeleteMessageBatch) -> Output:
    handle = await call.topic(request.queue_url, "receive")
    entries = entries_of(call, request.entries, "DeleteMessageBatchRequestEntry")
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
    call: SqsCall, handle: TopicHandle, receipts: dict[str, Receipt]
) -> dict[str, Fault]:
    """Settle messages. Of an expired receipt FIFO queues complain; others still delete."""
    for text in receipts:
        call.service.attempts.touched(text)
    refused: dict[str, Fault] = {}
    gone = await _settle(call, "ack", receipts.values())
    late = [(text, receipt) for text, receipt in receipts.items() if receipt in gone]
    if call.service.look(handle).fifo:
        for text, receipt in late:
            if (await _holding(call, receipt)).pending:  # else it was deleted before
                refused[text] = invalid(text, "ReceiptHandle", "The receipt handle has expired.")
    elif late:
        (group,) = {receipt.group for _, receipt in late}
        held = tuple(Held(r.partition, r.epoch, ((r.offset, r.offset + 1),)) for _, r in late)
        await _propose(call, Settle(handle.number, group, "dismiss", held))
    for receipt in receipts.values():
        call.service.received.pop((receipt.topic, receipt.partition, receipt.offset))
    return refused


async def _settle(
    call: SqsCall, action: Action, receipts: Iterable[Receipt], *,
    delay_ms: int | None = None, lease_ms: int = 0,
) -> set[Receipt]:  # fmt: skip
    """Settle receipts that are verified, one entry for each topic and group; those that have expired."""
    owners: dict[tuple[int, int], dict[tuple[int, int], list[Range]]] = {}
    for receipt in receipts:
        ranges = owners.setdefault((receipt.topic, receipt.group), {})
        lease = receipt.partition, receipt.epoch
        ranges.setdefault(lease, []).append((receipt.offset, receipt.offset + 1))
    refused: set[Receipt] = set()
    for (topic, group), ranges in owners.items():
        command = Settle(topic, group, action, _held(ranges), delay_ms, lease_ms)
        for held in (await _propose(call, command)).refused:
            for start, end in held.ranges:
                refused |= {
                    Receipt(topic, group, held.partition, at, held.epoch)
                    for at in range(start, end)
                }
    return refused


def _held(ranges: dict[tuple[int, int], list[Range]]) -> tuple[Held, ...]:
    """Ranges by partition and epoch, as a command has them."""
    return tuple([Held(*lease, tuple(merge(found))) for lease, found in ranges.items()])


async def _holding(call: SqsCall, receipt: Receipt) -> Holding:
    """Whether a message is not deleted, and the lease that it is under now, whoever has it."""
    query = FindHolding(receipt.topic, receipt.group, receipt.partition, receipt.offset)
    return await run(call.service.flows.ask(query))


async def change_message_visibility(call: SqsCall, request: shapes.ChangeMessageVisibility) -> None:
    handle = await call.topic(request.queue_url, "receive")
    await _change(call, handle, request.receipt_handle, request.visibility_timeout)


async def change_message_visibility_batch(
    call: SqsCall, request: shapes.ChangeMessageVisibilityBatch
) -> Output:
    handle = await call.topic(request.queue_url, "receive")
    entries = entries_of(call, request.entries, "ChangeMessageVisibilityBatchRequestEntry")
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


async def _change(
    call: SqsCall, handle: TopicHandle, text: str | None, seconds: int | None
) -> None:
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
    call.service.attempts.touched(text)
    if seconds:
        refused = await _settle(call, "extend", [receipt], lease_ms=arguments.lease_ms(seconds))
    else:
        refused = await _settle(call, "nack", [receipt], delay_ms=0)
    if refused:
        await _change_late(call, handle, text, receipt, seconds)


async def _change_late(
    call: SqsCall, handle: TopicHandle, text: str, receipt: Receipt, seconds: int
) -> None:
    """The receipt's own lease has ended. On a standard queue AWS changes the one that came after.

    A lease that ends in between ends as if it had not been changed. A message that is visible stays so.
    """
    holding = await _holding(call, receipt)
    if not holding.pending:
        raise invalid(
            text, "ReceiptHandle",
            "Message does not exist or is not available for visibility timeout change.",
        )  # fmt: skip
    if call.service.look(handle).fifo:
        return
    if holding.epoch is None:
        return
    held = (Held(receipt.partition, holding.epoch, ((receipt.offset, receipt.offset + 1),)),)
    if seconds:
        command = Settle(*receipt[:2], "extend", held, lease_ms=1_000 * seconds)
    else:
        command = Settle(*receipt[:2], "nack", held, delay_ms=0)
    await _propose(call, command)


async def _propose(call: SqsCall, command: Settle) -> Settled:
    """Settle what is known to be held: nobody asks for the tags of leases here."""
    flows = call.service.flows
    ticket = flows.broker.propose(command, sync=flows.durability == "disk")
    await finished(ticket)
    found: Settled = ticket.get()
    return found

"""Moving messages out of a dead-letter queue in the background: start, watch, stop.

Tasks are redrives. They are known as long as the node runs; a node that ends in the middle of one
leaves every message either here or there, and the task can be started again.
"""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from uuid import uuid4

import msgspec

from quiver import limits
from quiver.client import moving
from quiver.client.tasks import run
from quiver.errors import InvalidRequest, QuiverError
from quiver.model.commands import Redrive
from quiver.server import logs
from quiver.server.auth import Verb
from quiver.server.sqs import faults, queues, shapes
from quiver.server.sqs.faults import Fault, invalid, missing
from quiver.server.sqs.manage import one_at_a_time, sources
from quiver.server.sqs.service import Move, SqsCall
from quiver.server.sqs.shapes import Output

RATE_MAX: Final = 500


class Ident(msgspec.Struct, rename="camel"):
    """What is in a task's handle."""

    task_id: str
    source_arn: str


@one_at_a_time
async def start_message_move_task(call: SqsCall, request: shapes.StartMessageMoveTask) -> Output:
    if not request.source_arn:
        raise missing("SourceArn")
    source = await _queue(call, request.source_arn, "SourceArn")
    target = None
    if request.destination_arn is not None:
        target = await _queue(call, request.destination_arn, "DestinationArn", "send")
    rate = request.max_number_of_messages_per_second
    if rate is not None and not 1 <= rate <= RATE_MAX:
        raise invalid(
            rate, "MaxNumberOfMessagesPerSecond", f"Must be between 1 and {RATE_MAX}, if provided."
        )
    if not await sources(call, source):
        raise faults.invalid_parameter("Source queue must be configured as a Dead Letter Queue.")
    if target is None:
        await _demand_origins(call, source)
    service = call.service
    if any(move.source == source and move.status == "RUNNING" for move in service.moves):
        raise faults.invalid_parameter(
            "There is already a task running. Only one active task is allowed for a source queue arn "
            "at a given time."
        )
    stats = await service.queue.stats(source)
    ident = Ident(str(uuid4()), request.source_arn)
    move = Move(
        b64encode(msgspec.json.encode(ident)).decode(), source, request.source_arn,
        request.destination_arn, rate, stats.depth, service.now_ms(),
    )  # fmt: skip
    service.moves = [move, *remembered(service.moves)]
    _run(call, move, target)
    return {"TaskHandle": move.handle}


def remembered(moves: Sequence[Move]) -> list[Move]:
    """All that run, of which each queue has one at most, and the newest of those that have ended."""
    ended = [move for move in moves if move.status != "RUNNING"]
    old = {move.handle for move in ended[limits.SQS_MOVES_MAX :]}
    return [move for move in moves if move.handle not in old]


async def _queue(call: SqsCall, arn: str, parameter: str, verb: Verb = "manage") -> str:
    name = queues.name_of_arn(arn)
    try:
        if name is None:
            raise faults.no_queue()
        call.principal.demand(verb, name)
        await call.service.handle(name)
    except Fault:
        raise Fault(
            "ResourceNotFoundException",
            f"The resource that you specified for the {parameter} parameter doesn't exist.",
        ) from None
    return name


def _run(call: SqsCall, move: Move, target: str | None) -> None:
    """Move in the background. However that ends, even before it has begun, the task has ended."""

    def progress(count: int) -> None:
        move.moved = count

    def ended(job: asyncio.Task[int]) -> None:
        error = None if job.cancelled() else job.exception()
        match error:
            case None:
                move.status = "CANCELLED" if job.cancelled() else "COMPLETED"
            case InvalidRequest():  # a message that was sent here, and did not die elsewhere
                move.status, move.reason = "FAILED", "CouldNotDetermineMessageSource"
            case QuiverError():
                move.status, move.reason = "FAILED", faults.of(error).code
            case _:
                move.status, move.reason = "FAILED", "InternalFailure"
                logs.failure("bug", error, move=move.handle)

    move.job = asyncio.create_task(_moved(call, move, target, progress))
    move.job.add_done_callback(ended)


async def _moved(
    call: SqsCall, move: Move, target: str | None, progress: Callable[[int], None]
) -> int:
    flows = call.service.flows
    number = await run(flows.target(target))
    flow = moving.move(
        flows, move.source, lambda source, picks: Redrive(source, picks, number), None,
        rate=move.rate, progress=progress, demand=partial(call.principal.demand, "send"),
    )  # fmt: skip
    return await run(flow)


async def _demand_origins(call: SqsCall, source: str) -> None:
    """Without a destination, messages go back to the queues where they died."""
    flows, demand = call.service.flows, partial(call.principal.demand, "send")
    await run(flows.demand_origins(source, *await run(flows.read_start(source)), demand))


async def cancel_message_move_task(call: SqsCall, request: shapes.CancelMessageMoveTask) -> Output:
    if not request.task_handle:
        raise missing("TaskHandle")
    ident = _ident(request.task_handle)
    await _queue(call, ident.source_arn, "SourceArn")
    for move in call.service.moves:
        if move.handle == request.task_handle and move.status == "RUNNING":
            assert move.job is not None
            move.job.cancel()
            await asyncio.wait([move.job])
            return {"ApproximateNumberOfMessagesMoved": move.moved}
    raise Fault("ResourceNotFoundException", "Task does not exist.")


def _ident(handle: str) -> Ident:
    try:
        return msgspec.json.decode(b64decode(handle, validate=True), type=Ident)
    except (ValueError, RecursionError, msgspec.DecodeError):
        raise faults.invalid_parameter("Value for parameter TaskHandle is invalid.") from None


async def list_message_move_tasks(call: SqsCall, request: shapes.ListMessageMoveTasks) -> Output:
    if not request.source_arn:
        raise missing("SourceArn")
    source = await _queue(call, request.source_arn, "SourceArn")
    most = 1 if request.max_results is None else request.max_results
    if not 1 <= most <= limits.SQS_MOVES_SHOWN_MAX:
        raise invalid(
            most, "MaxResults", f"Must be between 1 and {limits.SQS_MOVES_SHOWN_MAX}, if provided."
        )
    found = [move.output() for move in call.service.moves if move.source == source]
    return {"Results": found[:most]}

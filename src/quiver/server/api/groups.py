"""Groups, members and dead letters."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from quiver import limits
from quiver.batches.output import table
from quiver.client import arguments, moving
from quiver.client.flows import Page
from quiver.client.sql import Sql
from quiver.client.steps import Flow
from quiver.client.tasks import run
from quiver.errors import InvalidRequest
from quiver.model.commands import Commit, Discard, Heartbeat, Join, Leave, Redrive
from quiver.model.replies import Assigned
from quiver.model.units import milliseconds
from quiver.server.api import arrow
from quiver.server.api.endpoint import ApiCall, ArrowStream, written
from quiver.server.api.messages import PagePart, part_of
from quiver.server.requests import until_gone
from quiver.wire import shapes


async def create_group(call: ApiCall, body: shapes.GroupIn) -> None:
    guarantee: Any = body.guarantee  # checked by `create_group`
    await call.queue.create_group(call.topic, call.group, start=body.start, guarantee=guarantee)


async def delete_group(call: ApiCall) -> None:
    await call.queue.delete_group(call.topic, call.group)


async def seek(call: ApiCall, body: shapes.SeekIn) -> None:
    await call.queue.seek(call.topic, call.group, body.to, partition=body.partition)


async def pause(call: ApiCall) -> None:
    await call.queue.pause(call.topic, call.group)


async def resume(call: ApiCall) -> None:
    await call.queue.resume(call.topic, call.group)


# -- members ---------------------------------------------------------------------------------------


async def join(call: ApiCall, body: shapes.JoinIn) -> Assigned:
    session_ms = milliseconds(body.session, "session", max_seconds=limits.LEASE_SECONDS_MAX)
    if session_ms == 0:
        raise InvalidRequest("session must be more than 0")
    arguments.name(call.group, "group")
    arguments.name(call.member, "member")
    handle = await run(call.flows.find(call.topic))
    command = Join(handle.number, call.group, call.member, session_ms)
    return await run(call.flows.member(command))


async def heartbeat(call: ApiCall, body: shapes.HeartbeatIn) -> Assigned:
    for partition in body.released:
        arguments.whole(partition, "partition", 0, limits.PARTITIONS_MAX)
    handle = await run(call.flows.find(call.topic))
    command = Heartbeat(handle.number, call.group, call.member, tuple(body.released))
    return await run(call.flows.member(command))


async def assigned(call: ApiCall) -> Assigned:
    handle = await run(call.flows.find(call.topic))
    return await run(call.flows.assigned(handle.number, call.group, call.member))


async def fetch(call: ApiCall, body: shapes.FetchIn) -> Any:
    arguments.whole(body.max_messages, "max_messages", 1, limits.READ_MESSAGES_MAX)
    wait_ms = milliseconds(body.wait, "wait", max_seconds=limits.WAIT_SECONDS_MAX)
    positions = offsets_in(body.positions)
    handle = await run(call.flows.find(call.topic))
    flow = call.flows.fetch(
        handle.number, call.group, call.member, positions, body.max_messages, wait_ms
    )
    with call.context.waiting(call.principal, body.wait):
        page = await until_gone(call.request, run(flow))
    async with call.making():
        return await _fetched(call, page)


async def _fetched(call: ApiCall, page: Page | None) -> Any:
    found = PagePart([], {})
    if page is not None:  # all of it: a commit settles everything before its offsets
        found = await asyncio.to_thread(lambda: part_of(page, page.source.pieces()))
    if call.arrow:
        made = await asyncio.to_thread(lambda: arrow.slim(table(found.pieces, with_where=True)))
        return ArrowStream(made, shapes.FetchAbout(ahead=found.ahead))
    return await written(
        lambda: shapes.Fetched(messages=found.messages(call.topic), ahead=found.ahead)
    )


async def commit(call: ApiCall, body: shapes.CommitIn) -> Assigned:
    offsets = tuple(sorted(offsets_in(body.offsets).items()))
    handle = await run(call.flows.find(call.topic))
    command = Commit(handle.number, call.group, call.member, offsets)
    return await run(call.flows.member(command))


async def leave(call: ApiCall) -> None:
    handle = await run(call.flows.find(call.topic))
    await run(call.flows.leave(Leave(handle.number, call.group, call.member)))


def offsets_in(offsets: dict[int, int]) -> dict[int, int]:
    """Offsets by partition from outside, checked: the core trusts them."""
    for partition, offset in offsets.items():
        arguments.whole(partition, "partition", 0, limits.PARTITIONS_MAX)
        arguments.whole(offset, "offset", 0, 2**62)
    return offsets


# -- dead letters ----------------------------------------------------------------------------------


async def redrive(call: ApiCall, body: shapes.RedriveIn) -> shapes.Count:
    _demand_read(call, body.where)
    demand = partial(call.principal.demand, "send")
    if body.to is not None:
        demand(body.to)
    target = await run(call.flows.target(body.to))

    def flow(sql: Sql | None) -> Flow[int]:
        return moving.move(
            call.flows, call.topic, lambda number, picks: Redrive(number, picks, target),
            body.where, rate=body.rate, limit=body.limit, dry_run=body.dry_run, demand=demand,
            sql=sql,
        )  # fmt: skip

    return shapes.Count(count=await _moved(call, flow, body.where))


async def discard(call: ApiCall, body: shapes.DiscardIn) -> shapes.Count:
    _demand_read(call, body.where)

    def flow(sql: Sql | None) -> Flow[int]:
        return moving.move(
            call.flows, call.topic, Discard, body.where,
            limit=body.limit, dry_run=body.dry_run, sql=sql,
        )  # fmt: skip

    return shapes.Count(count=await _moved(call, flow, body.where))


def _demand_read(call: ApiCall, where: str | None) -> None:
    """A condition reads messages: its errors quote them, and a count answers any question about them."""
    if where is not None:
        call.principal.demand("read", call.topic)


async def _moved(call: ApiCall, flow: Callable[[Sql | None], Flow[int]], where: str | None) -> int:
    work = run(flow(None)) if where is None else call.context.questions.choose(flow)
    return await until_gone(call.request, work)

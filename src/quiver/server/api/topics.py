"""Topics and the node itself."""

from dataclasses import replace
from importlib.util import find_spec
from typing import Final

import msgspec

import quiver
from quiver.client import arguments
from quiver.client.tasks import run
from quiver.model.replies import Sealed
from quiver.model.stats import Overview, TopicStats
from quiver.model.topic import TopicPolicy
from quiver.server.api.endpoint import ApiCall
from quiver.wire import shapes

CAPABILITIES: Final = (
    "arrow", "groups", "ledger", "members", "producers", "redrive", "transactions",
    *(["sql"] if find_spec("duckdb") is not None else []),
)  # fmt: skip


async def about(call: ApiCall) -> shapes.About:
    return shapes.About(
        name="quiver", version=quiver.__version__, api="v1", capabilities=sorted(CAPABILITIES)
    )


async def list_topics(call: ApiCall) -> shapes.Topics:
    return shapes.Topics(topics=call.principal.visible(await call.queue.topics()))


async def create_topic(call: ApiCall, body: shapes.TopicArguments) -> shapes.TopicOut:
    given = msgspec.structs.asdict(body)
    _demand_dead_letter(call, arguments.from_arguments(call.topic, given))
    await call.queue.create_topic(call.topic, **given)
    return await show_topic(call)


async def show_topic(call: ApiCall) -> shapes.TopicOut:
    found = await run(call.flows.find(call.topic))
    return shapes.TopicOut(topic=found.name, number=found.number, policy=described(found.policy))


async def alter_topic(call: ApiCall, body: shapes.TopicChanges) -> shapes.TopicOut:
    given = msgspec.structs.asdict(body)
    changes = {name: value for name, value in given.items() if value is not msgspec.UNSET}
    policy = await run(call.flows.policy(call.topic))
    made, fields = arguments.altered(call.topic, policy, changes)
    if "dead_letter" in fields:
        _demand_dead_letter(call, made)
    await call.queue.alter_topic(call.topic, **changes)
    return await show_topic(call)


def _demand_dead_letter(call: ApiCall, policy: TopicPolicy) -> None:
    """Who makes a topic the place for dead letters, named or by default, must be allowed to manage it."""
    if policy.dead_letter is not None:
        call.principal.demand("manage", policy.dead_letter)


async def delete_topic(call: ApiCall) -> None:
    await call.queue.delete_topic(call.topic)


async def stats(call: ApiCall) -> TopicStats:
    return await call.queue.stats(call.topic)


async def segments(call: ApiCall) -> Sealed:
    return await call.queue.segments(call.topic)


async def overview(call: ApiCall) -> Overview:
    """All of it, or of the topics that the principal may observe; files are everybody's together."""
    call.principal.demand_somewhere("observe")
    found = await call.queue.overview()
    if call.principal.may("observe"):
        return found
    topics = {name: it for name, it in found.topics.items() if call.principal.may("observe", name)}
    letters = tuple(name for name in found.dead_letter_topics if name in topics)
    return replace(found, topics=topics, dead_letter_topics=letters, reasons={}, storage=None)


async def purge(call: ApiCall) -> shapes.Count:
    return shapes.Count(count=await call.queue.purge(call.topic))


async def compact(call: ApiCall) -> shapes.Count:
    return shapes.Count(count=await call.queue.compact(call.topic))


async def seal(call: ApiCall) -> None:
    await call.queue.seal()


def described(policy: TopicPolicy) -> shapes.TopicArguments:
    """A policy as the arguments that make it."""
    return shapes.TopicArguments(**arguments.of_policy(policy))

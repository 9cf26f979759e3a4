"""Who answers which query: a table from the type of a query to the function that asks an engine.

A function gets the engine, the query and the time, and changes nothing. The function of a watched query
says besides when there may be an answer by itself, if it is known. The table has every query there is,
and each function gives what the query's type promises: a test compares them.
"""

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any, Final, TypeVar

from quiver import limits
from quiver.core.delivery import letters
from quiver.core.delivery.topic import Topic
from quiver.core.delivery.view import View
from quiver.errors import InvalidRequest
from quiver.model import queries
from quiver.model.commands import Position
from quiver.model.queries import Query, Watched
from quiver.model.replies import Application, Assigned, Sealed, Slice
from quiver.model.stats import TopicStats
from quiver.node.compaction import FindEnds, ReadKeys, find_ends, read_keys
from quiver.node.engine import Engine

A = TypeVar("A")


def answer(engine: Engine, query: Query[A], now_ms: int) -> A:
    """The answer to a query by the state of now."""
    found: A = _function(ANSWERS, query)(engine, query, now_ms)
    return found


def answer_watched(engine: Engine, query: Watched[A], now_ms: int) -> tuple[A | None, int | None]:
    """The answer, if there is one already; else when there may be one by itself, if that is known."""
    found: tuple[A | None, int | None] = _function(WATCHED_ANSWERS, query)(engine, query, now_ms)
    return found


def _function(table: Mapping[type[Any], Callable[..., Any]], query: object) -> Callable[..., Any]:
    function = table.get(type(query))
    if function is None:
        raise InvalidRequest(f"a {type(query).__name__} is not a query that can be answered here")
    return function


# -- topics ----------------------------------------------------------------------------------------


def _ping(engine: Engine, query: queries.Ping, now_ms: int) -> int:
    return engine.core.now_ms


def _topic(engine: Engine, query: queries.FindTopic, now_ms: int) -> queries.TopicFound:
    found = engine.core.topic_named(query.name)
    return queries.TopicFound(found.name, found.number, found.policy)


def _topics(engine: Engine, query: queries.ListTopics, now_ms: int) -> list[str]:
    core = engine.core
    if query.numbers is not None:
        return [core.topics[number].name for number in query.numbers if number in core.topics]
    wanted = query.dead_letter
    return sorted(
        topic.name
        for topic in core.topics.values()
        if wanted is None or topic.policy.dead_letter == wanted
    )


def _stats(engine: Engine, query: queries.ReadStats, now_ms: int) -> TopicStats:
    return engine.core.stats(engine.core.topic_named(query.topic).number, now_ms)


def _figures(engine: Engine, query: queries.ReadFigures, now_ms: int) -> queries.Figures:
    core, count = engine.core, 0
    found: list[TopicStats] = []
    letters: dict[str, None] = {}
    until = perf_counter() + limits.OVERVIEW_STEP_SECONDS
    for name in query.topics:
        count += 1
        number = core.names.get(name)
        if number is not None:
            target = core.topics[number].policy.dead_letter
            letters |= {} if target is None else {target: None}
            found.append(core.stats(number, now_ms))
        if perf_counter() > until:
            break
    return queries.Figures(count, tuple(found), tuple(letters))


def _storage(engine: Engine, query: queries.ReadStorage, now_ms: int) -> queries.Storage:
    return queries.Storage(engine.storage(), dict(engine.core.reasons))


def _segments(engine: Engine, query: queries.FindSegments, now_ms: int) -> Sealed:
    return engine.sealed(query.topic)


# -- messages --------------------------------------------------------------------------------------


def _replay(engine: Engine, query: queries.LocateReplay, now_ms: int) -> queries.ReplayLocated:
    topic, partition = engine.core.topic_named(query.topic), query.partition
    if partition is not None and partition >= len(topic.partitions):
        raise InvalidRequest(f"topic {topic.name!r} has no partition {partition}")
    parts = [part for part in topic.partitions if partition in (None, part.number)]
    return queries.ReplayLocated(
        topic.number,
        {part.number: topic.start_of(part, query.start) for part in parts},
        {part.number: topic.start_of(part, query.end) for part in parts},
        tuple((part.number, part.first) for part in parts if topic.is_behind(part, query.start)),
    )


def _page(engine: Engine, query: queries.ReadPage, now_ms: int) -> queries.PageFound:
    def browse(ends: dict[int, int], *, pending: bool) -> tuple[list[Slice], dict[int, int]]:
        left = {number: at for number, at in query.positions.items() if at < ends[number]}
        return engine.core.browse(query.topic, left, query.limit, ends=ends, pending=pending)

    slices, ahead = browse(query.ends, pending=query.pending)
    marked: list[Slice] = []
    if query.marks:
        until = {**query.ends, **ahead}
        marked, stops = browse(until, pending=True)
        until |= stops  # they are in more pieces, and so may end sooner
        if any(until[number] < at for number, at in ahead.items()):
            slices, ahead = browse(until, pending=False)
    bodies = engine.source(query.topic, slices) if query.bodies else None
    topic = engine.core.topics[query.topic]
    return queries.PageFound(slices, ahead, bodies, topic.name, _overtaken(topic, query), marked)


def _overtaken(topic: Topic, query: queries.ReadPage) -> tuple[tuple[int, int, int], ...]:
    """What retention has taken from a replay that was not there yet."""
    found: list[tuple[int, int, int]] = []
    for number, at in query.positions.items():
        partition = topic.partitions[number]
        wanted = at < min(query.ends[number], partition.first)
        if wanted and topic.is_behind(partition, Position("offset", at, number)):
            found.append((number, at, partition.first))
    return tuple(found)


def _picks(engine: Engine, query: queries.FindPicks, now_ms: int) -> queries.PicksFound:
    topic = engine.core.topic_named(query.topic)
    picks = query.picks if topic.number == query.number else ()
    there = letters.existing(topic, picks)
    movable = sum(end - start for _, start, end in letters.pick(topic, there))
    return queries.PicksFound(there, movable, tuple(letters.origins(topic, there)))


def _published(engine: Engine, query: queries.FindPublished, now_ms: int) -> Application | None:
    return engine.core.topic_named(query.topic).applications.get(query.application)


def _ledger(engine: Engine, query: queries.ReadLedger, now_ms: int) -> Iterator[Any]:
    return engine.read_ledger().tables(query.topic, query.start_ms, query.end_ms, query.first)


# -- groups ----------------------------------------------------------------------------------------


def _assigned(engine: Engine, query: queries.FindAssigned, now_ms: int) -> Assigned:
    return engine.core.assigned(query.topic, query.group, query.member)


def _holding(engine: Engine, query: queries.FindHolding, now_ms: int) -> queries.Holding:
    view = _view(engine, query)
    if view is None or query.offset in view.settled:
        return queries.Holding(False, None)
    for lease in reversed(view.leases.values()):
        if any(start <= query.offset < end for start, end, *_ in lease.held):
            return queries.Holding(True, lease.epoch)
    return queries.Holding(True, None)


def _view(engine: Engine, query: queries.FindHolding) -> View | None:
    topic = engine.core.topics.get(query.topic)
    groups = topic.groups.values() if topic is not None else ()
    found = (group for group in groups if group.number == query.group)
    return next((group.views[query.partition] for group in found), None)


def _fetch(
    engine: Engine, query: queries.FetchPage, now_ms: int
) -> tuple[queries.PageFound | None, int | None]:
    core, topic = engine.core, query.topic
    owned = dict(core.assigned(topic, query.group, query.member).partitions)
    mine = {partition: at for partition, at in query.positions.items() if partition in owned}
    if core.is_paused(topic, query.group):
        return None, None
    ends, due_ms = core.fetchable(topic, mine, now_ms)
    left = {number: at for number, at in mine.items() if at < ends[number]}
    slices, ahead = core.browse(topic, left, query.limit, ends=ends)
    return (
        queries.PageFound(slices, ahead, engine.source(topic, slices)) if slices else None
    ), due_ms


def _in_flight(
    engine: Engine, query: queries.CountInFlight, now_ms: int
) -> tuple[int | None, int | None]:
    held = engine.core.in_flight(query.topic, query.group)
    return held if held < query.below else None, now_ms + limits.SQS_ROOM_MS


ANSWERS: Final[Mapping[type[Query[Any]], Callable[..., Any]]] = {
    queries.Ping: _ping,
    queries.FindTopic: _topic,
    queries.ListTopics: _topics,
    queries.ReadStats: _stats,
    queries.ReadFigures: _figures,
    queries.ReadStorage: _storage,
    queries.FindSegments: _segments,
    queries.LocateReplay: _replay,
    queries.ReadPage: _page,
    queries.FindPicks: _picks,
    queries.FindPublished: _published,
    queries.FindAssigned: _assigned,
    queries.ReadLedger: _ledger,
    queries.FindHolding: _holding,
    FindEnds: find_ends,  # of the node itself
    ReadKeys: read_keys,
}
WATCHED_ANSWERS: Final[Mapping[type[Watched[Any]], Callable[..., Any]]] = {
    queries.FetchPage: _fetch,
    queries.CountInFlight: _in_flight,
}

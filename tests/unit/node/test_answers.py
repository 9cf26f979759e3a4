"""Queries: plain values, each with an answer of the promised type; watched ones wait for theirs."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast, get_args, get_type_hints

import msgspec
import pytest

from quiver.batches.rows import make_row
from quiver.client.following import Follower
from quiver.client.steps import Work
from quiver.errors import InvalidRequest, TopicNotFound
from quiver.limits import SQS_ROOM_MS
from quiver.model import queries
from quiver.model.commands import CreateGroup, CreateTopic, Join, Pick, Position, Receive
from quiver.model.queries import (
    QUERIES,
    WATCHED,
    CountInFlight,
    FetchPage,
    FindTopic,
    ListTopics,
    Ping,
    Query,
    ReadFigures,
    Watched,
)
from quiver.model.topic import TopicPolicy
from quiver.node.answers import ANSWERS, WATCHED_ANSWERS
from quiver.node.peer import Peer
from quiver.node.placing import TopicHandle
from quiver.node.replica import Replica
from quiver.node.shard import Shard
from quiver.testing import MemoryFiles, VirtualClock

EXAMPLES: list[Any] = [
    queries.Ping(),
    queries.FindTopic("t"),
    queries.ListTopics(),
    queries.ListTopics((1, 2)),
    queries.ReadStats("t"),
    queries.ReadFigures(("t", "u")),
    queries.ReadStorage(),
    queries.FindSegments("t"),
    queries.LocateReplay("t", Position("time", 5), Position("latest"), 1),
    queries.ReadPage(1, {0: 5}, {0: 2**40}, 10, marks=True, bodies=False),
    queries.FindPicks("t", 1, (Pick(0, ((1, 3), (5, 6))),)),
    queries.FindPublished("t", "app"),
    queries.FindAssigned(1, "g", "m"),
    queries.ReadLedger("t", 1, None, 7),
    queries.FindHolding(1, 2, 3, 4),
    queries.FetchPage(1, "g", "m", {0: 1, 3: 9}, 10),
    queries.CountInFlight(1, "g", 20),
]


def test_there_is_an_example_of_every_query():
    assert {type(query) for query in EXAMPLES} == {*QUERIES, *WATCHED}
    classes = [one for one in vars(queries).values() if isinstance(one, type)]
    asked = {one for one in classes if issubclass(one, Query | Watched)} - {Query, Watched}
    assert asked == {*QUERIES, *WATCHED}


@pytest.mark.parametrize("query", EXAMPLES, ids=lambda query: type(query).__name__)
def test_a_query_is_the_same_after_a_way_as_bytes(query):
    data = msgspec.msgpack.encode(query)
    assert msgspec.msgpack.decode(data, type=type(query)) == query


@pytest.mark.parametrize(
    ("table", "kinds"), [(ANSWERS, QUERIES), (WATCHED_ANSWERS, WATCHED)], ids=["asked", "watched"]
)
def test_every_query_is_answered_with_what_its_type_promises(table, kinds):
    for kind in kinds:
        hints = get_type_hints(table[kind])
        (promised,) = get_args(kind.__orig_bases__[0])
        if kind in WATCHED:
            promised = tuple[promised | None, int | None]  # type: ignore[valid-type]
        assert hints["query"] is kind
        assert hints["return"] == promised, kind


class World:
    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.clock = VirtualClock()
        peer = Peer.open(self.files, now_ms=self.clock.now_ms(), secret=bytes(32))
        self.shard = Shard(peer, self.clock)
        self.clock.when_advanced(self.look)
        self.shard.propose(CreateTopic("t", TopicPolicy())).wait()
        found = self.shard.ask(FindTopic("t")).wait()
        self.topic = TopicHandle(found.name, found.number, found.policy)

    def look(self) -> None:
        self.shard.ask(Ping()).wait()

    def send(self, body: str, **options: Any) -> None:
        self.shard.send_row(self.topic, make_row(body, **options)).wait()


@pytest.fixture
def world():
    made = World()
    yield made
    made.shard.close()


@dataclass(frozen=True)
class Unknown(Query[int]):
    """Nobody answers it."""


@dataclass(frozen=True)
class NeverWatched(Watched[int]):
    """Nor this."""

    topic: int


def test_what_nobody_can_answer_is_refused_clearly(world):
    for wrong in (Unknown(), cast(Any, lambda engine: engine.core), cast(Any, NeverWatched(1))):
        with pytest.raises(InvalidRequest, match=rf"a {type(wrong).__name__} is not a query"):
            world.shard.ask(wrong).wait()
    with pytest.raises(InvalidRequest, match="a NeverWatched is not a query"):
        world.shard.watch(NeverWatched(world.topic.number), 10_000).wait()


def test_an_error_of_a_query_is_the_askers_and_the_shard_goes_on(world):
    with pytest.raises(TopicNotFound):
        world.shard.ask(FindTopic("none")).wait()
    assert world.shard.ask(ListTopics()).wait() == ["t"]


def test_a_member_that_watches_gets_a_page_when_a_message_comes_and_when_one_is_due(world):
    number = world.topic.number
    world.shard.propose(CreateGroup(number, "g")).wait()
    world.shard.propose(Join(number, "g", "m", 100_000)).wait()
    query = FetchPage(number, "g", "m", {0: 0}, 10)

    at_once = world.shard.watch(query, 60_000)
    assert not at_once.done
    world.send("a")
    page = at_once.wait()
    assert [(piece.offset, piece.count) for piece in page.slices] == [(0, 1)]
    assert page.ahead == {0: 1}

    world.send("b", delay=5)
    later = world.shard.watch(FetchPage(number, "g", "m", page.ahead, 10), 60_000)
    world.clock.advance(4)
    assert not later.done, "it is not due"
    world.clock.advance(1)
    assert later.wait().ahead == {0: 2}

    nothing = world.shard.watch(FetchPage(number, "g", "m", {0: 2}, 10), 3_000)
    world.clock.advance(3)
    assert nothing.wait() is None


def test_who_watches_for_room_is_answered_when_there_is_some_and_looks_again_by_itself(world):
    number = world.topic.number
    for body in "ab":
        world.send(body)
    world.shard.receive(Receive(number, "g", 2, lease_ms=10_000), 0).wait()
    assert world.shard.watch(CountInFlight(number, "g", 3), 60_000).wait() == 2
    assert world.shard.watch(CountInFlight(number, "g", 2), 0).wait() is None
    full = world.shard.watch(CountInFlight(number, "g", 2), 60_000)
    world.clock.advance(9)
    assert not full.done
    world.clock.advance(1 + SQS_ROOM_MS / 1000)
    assert full.wait() == 0, "the leases have ended"


def test_figures_are_given_of_at_least_one_topic_and_leave_out_what_is_gone(world):
    policy = TopicPolicy(max_attempts=1, dead_letter="dead")
    world.shard.propose(CreateTopic("u", policy)).wait()
    left: tuple[str, ...] = ("gone", "t", "u")
    found: list[str] = []
    letters: list[str] = []
    while left:
        figures = world.shard.ask(ReadFigures(left)).wait()
        assert figures.looked_at >= 1
        left = left[figures.looked_at :]
        found += [stats.topic for stats in figures.topics]
        letters += figures.dead_letter
    assert (found, letters) == (["t", "u"], ["dead"])
    assert world.shard.ask(ListTopics(dead_letter="dead")).wait() == ["u"]


def test_a_follower_answers_the_same_queries(world):
    replica = Replica(world.files, lambda: nullcontext(False), world.clock)
    follower = Follower(replica, world.clock)
    work = follower.ask(FindTopic("t"))
    assert isinstance(work, Work)
    assert work.do() == world.shard.ask(FindTopic("t")).wait()
    follower.close()

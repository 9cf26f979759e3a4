"""What can be asked of a queue. A query changes nothing and is no entry of the log.

Queries are plain values, as commands are, so they can be answered by whoever has the messages: this
process, another one, or another engine. The type of the answer is part of the query's type. What the
time is, whoever answers says. Topics are asked for by name where the caller has just been given a
name, and by number where it goes on with a topic that it has found.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from quiver.model.commands import Pick, Position
from quiver.model.replies import Application, Assigned, Bodies, Sealed, Slice
from quiver.model.stats import StorageStats, TopicStats
from quiver.model.topic import TopicPolicy

A = TypeVar("A")


class Query(Generic[A]):
    """A question that has an answer now: an `A`."""

    __slots__ = ()


class Watched(Generic[A]):
    """A question about a topic that may have no answer yet, and is asked until it has one."""

    __slots__ = ()
    topic: int


Ability: TypeAlias = Literal[
    "write",  # everything that is not a query
    "seal",
    "compact",
    "backup",  # its files are on this machine
    "errands",  # what needs the secret or SQL is done where the messages are: `Broker.run`
]  # what only some who answer queries can do


# -- answers that are not replies of the core ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicFound:
    """A topic that is there."""

    name: str
    number: int
    policy: TopicPolicy


@dataclass(frozen=True, slots=True)
class Figures:
    """Topics as numbers, of those asked about the first `looked_at`; those that are gone are left out."""

    looked_at: int
    topics: tuple[TopicStats, ...]
    dead_letter: tuple[str, ...]  # where their dead letters go


@dataclass(frozen=True, slots=True)
class Storage:
    """The files as numbers, and how many messages were given up since the queue was opened, by reason."""

    files: StorageStats | None  # None for whom they are not to be seen by
    reasons: dict[str, int]


@dataclass(frozen=True, slots=True)
class ReplayLocated:
    """The topic's number, and by partition where a replay begins and ends.

    `behind` has partitions, and the offset it begins at, where retention has let go of messages that
    were asked for.
    """

    topic: int
    starts: dict[int, int]
    ends: dict[int, int]
    behind: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PageFound:
    """Some messages of a replay, and where the next page begins.

    Where retention was faster than the replay, `overtaken` has the partition, where the replay was, and
    where the partition begins now. `marked` are the pending ones among the messages.
    """

    slices: list[Slice]
    ahead: dict[int, int]
    bodies: Bodies | None
    topic: str = ""
    overtaken: tuple[tuple[int, int, int], ...] = ()
    marked: list[Slice] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PicksFound:
    """What of picked messages is there, how many would be moved now, and the topics they came from."""

    there: tuple[Pick, ...]
    movable: int
    origins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Holding:
    """Whether a group has a message before it, and the epoch of the lease that holds it, if one does."""

    pending: bool
    epoch: int | None


# -- queries ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ping(Query[int]):
    """Whether anybody answers; the time of the newest entry."""


@dataclass(frozen=True, slots=True)
class FindTopic(Query[TopicFound]):
    """A topic, which must be there; of its policy at least what is to be known for sending to it."""

    name: str
    whole: bool = False  # all of its policy is asked for, or an error


@dataclass(frozen=True, slots=True)
class ListTopics(Query[list[str]]):
    """The names of all topics in order, or of those with these `numbers`, or of those whose dead letters
    go to the topic `dead_letter`."""

    numbers: tuple[int, ...] | None = None
    dead_letter: str | None = None


@dataclass(frozen=True, slots=True)
class ReadStats(Query[TopicStats]):
    """A topic as numbers."""

    topic: str


@dataclass(frozen=True, slots=True)
class ReadFigures(Query[Figures]):
    """Topics as numbers: at least one, and of the others the first, as many as a short while allows."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadStorage(Query[Storage]):
    """The files as numbers."""


@dataclass(frozen=True, slots=True)
class FindSegments(Query[Sealed]):
    """Which messages of a topic are in which files."""

    topic: str


@dataclass(frozen=True, slots=True)
class LocateReplay(Query[ReplayLocated]):
    """Where a replay begins and ends, in all partitions or in one."""

    topic: str
    start: Position
    end: Position
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class ReadPage(Query[PageFound]):
    """The next messages from `positions` up to `ends`, oldest first, at most `limit`.

    With `pending`, only what some group has not settled. With `marks`, all, and which of them those
    are. Without `bodies`, only where they are and where they came from.
    """

    topic: int
    positions: dict[int, int]
    ends: dict[int, int]
    limit: int
    pending: bool = False
    marks: bool = False
    bodies: bool = True


@dataclass(frozen=True, slots=True)
class FindPicks(Query[PicksFound]):
    """What of picked messages is there; nothing, if the topic of that name is another one by now."""

    topic: str
    number: int
    picks: tuple[Pick, ...]


@dataclass(frozen=True, slots=True)
class FindPublished(Query[Application | None]):
    """The last batch that an application has published to a topic."""

    topic: str
    application: str


@dataclass(frozen=True, slots=True)
class FindAssigned(Query[Assigned]):
    """What is assigned to a member, who must be in the group."""

    topic: int
    group: str
    member: str


@dataclass(frozen=True, slots=True)
class ReadLedger(Query[Iterator[Any]]):
    """What happened, as Arrow tables: of one topic or all, within a span of time, from an entry on."""

    topic: str | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    first: int = 0


@dataclass(frozen=True, slots=True)
class FindHolding(Query[Holding]):
    """How it stands between a group, by its number, and a message."""

    topic: int
    group: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class FetchPage(Watched[PageFound]):
    """The next messages of those partitions that are a member's, once there are some."""

    topic: int
    group: str
    member: str
    positions: dict[int, int]
    limit: int


@dataclass(frozen=True, slots=True)
class CountInFlight(Watched[int]):
    """How many messages a group's consumers hold, once they are fewer than `below`."""

    topic: int
    group: str
    below: int


QUERIES: Final[tuple[type[Query[Any]], ...]] = (
    Ping, FindTopic, ListTopics, ReadStats, ReadFigures, ReadStorage, FindSegments, LocateReplay,
    ReadPage, FindPicks, FindPublished, FindAssigned, ReadLedger, FindHolding,
)  # fmt: skip
WATCHED: Final[tuple[type[Watched[Any]], ...]] = (FetchPage, CountInFlight)

"""What must be done beside the messages: with the secret, with SQL, or with many questions in a row.

Where the broker is in this process, flows do it themselves. One that is elsewhere is sent an errand, which
is a value as commands and queries are; whoever gets it runs the same flows there, as the one who asks.
"""

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from quiver.model.replies import Published, Staged

A = TypeVar("A")


class Errand(Generic[A]):
    """Something to be done elsewhere, with an answer: an `A`. `Any` is a table of Arrow."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """Messages for which a condition holds, as (partition, start, end), and where to go on."""

    runs: tuple[tuple[int, int, int], ...]
    ahead: dict[int, int]


@dataclass(frozen=True, slots=True)
class StageBatch(Errand[Staged]):
    """Store the batch that goes with it where only its owner gets at it."""

    topic: str


@dataclass(frozen=True, slots=True)
class PublishStaged(Errand[Published]):
    """Let a topic have staged messages, all at once, each batch of an application once."""

    topic: str
    parts: tuple[Staged, ...]
    application: str
    batch: int
    run: str


@dataclass(frozen=True, slots=True)
class Unstage(Errand[int]):
    """Drop staged messages; how many were dropped."""

    topic: str
    parts: tuple[Staged, ...]


@dataclass(frozen=True, slots=True)
class Choose(Errand[Chosen]):
    """Pending messages for which a condition in SQL holds, from `positions` up to `ends`."""

    topic: str
    number: int
    positions: dict[int, int]
    ends: dict[int, int]
    condition: str


@dataclass(frozen=True, slots=True)
class DemandOrigins(Errand[None]):
    """Whether all pending messages of a topic may go back to where they died; an error if not."""

    topic: str
    number: int
    positions: dict[int, int]
    ends: dict[int, int]


@dataclass(frozen=True, slots=True)
class AskSql(Errand[Any]):
    """The answer to one SELECT."""

    query: str


@dataclass(frozen=True, slots=True)
class Trace(Errand[Any]):
    """What happened to one message."""

    message: str


@dataclass(frozen=True, slots=True)
class SealAll(Errand[None]):
    """Write everything that is kept into segments."""


@dataclass(frozen=True, slots=True)
class CompactTopic(Errand[int]):
    """Drop what newer messages of the same key have superseded; how many."""

    topic: str


ERRANDS: Final[tuple[type[Errand[Any]], ...]] = (
    StageBatch, PublishStaged, Unstage, Choose, DemandOrigins, AskSql, Trace, SealAll, CompactTopic,
)  # fmt: skip

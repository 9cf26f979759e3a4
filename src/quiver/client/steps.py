"""What a flow may wait for, and how it does: `answer = yield from done(ticket)`."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from quiver.node.tickets import Ticket

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for some seconds."""

    seconds: float


class Stopped(Exception):
    """A flow was given up, because whoever drives it was told to stop or waited long enough."""


@dataclass(frozen=True, slots=True)
class Work(Generic[T]):
    """Something that may take a while (reading the disk, decoding), to be done off an event loop."""

    do: Callable[[], T]


Awaited: TypeAlias = Ticket[T] | Work[T]  # what has an answer
Step: TypeAlias = Ticket[Any] | Work[Any] | Pause
Flow: TypeAlias = Generator[Step, Any, T]


def done(step: Awaited[T]) -> Flow[T]:
    """Wait for an answer."""
    answer: T = yield step
    return answer

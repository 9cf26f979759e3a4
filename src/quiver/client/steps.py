"""What a flow may wait for, and how it does: `answer = yield from done(ticket)`."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from inspect import GEN_SUSPENDED, getgeneratorstate
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


def _not_now(_: Ticket[Any]) -> bool:
    return False


class Course(Generic[T]):
    """A flow under way, driven a piece at a time by whoever has time for it, one thread after the other.

    What it asks for is asked by the first piece. An interrupt in the middle of a wait, or of some work,
    leaves it as it is.
    """

    def __init__(self, flow: Flow[T]) -> None:
        self._flow = flow
        self._steps: list[Step] = []  # the last is what it waits for

    @property
    def ticket(self) -> Ticket[Any] | None:
        """What it waits for, if that is an answer."""
        step = self._steps[-1] if self._steps else None
        return step if isinstance(step, Ticket) else None

    @property
    def waits(self) -> bool:
        """Whether it waits for an answer. If not it is over, or was interrupted somewhere else."""
        return getgeneratorstate(self._flow) == GEN_SUSPENDED

    def go(self, wait: Callable[[Ticket[Any]], bool] = _not_now) -> bool:
        """Go on, until it is over or `wait` says that there is no answer yet; whether it is over.

        An error of the flow is raised, and then it is over, too.
        """
        while True:
            known, answer, error = len(self._steps), None, None
            if known:
                step = self._steps[-1]
                if isinstance(step, Ticket) and not (step.done or wait(step)):
                    return False
                answer, error = _outcome(step)
                if not self._steps or step is not self._steps[-1]:
                    return False  # a signal handler has gone on meanwhile
            # The next step is kept by the call that makes it: an interrupt cannot come between.
            if error is None:
                self._steps.extend(map(self._flow.send, (answer,)))
            else:
                self._steps.extend(map(self._flow.throw, (error,)))
            if len(self._steps) == known:
                return True
            del self._steps[:-1]

    def close(self) -> None:
        """It is not driven any more."""
        self._flow.close()


def _outcome(step: Step) -> tuple[Any, Exception | None]:
    assert not isinstance(step, Pause)
    try:
        return (step.get() if isinstance(step, Ticket) else step.do()), None
    except Exception as error:  # noqa: BLE001  # the flow decides what to do about it
        return None, error

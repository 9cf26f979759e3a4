"""Drives flows in an event loop: requests wait there, and reading and decoding happen in its threads."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any, Final, Generic, TypeAlias, TypeVar

from quiver.client.steps import Flow, Pause, Work
from quiver.node.tickets import Ticket

T = TypeVar("T")


class Returns(Generic[T]):
    """What threads hand to an event loop, on its way there. All that comes meanwhile arrives at once, for
    to wake the loop is what costs."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, arrive: Callable[[Iterator[T]], None]
    ) -> None:
        self._loop = loop
        self._arrive = arrive
        self._items: deque[T] = deque()
        self._coming = False

    def add(self, item: T) -> None:
        """From any thread."""
        self._items.append(item)
        if not self._coming:  # whoever sees that it is true has appended before it is looked
            self._coming = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._come)

    def _come(self) -> None:
        self._coming = False
        self._arrive(self._taken())

    def _taken(self) -> Iterator[T]:
        while self._items:
            yield self._items.popleft()


Waiting: TypeAlias = "asyncio.Future[None]"  # for a ticket that another thread sets
_RETURNS: Final[dict[asyncio.AbstractEventLoop, Returns[Waiting]]] = {}


def _tell(found: Iterable[Waiting]) -> None:
    for waiting in found:
        if not waiting.done():
            waiting.set_result(None)


def _is_set(waiting: Waiting, returns: Returns[Waiting], thread: int) -> None:
    if get_ident() == thread:
        _tell([waiting])
    else:
        returns.add(waiting)


async def finished(ticket: Ticket[Any]) -> None:
    """Wait in the event loop until a ticket is set."""
    loop = asyncio.get_running_loop()
    returns = _RETURNS.get(loop)
    if returns is None:
        for ended in [known for known in tuple(_RETURNS) if known.is_closed()]:
            _RETURNS.pop(ended, None)
        returns = _RETURNS.setdefault(loop, Returns(loop, _tell))
    waiting: asyncio.Future[None] = loop.create_future()
    ticket.when_done(partial(_is_set, waiting, returns, get_ident()))
    try:
        await waiting
    except asyncio.CancelledError:
        ticket.give_up()
        raise


async def run(
    flow: Flow[T],
    work: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread,
    wait: Callable[[Ticket[Any]], Awaitable[Any]] = finished,
) -> T:
    """Drive a flow in this event loop; `work` does in a thread what would hold it up."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = flow.throw(error) if error is not None else flow.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer, error = None, None
        try:
            match step:
                case Ticket():
                    await wait(step)
                    answer = step.get()
                case Pause():
                    await asyncio.sleep(step.seconds)
                case Work():
                    answer = await work(step.do)
        except Exception as problem:  # noqa: BLE001  # the flow decides what to do about it
            error = problem
        except BaseException:  # nobody waits any more
            flow.close()
            raise

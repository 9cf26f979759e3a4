"""Drives flows in an event loop: requests wait there, and reading and decoding happen in its threads."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from quiver.client.steps import Flow, Pause, Work
from quiver.node.tickets import Ticket

T = TypeVar("T")


class Returns:
    """Those who wait in one event loop for tickets that other threads set: all that are set meanwhile are
    told at once, for to wake the loop is what costs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = get_ident()
        self._set: deque[asyncio.Future[None]] = deque()
        self._coming = False

    def add(self, waiting: "asyncio.Future[None]") -> None:
        """From any thread: this one's ticket is set."""
        if get_ident() == self._thread:
            _tell(waiting)
            return
        self._set.append(waiting)
        if not self._coming:  # whoever sees that it is true has appended before it is looked
            self._coming = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._arrive)

    def _arrive(self) -> None:
        self._coming = False
        while self._set:
            _tell(self._set.popleft())


def _tell(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


_RETURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Returns]] = WeakKeyDictionary()


async def finished(ticket: Ticket[Any]) -> None:
    """Wait in the event loop until a ticket is set."""
    loop = asyncio.get_running_loop()
    returns = _RETURNS.get(loop)
    if returns is None:
        returns = _RETURNS.setdefault(loop, Returns(loop))
    waiting: asyncio.Future[None] = loop.create_future()
    ticket.when_done(partial(returns.add, waiting))
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

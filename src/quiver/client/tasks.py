"""Drives flows in an event loop: requests wait there, and reading and decoding happen in its threads."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from quiver.client.steps import Flow, Pause, Work
from quiver.node.tickets import Ticket

T = TypeVar("T")


async def finished(ticket: Ticket[Any]) -> None:
    """Wait in the event loop until a ticket is set."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    ticket.when_done(lambda: loop.is_closed() or loop.call_soon_threadsafe(done.set))
    try:
        await done.wait()
    except asyncio.CancelledError:
        ticket.abandoned = True
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

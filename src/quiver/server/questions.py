"""Questions and conditions in SQL: a few at a time, in threads of their own, each within its time.

What people write here can be as slow as they like. So it takes no thread that others wait for, and
when its time is up, or its client has gone, DuckDB is interrupted: closing a flow does that.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Any, TypeVar

from quiver import limits
from quiver.client.aio import run
from quiver.client.flows import Flow
from quiver.errors import LimitExceeded

T = TypeVar("T")

_slots = asyncio.Semaphore(limits.SQL_QUERIES_MAX)
_threads = ThreadPoolExecutor(limits.SQL_QUERIES_MAX, "quiver-question")


async def answer(flow: Flow[T]) -> T:
    """The result of a flow that asks one question; its time is for all of it."""
    async with _slots, _ended(flow) as bound:
        bound.reschedule(_deadline())
        return await run(flow, _apart)


async def choose(flow: Flow[T]) -> T:
    """The result of a flow that chooses messages, page by page; its time is for each page."""
    async with _ended(flow) as bound:

        async def step(do: Callable[[], Any]) -> Any:
            async with _slots:
                bound.reschedule(_deadline())
                found = await _apart(do)
                bound.reschedule(None)
                return found

        return await run(flow, step)


def close() -> None:
    """Wait for the threads to end."""
    _threads.shutdown(cancel_futures=True)


@asynccontextmanager
async def _ended(flow: Flow[Any]) -> AsyncIterator[asyncio.Timeout]:
    """Whatever happens, the flow has ended after this block: in a thread, as that may take a moment."""
    try:
        async with asyncio.timeout(None) as bound:
            yield bound
    except TimeoutError:
        raise LimitExceeded(
            f"SQL took longer than {limits.SQL_SECONDS_MAX:g} seconds and was interrupted; ask about "
            "less. Messages that were moved before stay where they are now"
        ) from None
    finally:
        await asyncio.to_thread(flow.close)


async def _apart(do: Callable[[], T]) -> T:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads, copy_context().run, do)


def _deadline() -> float:
    return asyncio.get_running_loop().time() + limits.SQL_SECONDS_MAX

"""Questions and conditions in SQL: a few at a time, each in a process of its own, within its time.

What people write here can be as slow and as large as they like. So it runs where it can be ended: when
its time is up, when it has too much memory, or when its client has gone, its process is killed, and the
next one gets another.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from typing import Any, Final, TypeVar

import pyarrow as pa

from quiver import limits
from quiver.client.sql import Name, Place, Sql, demand_duckdb
from quiver.client.steps import Flow
from quiver.client.tasks import run
from quiver.errors import (
    InvalidRequest,
    LimitExceeded,
    Overloaded,
    QuiverError,
    TopicNotFound,
)
from quiver.server import logs
from quiver.server.sql.process import SqlProcess

T = TypeVar("T")

CLEAR_SECONDS: Final = 5.0  # for letting go of a question; it takes a few milliseconds


class Questions:
    """The slots of a node, and the processes that are idle."""

    def __init__(
        self, queries: int = limits.SQL_QUERIES_MAX, seconds: float = limits.SQL_SECONDS_MAX
    ) -> None:
        self._seconds = seconds
        self._slots = asyncio.Semaphore(queries)
        self._waiting = 0
        self._processes: set[SqlProcess] = set()
        self._idle: list[SqlProcess] = []
        # One more for each slot: a thread that waits for a process which was killed is just ending.
        self._closed = False
        self._threads = ThreadPoolExecutor(2 * queries, "quiver-question")

    async def answer(self, question: Callable[[Sql], Flow[T]]) -> T:
        """The result of a flow that asks one question; its slot and time are for all of it."""
        sql = Lent()
        flow = question(sql)
        try:
            async with self._slot(sql):
                return await run(flow, self._apart)
        finally:
            flow.close()

    async def choose(self, choice: Callable[[Sql], Flow[T]]) -> T:
        """The result of a flow that chooses messages; its slot and time are for each page."""
        sql = Lent()
        flow = choice(sql)

        async def step(do: Callable[[], Any]) -> Any:
            async with self._slot(sql):
                return await self._apart(do)

        try:
            return await run(flow, step)
        finally:
            flow.close()

    def close(self) -> None:
        """End all processes; the threads that wait for them end then."""
        self._closed = True
        for process in list(self._processes):
            process.close()
        self._threads.shutdown(cancel_futures=True)

    @asynccontextmanager
    async def _slot(self, sql: "Lent") -> AsyncIterator[None]:
        """A slot and a process, for this block and no longer than a query may take."""
        demand_duckdb()
        await self._turn()
        try:
            process = await self._started()
            sql.process = process
            clean = False
            try:
                async with asyncio.timeout(self._seconds):
                    with self._watched(process):
                        yield
                clean = True
            except (InvalidRequest, TopicNotFound):
                clean = True
                raise
            except TimeoutError:
                raise LimitExceeded(
                    f"SQL took longer than {self._seconds:g} seconds and was ended; ask "
                    "about less. Messages that were moved before stay where they are now"
                ) from None
            finally:
                await self._give_back(sql, process, clean=clean)
        finally:
            self._slots.release()

    async def _give_back(self, sql: "Lent", process: SqlProcess, *, clean: bool) -> None:
        """Keep a process if it can be used again; else end it, for it may still be busy, or large."""
        sql.process = None
        kept = False
        try:
            if clean and sql.asked:
                async with asyncio.timeout(CLEAR_SECONDS):
                    await self._apart(lambda: process.call("clear"))
            kept = clean and 0 < process.resident_bytes() <= limits.SQL_KEPT_BYTES_MAX
        except (TimeoutError, QuiverError):
            pass  # it is not as clean as it seemed
        finally:
            if kept:
                self._idle.append(process)
            else:
                await self._end(process)

    async def _turn(self) -> None:
        if self._slots.locked() and self._waiting >= limits.SQL_WAITING_MAX:
            raise Overloaded(
                f"{self._waiting} questions and conditions in SQL wait already; retry after a moment"
            )
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1

    async def _started(self) -> SqlProcess:
        while self._idle:
            process = self._idle.pop()
            if process.resident_bytes():
                return process
            await self._end(process)  # somebody has killed it meanwhile
        process = SqlProcess()
        self._processes.add(process)
        try:
            await self._apart(process.start)
        except BaseException:
            await self._end(process)
            raise
        return process

    async def _end(self, process: SqlProcess) -> None:
        """Kill a process, and wait for its end, so that the next one has its memory."""
        process.kill("ended")
        if not self._closed:
            await asyncio.shield(self._apart(process.close))
            self._processes.discard(process)

    @contextmanager
    def _watched(self, process: SqlProcess) -> Iterator[None]:
        """Look at its memory now and then, in case the kernel does not bound it."""
        watching = asyncio.create_task(_watch(process))
        try:
            yield
        finally:
            watching.cancel()

    async def _apart(self, do: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, copy_context().run, do)


async def _watch(process: SqlProcess) -> None:
    while True:
        await asyncio.sleep(limits.SQL_WATCH_SECONDS)
        found = process.resident_bytes()
        if found > limits.SQL_PROCESS_BYTES_MAX:
            logs.event("sql ended", resident_bytes=found)
            process.kill("memory")


class Lent:
    """`Sql` by the process that its flow has just now."""

    def __init__(self) -> None:
        self.process: SqlProcess | None = None
        self.asked = False  # a question, of which it keeps the tables

    def _call(self, method: str, *arguments: Any, table: pa.Table | None = None) -> Any:
        process = self.process
        if process is None:
            raise InvalidRequest("this query was ended")
        return process.call(method, *arguments, table=table)

    def check(self, where: str) -> None:
        self._call("check", where)

    def places(self, where: str, messages: pa.Table) -> list[Place]:
        found = self._call("places", where, table=messages)
        return [(partition, offset) for partition, offset in found]

    def question(self, query: str) -> tuple[list[Name], list[str]]:
        self.asked = True
        names, given = self._call("question", query)
        return [tuple(name) for name in names], given

    def table(self, name: Name, selected: str, rows: pa.Table) -> None:
        self._call("table", name, selected, table=rows)

    def rows(self, rows: pa.Table) -> None:
        self._call("rows", table=rows)

    def answer(self, bytes_max: int) -> pa.Table:
        answer: pa.Table = self._call("answer", bytes_max)
        return answer

    def close(self) -> None:
        """The process belongs to its slot."""

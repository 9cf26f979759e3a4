"""The API for event loops: the verbs of `sync.Queue`, awaited.

Requests wait in the event loop; reading and decoding batches happens in the loop's default thread
pool.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias, TypeVar
from weakref import WeakSet

import pyarrow as pa

from quiver import limits
from quiver.client import arguments, sync
from quiver.client.acks import AckMode
from quiver.client.arguments import PositionLike
from quiver.client.async_verbs import AsyncVerbs
from quiver.client.consuming import Consuming, Outage, limit_of
from quiver.client.flows import Flows
from quiver.client.keeping import Kept, extend
from quiver.client.prefetch import GIVEN_UP, Ask, PrefetchBuffer
from quiver.client.results import (
    AsyncDelivery,
    Record,
)
from quiver.client.scanning import Scan
from quiver.client.send_buffer import SendBuffer, open_send_buffer
from quiver.client.steps import Flow, Stopped
from quiver.client.tasks import finished, run
from quiver.client.twins import explained_by
from quiver.errors import QueueClosed, QuiverError
from quiver.model.replies import Durability
from quiver.model.units import Duration, milliseconds
from quiver.node.tickets import Ticket

T = TypeVar("T")


# Opens a queue for an event loop, or for threads: what it can do, and what ends it.
Opening: TypeAlias = Callable[[asyncio.AbstractEventLoop | None], tuple[Flows, Callable[[], None]]]


def _close_unwanted(opening: Future[tuple[Flows, Callable[[], None]]]) -> None:
    if opening.exception() is None:
        _, close = opening.result()
        close()


class TaskRunner:
    """Drives flows in tasks; when it is stopped, whatever they wait for is given up."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """From now on nothing is waited for."""
        self._stopped.set()

    async def run(self, flow: Generator[Any, Any, T]) -> T:
        """Drive a flow; `Stopped` is raised when it waits for something after the stop."""
        return await run(flow, wait=self._wait)

    async def pause(self, seconds: float) -> None:
        """Wait for so long, or until it is stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()

    async def _wait(self, ticket: Ticket[Any]) -> None:
        waiting = asyncio.ensure_future(finished(ticket))
        stopping = asyncio.ensure_future(self._stopped.wait())
        try:
            try:
                await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (waiting, stopping):
                    task.cancel()
                await asyncio.gather(waiting, stopping, return_exceptions=True)
        except asyncio.CancelledError:
            ticket.give_up()  # also what was just answered
            raise
        if waiting.cancelled():  # then it has abandoned the ticket, perhaps just when that was set
            raise Stopped


@explained_by(sync.Queue)
class AsyncQueue(AsyncVerbs):
    """A queue in a directory. Tasks may share one; it is an async context manager."""

    def __init__(self, open_: Opening) -> None:
        self._open = open_
        self._opened: Flows | None = None
        self._close: Callable[[], None] = lambda: None
        self._keeper: AsyncKeeper | None = None
        self._producers: WeakSet[AsyncProducer] = WeakSet()
        self._consumers: WeakSet[AsyncConsumer] = WeakSet()

    if not TYPE_CHECKING:  # type checkers refuse the await by themselves

        def __await__(self) -> NoReturn:
            raise TypeError(
                "a queue is not awaited; use `async with quiver.connect_async(…) as queue`"
            )

    def __reduce__(self) -> NoReturn:
        raise TypeError(sync.NOT_PICKLED)

    @property
    def _flows(self) -> Flows:
        if self._opened is None:
            raise QueueClosed(
                "the queue is not open; use `async with quiver.connect_async(…) as queue`"
            )
        return self._opened

    async def __aenter__(self) -> Self:
        opening: Future[tuple[Flows, Callable[[], None]]] = Future()

        loop = asyncio.get_running_loop()

        def open_() -> None:
            try:
                opening.set_result(self._open(loop))
            except BaseException as error:  # noqa: BLE001  # whoever waits is told
                opening.set_exception(error)

        try:
            await asyncio.to_thread(open_)
        except BaseException:  # the thread goes on
            opening.add_done_callback(_close_unwanted)
            raise
        self._opened, self._close = opening.result()
        return self

    def __repr__(self) -> str:
        return f"<AsyncQueue {'not open' if self._opened is None else self._opened.place}>"

    async def aclose(self) -> None:
        """Close its consumers, finish what was started, and let go of the directory."""
        async with AsyncExitStack() as last:
            for producer in self._producers:
                last.callback(producer._belongs_to_closed)
            last.push_async_callback(asyncio.to_thread, self._close)
            if self._keeper is not None:
                last.push_async_callback(self._keeper.aclose)
            for consumer in list(self._consumers):
                consumer._belongs_to_closed()
                if not consumer._closed:
                    last.push_async_callback(consumer.aclose)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def producer(
        self,
        topic: str,
        *,
        linger: Duration = 0.005,
        max_messages: int = limits.PRODUCER_ROWS,
        max_bytes: int = limits.PRODUCER_BYTES,
        durability: Durability | None = None,
        name: str | None = None,
    ) -> "AsyncProducer":
        """A producer that collects messages for up to `linger` and sends them in batches.

        It is opened by `async with`.
        """
        flow = open_send_buffer(self._flows, topic, max_messages, max_bytes, durability, name)
        producer = AsyncProducer(flow, milliseconds(linger, "linger", max_seconds=60) / 1000)
        self._producers.add(producer)
        return producer

    # -- receiving ---------------------------------------------------------------------------------

    def _keeping(self, count: int) -> "AsyncKeeper":
        if self._keeper is None:
            self._keeper = AsyncKeeper(self._flows)
        self._keeper.kept.demand_room(count)
        return self._keeper

    def _kept(self) -> "AsyncKeeper | None":
        return self._keeper

    def consumer(
        self,
        topic: str,
        group: str = "default",
        *,
        prefetch: int = 100,
        lease: Duration = 30,
        keep: bool = False,
        consumer: str = "",
        give_up_after: Duration | None = None,
        acks: AckMode = "wait",
    ) -> "AsyncConsumer":
        """A consumer that receives up to `prefetch` messages ahead, while you work on the last one.

        With 0 it receives one at a time, when you ask for it. With `keep` it makes leases longer in the
        background until messages are settled. It waits for a node that is away, for `give_up_after` at
        most (None: as long as it takes).
        """
        stock: PrefetchBuffer[AsyncDelivery] = PrefetchBuffer(
            prefetch, lease, keep=keep, acks=acks, now_ms=self._flows.now_ms
        )
        limit = limit_of(give_up_after)
        names = arguments.name(group, "group"), arguments.text(consumer, "consumer")
        consuming = AsyncConsumer(self._flows, stock, limit, topic, *names)
        self._consumers.add(consuming)
        return consuming

    # -- reading -----------------------------------------------------------------------------------

    async def read(
        self,
        topic: str,
        *,
        start: PositionLike | None = None,
        offset: int | None = None,
        end: PositionLike | None = None,
        partition: int | None = None,
    ) -> AsyncIterator[Record]:
        """Replay what the topic holds now, oldest first, without a group and without a lease."""
        flows = self._flows
        number, positions, ends = await run(flows.read_start(topic, start, offset, end, partition))
        while any(positions[part] < ends[part] for part in positions):
            page = await run(flows.read_page(number, positions, ends))
            positions = {**positions, **page.ahead}
            for record in await run(flows.read_records(topic, page)):
                yield record

    async def read_arrow(
        self,
        topic: str,
        *,
        start: PositionLike | None = None,
        offset: int | None = None,
        end: PositionLike | None = None,
        partition: int | None = None,
    ) -> AsyncIterator[pa.Table]:
        """`read` as Arrow tables, each of a bounded size."""
        begin = await run(self._flows.read_start(topic, start, offset, end, partition))
        scan = Scan(self._flows, *begin)
        while scan.more:
            table = await run(scan.table(await run(scan.page())))
            if table.num_rows:
                yield table


def flows_of(queue: AsyncQueue) -> Flows:
    """The flows that a queue drives, for what is built on them beside it."""
    return queue._flows


@explained_by(sync.Producer)
class AsyncProducer:
    """`sync.Producer` for one event loop: `send` waits only when too much is unconfirmed."""

    def __init__(self, opening: Flow[SendBuffer], linger: float) -> None:
        self._opening = opening
        self._opened: SendBuffer | None = None
        self._linger = linger
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<AsyncProducer {self._opened or 'not open'}>"

    @property
    def _outbox(self) -> SendBuffer:
        if self._opened is None:
            raise QueueClosed("the producer is not open; use `async with queue.producer(…) as out`")
        return self._opened

    @property
    def sequence(self) -> int:
        """How many messages were sent under this producer's name, in this and earlier runs."""
        return self._outbox.sequence + self._outbox.rows

    @property
    def confirmed(self) -> int:
        """How many messages of this producer are known to be stored."""
        return self._outbox.confirmed

    async def send(
        self,
        body: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        ttl: Duration | None = None,
        dedup_id: str | None = None,
    ) -> None:
        """Collect one message."""
        if self._closed:
            raise QueueClosed("the producer is closed; open another")
        outbox = self._outbox
        outbox.owner.demand()
        # First taken over, whatever is then reported.
        if outbox.add(body, key, headers, priority, delay, ttl, dedup_id):
            await self._wait(all_of_them=False)

    async def flush(self) -> None:
        """Return when everything sent so far is stored."""
        self._outbox.owner.demand()
        self._outbox.submit()
        await self._wait(all_of_them=True)

    async def _wait(self, *, all_of_them: bool) -> None:
        while True:
            for ticket in self._outbox.awaited(all_of_them=all_of_them):
                await finished(ticket)
            self._outbox.collect()  # at least once: a cancel may have come before it had raised
            if not self._outbox.awaited(all_of_them=all_of_them):
                return

    def _begins(self) -> None:
        self._cancel_timer()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._linger, self._outbox.submit)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _belongs_to_closed(self) -> None:
        """Its queue was closed: nothing can be sent any more."""
        self._cancel_timer()
        if self._opened is not None and not self._closed:
            self._opened.belongs_to_closed()

    async def aclose(self) -> None:
        """Flush and end; in a forked process there is nothing to end."""
        if self._opened is None or self._opened.owner.gone:
            return
        self._closed = True  # from here on nothing is taken
        self._cancel_timer()
        await self.flush()

    async def __aenter__(self) -> Self:
        self._opened = await run(self._opening)
        self._opened.begins = self._begins
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class AsyncKeeper:
    """Makes leases of received messages longer, in a task that lives while there are some."""

    def __init__(self, flows: Flows) -> None:
        self.kept: Kept[AsyncDelivery] = Kept()
        self._flows = flows.patient(limits.CONSUMER_PATIENCE_SECONDS)
        self._changed = asyncio.Event()
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    def add(self, deliveries: list[AsyncDelivery], lease_seconds: float, asked: float) -> None:
        """Keep these from now on, unless it is closed."""
        if self._closed:
            return
        self.kept.add(deliveries, lease_seconds, asked)
        self._changed.set()
        if self.kept and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._work())

    def settled(self, items: Any) -> None:
        """These need no lease any more."""
        self.kept.settled(items)

    async def _work(self) -> None:
        while (pause := self.kept.pause(time.monotonic())) is not None:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()
                continue
            due = self.kept.due(time.monotonic())
            with suppress(QuiverError):  # the next time, unless the lease has ended by then
                await run(extend(self._flows, due, lambda _, lost: self.settled(lost)))

    async def aclose(self) -> None:
        """Keep nothing any more."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.kept = Kept()  # as in the other face


@explained_by(sync.Consumer)
class AsyncConsumer:
    """`Consumer`, awaited."""

    def __init__(
        self,
        flows: Flows,
        stock: PrefetchBuffer[AsyncDelivery],
        give_up_after: float | None,
        *wish: str,
    ) -> None:
        self._flows = flows
        self._stock = stock
        self._topic, self._group, _ = wish
        self._consuming = Consuming(flows, stock, AsyncDelivery, self._settle, wish)
        self._outage = Outage(self._consuming.title, give_up_after)
        self._runner = TaskRunner()
        self._changed = asyncio.Condition()  # there may be something to take
        self._bell = asyncio.Event()  # there may be something to do
        self._waiting = 0  # how many wait for a message
        self._timer: asyncio.TimerHandle | None = None  # until acks are to be sent
        self._closed = False
        self._is_due = False  # the answer to what it asks for: it waits for nothing
        self._error: Exception | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<AsyncConsumer {self._topic}/{self._group} in {self._flows.place}>"

    async def get(self, *, wait: Duration | None = None) -> AsyncDelivery | None:
        """The next message; None if none came within `wait` (None: for ever) or it was closed.

        What is received ahead is asked for and begun in that time: 0 gives only what has begun already.
        """
        if self._task is None:
            raise QueueClosed("the consumer is not open; use `async with queue.consumer(…)`")
        self._stock.owner.demand()
        seconds = None if wait is None else milliseconds(wait, "wait") / 1000
        if not self._stock.ahead:
            self._consuming.demand_queue()
            return await self._receive(seconds)
        delivery = self._take()
        if delivery is not None:
            return delivery
        self._consuming.demand_queue()
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds), self._changed:
                while (delivery := self._take()) is None and not self._closed:
                    if self._error is not None:
                        raise self._error
                    await self._changed.wait()
                return delivery
        except TimeoutError:
            return None
        finally:
            self._waiting -= 1

    def _take(self) -> AsyncDelivery | None:
        """The next message, if one waits."""
        self._tell_refused()
        delivery = self._stock.take(time.monotonic())
        if self._stock.has_work:
            self._bell.set()
        return delivery

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncDelivery:
        delivery = await self.get()
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    async def flush(self) -> None:
        """Return when all acks that were collected are stored."""
        self._stock.owner.demand()
        await run(self._consuming.flush())
        self._tell_refused()

    def _tell_refused(self) -> None:
        if refusal := self._stock.acks.refusal():
            raise refusal

    def _belongs_to_closed(self) -> None:
        """Its queue is about to be closed: who asks for more afterwards is told."""
        self._consuming.queue_closed = True

    async def _receive(self, seconds: float | None) -> AsyncDelivery | None:
        """The next message, which is asked for now."""
        until = None if seconds is None else time.monotonic() + seconds
        while not self._closed:
            self._tell_refused()
            if self._error is not None:  # what it gave before is no longer kept
                raise self._error
            asked = time.monotonic()
            wait = self._stock.pause if until is None else max(until - asked, 0)
            with suppress(Stopped):
                wait = min(wait, self._stock.pause)
                got = await self._attempt(self._consuming.one(wait))
                for delivery in got or ():
                    self._stock.keep([delivery], asked)
                    return delivery
            if until is not None and time.monotonic() >= until:
                break
        return None

    async def _work(self) -> None:
        try:
            while not self._closed:
                self._bell.clear()
                asked = time.monotonic()
                step = self._stock.next(asked)
                self._is_due = isinstance(step, Ask) and not step.waits
                await self._rest(await self._attempt(self._consuming.do(step, asked)))
        except Stopped:
            pass
        except asyncio.CancelledError:  # the event loop ends, and nobody has closed us
            await self._give_back()
            raise
        except Exception as error:  # noqa: BLE001  # whoever takes the next message is told
            self._stock.acks.open = False  # nobody would send them
            async with self._changed:
                self._error = error
                self._changed.notify_all()

    async def _rest(self, seconds: float | None) -> None:
        """Tell those who wait for messages, and wait until there is something to do."""
        async with self._changed:
            self._changed.notify_all()
        if seconds is not None and not (self._closed or self._stock.has_work):
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._bell.wait()

    async def _attempt(self, flow: Flow[T]) -> T | None:
        """What the flow answers; None if its node is away, after a pause."""
        began = time.monotonic()
        try:
            answer = await self._runner.run(flow)
        except QuiverError as error:
            if not self._consuming.is_passing(error):
                raise
            await self._runner.pause(self._outage.failed(error, began))
            return None
        if not isinstance(answer, float):  # else it had nothing to ask
            self._outage.is_over()
        return answer

    async def _settle(self, action: Any, items: Any, **options: Any) -> None:
        acks = self._stock.acks
        if action == "ack" and acks.open and not self._stock.owner.gone:
            if acks.add(items[0], hurry=self._waiting > 0) == "look":
                self._send_acks_by(acks.due_at)
                if acks.enough:
                    await run(self._consuming.flush())
            return
        await run(self._consuming.settle(action, items, **options))

    def _send_acks_by(self, at: float) -> None:
        """See to it that what was collected is sent by then."""
        seconds = at - time.monotonic()
        if seconds <= 0:
            with suppress(QuiverError):  # then it is tried again by the task, which tells
                self._consuming.send_acks()
            self._bell.set()  # and there is an answer to be seen
        elif self._timer is None and at < inf:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._send_acks_now)

    def _send_acks_now(self) -> None:
        self._timer = None
        self._send_acks_by(self._stock.acks.due_at)  # others may have been sent meanwhile

    async def aclose(self) -> None:
        """Stop receiving, store acks, give back what was not taken; that goes on if this is cancelled."""
        if self._stock.owner.gone:
            return
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)
        self._tell_refused()

    async def _end(self) -> None:
        self._stock.close()
        async with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._timer is not None:
            self._timer.cancel()
        self._bell.set()
        if self._task is not None and self._is_due and not self._outage.lasts:
            await asyncio.wait({self._task}, timeout=limits.CONSUMER_CLOSE_SECONDS)
        self._runner.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await self._give_back()

    async def _give_back(self) -> None:
        self._stock.close()
        waiting = self._stock.emptied()
        try:
            with suppress(QuiverError):  # then it is told below
                self._consuming.send_acks()
            if waiting and not self._outage.lasts:
                with suppress(TimeoutError, *GIVEN_UP):
                    async with asyncio.timeout(limits.CONSUMER_CLOSE_SECONDS):
                        await run(self._consuming.release(waiting))
            self._stock.were_given_back()
            await run(self._consuming.flush())
        finally:
            await asyncio.to_thread(self._consuming.close)

    async def __aenter__(self) -> Self:
        await run(self._flows.policy(self._topic))  # it is there
        self._consuming.open()
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

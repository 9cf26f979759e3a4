"""The API for event loops: the verbs of `sync.Queue`, awaited.

Requests wait in the event loop; reading and decoding batches happens in the loop's default thread
pool.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeVar, Unpack

import pyarrow as pa

from quiver import limits
from quiver.batches.rows import make_row
from quiver.client import arguments, sync
from quiver.client.arguments import PositionLike, TopicChanges
from quiver.client.consuming import Consuming, Outage, limit_of
from quiver.client.flows import Flow, Flows, listed
from quiver.client.keeping import HOLDING, Kept, demand_bool, extend
from quiver.client.loading import send_batches
from quiver.client.membership import Membership
from quiver.client.moving import move
from quiver.client.outbox import Outbox, open_outbox
from quiver.client.questions import ask
from quiver.client.results import (
    AsyncDelivery,
    AsyncDeliveryBatch,
    Record,
    Sent,
    SentBatch,
    SentBatches,
    Staged,
)
from quiver.client.scanning import Scan
from quiver.client.steps import Pause, Stopped, Work
from quiver.client.stock import GIVEN_UP, Stock
from quiver.client.transaction import Collected, Settleable
from quiver.client.twins import explained_by
from quiver.errors import QueueClosed, QuiverError
from quiver.model.commands import Discard, Redrive
from quiver.model.message import Message
from quiver.model.replies import Backup, Durability, Published, Sealed
from quiver.model.stats import GroupStats, Overview, TopicStats
from quiver.model.topic import Compression, Guarantee, Order, Retry, RetryKind, TopicPolicy
from quiver.model.units import Duration, Moment, milliseconds
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
    flow: Generator[Any, Any, T],
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


def _close_unwanted(opening: Future[tuple[Flows, Callable[[], None]]]) -> None:
    if opening.exception() is None:
        _, close = opening.result()
        close()


_run = run  # where an argument has that name


class Runner:
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
            await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (waiting, stopping):
                task.cancel()
            await asyncio.gather(waiting, stopping, return_exceptions=True)
        if waiting.cancelled():  # then it has abandoned the ticket, perhaps just when that was set
            raise Stopped


@explained_by(sync.Queue)
class AsyncQueue:
    """A queue in a directory. Tasks may share one; it is an async context manager."""

    def __init__(self, open_: Callable[[], tuple[Flows, Callable[[], None]]]) -> None:
        self._open = open_
        self._flows_: Flows | None = None
        self._close: Callable[[], None] = lambda: None
        self._keeper: Keeper | None = None

    if not TYPE_CHECKING:  # type checkers refuse the await by themselves

        def __await__(self) -> NoReturn:
            raise TypeError(
                "a queue is not awaited; use `async with quiver.connect_async(…) as queue`"
            )

    def __reduce__(self) -> NoReturn:
        raise TypeError(sync.NOT_PICKLED)

    @property
    def _flows(self) -> Flows:
        if self._flows_ is None:
            raise QueueClosed(
                "the queue is not open; use `async with quiver.connect_async(…) as queue`"
            )
        return self._flows_

    async def __aenter__(self) -> Self:
        opening: Future[tuple[Flows, Callable[[], None]]] = Future()

        def open_() -> None:
            try:
                opening.set_result(self._open())
            except BaseException as error:  # noqa: BLE001  # whoever waits is told
                opening.set_exception(error)

        try:
            await asyncio.to_thread(open_)
        except BaseException:  # the thread goes on
            opening.add_done_callback(_close_unwanted)
            raise
        self._flows_, self._close = opening.result()
        return self

    def __repr__(self) -> str:
        return f"<AsyncQueue {'not open' if self._flows_ is None else self._flows_.place}>"

    async def aclose(self) -> None:
        """Finish what was started and let go of the directory."""
        if self._keeper is not None:
            await self._keeper.aclose()
        await asyncio.to_thread(self._close)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    # -- topics ------------------------------------------------------------------------------------

    async def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        order: Order = "none",
        fair: bool = False,
        partition_by: Literal["hash", "round-robin"] | list[str] = "hash",
        retention: str | float | timedelta = "settled",
        keep_unsettled: bool = True,
        max_attempts: int | None = None,
        dead_letter: str | None = None,
        retry: Retry | RetryKind | Duration | None = None,
        dedup_window: Duration = 300,
        max_backlog: int | None = None,
        compression: Compression | None = None,
        ledger: bool = True,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Make a topic; the same call again changes nothing, a different one is refused."""
        policy = arguments.policy(
            arguments.name(topic, "topic"), partitions=partitions, order=order, fair=fair,
            partition_by=partition_by, retention_=retention, keep_unsettled=keep_unsettled,
            max_attempts=max_attempts, dead_letter=dead_letter, retry_=retry,
            dedup_window=dedup_window, max_backlog=max_backlog, compression=compression,
            ledger=ledger, labels=labels,
        )  # fmt: skip
        await run(self._flows.create_topic(topic, policy))

    async def alter_topic(self, topic: str, **changes: Unpack[TopicChanges]) -> None:
        """Change a topic's policy. Takes the arguments of `create_topic`, those that shall change.

        `partitions`, `order`, `fair`, `partition_by` and `ledger` stay as they are.
        """
        await run(self._flows.alter_topic(topic, dict(changes)))

    async def delete_topic(self, topic: str) -> None:
        """Forget a topic, its groups and its messages."""
        await run(self._flows.delete_topic(topic))

    async def topics(self) -> list[str]:
        """The names of all topics."""
        return await run(self._flows.topics())

    async def policy(self, topic: str) -> TopicPolicy:
        """What a topic was made with, or altered to."""
        return await run(self._flows.policy(topic))

    async def stats(self, topic: str) -> TopicStats:
        """What a topic and its groups are doing."""
        return await run(self._flows.stats(topic))

    async def overview(self) -> Overview:
        """What all topics are doing, and the files."""
        return await run(self._flows.overview())

    async def purge(self, topic: str) -> int:
        """Drop every message of a topic; return how many were unsettled."""
        return await run(self._flows.purge(topic))

    async def compact(self, topic: str) -> int:
        """Drop now what newer messages of the same key have superseded; return how many.

        A topic with `retention="compact"` does this by itself, now and then.
        """
        return await run(self._flows.compact(topic))

    async def segments(self, topic: str) -> Sealed:
        """The Parquet files of a topic, for other programs to read, and what is in none of them."""
        return await run(self._flows.segments(topic))

    async def seal(self) -> None:
        """Write all messages that are kept into Parquet segments now, for other programs to read.

        It happens by itself as the log grows; what is settled before is never written twice.
        """
        await run(self._flows.seal())

    async def backup(self, dest: str | os.PathLike[str]) -> Backup:
        """Copy everything that is confirmed into the backup `dest`: a new or empty directory, or that
        of the last backup, which then gets only what is new.

        The queue goes on meanwhile. `quiver.restore(dest, path)` makes a queue of it again.
        """
        return await run(self._flows.backup(dest))

    # -- sending -----------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        body: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        ttl: Duration | None = None,
        dedup_id: str | None = None,
        durability: Durability | None = None,
    ) -> Sent:
        """Send one message; when this returns it is stored. Sends of several tasks share a sync."""
        row = make_row(
            body, key=key, headers=headers, priority=priority, delay=delay, ttl=ttl,
            dedup_id=dedup_id,
        )  # fmt: skip
        return await run(self._flows.send(topic, row, durability))

    async def send_batch(
        self,
        topic: str,
        messages: Iterable[Message | Any] | pa.RecordBatch | pa.Table,
        *,
        durability: Durability | None = None,
    ) -> SentBatch:
        """Send many messages, all or none. Arrow data needs a `body` column; others as in `Message`."""
        return await run(self._flows.send_batch(topic, messages, durability))

    async def send_batches(
        self,
        topic: str,
        batches: Iterable[Any],
        *,
        name: str,
        durability: Durability | None = None,
    ) -> SentBatches:
        """Send batches as `send_batch` takes them, one after the other, under a name.

        What an earlier call with this name has stored is skipped, so the same input can be sent
        again after a failure: nothing is lost or doubled.
        """
        return await run(send_batches(self._flows, topic, batches, name, durability))

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
        flow = open_outbox(self._flows, topic, max_messages, max_bytes, durability, name)
        return AsyncProducer(flow, milliseconds(linger, "linger", max_seconds=60) / 1000)

    # -- staging -----------------------------------------------------------------------------------

    async def stage(self, topic: str, messages: Any) -> Staged:
        """Store messages, as `send_batch` takes them, where nobody gets them before `publish`.

        They wait for a day, and belong to who has what is returned.
        """
        return await run(self._flows.stage(topic, messages))

    async def publish(
        self, topic: str, staged: Iterable[Staged], *, application: str, batch: int, run: str = ""
    ) -> Published:
        """Let a topic have staged messages, any number of them, all at once.

        Each batch of an application is published once: the same or an older one again changes
        nothing. Batches are numbered in a `run`, and another run under the same name is refused.
        """
        return await _run(self._flows.publish(topic, staged, application, batch, run))

    async def unstage(self, topic: str, staged: Iterable[Staged]) -> int:
        """Drop staged messages that will not be published; return how many."""
        return await run(self._flows.unstage(topic, staged))

    async def published(self, topic: str, application: str) -> int | None:
        """The number of an application's last batch, None if it has published nothing."""
        return await run(self._flows.published(topic, application))

    # -- receiving ---------------------------------------------------------------------------------

    async def receive(
        self,
        topic: str,
        group: str = "default",
        *,
        max_messages: int = 1,
        lease: Duration = 30,
        wait: Duration = 0,
        consumer: str = "",
        begin: int | None = None,
        keep: bool = False,
    ) -> list[AsyncDelivery]:
        """Lease up to `max_messages` for `lease`, waiting up to `wait` for the first.

        `begin` is how many of them begin with that; the others are reserved: no attempt before `begin`,
        and after a moment other consumers may take them over. With `keep`, leases are made longer in the
        background until the messages are settled or the queue is closed.
        """
        keeper = self._keeping(max_messages) if demand_bool(keep, "keep") else None
        asked = time.monotonic()
        got = await run(
            self._flows.receive_messages(
                AsyncDelivery, self._settle, topic, group, max_messages, lease, wait, consumer, begin
            )
        )  # fmt: skip
        if keeper is not None:
            keeper.add(got, arguments.lease_ms(lease) / 1000, asked)
        return got

    def _keeping(self, count: int) -> "Keeper":
        if self._keeper is None:
            self._keeper = Keeper(self._flows)
        self._keeper.kept.demand_room(count)
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
    ) -> "AsyncConsumer":
        """A consumer that receives up to `prefetch` messages ahead, while you work on the last one.

        With 0 it receives one at a time, when you ask for it. With `keep` it makes leases longer in the
        background until messages are settled. It waits for a node that is away, for `give_up_after` at
        most (None: as long as it takes).
        """
        stock: Stock[AsyncDelivery] = Stock(prefetch, lease, keep=keep)
        limit = limit_of(give_up_after)
        names = arguments.name(group, "group"), arguments.text(consumer, "consumer")
        return AsyncConsumer(self._flows, stock, limit, topic, *names)

    async def receive_arrow(
        self,
        topic: str,
        group: str = "default",
        *,
        max_messages: int = 10_000,
        lease: Duration = 30,
        wait: Duration = 0,
        consumer: str = "",
        begin: int | None = None,
    ) -> AsyncDeliveryBatch:
        """`receive` as an Arrow table, settled by row mask."""
        return await run(
            self._flows.receive_table(
                AsyncDeliveryBatch, self._settle_table, topic, group, max_messages, lease, wait,
                consumer, begin,
            )
        )  # fmt: skip

    async def ack(self, deliveries: Settleable) -> None:
        """Done with these: one or many deliveries or receipts, one entry in the log."""
        await self._settle("ack", deliveries)

    async def nack(
        self, deliveries: Settleable, *, delay: Duration | None = None, reason: str = ""
    ) -> None:
        """These failed: deliver them again after `delay`, or after what the retry policy says."""
        await self._settle("nack", deliveries, delay=delay, reason=reason)

    async def extend(self, deliveries: Settleable, lease: Duration) -> None:
        """Hold these for `lease` from now."""
        await self._settle("extend", deliveries, lease=lease)

    async def dead_letter(self, deliveries: Settleable, *, reason: str = "") -> None:
        """Give these up: move them to the dead-letter topic."""
        await self._settle("dead_letter", deliveries, reason=reason)

    async def begin(self, deliveries: Settleable, *, lease: Duration | None = None) -> None:
        """Work on these now, which were reserved: an attempt. Hold them for `lease` from now, if given."""
        await self._settle("begin", deliveries, lease=lease)

    async def release(self, deliveries: Settleable, *, delay: Duration | None = None) -> None:
        """Give these back, for after `delay`, whether they have begun or not: no attempt is counted."""
        await self._settle("release", deliveries, delay=delay)

    async def _settle(self, action: Any, items: Any, **options: Any) -> None:
        if self._keeper is not None and action not in HOLDING:
            items = listed(items)
            self._keeper.kept.settled(items)
        await run(self._flows.settle(action, items, **options))

    async def _settle_table(self, action: Any, leased: Any, mask: Any, **options: Any) -> None:
        await run(self._flows.settle_table(action, leased, mask, **options))

    def transaction(self) -> "AsyncTransaction":
        """Collect acks and sends, done together or not at all when the `async with` block ends well."""
        return AsyncTransaction(self._flows)

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

    async def offsets(
        self,
        topic: str,
        *,
        start: PositionLike | None = None,
        offset: int | None = None,
        end: PositionLike | None = None,
        partition: int | None = None,
    ) -> dict[int, tuple[int, int]]:
        """Where a `read` of the same arguments begins and ends: by partition, first and end offset."""
        _, starts, ends = await run(self._flows.read_start(topic, start, offset, end, partition))
        return {number: (starts[number], ends[number]) for number in starts}

    async def sql(self, query: str) -> pa.Table:
        """The answer to one SELECT over topics, as an Arrow table. Needs the extra `sql`."""
        return await run(ask(self._flows, query))

    # -- the ledger --------------------------------------------------------------------------------

    async def ledger(
        self, topic: str | None = None, *, start: Moment | None = None, end: Moment | None = None
    ) -> pa.Table:
        """What happened to messages, oldest first: of a topic or of all, from `start` up to `end`.

        A row is about `count` messages of a partition, from `offset` on. Both ends are times.
        """
        return await run(self._flows.ledger(topic, start, end))

    async def ledger_reader(
        self, topic: str | None = None, *, start: Moment | None = None, end: Moment | None = None
    ) -> pa.RecordBatchReader:
        """`ledger` a part at a time, as Arrow's own reader, for more than fits into memory."""
        return await run(self._flows.ledger_reader(topic, start, end))

    async def trace(self, message_id: str) -> pa.Table:
        """The rows of the ledger about one message, wherever it moved; each as if about it alone."""
        return await run(self._flows.trace(message_id))

    # -- groups ------------------------------------------------------------------------------------

    async def create_group(
        self,
        topic: str,
        group: str,
        *,
        start: PositionLike = "earliest",
        guarantee: Guarantee = "at-least-once",
    ) -> None:
        """Make a group before its first receive, to choose where it starts and its guarantee."""
        await run(self._flows.create_group(topic, group, start, guarantee))

    async def delete_group(self, topic: str, group: str) -> None:
        """Forget a group and its delivery state."""
        await run(self._flows.delete_group(topic, group))

    async def groups(self, topic: str) -> dict[str, GroupStats]:
        """The groups of a topic and what they are doing."""
        return (await self.stats(topic)).groups

    async def seek(
        self, topic: str, group: str, to: PositionLike, *, partition: int | None = None
    ) -> None:
        """Put a group at "earliest", "latest", an offset or a time; its leases end."""
        await run(self._flows.seek(topic, group, to, partition))

    async def pause(self, topic: str, group: str) -> None:
        """Stop deliveries to a group; settling goes on."""
        await run(self._flows.pause(topic, group, True))

    async def resume(self, topic: str, group: str) -> None:
        """Go on delivering to a paused group."""
        await run(self._flows.pause(topic, group, False))

    async def join(
        self, topic: str, group: str, member: str, *, session: Duration = 30
    ) -> "AsyncMember":
        """Become a member of a group that shares out whole partitions, instead of leasing messages."""
        return AsyncMember(await run(Membership.open(self._flows, topic, group, member, session)))

    # -- dead letters ------------------------------------------------------------------------------

    async def redrive(
        self,
        topic: str,
        *,
        where: str | Callable[[Record], bool] | None = None,
        to: str | None = None,
        rate: float | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Move dead letters back to where they came from (or `to` a topic); return how many.

        `where` chooses: a condition in SQL, such as "reason like 'Timeout%'", or a function of a
        message. `rate` is messages a second, `dry_run` only counts, `progress` is told how many it
        were so far. Each step is atomic, so a redrive that is interrupted can be started again.
        """
        target = await run(self._flows.target(to))
        flow = move(
            self._flows, topic, lambda number, picks: Redrive(number, picks, target), where,
            rate=rate, limit=limit, dry_run=dry_run, progress=progress,
        )  # fmt: skip
        return await run(flow)

    async def discard(
        self,
        topic: str,
        *,
        where: str | Callable[[Record], bool] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Drop pending messages for all groups; return how many. Arguments as for `redrive`."""
        flow = move(
            self._flows, topic, Discard, where, limit=limit, dry_run=dry_run, progress=progress
        )
        return await run(flow)


class AsyncTransaction(Collected):
    """Acks and sends that happen together or not at all."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await run(self.commit())


@explained_by(sync.Producer)
class AsyncProducer:
    """`sync.Producer` for one event loop: `send` waits only when too much is unconfirmed."""

    def __init__(self, opening: Flow[Outbox], linger: float) -> None:
        self._opening = opening
        self._opened: Outbox | None = None
        self._linger = linger
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<AsyncProducer {self._opened or 'not open'}>"

    @property
    def _outbox(self) -> Outbox:
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
        row = make_row(
            body, key=key, headers=headers, priority=priority, delay=delay, ttl=ttl,
            dedup_id=dedup_id,
        )  # fmt: skip
        if self._closed:
            raise QueueClosed("the producer is closed; open another")
        self._outbox.owner.demand()
        self._outbox.add(row)
        if self._outbox.rows == 1:
            self._cancel_timer()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._linger, self._outbox.submit)
        self._outbox.collect()  # last, so that a message is taken over whatever is reported
        await self._wait(all_of_them=False)

    async def flush(self) -> None:
        """Return when everything sent so far is stored."""
        self._outbox.owner.demand()
        self._outbox.submit()
        await self._wait(all_of_them=True)

    async def _wait(self, *, all_of_them: bool) -> None:
        while tickets := self._outbox.awaited(all_of_them=all_of_them):
            for ticket in tickets:
                await finished(ticket)
            self._outbox.collect()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def aclose(self) -> None:
        """Flush and end; in a forked process there is nothing to end."""
        if self._opened is None or self._opened.owner.gone:
            return
        self._closed = True  # from here on nothing is taken
        self._cancel_timer()
        await self.flush()

    async def __aenter__(self) -> Self:
        self._opened = await run(self._opening)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


@explained_by(sync.Member)
class AsyncMember:
    """`sync.Member`, awaited."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    def __repr__(self) -> str:
        return f"<AsyncMember {self._membership}>"

    @property
    def partitions(self) -> list[int]:
        """The partitions that are this member's now."""
        return self._membership.partitions

    @property
    def generation(self) -> int:
        """Grows with every change of members."""
        return self._membership.generation

    async def fetch(self, *, max_messages: int = 1_000, wait: Duration = 0) -> list[Record]:
        """The next messages of its partitions. Lets go first of partitions that others shall have."""
        return await run(self._membership.fetch(max_messages, wait))

    async def commit(self) -> None:
        """Everything fetched so far is processed; whoever owns the partitions next goes on there."""
        await run(self._membership.commit())

    async def heartbeat(self) -> None:
        """Still here."""
        await run(self._membership.heartbeat())

    async def leave(self) -> None:
        """Go; the partitions are shared out at once."""
        await run(self._membership.leave())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.leave()


class Keeper:
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

    async def _work(self) -> None:
        while (pause := self.kept.pause(time.monotonic())) is not None:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()
                continue
            due = self.kept.due(time.monotonic())
            with suppress(QuiverError):  # the next time, unless the lease has ended by then
                await run(extend(self._flows, due, lambda _, lost: self.kept.settled(lost)))

    async def aclose(self) -> None:
        """Keep nothing any more."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


@explained_by(sync.Consumer)
class AsyncConsumer:
    """`Consumer`, awaited."""

    def __init__(
        self, flows: Flows, stock: Stock[AsyncDelivery], give_up_after: float | None, *wish: str
    ) -> None:
        self._flows = flows
        self._stock = stock
        self._topic, self._group, _ = wish
        self._consuming = Consuming(flows, stock, AsyncDelivery, self._settle, wish)
        self._outage = Outage(self._consuming.title, give_up_after)
        self._runner = Runner()
        self._changed = asyncio.Condition()
        self._closed = False
        self._error: Exception | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<AsyncConsumer {self._topic}/{self._group} in {self._flows.place}>"

    async def get(self, *, wait: Duration | None = None) -> AsyncDelivery | None:
        """The next message; None if none came within `wait` (None: for ever) or it was closed."""
        if self._task is None:
            raise QueueClosed("the consumer is not open; use `async with queue.consumer(…)`")
        self._stock.owner.demand()
        seconds = None if wait is None else milliseconds(wait, "wait") / 1000
        if not self._stock.ahead:
            return await self._receive(seconds)
        try:
            async with asyncio.timeout(seconds), self._changed:
                while True:
                    delivery = self._stock.take(time.monotonic())
                    if self._stock.has_work:
                        self._changed.notify_all()
                    if delivery is not None or self._closed:
                        return delivery
                    if self._error is not None:
                        raise self._error
                    await self._changed.wait()
        except TimeoutError:
            return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncDelivery:
        delivery = await self.get()
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    async def _receive(self, seconds: float | None) -> AsyncDelivery | None:
        """The next message, which is asked for now."""
        until = None if seconds is None else time.monotonic() + seconds
        while not self._closed:
            if self._error is not None:  # what it gave before is no longer kept
                raise self._error
            asked = time.monotonic()
            wait = self._stock.pause if until is None else max(until - asked, 0)
            with suppress(Stopped):
                wait = min(wait, self._stock.pause)
                got = await self._attempt(self._consuming.receive(1, wait, None))
                for delivery in got or ():
                    self._stock.keep([delivery], asked)
                    return delivery
            if until is not None and time.monotonic() >= until:
                break
        return None

    async def _work(self) -> None:
        try:
            while not self._closed:
                await self._rest(await self._attempt(self._consuming.turn()))
        except Stopped:
            pass
        except asyncio.CancelledError:  # the event loop ends, and nobody has closed us
            await self._give_back()
            raise
        except Exception as error:  # noqa: BLE001  # whoever takes the next message is told
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
                        await self._changed.wait()

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
        if action not in HOLDING:
            self._stock.settled(items)
        await run(self._flows.settle(action, items, **options))

    async def aclose(self) -> None:
        """Stop receiving, and give back what was not taken; that goes on if this is cancelled."""
        if self._stock.owner.gone:
            return
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        async with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._runner.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await self._give_back()

    async def _give_back(self) -> None:
        waiting = self._stock.emptied()
        if waiting and not self._outage.lasts:
            with suppress(TimeoutError, *GIVEN_UP):
                async with asyncio.timeout(limits.CONSUMER_CLOSE_SECONDS):
                    await run(self._consuming.release(waiting))

    async def __aenter__(self) -> Self:
        await run(self._flows.policy(self._topic))  # it is there
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

"""The verbs of a queue: each a flow, driven in the caller's event loop.

`tools/faces.py` makes `sync_verbs.py` of this file: the same verbs, driven in the caller's thread. Only
what works in the background is written for each (producers, consumers, the keeper of leases).
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, Unpack

import pyarrow as pa

from quiver.batches.rows import make_row
from quiver.client import arguments
from quiver.client.arguments import PositionLike, TopicOptions
from quiver.client.flows import Flows, listed
from quiver.client.keeping import HOLDING, Keeping, demand_bool, until_settled
from quiver.client.loading import send_batches
from quiver.client.membership import Membership
from quiver.client.moving import move
from quiver.client.questions import ask
from quiver.client.results import (
    AsyncDelivery,
    AsyncDeliveryBatch,
    Record,
    Sent,
    SentBatch,
    SentBatches,
)
from quiver.client.tasks import run
from quiver.client.transaction import Collected, Settleable
from quiver.model.commands import Discard, Redrive
from quiver.model.message import Message
from quiver.model.replies import Backup, Durability, Published, Sealed, Staged
from quiver.model.stats import GroupStats, Overview, TopicStats
from quiver.model.topic import Compression, Guarantee, Order, Retry, RetryKind, TopicPolicy
from quiver.model.units import Duration, Moment

_run = run  # where an argument has that name


class AsyncVerbs:
    """What a queue can be asked. What differs between the faces, they define."""

    @property
    def _flows(self) -> Flows:
        """The flows of a queue that is open."""
        raise NotImplementedError

    def _keeping(self, count: int) -> Keeping:
        """What keeps leases, if it can keep so many more."""
        raise NotImplementedError

    def _kept(self) -> Keeping | None:
        """What keeps leases, once there are some to keep."""
        raise NotImplementedError

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
        """Make a topic; the same call again changes nothing, a different one is refused.

        Args:
            topic: Its name: 1 to 255 letters, digits, '.', '_' or '-'.
            partitions: How many, 1 to 1,024; more of them are read in parallel by members and by
                Spark.
            order: "none" (as ready), "key" (each key in order, one at a time) or "partition"
                (strict order).
            fair: Keys, and tenants before a '/' in them, take turns.
            partition_by: "hash" of the key, "round-robin", or a sorted list of the keys at which
                partitions begin.
            retention: What is kept after all groups have settled it: "settled" (nothing),
                "forever", a duration, a size such as "10GB", "compact" (the newest of each key), or
                some of these three: "7d, 10GB".
            keep_unsettled: False lets a time or size of `retention` also drop what is not settled.
            max_attempts: After so many failures a message becomes a dead letter, 1 to 1,000,000;
                None for never.
            dead_letter: The topic where dead letters go; None for `<topic>.dlq` if there is a
                `max_attempts`.
            retry: How long failed messages wait: `quiver.retry(…)`, "fixed", "linear",
                "exponential", or a duration; None for not at all.
            dedup_window: How long a `dedup_id` is remembered.
            max_backlog: Unsettled messages it may hold; past that a send gets QueueFull. None for
                no limit.
            compression: "lz4" or "zstd" for batches in the log; None for none.
            ledger: Whether what happens to its messages is written down, for `trace` and `ledger`.
            labels: Names and values (str) that are kept with it, with 256 KiB in all.
        """
        policy = arguments.policy(
            arguments.name(topic, "topic"), partitions=partitions, order=order, fair=fair,
            partition_by=partition_by, retention_=retention, keep_unsettled=keep_unsettled,
            max_attempts=max_attempts, dead_letter=dead_letter, retry_=retry,
            dedup_window=dedup_window, max_backlog=max_backlog, compression=compression,
            ledger=ledger, labels=labels,
        )  # fmt: skip
        await run(self._flows.create_topic(topic, policy))

    async def alter_topic(self, topic: str, **changes: Unpack[TopicOptions]) -> None:
        """Change a topic's policy. Takes the arguments of `create_topic`, those that shall change.

        `partitions`, `order`, `fair`, `partition_by` and `ledger` stay as they are.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            changes: What shall be different: `retention`, `keep_unsettled`, `max_attempts`,
                `dead_letter`, `retry`, `dedup_window`, `max_backlog`, `compression`, `labels`.
        """
        await run(self._flows.alter_topic(topic, dict(changes)))

    async def delete_topic(self, topic: str) -> None:
        """Forget a topic, its groups and its messages.

        Args:
            topic: Its name. TopicNotFound if it is not there.
        """
        await run(self._flows.delete_topic(topic))

    async def topics(self) -> list[str]:
        """The names of all topics."""
        return await run(self._flows.topics())

    async def policy(self, topic: str) -> TopicPolicy:
        """What a topic was made with, or altered to.

        Args:
            topic: Its name. TopicNotFound if it is not there.
        """
        return await run(self._flows.policy(topic))

    async def stats(self, topic: str) -> TopicStats:
        """What a topic and its groups are doing.

        Args:
            topic: Its name. TopicNotFound if it is not there.
        """
        return await run(self._flows.stats(topic))

    async def overview(self) -> Overview:
        """What all topics are doing, and the files."""
        return await run(self._flows.overview())

    async def purge(self, topic: str) -> int:
        """Drop every message of a topic; return how many were unsettled.

        Args:
            topic: Its name. TopicNotFound if it is not there.
        """
        return await run(self._flows.purge(topic))

    async def compact(self, topic: str) -> int:
        """Drop now what newer messages of the same key have superseded; return how many.

        A topic with `retention="compact"` does this by itself, now and then.

        Args:
            topic: Its name; it has `retention="compact"`.
        """
        return await run(self._flows.compact(topic))

    async def segments(self, topic: str) -> Sealed:
        """The Parquet files of a topic, for other programs to read, and what is in none of them.

        Args:
            topic: Its name. TopicNotFound if it is not there.
        """
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

        Args:
            dest: The directory of the backup; it is not in that of the queue.
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
        """Send one message; when this returns it is stored. Sends of several threads share a sync.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            body: bytes, or str as UTF-8; anything else is sent as JSON. At most 16 MiB.
            key: What order, fairness and partitions go by; 1 to 1,024 bytes, or None.
            headers: Names and values, both str; at most 64, with 2 MiB in all.
            priority: 0 (the default) to 9, which goes first.
            delay: Not delivered before this has passed; at most a century. None for at once.
            ttl: Not delivered after this has passed; more than 0. None for no end.
            dedup_id: Stored once within the topic's `dedup_window`; 1 to 256 bytes, or None.
            durability: "disk" (synced before this returns) or "memory"; None for what `connect` was
                told.
        """
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
        """Send many messages, all or none. Arrow data needs a `body` column; others as in `Message`.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            messages: Message objects, bare bodies, or Arrow data with a `body` column; at least
                one, at most 1,000,000 of 64 MiB in all.
            durability: "disk" (synced before this returns) or "memory"; None for what `connect` was
                told.
        """
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

        Args:
            topic: Its name. TopicNotFound if it is not there.
            batches: Each as `send_batch` takes it; all or none of it is stored.
            name: What this sequence of batches is called, the same whenever it is sent again.
            durability: "disk" (synced before this returns) or "memory"; None for what `connect` was
                told.
        """
        return await run(send_batches(self._flows, topic, batches, name, durability))

    # -- staging -----------------------------------------------------------------------------------

    async def stage(self, topic: str, messages: Any) -> Staged:
        """Store messages, as `send_batch` takes them, where nobody gets them before `publish`.

        They wait for a day, and belong to who has what is returned.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            messages: Message objects, bare bodies, or Arrow data with a `body` column; at least
                one, at most 1,000,000 of 64 MiB in all.
        """
        return await run(self._flows.stage(topic, messages))

    async def publish(
        self, topic: str, staged: Iterable[Staged], *, application: str, batch: int, run: str = ""
    ) -> Published:
        """Let a topic have staged messages, any number of them, all at once.

        Each batch of an application is published once: the same or an older one again changes
        nothing. Batches are numbered in a `run`, and another run under the same name is refused.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            staged: What `stage` has returned, in the order in which it shall be.
            application: Who publishes; a name as topics have.
            batch: The batch's number, from 0 on; it only grows.
            run: Who numbers the batches; at most 1,000 characters.
        """
        return await _run(self._flows.publish(topic, staged, application, batch, run))

    async def unstage(self, topic: str, staged: Iterable[Staged]) -> int:
        """Drop staged messages that will not be published; return how many.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            staged: What `stage` has returned.
        """
        return await run(self._flows.unstage(topic, staged))

    async def published(self, topic: str, application: str) -> int | None:
        """The number of an application's last batch, None if it has published nothing.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            application: Who published.
        """
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

        Args:
            topic: Its name. TopicNotFound if it is not there.
            group: The group's name: 1 to 255 letters, digits, '.', '_' or '-'. It is made if it is
                new.
            max_messages: The most to lease, 1 to 100,000; fewer come if they have more than 64 MiB.
            lease: How long they are yours; more than 0, at most 7 days.
            wait: How long to wait for the first if there is none; at most an hour. 0 for not at
                all.
            consumer: A name that is kept with the lease, for those who look; cut at 1,000
                characters.
            begin: How many begin with it; None for all. With 0 it must not wait.
            keep: Whether leases are made longer in the background until messages are settled.
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
        """`receive` as an Arrow table, settled by row mask.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            group: The group's name: 1 to 255 letters, digits, '.', '_' or '-'. It is made if it is
                new.
            max_messages: The most to lease, 1 to 100,000; fewer come if they have more than 64 MiB.
            lease: How long they are yours; more than 0, at most 7 days.
            wait: How long to wait for the first if there is none; at most an hour. 0 for not at
                all.
            consumer: A name that is kept with the lease, for those who look; cut at 1,000
                characters.
            begin: How many begin with it; None for all. With 0 it must not wait.
        """
        return await run(
            self._flows.receive_table(
                AsyncDeliveryBatch, self._settle_table, topic, group, max_messages, lease, wait,
                consumer, begin,
            )
        )  # fmt: skip

    async def ack(self, deliveries: Settleable) -> None:
        """Done with these: one or many deliveries or receipts, one entry in the log.

        Args:
            deliveries: One or many deliveries or receipts (str).
        """
        await self._settle("ack", deliveries)

    async def nack(
        self, deliveries: Settleable, *, delay: Duration | None = None, reason: str = ""
    ) -> None:
        """These failed: deliver them again after `delay`, or after what the retry policy says.

        Args:
            deliveries: One or many deliveries or receipts (str).
            delay: How long until then; None for what the topic's retry policy says.
            reason: Kept with a dead letter and in the ledger; cut at 1,000 characters.
        """
        await self._settle("nack", deliveries, delay=delay, reason=reason)

    async def extend(self, deliveries: Settleable, lease: Duration) -> None:
        """Hold these for `lease` from now.

        Args:
            deliveries: One or many deliveries or receipts (str).
            lease: How long from now on; more than 0, at most 7 days.
        """
        await self._settle("extend", deliveries, lease=lease)

    async def dead_letter(self, deliveries: Settleable, *, reason: str = "") -> None:
        """Give these up: move them to the dead-letter topic.

        Args:
            deliveries: One or many deliveries or receipts (str).
            reason: Kept with a dead letter and in the ledger; cut at 1,000 characters.
        """
        await self._settle("dead_letter", deliveries, reason=reason)

    async def begin(self, deliveries: Settleable, *, lease: Duration | None = None) -> None:
        """Work on these now, which were reserved: an attempt. Hold them for `lease` from now, if given.

        Args:
            deliveries: One or many deliveries or receipts (str).
            lease: How long from now on; None for as long as they are held anyway.
        """
        await self._settle("begin", deliveries, lease=lease)

    async def release(self, deliveries: Settleable, *, delay: Duration | None = None) -> None:
        """Give these back, for after `delay`, whether they have begun or not: no attempt is counted.

        Args:
            deliveries: One or many deliveries or receipts (str).
            delay: How long until they may be delivered again; None for at once.
        """
        await self._settle("release", deliveries, delay=delay)

    async def _settle(self, action: Any, items: Any, **options: Any) -> None:
        keeper, items = self._kept(), listed(items)
        settle = self._flows.settle(action, items, **options)
        if keeper is not None and action not in HOLDING:
            settle = until_settled(settle, partial(keeper.settled, items))
        await run(settle)

    async def _settle_table(self, action: Any, leased: Any, mask: Any, **options: Any) -> None:
        await run(self._flows.settle_table(action, leased, mask, **options))

    def transaction(self) -> "AsyncTransaction":
        """Collect acks and sends, done together or not at all when the `with` block ends well."""
        return AsyncTransaction(self._flows)

    async def offsets(
        self,
        topic: str,
        *,
        start: PositionLike | None = None,
        offset: int | None = None,
        end: PositionLike | None = None,
        partition: int | None = None,
    ) -> dict[int, tuple[int, int]]:
        """Where a `read` of the same arguments begins and ends: by partition, first and end offset.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            start: A time, "earliest" or "latest"; None for the earliest. Not together with
                `offset`.
            offset: The first offset, in each partition.
            end: A time, an offset (int), "earliest" or "latest", not included; None for what is
                there now.
            partition: Its number, for one alone; None for all.
        """
        _, starts, ends = await run(self._flows.read_start(topic, start, offset, end, partition))
        return {number: (starts[number], ends[number]) for number in starts}

    async def sql(self, query: str) -> pa.Table:
        """The answer to one SELECT over topics, as an Arrow table. Needs the extra `sql`.

        Args:
            query: One SELECT of at most 100,000 characters; topics are its tables.
        """
        return await run(ask(self._flows, query))

    # -- the ledger --------------------------------------------------------------------------------

    async def ledger(
        self, topic: str | None = None, *, start: Moment | None = None, end: Moment | None = None
    ) -> pa.Table:
        """What happened to messages, oldest first: of a topic or of all, from `start` up to `end`.

        A row is about `count` messages of a partition, from `offset` on. Both ends are times.

        Args:
            topic: Only what is about this topic; None for all.
            start: From this time on; None for all that is kept.
            end: Up to this time, not included; None for now.
        """
        return await run(self._flows.ledger(topic, start, end))

    async def ledger_reader(
        self, topic: str | None = None, *, start: Moment | None = None, end: Moment | None = None
    ) -> pa.RecordBatchReader:
        """`ledger` a part at a time, as Arrow's own reader, for more than fits into memory.

        Args:
            topic: Only what is about this topic; None for all.
            start: From this time on; None for all that is kept.
            end: Up to this time, not included; None for now.
        """
        return await run(self._flows.ledger_reader(topic, start, end))

    async def trace(self, message_id: str) -> pa.Table:
        """The rows of the ledger about one message, wherever it moved; each as if about it alone.

        Args:
            message_id: The `id` of what `send` returned, or of a message. MessageNotFound if there
                is none.
        """
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
        """Make a group before its first receive, to choose where it starts and its guarantee.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            group: The group's name: 1 to 255 letters, digits, '.', '_' or '-'.
            start: "earliest", "latest", an offset (int) or a time.
            guarantee: "at-least-once", or "at-most-once": settled as soon as it is delivered.
        """
        await run(self._flows.create_group(topic, group, start, guarantee))

    async def delete_group(self, topic: str, group: str) -> None:
        """Forget a group and its delivery state.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            group: Its name. GroupNotFound if it is not there.
        """
        await run(self._flows.delete_group(topic, group))

    async def groups(self, topic: str) -> dict[str, GroupStats]:
        """The groups of a topic and what they are doing.

        Args:
            topic: Its name. TopicNotFound if it is not there.
        """
        stats = await self.stats(topic)
        return stats.groups

    async def seek(
        self, topic: str, group: str, to: PositionLike, *, partition: int | None = None
    ) -> None:
        """Put a group at "earliest", "latest", an offset or a time; its leases end.

        What it passes over counts as settled by the group, so that retention may drop it. It goes
        back only as far as retention has kept messages.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            group: The group's name.
            to: "earliest", "latest", an offset (int) or a time.
            partition: Its number, for one alone; None for all.
        """
        await run(self._flows.seek(topic, group, to, partition))

    async def pause(self, topic: str, group: str) -> None:
        """Stop deliveries to a group; settling goes on.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            group: The group's name.
        """
        await run(self._flows.pause(topic, group, True))

    async def resume(self, topic: str, group: str) -> None:
        """Go on delivering to a paused group.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            group: The group's name.
        """
        await run(self._flows.pause(topic, group, False))

    async def join(
        self, topic: str, group: str, member: str, *, session: Duration = 30
    ) -> "AsyncMember":
        """Become a member of a group that shares out whole partitions, instead of leasing messages.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            group: The group's name: 1 to 255 letters, digits, '.', '_' or '-'.
            member: This member's name, another for each of them.
            session: How long it may be silent before it is out; more than 0, at most 7 days.
        """
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

        Args:
            topic: The dead-letter topic.
            where: A condition in SQL such as "reason like 'Timeout%'", or a function of a Record;
                None for all.
            to: The topic to move them to, for all its groups; None for where they came from, for
                the group that gave them up.
            rate: Messages a second, more than 0; None for as fast as it goes.
            limit: The most to move, at least 1; None for no limit.
            dry_run: Only count.
            progress: A function that is told how many it were so far, after each step.
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
        """Drop pending messages for all groups; return how many. Arguments as for `redrive`.

        Args:
            topic: Any topic.
            where: A condition in SQL such as "reason like 'Timeout%'", or a function of a Record;
                None for all.
            limit: The most to drop, at least 1; None for no limit.
            dry_run: Only count.
            progress: A function that is told how many it were so far, after each step.
        """
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


class AsyncMember:
    """A member of a group that shares out whole partitions: fetch, process, commit.

    A fetch or commit at least once per session keeps the membership; so does `heartbeat`.
    """

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
        """The next messages of its partitions. Lets go first of partitions that others shall have.

        Args:
            max_messages: The most to give, 1 to 10,000.
            wait: How long to wait for the first if there is none; at most an hour. 0 for not at
                all.
        """
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

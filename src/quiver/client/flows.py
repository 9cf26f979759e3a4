"""The behaviour of the API, written once.

A flow is a generator that yields what it must wait for (a `Ticket`, a `Pause`, some `Work`) and is
sent the answer. `sync.Queue` and `aio.AsyncQueue` drive the same flows; they differ in nothing but
how they wait. What flows do and ask, they do and ask of a `Broker`, in values.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from itertools import accumulate, chain, count, groupby, repeat
from operator import attrgetter
from pathlib import Path
from secrets import randbits
from sys import modules
from typing import Any, Final, TypeAlias, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from quiver import limits, tracing
from quiver.batches.arrow_input import accept
from quiver.batches.ledger import SCHEMA
from quiver.batches.ledger import concat as concat_ledger
from quiver.batches.message_trace import MessageTrace
from quiver.batches.output import Piece, columns, table
from quiver.batches.rows import Checked, Row, make_row
from quiver.client import arguments, losses
from quiver.client.broker import Broker, Signing
from quiver.client.deadlines import Deadlines, doubt_table, learn_table
from quiver.client.results import (
    GrantedLease,
    Leased,
    LeasedTable,
    MessagePage,
    Record,
    Sent,
    SentBatch,
    note_settled,
    ranges_of,
    receipt_of,
    to_begin,
)
from quiver.client.steps import Flow, Work, done
from quiver.errors import (
    InvalidRequest,
    LimitExceeded,
    MessageNotFound,
    ReadOnly,
    ReceiptExpired,
    TopicExists,
    TopicNotFound,
)
from quiver.model import queries
from quiver.model.commands import (
    Action,
    AlterTopic,
    Command,
    Commit,
    CreateGroup,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    Discard,
    Heartbeat,
    Held,
    Join,
    Leave,
    OpenProducer,
    PauseGroup,
    Pick,
    Position,
    Publish,
    Purge,
    Receive,
    Redrive,
    Seek,
    Settle,
    Tick,
)
from quiver.model.errands import (
    AskSql,
    Choose,
    DemandOrigins,
    Errand,
    PublishStaged,
    StageBatch,
    Trace,
    Unstage,
)
from quiver.model.message import Message
from quiver.model.queries import Ability, PageFound, Query
from quiver.model.ranges import merge
from quiver.model.replies import (
    Assigned,
    Backup,
    Bodies,
    Durability,
    Grant,
    Moved,
    Placed,
    Positioned,
    ProducerOpened,
    Published,
    Sealed,
    SentMany,
    SentReply,
    Slice,
    Staged,
    Transacted,
)
from quiver.model.settlement import Settlement
from quiver.model.stats import Overview, TopicStats
from quiver.model.topic import Guarantee, TopicPolicy, is_staging, staging_name
from quiver.model.units import milliseconds
from quiver.node import staged
from quiver.node.placing import TopicHandle
from quiver.node.receipts import Receipt, parse
from quiver.node.tickets import Ticket

T = TypeVar("T")
L = TypeVar("L", bound=Leased)
Ranges: TypeAlias = list[tuple[int, int]]  # of offsets
B = TypeVar("B", bound=LeasedTable)
_ROW: Final = attrgetter("_row")  # in C, as it is for many
Place: TypeAlias = tuple[int, int]  # partition and offset
Demand: TypeAlias = Callable[[str], None]  # raises if somebody may not send to that topic


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages of a replay, and where the next page begins."""

    slices: list[Slice]
    source: Bodies
    ahead: dict[int, int]

    @classmethod
    def of(cls, found: PageFound) -> "Page":
        """The page that a query has found."""
        assert found.bodies is not None
        return cls(found.slices, found.bodies, found.ahead)

    @property
    def places(self) -> list[Place]:
        """Where its messages are, oldest first."""
        return places_of(self.slices)

    def records(self, topic: str, *, whole: bool = False) -> list[Record]:
        """Those of its messages that can be read, or, if it must be the `whole`, an error."""
        return records(topic, self.source.pieces() if whole else self.source.readable(some=False))

    def table(self) -> pa.Table:
        """Those of its messages that can be read as Arrow, with ids."""
        return table(list(self.source.readable(some=False)), with_ids=True)


def places_of(slices: Iterable[Slice]) -> list[Place]:
    """Where the messages of slices are, in their order."""
    return places_in((one.partition, one.offset, one.offset + one.count) for one in slices)


def places_in(runs: Iterable[tuple[int, int, int]]) -> list[Place]:
    """The places in runs of them: each a partition, a start and an end."""
    return [(partition, at) for partition, start, end in runs for at in range(start, end)]


# What is checked and not yet packed: a canonical batch, or rows whose delays have not begun.
Unpacked: TypeAlias = pa.RecordBatch | Sequence[Checked]


class Claims:
    """What somebody wants to settle: ranges of offsets, by the lease and its tag."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], dict[tuple[int, int, bytes], Ranges]] = {}
        self._until_ms: dict[
            tuple[int, int], int
        ] = {}  # when the first lease ends; as far as known

    def add_receipt(
        self, text: str, ranges: Ranges | None = None, until_ms: int | None = None
    ) -> None:
        """The message of a receipt, or these offsets of its lease."""
        receipt, tag = parse(text)
        if ranges is None:
            ranges = [(receipt.offset, receipt.offset + 1)]
        owner = receipt.topic, receipt.group
        self._add(owner, (receipt.partition, receipt.epoch, tag), ranges, until_ms)

    def add_lease(
        self, lease: GrantedLease, partition: int, ranges: Ranges, until_ms: int | None
    ) -> None:
        """Offsets of a lease."""
        owner = lease.topic_number, lease.group_number
        self._add(owner, (partition, lease.epoch, lease.tag), ranges, until_ms)

    def _add(
        self, owner: tuple[int, int], lease: tuple[int, int, bytes], ranges: Ranges,
        until_ms: int | None,
    ) -> None:  # fmt: skip
        self._found.setdefault(owner, {}).setdefault(lease, []).extend(ranges)
        if until_ms is not None:
            self._until_ms[owner] = min(self._until_ms.get(owner, until_ms), until_ms)

    def settlements(self, action: Action, delay: Any, lease: Any, reason: str) -> list[Settlement]:
        """One for each topic and group."""
        delay_ms = None if delay is None else milliseconds(delay, "delay")
        lease_ms = lease_of(action, lease) or 0
        reason = arguments.text(reason, "reason")
        made = []
        for owner, found in self._found.items():
            held = tuple(
                Held(partition, epoch, tuple(merge(ranges)))
                for (partition, epoch, _), ranges in found.items()
            )
            command = Settle(*owner, action, held, delay_ms, lease_ms, reason, randbits(63))
            until_ms = self._until_ms.get(owner, limits.TIME_MS_MAX)
            made.append(Settlement(command, tuple(tag for *_, tag in found), until_ms))
        return made


class Flows:
    """The verbs of the API over a broker."""

    def __init__(self, broker: Broker, durability: Durability, place: str = "") -> None:
        self.broker = broker
        self.durability = durability
        self.place = place  # where the queue is, as `repr` shows it
        self._handles: dict[str, TopicHandle] = {}
        self._staging: dict[str, TopicHandle] = {}  # apart: their names are not to be asked for
        # Where no answer is lost, nobody asks until when leases hold.
        self._deadlines = Deadlines() if broker.remote else None

    def patient(self, seconds: float) -> "Flows":
        """The same verbs, which fail when a node could not be reached for so long."""
        return self._over(self.broker.patient(seconds))

    def apart(self) -> "Flows":
        """The same verbs for one consumer, who closes their broker at the end: see `Broker.apart`."""
        return self._over(self.broker.apart())

    def _over(self, broker: Broker) -> "Flows":
        """The same verbs, and all that is known, over a broker that leads to the same queue."""
        made = copy(self)
        made.broker = broker
        return made

    def now_ms(self) -> int:
        """The time of the queue."""
        return self.broker.now_ms()

    # -- topics ------------------------------------------------------------------------------------

    def create_topic(self, topic: str, policy: TopicPolicy) -> Flow[None]:
        yield from done(self.broker.propose(CreateTopic(topic, policy)))
        self._handles.pop(topic, None)

    def alter_topic(self, topic: str, changes: dict[str, Any]) -> Flow[None]:
        policy = yield from self.policy(topic)
        made, fields = arguments.altered(topic, policy, changes)
        yield from self._on_topic(
            topic, lambda handle: AlterTopic(handle.number, made, tuple(fields))
        )
        handle = self._handles.get(topic)
        if handle is not None:  # senders share it, and learn of the change like this
            handle.policy = yield from self.policy(topic)

    def delete_topic(self, topic: str) -> Flow[None]:
        yield from self._on_topic(topic, lambda handle: DeleteTopic(handle.number))
        self.forget(topic)  # not before: who asked meanwhile may have been told that it is there

    def topics(self) -> Flow[list[str]]:
        names = yield from self.ask(queries.ListTopics())
        return [name for name in names if not is_staging(name)]

    def policy(self, topic: str) -> Flow[TopicPolicy]:
        arguments.name(topic, "topic")
        found = yield from self.ask(queries.FindTopic(topic, whole=True))
        return found.policy

    def stats(self, topic: str) -> Flow[TopicStats]:
        return (yield from self.ask(queries.ReadStats(arguments.name(topic, "topic"))))

    def overview(self) -> Flow[Overview]:
        names = yield from self.topics()
        topics: dict[str, TopicStats] = {}
        letters: dict[str, None] = {}
        while names:
            found = yield from self.ask(queries.ReadFigures(tuple(names)))
            names = names[found.looked_at :]
            topics |= {stats.topic: stats for stats in found.topics}
            letters |= dict.fromkeys(found.dead_letter)
        storage = yield from self.ask(queries.ReadStorage())
        there = tuple(name for name in topics if name in letters)
        return Overview(topics, there, storage.reasons, storage.files)

    def purge(self, topic: str) -> Flow[int]:
        moved: Moved = yield from self._on_topic(topic, lambda handle: Purge(handle.number))
        return moved.count

    def compact(self, topic: str) -> Flow[int]:
        handle = yield from self.find(topic)
        if not handle.policy.retention.compact:
            raise InvalidRequest(
                f"topic {topic!r} keeps more than the newest message of each key; "
                'change that with alter_topic(…, retention="compact")'
            )
        self._demand("compact")
        return (yield from done(self.broker.compact(handle)))

    def segments(self, topic: str) -> Flow[Sealed]:
        return (yield from self.ask(queries.FindSegments(arguments.name(topic, "topic"))))

    def seal(self) -> Flow[None]:
        self._demand("seal")
        yield from done(self.broker.seal())

    def backup(self, dest: str | os.PathLike[str]) -> Flow[Backup]:
        self._demand("backup")
        if "write" in self.broker.abilities:
            yield from done(self.broker.propose(Tick()))  # with it, everything before is synced
        yield from self.ask(queries.Ping())  # it is open
        from quiver.client.backup import backup  # noqa: PLC0415  # it brings all that keeps files along

        source = Path(self.broker.directory)
        return (yield from done(Work(lambda: backup(source, dest))))

    def _demand(self, ability: Ability) -> None:
        """Refuse what the broker cannot do."""
        able = self.broker.abilities
        if ability in able:
            return
        if ability == "backup" and self.broker.remote:
            raise InvalidRequest(
                "a backup is made where the node's directory is, beside the running node: "
                "quiver backup DIR DEST"
            )
        if "write" not in able:
            raise ReadOnly()
        raise InvalidRequest(f"the queue in {self.place} cannot {ability}")

    @property
    def elsewhere(self) -> bool:
        """Whether what needs the secret or SQL is done where the messages are, and not here."""
        return "errands" in self.broker.abilities

    def _run(self, errand: Errand[T], batch: pa.RecordBatch | None = None) -> Flow[T]:
        """What an errand is answered with."""
        return (yield from done(self.broker.run(errand, batch)))

    def handle(self, topic: str) -> Flow[TopicHandle]:
        """What a sender must know of a topic, asked once."""
        handle = self._handles.get(arguments.name(topic, "topic"))
        if handle is None:
            handle = self._handles[topic] = yield from self._found(topic)
        return handle

    def _found(self, topic: str) -> Flow[TopicHandle]:
        found = yield from self.ask(queries.FindTopic(topic))
        return TopicHandle(found.name, found.number, found.policy)

    def find(self, topic: str) -> Flow[TopicHandle]:
        """As `handle`, as the topic is in this moment."""
        try:
            found = yield from self._found(arguments.name(topic, "topic"))
        except TopicNotFound:
            self.forget(topic)
            raise
        handle = self._handles.setdefault(topic, found)
        if handle.number != found.number:  # it was deleted, and made again
            handle = self._handles[topic] = found
        handle.policy = found.policy
        return handle

    def forget(self, topic: str) -> None:
        """The topic was deleted, perhaps made again; it must be asked for anew."""
        self._handles.pop(topic, None)

    def names_of(self, numbers: Iterable[int]) -> Flow[list[str]]:
        """The names of the topics with these numbers, those that are still there."""
        return (yield from self.ask(queries.ListTopics(tuple(numbers))))

    def known(self, topic: str) -> TopicHandle | None:
        """What `handle` gives, if it has been asked before and the topic was not deleted since."""
        return self._handles.get(topic)

    def ask(self, query: Query[T]) -> Flow[T]:
        """The answer to a query."""
        return (yield from done(self.broker.ask(query)))

    def _on_topic(self, topic: str, command: Callable[[TopicHandle], Command]) -> Flow[Any]:
        """Propose a command for a topic."""
        return self._submit(topic, lambda handle: self.broker.propose(command(handle)))

    def _submit(self, topic: str, submit: Callable[[TopicHandle], Ticket[T]]) -> Flow[T]:
        """Submit something for a topic; if it was deleted and made again, for the new one."""
        handle = yield from self.handle(topic)
        try:
            return (yield from done(submit(handle)))
        except TopicNotFound:
            self._handles.pop(topic, None)
        handle = yield from self.handle(topic)
        return (yield from done(submit(handle)))

    # -- sending -----------------------------------------------------------------------------------

    def send(self, topic: str, row: Row, durability: Durability | None) -> Flow[Sent]:
        given = self.given(durability)
        sync = given == "disk"
        placed, at = yield from self._submit(
            topic, lambda handle: self.broker.send_row(handle, row, sync=sync)
        )
        return sent(placed, at, given)

    def send_batch(
        self, topic: str, messages: Any, durability: Durability | None
    ) -> Flow[SentBatch]:
        given = self.given(durability)
        yield from self.handle(topic)  # it is there
        batch = self.batch_of(messages)
        reply = yield from self._submit(
            topic, lambda handle: self.broker.send_batch(handle, batch, sync=given == "disk")
        )
        return sent_batch(reply.answers[0], given)

    def batch_of(self, messages: Any) -> pa.RecordBatch:
        """The canonical batch of Arrow data, or of messages, bodies and rows."""
        return self._packed(self.checked(messages))

    def _packed(self, checked: Unpacked) -> pa.RecordBatch:
        return checked if isinstance(checked, pa.RecordBatch) else self.broker.pack(checked)

    @staticmethod
    def checked(messages: Any) -> Unpacked:
        """What can be sent of Arrow data, or of messages, bodies and rows."""
        if isinstance(messages, pa.RecordBatch | pa.Table):
            return accept(messages)
        if isinstance(messages, str | bytes | bytearray | memoryview | Mapping) or not isinstance(
            messages, Iterable
        ):
            raise InvalidRequest(
                "send_batch takes a list of messages or an Arrow RecordBatch or Table; "
                "for one message use send"
            )
        rows = list(map(row_of, messages))
        if not rows:
            raise InvalidRequest("the batch is empty; send at least one message")
        return rows

    def open_producer(self, handle: TopicHandle, name: str) -> Flow[ProducerOpened]:
        """Take a producer's name over."""
        command = OpenProducer(handle.number, arguments.name(name, "name"))
        opened: ProducerOpened = yield from done(self.broker.propose(command))
        return opened

    # -- staging -----------------------------------------------------------------------------------

    def stage(self, topic: str, messages: Any) -> Flow[Staged]:
        batch = yield from done(Work(lambda: self.batch_of(messages)))
        return (yield from self.stage_packed(topic, batch))

    def stage_packed(self, topic: str, batch: pa.RecordBatch, owner: str = "") -> Flow[Staged]:
        """Store a canonical batch where only its owner gets at it: a principal of a node."""
        if self.elsewhere:
            return (yield from self._run(StageBatch(arguments.name(topic, "topic")), batch))

        def store(handle: TopicHandle) -> Flow[Staged]:
            def submit() -> Ticket[SentMany]:
                return self.broker.send_batch(handle, batch, staged=True)

            reply = yield from done((yield from done(Work(submit))))
            sent = sent_batch(reply.answers[0], "disk")
            ranges = [(one.partition, one.offset, one.offset + one.count) for one in sent.placed]
            return Staged(
                topic, tuple(ranges), batch.num_rows, _body_bytes(batch), handle.number,
                staged.tag(handle.number, ranges, owner, self._secret),
            )  # fmt: skip

        return (yield from self._at_staging(topic, store))

    def _at_staging(self, topic: str, do: Callable[[TopicHandle], Flow[T]]) -> Flow[T]:
        """Do something with the topic where messages for this one are staged."""
        handle = yield from self._staging_of(topic)
        try:
            return (yield from do(handle))
        except TopicNotFound:  # it was deleted with its topic, which was perhaps made again
            self._staging.pop(topic, None)
        return (yield from do((yield from self._staging_of(topic))))

    def _staging_of(self, topic: str) -> Flow[TopicHandle]:
        """The topic where messages for this one are staged, made if it is not there."""
        handle = self._staging.get(topic)
        if handle is None:
            policy, name = (yield from self.policy(topic)), staging_name(topic)
            with suppress(TopicExists):  # as it was before the topic's policy changed
                yield from done(self.broker.propose(CreateTopic(name, policy.staging())))
            handle = self._staging[topic] = yield from self._found(name)
        return handle

    def publish(
        self,
        topic: str,
        parts: Iterable[Staged],
        application: str,
        batch: int,
        run: str,
        owner: str = "",
    ) -> Flow[Published]:
        found = check_publish(parts, application, batch, run)
        picks = picks_of(topic, found)
        if self.elsewhere:
            given = tuple(together(topic, found))
            return (yield from self._run(PublishStaged(topic, given, application, batch, run)))
        nbytes = sum(one.nbytes for one in found)
        valid = yield from done(Work(lambda: self._are_of(found, owner)))

        def move(handle: TopicHandle) -> Flow[Published]:
            def command(target: TopicHandle) -> Publish:
                return Publish(target.number, handle.number, picks, application, batch, run, nbytes)

            if valid and all(one.number == handle.number for one in found):
                done: Published = yield from self._on_topic(topic, command)
                return done
            # They are not there, or not for this owner. If the batch was published, that does not matter.
            last = yield from self.ask(queries.FindPublished(topic, application))
            known = last.repeated(topic, application, batch, run) if last is not None else None
            if known is None:
                raise not_staged(topic)
            return known

        return (yield from self._at_staging(topic, move))

    def unstage(self, topic: str, parts: Iterable[Staged], owner: str = "") -> Flow[int]:
        found = list(parts)
        picks_of(topic, found)  # they can be dropped
        if self.elsewhere:
            return (yield from self._run(Unstage(topic, tuple(together(topic, found)))))
        valid = yield from done(Work(lambda: self._are_of(found, owner)))
        if not valid:
            raise not_staged(topic)

        def drop(handle: TopicHandle) -> Flow[int]:
            picks = picks_of(topic, [one for one in found if one.number == handle.number])
            return self.move(handle.name, Discard(handle.number, picks))

        return (yield from self._at_staging(topic, drop))

    def _are_of(self, parts: list[Staged], owner: str) -> bool:
        """Whether the owner has staged all of these."""
        secret = self._secret
        return all(staged.is_of(one.tag, one.number, one.ranges, owner, secret) for one in parts)

    @property
    def _secret(self) -> bytes:
        """What staged messages are signed with, where that is done here."""
        return cast(Signing, self.broker).secret

    def published(self, topic: str, application: str) -> Flow[int | None]:
        arguments.name(application, "application")
        last = yield from self.ask(queries.FindPublished(topic, application))
        return last.batch if last is not None else None

    def given(self, durability: Durability | None) -> Durability:
        """The durability a request gets: its own wish, or the queue's."""
        if durability is None:
            return self.durability
        wish: Durability = arguments.choice(durability, "durability", Durability)
        return wish

    # -- receiving ---------------------------------------------------------------------------------

    def receive(
        self, topic: str, group: str, max_messages: int, lease: Any, wait: Any, consumer: str,
        begin: Any = None, per_key: int = 1,
    ) -> Flow[tuple[Grant, GrantedLease]]:  # fmt: skip
        wait_ms = milliseconds(wait, "wait", max_seconds=limits.WAIT_SECONDS_MAX)
        fields = (
            arguments.name(group, "group"),
            arguments.whole(max_messages, "max_messages", 1, limits.RECEIVE_MESSAGES_MAX),
            arguments.lease_ms(lease),
            arguments.text(consumer, "consumer"),
            per_key,
            arguments.begins(begin, wait_ms),
        )
        sync = self.durability == "disk"

        def submit(handle: TopicHandle) -> Ticket[Grant]:
            command = Receive(handle.number, *fields)
            return self.broker.receive(command, wait_ms, sync=sync)

        grant = yield from self._submit(topic, submit)
        got = grant.received
        losses.lost(topic, group, got.lost)
        return grant, GrantedLease(
            topic, got.topic, group, got.group, got.epoch, got.deadline_ms, got.settled, grant.tag
        )

    def give_back(self, granted: tuple[Grant, GrantedLease]) -> None:
        """Let go of what a receive got and nobody has seen."""
        self.broker.give_back(granted[0])

    @contextmanager
    def _unless_given_up(self, grant: Grant, lease: GrantedLease) -> Iterator[None]:
        """What is made of a grant in this block; whoever waits may be cancelled or interrupted."""
        try:
            yield
        except GeneratorExit:
            self.give_back((grant, lease))
            raise

    def receive_messages(
        self, make: Callable[..., L], settle: Callable[..., Any], *args: Any
    ) -> Flow[list[L]]:
        grant, lease = yield from self.receive(*args)
        if not grant.received.slices:
            return []
        with self._unless_given_up(grant, lease):
            return (yield from done(Work(lambda: deliveries(make, settle, grant, lease))))

    def receive_table(
        self, make: Callable[..., B], settle: Callable[..., Any], *args: Any
    ) -> Flow[B]:
        grant, lease = yield from self.receive(*args)
        with self._unless_given_up(grant, lease):
            pieces = yield from done(Work(lambda: list(grant.source.readable(some=True))))
            got = yield from done(Work(lambda: table(pieces)))
        ranges: dict[int, list[tuple[int, int]]] = {}  # what is in the table, and no more, is acked
        for _, _, part in pieces:
            ranges.setdefault(part.partition, []).append((part.offset, part.offset + part.count))
        reserved = sum(part.count for _, _, part in pieces if part.reserved)
        return make(settle, lease, got, ranges, reserved)

    # -- settling ----------------------------------------------------------------------------------

    def settle(
        self,
        action: Action,
        items: Any,
        *,
        delay: Any = None,
        lease: Any = None,
        reason: str = "",
        acked: bool = False,
    ) -> Flow[None]:
        """Settle deliveries and receipts, one entry for each topic and group among them.

        A consumer settles so what it has collected, too, which is `acked`; others may not.
        """
        items = listed(items)
        settlements = self.settles(
            action, items, delay=delay, lease=lease, reason=reason, acked=acked
        )
        if not settlements:
            return
        renewed_ms, known = lease_of(action, lease), self._deadlines
        if known is not None and renewed_ms is not None:
            known.doubt(items, self.now_ms() + renewed_ms)
        refused, deadline_ms = yield from self.settle_all(settlements)
        if known is not None and renewed_ms is not None and not refused:
            known.learn(items, deadline_ms)
        found = tuple(x for x in items if receipt_of(x) in refused) if refused else ()
        note_begun(action, items, found)
        if refused:
            raise expired(found, len(refused), len(items))

    def settle_table(
        self,
        action: Action,
        leased: LeasedTable,
        mask: Any,
        *,
        delay: Any = None,
        lease: Any = None,
        reason: str = "",
    ) -> Flow[None]:
        """Settle the rows of a leased table that the mask chooses."""
        wanted = chosen(action, leased, mask)
        if not wanted:
            return
        before, claims = leased.lease, Claims()
        for partition, ranges in wanted.items():
            claims.add_lease(before, partition, ranges, before.deadline_ms)
        settlements = claims.settlements(action, delay, lease, reason)
        renewed_ms = lease_of(action, lease) if self._deadlines is not None else None
        if renewed_ms is not None:
            doubt_table(leased, self.now_ms() + renewed_ms)
        refused, deadline_ms = yield from self.settle_all(settlements)
        if renewed_ms is not None and not refused:
            learn_table(leased, before, deadline_ms, whole=mask is None)
        check_rows(leased, wanted, [(x.partition, x.offset) for x in refused])

    def settles(
        self, action: Action, items: Any, *, delay: Any = None, lease: Any = None, reason: str = "",
        acked: bool = False,
    ) -> list[Settlement]:  # fmt: skip
        """What settles these items."""
        self._demand("write")
        claims, known = Claims(), self._deadlines
        for what, together in to_settle(action, listed(items), acked=acked):
            if isinstance(what, str):
                until_ms = None if known is None else known.until(what)
                claims.add_receipt(what, until_ms=until_ms)
            else:
                until_ms = None if known is None else known.earliest(together)
                claims.add_lease(what, together[0].partition, offsets_of(together), until_ms)
        return claims.settlements(action, delay, lease, reason)

    def settle_all(
        self, settlements: Sequence[Settlement]
    ) -> Flow[tuple[dict[Receipt, None], int]]:
        """Settle; return what was refused, and until when all that is still leased holds at least."""
        sync = self.durability == "disk"
        tickets = [self.broker.settle(one, sync=sync) for one in settlements]
        refused: dict[Receipt, None] = {}
        deadline_ms = limits.TIME_MS_MAX
        for one, ticket in zip(settlements, tickets, strict=True):
            reply = yield from done(ticket)
            deadline_ms = min(deadline_ms, reply.deadline_ms)
            for held in reply.refused:
                place = one.command.topic, one.command.group, held.partition
                for start, end in held.ranges:
                    refused |= {Receipt(*place, at, held.epoch): None for at in range(start, end)}
        return refused, deadline_ms

    # -- transactions ------------------------------------------------------------------------------

    def transact(
        self, settlements: Sequence[Settlement], sends: Sequence[tuple[str, Any]]
    ) -> Flow[list[SentBatch]]:
        """Settle and send in one entry."""
        if len(settlements) + len(sends) > limits.TRANSACTION_COMMANDS_MAX:
            raise LimitExceeded(
                f"a transaction has at most {limits.TRANSACTION_COMMANDS_MAX} parts; send batches"
            )
        if not settlements and not sends:
            return []
        try:
            reply = yield from self._transact(settlements, sends)
        except TopicNotFound:  # one was perhaps deleted and made again
            for topic, _ in sends:
                self.forget(topic)
            reply = yield from self._transact(settlements, sends)
        return [sent_batch(one, self.durability) for one in reply.sent]

    def _transact(
        self, settlements: Sequence[Settlement], sends: Sequence[tuple[str, Unpacked]]
    ) -> Flow[Transacted]:
        batches: list[tuple[TopicHandle, pa.RecordBatch]] = []
        for topic, messages in sends:
            handle = yield from self.handle(topic)
            batches.append((handle, self._packed(messages)))
        sync = self.durability == "disk"
        return (yield from done(self.broker.transact(settlements, batches, sync=sync)))

    # -- reading -----------------------------------------------------------------------------------

    def read_start(
        self,
        topic: str,
        start: Any = None,
        offset: int | None = None,
        end: Any = None,
        partition: int | None = None,
    ) -> Flow[tuple[int, dict[int, int], dict[int, int]]]:
        """Where a replay begins and ends: topic number, first and last position by partition."""
        if offset is not None and start is not None:
            raise InvalidRequest("give start= or offset=, not both")
        first = start if offset is None else offset
        begin = arguments.position("earliest" if first is None else first, partition)
        until = arguments.position("latest" if end is None else end, partition)
        arguments.name(topic, "topic")
        found = yield from self.ask(queries.LocateReplay(topic, begin, until, partition))
        losses.behind(topic, "", begin, found.behind)
        return found.topic, found.starts, found.ends

    def read_page(
        self,
        topic: int,
        positions: dict[int, int],
        ends: dict[int, int],
        *,
        pending: bool = False,
        limit: int = limits.READ_MESSAGES_MAX,
    ) -> Flow[Page]:
        """The next messages of a replay."""
        found = yield from self.ask(queries.ReadPage(topic, positions, ends, limit, pending))
        for partition, at, first in found.overtaken:
            position = Position("offset", at, partition)
            losses.behind(found.topic, "", position, ((partition, first),))
        return Page.of(found)

    def read_marked(
        self, topic: int, positions: dict[int, int], ends: dict[int, int], limit: int
    ) -> Flow[tuple[Page, set[Place]]]:
        """The next messages of a replay, and where those are that some group has not settled."""
        found = yield from self.ask(queries.ReadPage(topic, positions, ends, limit, marks=True))
        return Page.of(found), set(places_of(found.marked))

    def read_records(self, name: str, page: Page) -> Flow[list[Record]]:
        return (yield from done(Work(lambda: page.records(name))))

    # -- the ledger --------------------------------------------------------------------------------

    def ledger(self, topic: Any, start: Any, end: Any) -> Flow[pa.Table]:
        tables = yield from self._ledger(topic, start, end)
        return (yield from done(Work(lambda: concat_ledger(list(tables)))))

    def ledger_reader(self, topic: Any, start: Any, end: Any) -> Flow[pa.RecordBatchReader]:
        tables = yield from self._ledger(topic, start, end)
        batches = (batch for found in tables for batch in found.to_batches())
        return pa.RecordBatchReader.from_batches(SCHEMA, batches)

    def _ledger(self, topic: Any, start: Any, end: Any) -> Flow[Iterator[pa.Table]]:
        wanted = None if topic is None else arguments.name(topic, "topic")
        return (yield from self.ask(queries.ReadLedger(wanted, *arguments.times(start, end))))

    def trace(self, message_id: Any) -> Flow[pa.Table]:
        entry, row = arguments.message_id(message_id)
        if self.elsewhere:
            return (yield from self._run(Trace(message_id)))
        tables = yield from self.ask(queries.ReadLedger(first=entry))
        story = yield from done(Work(lambda: MessageTrace(entry, row).read(tables)))
        if not story.num_rows:
            raise untold(message_id)
        return story

    def choose(
        self, topic: str, number: int, positions: dict[int, int], ends: dict[int, int],
        condition: str,
    ) -> Flow[tuple[list[Place], dict[int, int]]]:  # fmt: skip
        """Pending messages for which a condition holds, oldest first, and where to go on."""
        found = yield from self._run(Choose(topic, number, positions, ends, condition))
        return places_in(found.runs), found.ahead

    def sql(self, query: str) -> Flow[pa.Table]:
        """The answer to one SELECT, which is asked elsewhere than here."""
        if not isinstance(query, str):
            raise InvalidRequest(f"a question must be a str, not {type(query).__name__}")
        return (yield from self._run(AskSql(query)))

    # -- groups ------------------------------------------------------------------------------------

    def create_group(self, topic: str, group: str, start: Any, guarantee: Any) -> Flow[None]:
        arguments.name(group, "group")
        arguments.choice(guarantee, "guarantee", Guarantee)
        position = arguments.position(start)
        reply: Positioned = yield from self._on_topic(
            topic, lambda handle: CreateGroup(handle.number, group, position, guarantee)
        )
        losses.behind(topic, group, position, reply.behind)

    def delete_group(self, topic: str, group: str) -> Flow[None]:
        arguments.name(group, "group")
        yield from self._on_topic(topic, lambda handle: DeleteGroup(handle.number, group))

    def seek(self, topic: str, group: str, to: Any, partition: int | None) -> Flow[None]:
        arguments.name(group, "group")
        position = arguments.position(to, partition)
        reply: Positioned = yield from self._on_topic(
            topic, lambda handle: Seek(handle.number, group, position)
        )
        losses.behind(topic, group, position, reply.behind)

    def pause(self, topic: str, group: str, paused: bool) -> Flow[None]:
        arguments.name(group, "group")
        yield from self._on_topic(topic, lambda handle: PauseGroup(handle.number, group, paused))

    # -- dead letters ------------------------------------------------------------------------------

    def target(self, topic: str | None) -> Flow[int | None]:
        """The number of the topic to redrive to, if one was named."""
        if topic is None:
            return None
        handle = yield from self.find(topic)
        return handle.number

    def move(
        self, topic: str, command: Redrive | Discard, demand: Demand | None = None
    ) -> Flow[int]:
        """One step of a redrive or discard of this topic; how many were moved, or at most were.

        `demand` is asked about each topic that messages would go back to.
        """
        if demand is not None and isinstance(command, Redrive) and command.target is None:
            found = yield from self.ask(queries.FindPicks(topic, command.topic, command.picks))
            for origin in found.origins:
                demand(origin)
            command = replace(command, picks=found.there)  # what dies meanwhile was not asked about
        reply: Moved = yield from done(self.broker.propose(command))
        return reply.count

    def demand_origins(
        self,
        topic: str,
        number: int,
        positions: dict[int, int],
        ends: dict[int, int],
        demand: Demand | None,
    ) -> Flow[None]:
        """Ask `demand` about each topic that the pending messages of this one would go back to."""
        if self.elsewhere:  # who is asked there knows who asks
            yield from self._run(DemandOrigins(topic, number, positions, ends))
            return
        if demand is None:
            return
        asked: dict[str, None] = {}
        while any(at < ends[partition] for partition, at in positions.items()):
            query = queries.ReadPage(
                number, positions, ends, limits.READ_MESSAGES_MAX, pending=True, bodies=False
            )
            found = yield from self.ask(query)
            for piece in found.slices:
                if piece.origin is not None and piece.origin.topic not in asked:
                    demand(piece.origin.topic)
                    asked[piece.origin.topic] = None
            positions = positions | found.ahead

    def movable(self, topic: str, number: int, picks: tuple[Pick, ...]) -> Flow[int]:
        """How many of these would be moved now: those that nobody holds a lease on."""
        found = yield from self.ask(queries.FindPicks(topic, number, picks))
        return found.movable

    # -- members -----------------------------------------------------------------------------------

    def member(self, command: Join | Heartbeat | Commit) -> Flow[Assigned]:
        """What a member says; what is assigned to it now."""
        assigned: Assigned = yield from done(self.broker.propose(command))
        return assigned

    def leave(self, command: Leave) -> Flow[None]:
        yield from done(self.broker.propose(command))

    def assigned(self, topic: int, group: str, member: str) -> Flow[Assigned]:
        """What is assigned to a member, without a word from it."""
        return (yield from self.ask(queries.FindAssigned(topic, group, member)))

    def fetch(
        self, topic: int, group: str, member: str, positions: dict[int, int],
        max_messages: int, wait_ms: int,
    ) -> Flow[Page | None]:  # fmt: skip
        """The next messages of those partitions that are the member's, waiting for the first."""
        query = queries.FetchPage(topic, group, member, positions, max_messages)
        found = yield from done(self.broker.watch(query, wait_ms))
        return Page.of(found) if found is not None else None


def row_of(message: Any) -> Checked:
    """A message, or a bare body, checked."""
    if (
        type(message) is bytes
        and len(message) <= limits.BODY_BYTES_MAX
        and tracing.LOADED not in modules
    ):
        return message
    if isinstance(message, Row):
        return message
    if not isinstance(message, Message):
        return make_row(message)
    m = message
    return make_row(
        m.body, key=m.key, headers=m.headers, priority=m.priority, delay=m.delay, ttl=m.ttl,
        dedup_id=m.dedup_id,
    )  # fmt: skip


def sent(placed: Placed, at: int, durability: Durability) -> Sent:
    """What a single send is told: it is message `at` of those that were placed together."""
    return Sent(
        f"{placed.index}-{placed.row + at}",
        placed.partition,
        placed.offset + at,
        placed.duplicate,
        durability,
    )


def sent_batch(answer: SentReply | Exception, durability: Durability) -> SentBatch:
    """What a batch is told, or its refusal raised."""
    if isinstance(answer, Exception):
        raise answer
    duplicates = sum(placed.count for placed in answer.placed if placed.duplicate)
    total = sum(placed.count for placed in answer.placed)
    return SentBatch(total - duplicates, duplicates, durability, answer.placed)


def not_staged(topic: str) -> InvalidRequest:
    """What is said of parts that nobody who asks has staged here."""
    return InvalidRequest(
        f"what was to be had from stage({topic!r}, …) is not staged here for you: it was changed on the "
        "way, another principal or an older version has staged it, or its topic was deleted and made "
        "again; stage it again"
    )


def _body_bytes(batch: pa.RecordBatch) -> int:
    """The size of all bodies: the same, however messages were put into batches."""
    total: int = pc.sum(pc.binary_length(batch.column(0))).as_py()
    return total


def check_publish(parts: Iterable[Staged], application: str, batch: int, run: str) -> list[Staged]:
    """What is to be published, if the rest can be."""
    arguments.name(application, "application")
    arguments.whole(batch, "batch", 0, limits.BATCH_MAX)
    if arguments.text(run, "run") != run:
        raise InvalidRequest(f"run may have at most {limits.REASON_CHARS_MAX} characters")
    return list(parts)


def picks_of(topic: str, parts: Iterable[Any]) -> tuple[Pick, ...]:
    """The places of staged messages."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for one in parts:
        if not isinstance(one, Staged) or one.topic != topic or not hasattr(one, "tag"):
            raise InvalidRequest(f"only what stage({topic!r}, …) has returned can be given here")
        for partition, start, end in one.ranges:
            if partition < 0 or not 0 <= start < end:
                raise InvalidRequest(f"{start} to {end} of partition {partition} are no messages")
            ranges.setdefault(partition, []).append((start, end))
    picks = tuple(Pick(partition, tuple(merge(found))) for partition, found in ranges.items())
    if any(_count(pick.ranges) < _count(ranges[pick.partition]) for pick in picks):
        raise InvalidRequest("staged messages are named twice; give each part once")
    return picks


def together(topic: str, given: list[Staged]) -> list[Staged]:
    """The same messages in fewer words: parts that follow each other, as those of a batch do, are one."""
    found: dict[int, list[Staged]] = {}
    for one in given:
        found.setdefault(one.number, []).append(one)
    made = []
    for number, parts in found.items():
        ranges = tuple(
            (pick.partition, *range_) for pick in picks_of(topic, parts) for range_ in pick.ranges
        )
        rows, nbytes = sum(one.rows for one in parts), sum(one.nbytes for one in parts)
        tag = staged.joined(one.tag for one in parts)
        made.append(Staged(topic, ranges, rows, nbytes, number, tag))
    return made


def _count(ranges: Iterable[tuple[int, int]]) -> int:
    """How many offsets."""
    return sum(end - start for start, end in ranges)


def lease_of(action: Action, lease: Any) -> int | None:
    """Until when from now, in milliseconds, an action holds what it leaves leased."""
    if action == "extend" or (action == "begin" and lease is not None):
        return arguments.lease_ms(lease)
    return None


def note_begun(action: Action, items: Iterable[Any], refused: Iterable[Any]) -> None:
    """What was begun, and not refused, is no longer only reserved."""
    if action == "begin":
        gone = {id(item) for item in refused}
        for item in items:
            if isinstance(item, Leased) and id(item) not in gone:
                item.reserved = False


def listed(items: Any) -> list[Any]:
    """One or many, as a list."""
    single = isinstance(items, Leased | str) or not isinstance(items, Iterable)
    return [items] if single else list(items)


def expired(refused: Sequence[Any], count: int, total: int) -> ReceiptExpired:
    """The error that `count` of `total` were refused: `refused`."""
    others = f"; the other {total - count} were settled" if total > count else ""
    return ReceiptExpired(
        f"{count} of {total} receipts no longer hold{others}. Either the message was settled "
        "already (or dropped by a retention that does not keep unsettled messages), or its lease "
        "ended and it is delivered again: settle each delivery once, and make the lease longer or "
        "extend it in time",
        tuple(refused),
    )


def deliveries(
    make: Callable[..., L], settle: Callable[..., Any], grant: Grant, lease: GrantedLease
) -> list[L]:
    """The granted messages as objects of the caller's kind."""
    made: list[L] = []
    for pages, bodies in _pages(lease.topic, grant.source.readable(some=True), settle):
        reserved = chain.from_iterable(repeat(p.part.reserved, p.part.count) for p in pages)
        made += map(make, each(pages), count(), bodies, repeat(lease), reserved)
    return made


def records(topic: str, pieces: Iterable[Piece]) -> list[Record]:
    """Messages as objects."""
    made: list[Record] = []
    for pages, bodies in _pages(topic, pieces, None):
        made += map(Record, each(pages), count(), bodies)
    return made


def each(pages: Iterable[MessagePage]) -> Iterator[MessagePage]:
    """The page of each message."""
    return chain.from_iterable(repeat(page, page.part.count) for page in pages)


def _pages(
    topic: str, pieces: Iterable[Piece], settle: Callable[..., Any] | None
) -> Iterator[tuple[list[MessagePage], list[bytes]]]:
    """A page for each slice, and the bodies; neighbours of one batch together: it is opened once."""
    for _, together in groupby(pieces, key=lambda piece: id(piece.batch)):
        found = list(together)
        batch, at, part = found[0]
        if len(found) == 1:
            batch = batch.slice(at, part.count)
        else:
            rows = chain.from_iterable(range(at, at + part.count) for _, at, part in found)
            batch = batch.take(pa.array(rows, pa.int32()))
        known = columns(batch)
        firsts = accumulate((part.count for *_, part in found), initial=0)
        pages = [
            MessagePage(topic, part, first, known, settle)
            for (*_, part), first in zip(found, firsts, strict=False)
        ]
        yield pages, batch.column("body").to_pylist()


def to_settle(
    action: Action, items: list[Any], *, acked: bool = False
) -> Iterator[tuple[GrantedLease | str, list[Leased]]]:
    """What an action changes, in the given order: receipts, and deliveries of a page by their lease."""
    for page, found in groupby(items, key=_page_of):
        together = list(found)
        if page is None:
            yield from ((text, []) for text in together)
            continue
        lease = together[0].lease
        if lease.acks is not None and not acked:
            together = not_acked(action, together)
        if lease.settled:
            together = [
                x for x in together if not needs_no_settling(action, lease, reserved=x.reserved)
            ]
        if together:
            yield lease, together


def not_acked(action: Action, items: list[L]) -> list[L]:
    """Those whose ack was not collected. To ack them again changes nothing; nothing else can be done."""
    if action == "ack":
        return [item for item in items if not item.acked]
    for item in items:
        demand_not_acked(item)
    return items


def demand_not_acked(item: Leased) -> None:
    """Refuse what was acked in the background."""
    if item.acked:
        raise InvalidRequest(
            f"message {item.id} was acked already, in the background: nothing else can be done with it"
        )


def _page_of(item: Any) -> MessagePage | None:
    if isinstance(item, Leased):
        return item._page
    if isinstance(item, str):
        return None
    raise InvalidRequest(f"deliveries and receipts can be settled, not {type(item).__name__}")


def offsets_of(together: list[Leased]) -> Ranges:
    """Where deliveries of one page are in their partition: often each after the one before."""
    page = together[0]._page
    shift = page.part.offset - page.first
    rows = list(map(_ROW, together))
    if rows != list(range(rows[0], rows[0] + len(rows))):
        return merge([(row + shift, row + shift + 1) for row in rows])
    return [(rows[0] + shift, rows[-1] + shift + 1)]


def needs_no_settling(action: Action, lease: GrantedLease, *, reserved: bool) -> bool:
    """Whether the messages were settled as they were delivered; what is `reserved` was not."""
    if not lease.settled:
        return False
    if reserved and action not in ("nack", "dead_letter"):
        return False
    if action not in ("ack", "begin"):
        raise InvalidRequest(
            f"group {lease.group!r} is at-most-once: its messages are settled when they begin, "
            "and then cannot be given back"
        )
    return True


def chosen(action: Action, leased: LeasedTable, mask: Any) -> dict[int, list[tuple[int, int]]]:
    """The offsets of the rows a mask chooses, as ranges by partition; not those that are settled."""
    if needs_no_settling(action, leased.lease, reserved=leased.reserved > 0):
        return {}
    found = leased.ranges if mask is None else _masked(leased, mask)
    if leased.lease.settled and action in ("ack", "begin"):
        found = to_begin(leased, found)
    return {partition: merge(ranges) for partition, ranges in found.items() if ranges}


def check_rows(
    leased: LeasedTable, wanted: dict[int, list[tuple[int, int]]], refused: list[tuple[int, int]]
) -> None:
    """Take note that these rows are settled; the error if some were refused: (partition, offset)."""
    if leased.lease.settled:
        note_settled(leased, wanted, refused)
    if refused:
        total = sum(map(_count, wanted.values()))
        raise expired(tuple(refused), len(refused), total)


def _masked(leased: LeasedTable, mask: Any) -> dict[int, list[tuple[int, int]]]:
    rows = leased.table.select(["partition", "offset"]).filter(_boolean(mask, len(leased)))
    return ranges_of(rows)


def _boolean(mask: Any, rows: int) -> pa.Array:
    try:
        array = mask if isinstance(mask, pa.Array | pa.ChunkedArray) else pa.array(mask, pa.bool_())
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidRequest(f"a mask must be booleans, one a row: {error}") from error
    if array.type != pa.bool_() or len(array) != rows or array.null_count:
        raise InvalidRequest(
            f"a mask must be {rows} booleans without null, one for each row of the table"
        )
    return array


def untold(message_id: Any) -> MessageNotFound:
    """What is said of a message that the ledger does not know."""
    return MessageNotFound(
        f"the ledger has no message {message_id}: there never was one, its topic keeps no "
        "ledger (ledger=False), or it was sent before the time that ledger_retention keeps"
    )

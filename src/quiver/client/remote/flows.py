"""The verbs of the API over a node: each a call, or a few.

Arguments are checked here as they are for a directory, so that a mistake costs no round trip and
says the same. What the node answers is made into what the other flows give.
"""

import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from datetime import datetime, timedelta
from secrets import token_hex
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from msgspec import UNSET

from quiver import limits, notices
from quiver.batches.rows import Checked, Row, pack
from quiver.client import arguments
from quiver.client.flows import (
    Demand,
    Flows,
    Page,
    Place,
    check_publish,
    check_rows,
    chosen,
    expired,
    lease_of,
    listed,
    note_begun,
    offsets_of,
    picks_of,
    to_settle,
    together,
)
from quiver.client.remote import tables, wire
from quiver.client.remote.deadlines import Deadlines, doubt_table, learn_table
from quiver.client.remote.link import UNSURE, Link, Reply, Request
from quiver.client.results import Lease, Leased, LeasedTable, Sent, SentBatch, Staged
from quiver.client.steps import Flow, Work
from quiver.errors import (
    BehindRetention,
    InvalidRequest,
    LimitExceeded,
    MemberFenced,
    OutcomeUnknown,
    QuiverError,
    ReceiptExpired,
    UnreadableMessages,
)
from quiver.model.commands import (
    UNNAMED,
    Action,
    Commit,
    Discard,
    Heartbeat,
    Join,
    Leave,
    Pick,
    Producer,
    Redrive,
)
from quiver.model.ranges import merge
from quiver.model.replies import (
    Assigned,
    Backup,
    Durability,
    ProducerOpened,
    Published,
    Sealed,
    SentMany,
)
from quiver.model.replies import Sent as SentReply
from quiver.model.stats import Overview, TopicStats
from quiver.model.topic import Guarantee, TopicPolicy, argument_of
from quiver.model.units import EPOCH, milliseconds
from quiver.node.placing import TopicHandle
from quiver.node.receipts import Receipt, parse
from quiver.node.receipts import text as receipt_text
from quiver.node.tickets import Ticket

T = TypeVar("T")
L = TypeVar("L", bound=Leased)
B = TypeVar("B", bound=LeasedTable)
Ranges = list[tuple[int, int]]


class RemoteFlows(Flows):
    """`Flows`, where every verb asks a node."""

    def __init__(self, link: Link, durability: Durability) -> None:
        self.link = link
        self.durability = durability
        self.place = str(link.address)
        self._handles: dict[str, TopicHandle] = {}
        self._deadlines = Deadlines()
        self._read_topics: dict[int, str] = {}  # names of topics that are read, by their numbers
        self._patience: float | None = None  # for a node that is away; None: the address's

    def patient(self, seconds: float) -> "RemoteFlows":
        made = copy(self)
        made._patience = min(seconds, self.link.address.patience_seconds)
        return made

    @property
    def closed(self) -> bool:
        return self.link.closed

    def now_ms(self) -> int:
        return self.link.now_ms()

    def _ask(
        self, method: str, path: str, kind: type[T], body: Any = None, *, repeat: bool
    ) -> Flow[T]:
        """The answer to a request in JSON; see `Request` for `repeat`."""
        reply = yield from self._call(method, path, body, repeat=repeat)
        return reply.json(kind)

    def _tell(self, method: str, path: str, body: Any = None, *, repeat: bool) -> Flow[None]:
        """A request that is answered with nothing."""
        reply = yield from self._call(method, path, body, repeat=repeat)
        if reply.status >= 400:
            raise reply.error()

    def _call(
        self, method: str, path: str, body: Any = None, *, repeat: bool, **options: Any
    ) -> Flow[Reply]:
        headers = {"content-type": wire.JSON} if body is not None else {}
        headers |= {"accept": wire.ARROW} if options.pop("arrow", False) else {}
        data = b"" if body is None else msgspec.json.encode(body)
        reply: Reply = yield self.link.call(
            Request(
                method,
                path,
                data,
                headers,
                repeat=repeat,
                patience_seconds=self._patience,
                **options,
            ),
            lambda reply: reply,
        )
        _warn(reply)
        return reply

    # -- topics ------------------------------------------------------------------------------------

    def create_topic(self, topic: str, policy: TopicPolicy) -> Flow[None]:
        body = arguments.of_policy(policy)
        yield from self._ask("PUT", _topic(topic), wire.Topic, body, repeat=True)
        self.forget(topic)

    def alter_topic(self, topic: str, changes: dict[str, Any]) -> Flow[None]:
        policy = yield from self.policy(topic)
        made, fields = arguments.altered(topic, policy, changes)
        given = arguments.of_policy(made)
        body = {argument_of(name): given[argument_of(name)] for name in fields}
        yield from self._ask("PATCH", _topic(topic), wire.Topic, body, repeat=True)
        self.forget(topic)

    def delete_topic(self, topic: str) -> Flow[None]:
        # Once more might take a topic of that name that was made meanwhile.
        yield from self._tell("DELETE", _topic(topic), repeat=False)
        self.forget(topic)

    def topics(self) -> Flow[list[str]]:
        found = yield from self._ask("GET", "/v1/topics", wire.Topics, repeat=True)
        return found.topics

    def policy(self, topic: str) -> Flow[TopicPolicy]:
        found = yield from self._ask("GET", _topic(topic), wire.Topic, repeat=True)
        return arguments.from_arguments(topic, msgspec.structs.asdict(found.policy))

    def handle(self, topic: str) -> Flow[TopicHandle]:
        handle = self._handles.get(arguments.name(topic, "topic"))
        if handle is None:
            found = yield from self._ask("GET", _topic(topic), wire.Topic, repeat=True)
            policy = arguments.from_arguments(topic, msgspec.structs.asdict(found.policy))
            handle = self._handles[topic] = TopicHandle(topic, found.number, policy)
        return handle

    def stats(self, topic: str) -> Flow[TopicStats]:
        return (yield from self._ask("GET", _topic(topic) + "/stats", TopicStats, repeat=True))

    def overview(self) -> Flow[Overview]:
        return (yield from self._ask("GET", "/v1/overview", Overview, repeat=True))

    def purge(self, topic: str) -> Flow[int]:
        # Once more would take what was sent meanwhile.
        return (yield from self._count("POST", _topic(topic) + "/purge", repeat=False))

    def compact(self, topic: str) -> Flow[int]:
        return (yield from self._count("POST", _topic(topic) + "/compact", repeat=True))

    def _count(self, method: str, path: str, body: Any = None, *, repeat: bool) -> Flow[int]:
        found = yield from self._ask(method, path, wire.Count, body, repeat=repeat)
        return found.count

    def segments(self, topic: str) -> Flow[Sealed]:
        return (yield from self._ask("GET", _topic(topic) + "/segments", Sealed, repeat=True))

    def backup(self, dest: str | os.PathLike[str]) -> Flow[Backup]:
        raise InvalidRequest(
            "a backup is made where the node's directory is, beside the running node: "
            "quiver backup DIR DEST"
        )
        yield

    def seal(self) -> Flow[None]:
        yield from self._tell("POST", "/v1/seal", repeat=True)

    # -- sending -----------------------------------------------------------------------------------

    def send(self, topic: str, row: Row, durability: Durability | None) -> Flow[Sent]:
        body = {
            "base64": b64encode(row.body).decode(),
            "key": row.key,
            "headers": row.headers,
            "priority": row.priority,
            "delay": row.delay_ms / 1000 if row.delay_ms else None,
            "ttl": row.ttl_ms / 1000 if row.ttl_ms else None,
            "dedup_id": row.dedup_id,
        }
        reply = yield from self._call(
            "POST", _topic(topic) + "/messages", body, repeat=row.dedup_id is not None,
            query={"durability": self.given(durability)},
        )  # fmt: skip
        return _done(reply, Sent)

    def send_batch(
        self, topic: str, messages: Any, durability: Durability | None
    ) -> Flow[SentBatch]:
        given = self.given(durability)
        arguments.name(topic, "topic")
        batch = self.batch_of(messages)
        sent: SentBatch = yield self._send(topic, batch, given, None, lambda r: _done(r, SentBatch))
        return sent

    def pack(self, rows: Sequence[Checked]) -> pa.RecordBatch:
        """The batch of these rows, whose delays and lives begin when the node has them."""
        batch = pack(rows, 0)
        if {"deliver_at", "expires_at"} & set(batch.schema.names):
            return batch.replace_schema_metadata(wire.RELATIVE)
        return batch

    def producer_name(self) -> str | None:
        """Every producer has a name, so that a batch whose answer was lost can be sent again."""
        return f"{UNNAMED}{token_hex(8)}"

    def open_producer(self, handle: TopicHandle, name: str) -> Flow[ProducerOpened]:
        path = f"{_topic(handle.name)}/producers/{arguments.name(name, 'name')}"
        return (yield from self._ask("POST", path, ProducerOpened, repeat=True))

    def send_packed(
        self,
        handle: TopicHandle,
        batch: pa.RecordBatch,
        durability: Durability,
        producer: Producer | None = None,
    ) -> Ticket[SentMany]:
        def send(batch: pa.RecordBatch, producer: Producer | None) -> Ticket[SentMany]:
            return self._send(handle.name, batch, durability, producer, _many)

        if producer is None:
            return send(batch, None)
        key = handle.name, producer.name, durability
        return self.link.lanes.add(key, send, batch, producer)

    def _send(
        self, topic: str, batch: pa.RecordBatch, durability: Durability,
        producer: Producer | None, convert: Callable[[Reply], T],
    ) -> Ticket[T]:  # fmt: skip
        query = {"durability": str(durability)}
        if producer is not None:
            query |= {
                "producer": producer.name,
                "epoch": str(producer.epoch),
                "sequence": str(producer.sequence),
            }
        place = batch.schema.get_field_index("dedup_id")
        known = place >= 0 and batch.column(place).null_count == 0
        request = Request(
            "POST", _topic(topic) + "/batches", _stream(batch), {"content-type": wire.ARROW},
            query, repeat=known or producer is not None,
        )  # fmt: skip
        return self.link.call(request, convert)

    # -- staging -----------------------------------------------------------------------------------

    def stage_packed(self, topic: str, batch: pa.RecordBatch, owner: str = "") -> Flow[Staged]:
        # The node knows whose they are.
        # Once more may stage them twice; what nobody publishes goes by itself.
        request = Request(
            "POST", _topic(topic) + "/staged", _stream(batch), {"content-type": wire.ARROW},
            repeat=True,
        )  # fmt: skip
        staged: Staged = yield self.link.call(request, lambda reply: reply.json(Staged))
        return staged

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
        picks_of(topic, found)  # they can be published
        body = {
            "staged": together(topic, found), "application": application, "batch": batch, "run": run,
        }  # fmt: skip
        path = _topic(topic) + "/publish"
        return (yield from self._ask("POST", path, Published, body, repeat=True))

    def unstage(self, topic: str, parts: Iterable[Staged], owner: str = "") -> Flow[int]:
        found = list(parts)
        picks_of(topic, found)
        body = {"staged": together(topic, found)}
        return (yield from self._count("POST", _topic(topic) + "/unstage", body, repeat=True))

    def published(self, topic: str, application: str) -> Flow[int | None]:
        path = f"{_topic(topic)}/applications/{arguments.name(application, 'application')}"
        found = yield from self._ask("GET", path, wire.ApplicationOut, repeat=True)
        return found.batch

    # -- receiving ---------------------------------------------------------------------------------

    def receive_messages(
        self, make: Callable[..., L], settle: Callable[..., Any], *args: Any
    ) -> Flow[list[L]]:
        table, lease, reserved = yield from self._receive(*args)
        made: list[L] = yield Work(lambda: tables.deliveries(make, settle, lease, table, reserved))
        return made

    def receive_table(
        self, make: Callable[..., B], settle: Callable[..., Any], *args: Any
    ) -> Flow[B]:
        table, lease, reserved = yield from self._receive(*args)
        ranges: dict[int, Ranges] = yield Work(lambda: tables.ranges(table))
        return make(settle, lease, tables.plain(table), ranges, reserved)

    def _receive(
        self, topic: str, group: str, max_messages: int, lease: Any, wait: Any, consumer: str,
        begin: Any = None,
    ) -> Flow[tuple[pa.Table, Lease, int]]:  # fmt: skip
        wait_ms = milliseconds(wait, "wait", max_seconds=limits.WAIT_SECONDS_MAX)
        wait_seconds = wait_ms / 1000
        path = _group(topic, group) + "/receive"
        body = {
            "max_messages": arguments.whole(
                max_messages, "max_messages", 1, limits.RECEIVE_MESSAGES_MAX
            ),
            "lease": arguments.lease_ms(lease) / 1000,
            "wait": wait_seconds,
            "consumer": arguments.text(consumer, "consumer"),
        }
        begins = arguments.begins(begin, wait_ms)
        body |= {} if begins is None else {"begin": begins}
        # Leases whose answer was lost end by themselves.
        reply = yield from self._call(
            "POST", path, body, repeat=True, arrow=True, wait_seconds=wait_seconds
        )
        table, about = yield Work(lambda: tables.read(reply, wire.LeaseAbout))
        return table, Lease(
            topic, about.topic_number, group, about.group_number, about.epoch, about.deadline_ms,
            about.settled, about.tag,
        ), about.reserved  # fmt: skip

    # -- settling ----------------------------------------------------------------------------------

    def settle(
        self,
        action: Action,
        items: Any,
        *,
        delay: Any = None,
        lease: Any = None,
        reason: str = "",
    ) -> Flow[None]:
        items = listed(items)
        parts = self.settles(action, items, delay=delay, lease=lease, reason=reason)
        if not parts:
            return
        renewed_ms = lease_of(action, lease)
        if renewed_ms is not None:
            self._deadlines.doubt(items, self.now_ms() + renewed_ms)
        refused, deadline_ms = yield from self._settle(*parts)
        if deadline_ms is not None:
            self._deadlines.learn(items, deadline_ms)
        found = [
            x for x in items if refused and (x.receipt if isinstance(x, Leased) else x) in refused
        ]
        note_begun(action, items, found)
        if refused:
            raise expired(found, len(found), len(items))

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
        wanted = chosen(action, leased, mask)
        held = [_held(leased.lease, partition, ranges) for partition, ranges in wanted.items()]
        if not held:
            return
        part, before = _part(action, [], held, delay, lease, reason), leased.lease
        renewed_ms = lease_of(action, lease)
        if renewed_ms is not None:
            doubt_table(leased, self.now_ms() + renewed_ms)
        refused, deadline_ms = yield from self._settle((part, before.deadline_ms))
        if deadline_ms is not None:
            learn_table(leased, before, deadline_ms, whole=mask is None)
        places = [(receipt.partition, receipt.offset) for receipt in map(parse, refused)]
        check_rows(leased, wanted, places)

    def settles(
        self, action: Action, items: Any, *, delay: Any = None, lease: Any = None, reason: str = ""
    ) -> list[Any]:
        """What settles these items, and until when all of their leases hold."""
        receipts: list[str] = []
        found: dict[tuple[Lease, int], Ranges] = {}
        until_ms = limits.TIME_MS_MAX
        for what, held in to_settle(action, listed(items)):
            if isinstance(what, str):  # whose it is the node will say
                until_ms = min(until_ms, self._deadlines.until(what))
                receipts.append(what)
            else:
                until_ms = min(until_ms, self._deadlines.earliest(held))
                ranges = found.setdefault((what, held[0].partition), [])
                ranges.extend(offsets_of(held))
        part = _part(
            action, receipts, [_held(*where, merge(ranges)) for where, ranges in found.items()],
            delay, lease, reason,
        )  # fmt: skip
        if not receipts and not found:
            return []
        return [(part, until_ms)]

    def _settle(
        self, settled: tuple[wire.SettlePart, int]
    ) -> Flow[tuple[dict[str, None], int | None]]:
        """Settle; return the receipts that were refused, and, after `extend` of all, their deadline."""
        part, until_ms = settled
        reply = yield from self._call("POST", "/v1/settle", part, repeat=True)
        try:
            done = reply.json(wire.SettledOut)
        except ReceiptExpired as error:
            refused = dict.fromkeys(error.refused)
            if not reply.repeated or part.action in ("extend", "begin"):  # these end no lease
                return refused, None
            if part.action == "release":  # it is not ours any more, whatever came first
                return {}, None
            if part.action != "ack":
                raise _unknown(error) from error
            # The attempt whose answer was lost has ended the leases, or something else has. While
            # they cannot have ended by themselves that is as good as done: if an operator's seek or
            # purge came first instead, that had the last word anyway. Later it is what a consumer
            # who was too slow is told, and must be able to live with: it may come again.
            if self._told_ms(reply) >= until_ms:
                return refused, None
            return {}, None
        return {}, done.deadline_ms if done.deadline_ms is not UNSET else None

    def _told_ms(self, reply: Reply) -> int:
        """The node's time when it answered: the client's may be another."""
        return int(reply.headers.get(wire.TIME_HEADER) or self.now_ms())

    # -- transactions ------------------------------------------------------------------------------

    def transact(self, settles: list[Any], sends: list[tuple[str, Any]]) -> Flow[list[SentBatch]]:
        """Settle and send in one entry."""
        if len(settles) + len(sends) > limits.TRANSACTION_COMMANDS_MAX:
            raise LimitExceeded(
                f"a transaction has at most {limits.TRANSACTION_COMMANDS_MAX} parts; send batches"
            )
        if not settles and not sends:
            return []
        body = wire.TransactionIn(
            settle=[part for part, _ in settles],
            send=[
                wire.SendPart(topic=topic, arrow=b64encode(_stream(self.batch_of(given))).decode())
                for topic, given in sends
            ],
        )
        # With something to settle, it can be done only once: then the leases are over.
        reply = yield from self._call("POST", "/v1/transactions", body, repeat=bool(settles))
        return _done(reply, list[SentBatch])

    # -- reading -----------------------------------------------------------------------------------

    def read_start(
        self,
        topic: str,
        start: Any = None,
        offset: int | None = None,
        end: Any = None,
        partition: int | None = None,
    ) -> Flow[tuple[int, dict[int, int], dict[int, int]]]:
        if offset is not None and start is not None:
            raise InvalidRequest("give start= or offset=, not both")
        body = {
            "start": _spot("earliest" if start is None else start, partition),
            "offset": offset if offset is None else _spot(offset, partition),
            "end": _spot("latest" if end is None else end, partition),
            "partition": partition,
            "limit": 0,
        }
        if offset is not None:
            del body["start"]
        _, cursor = yield from self._read(topic, body)
        return cursor.topic, cursor.positions, cursor.ends

    def read_page(
        self,
        topic: int,
        positions: dict[int, int],
        ends: dict[int, int],
        *,
        pending: bool = False,
        limit: int = limits.READ_MESSAGES_MAX,
    ) -> Flow[Page]:
        name = self._read_topics.get(topic)
        if name is None:
            raise LimitExceeded(
                f"{limits.READ_TOPICS_MAX} other topics were read since this one; begin again"
            )
        text = wire.write_cursor(wire.Cursor(topic, positions, ends))
        body = {"cursor": text, "limit": limit, "pending": pending}
        table, cursor = yield from self._read(name, body)
        return tables.TablePage(table, cursor.positions)

    def _read(self, topic: str, body: Any) -> Flow[tuple[pa.Table, wire.Cursor]]:
        reply = yield from self._call(
            "POST", _topic(topic) + "/read", body, repeat=True, arrow=True
        )
        table, about = yield Work(lambda: tables.read(reply, wire.PageAbout))
        cursor = wire.read_cursor(about.cursor)
        self._read_topics.pop(cursor.topic, None)
        self._read_topics[cursor.topic] = topic  # as the newest
        if len(self._read_topics) > limits.READ_TOPICS_MAX:
            self._read_topics.pop(next(iter(self._read_topics)), None)
        return table, cursor

    # -- what happened -----------------------------------------------------------------------------

    def ledger(self, topic: Any, start: Any, end: Any) -> Flow[pa.Table]:
        reader = yield from self.ledger_reader(topic, start, end)
        table: pa.Table = yield Work(reader.read_all)
        return table

    def ledger_reader(self, topic: Any, start: Any, end: Any) -> Flow[pa.RecordBatchReader]:
        query = {} if topic is None else {"topic": arguments.name(topic, "topic")}
        for name, moment_ms in zip(("start", "end"), arguments.times(start, end), strict=True):
            if moment_ms is not None:
                query[name] = _moment(moment_ms)
        reply = yield from self._call("GET", "/v1/ledger", repeat=True, arrow=True, query=query)
        return tables.open_(reply)

    def trace(self, message_id: Any) -> Flow[pa.Table]:
        arguments.message_id(message_id)
        path = f"/v1/messages/{message_id}/trace"
        reply = yield from self._call("GET", path, repeat=True, arrow=True)
        story: pa.Table = yield Work(lambda: tables.open_(reply).read_all())
        return story

    def sql(self, query: str) -> Flow[pa.Table]:
        """The answer to one SELECT, asked where the messages are."""
        if not isinstance(query, str):
            raise InvalidRequest(f"a question must be a str, not {type(query).__name__}")
        reply = yield from self._call("POST", "/v1/sql", {"query": query}, repeat=True, arrow=True)
        answer: pa.Table = yield Work(lambda: tables.open_(reply).read_all())
        return answer

    # -- groups ------------------------------------------------------------------------------------

    def create_group(self, topic: str, group: str, start: Any, guarantee: Any) -> Flow[None]:
        arguments.choice(guarantee, "guarantee", Guarantee)
        body = {"start": _spot(start), "guarantee": guarantee}
        yield from self._tell("PUT", _group(topic, group), body, repeat=True)

    def delete_group(self, topic: str, group: str) -> Flow[None]:
        # Once more might take a group of that name that was made meanwhile.
        yield from self._tell("DELETE", _group(topic, group), repeat=False)

    def seek(self, topic: str, group: str, to: Any, partition: int | None) -> Flow[None]:
        body = {"to": _spot(to, partition), "partition": partition}
        # Once more would throw away what was settled meanwhile.
        yield from self._tell("POST", _group(topic, group) + "/seek", body, repeat=False)

    def pause(self, topic: str, group: str, paused: bool) -> Flow[None]:
        verb = "pause" if paused else "resume"
        yield from self._tell("POST", f"{_group(topic, group)}/{verb}", repeat=True)

    # -- dead letters ------------------------------------------------------------------------------

    @property
    def chooses(self) -> bool:
        return True

    def choose(
        self, topic: str, number: int, positions: dict[int, int], ends: dict[int, int],
        condition: str,
    ) -> Flow[tuple[list[Place], dict[int, int]]]:  # fmt: skip
        body = {
            "cursor": wire.write_cursor(wire.Cursor(number, positions, ends)),
            "where": condition,
        }
        found: wire.Chosen = yield from self._ask(
            "POST", _topic(topic) + "/choose", wire.Chosen, body, repeat=True
        )
        places = [(part, offset) for part, start, end in found.runs for offset in range(start, end)]
        return places, wire.read_cursor(found.cursor).positions

    def demand_origins(
        self,
        topic: str,
        number: int,
        positions: dict[int, int],
        ends: dict[int, int],
        demand: Demand | None,
    ) -> Flow[None]:
        # The node knows who asks. A redrive of no messages asks it about all of them.
        yield from self.move(topic, Redrive(number, (), None))

    def move(
        self, topic: str, command: Redrive | Discard, demand: Demand | None = None
    ) -> Flow[int]:
        target = getattr(command, "target", None)
        names = [handle.name for handle in self._handles.values() if handle.number == target]
        body = {
            "action": "redrive" if isinstance(command, Redrive) else "discard",
            "number": command.topic,
            "picks": command.picks,
            "to": names[0] if target is not None else None,
        }
        reply = yield from self._call("POST", _topic(topic) + "/move", body, repeat=True)
        count = _done(reply, wire.Count).count
        if reply.repeated:  # the attempt whose answer was lost may have moved any of them
            count = sum(end - start for pick in command.picks for start, end in pick.ranges)
        return count

    def movable(self, topic: str, number: int, picks: tuple[Pick, ...]) -> Flow[int]:
        body = {"action": "count", "number": number, "picks": picks}
        return (yield from self._count("POST", _topic(topic) + "/move", body, repeat=True))

    # -- members -----------------------------------------------------------------------------------

    def member(self, topic: TopicHandle, command: Join | Heartbeat | Commit) -> Flow[Assigned]:
        path = _member(topic.name, command.group, command.member)
        match command:
            case Join():
                body: Any = {"session": command.session_ms / 1000}
                return (yield from self._ask("PUT", path, Assigned, body, repeat=True))
            case Heartbeat():
                path, body = path + "/heartbeat", {"released": command.released}
                return (yield from self._ask("POST", path, Assigned, body, repeat=True))
            case Commit():
                path, body = path + "/commit", {"offsets": dict(command.offsets)}
                return (yield from self._ask("POST", path, Assigned, body, repeat=True))

    def leave(self, topic: TopicHandle, command: Leave) -> Flow[None]:
        path = _member(topic.name, command.group, command.member)
        reply = yield from self._call("DELETE", path, repeat=True)
        if reply.status >= 400:
            error = reply.error()
            if not (reply.repeated and isinstance(error, MemberFenced)):  # it has left already
                raise error

    def assigned(self, topic: TopicHandle, group: str, member: str) -> Flow[Assigned]:
        path = _member(topic.name, group, member)
        return (yield from self._ask("GET", path, Assigned, repeat=True))

    def fetch(
        self, topic: TopicHandle, group: str, member: str, positions: dict[int, int],
        max_messages: int, wait_ms: int,
    ) -> Flow[Page | None]:  # fmt: skip
        wait_seconds = wait_ms / 1000
        body = {"positions": positions, "max_messages": max_messages, "wait": wait_seconds}
        path = _member(topic.name, group, member) + "/fetch"
        reply = yield from self._call(
            "POST", path, body, repeat=True, arrow=True, wait_seconds=wait_seconds
        )
        table, about = yield Work(lambda: tables.read(reply, wire.FetchAbout))
        return tables.TablePage(table, about.ahead) if table.num_rows else None


# -- paths -----------------------------------------------------------------------------------------


def _topic(topic: str) -> str:
    return f"/v1/topics/{arguments.name(topic, 'topic')}"


def _group(topic: str, group: str) -> str:
    arguments.name(group, "group")
    return f"{_topic(topic)}/groups/{group}"


def _member(topic: str, group: str, member: str) -> str:
    return f"{_group(topic, group)}/members/{arguments.name(member, 'member')}"


# -- values ----------------------------------------------------------------------------------------


def _spot(to: Any, partition: int | None = None) -> int | str:
    """A place in a topic as JSON has it, checked."""
    position = arguments.position(to, partition)
    if position.start == "offset":
        return position.value
    return _moment(position.value) if position.start == "time" else position.start


def _moment(moment_ms: int) -> str:
    moment: datetime = EPOCH + timedelta(milliseconds=moment_ms)
    return moment.isoformat()


def _many(reply: Reply) -> SentMany:
    return SentMany((SentReply(_done(reply, SentBatch).placed),))


def _done(reply: Reply, kind: type[T]) -> T:
    """The answer to what may not be done twice. If another attempt was made before, whose answer was
    lost, an error tells of the last one only; and not every error says that nothing was done."""
    try:
        return reply.json(kind)
    except QuiverError as error:
        told = reply.problem()
        if reply.status < 400 or (told is not None and told.code in UNSURE):
            raise OutcomeUnknown(f"it may have been done or not: {error}") from error
        if reply.repeated:
            raise _unknown(error) from error
        raise


def _unknown(error: QuiverError) -> OutcomeUnknown:
    return OutcomeUnknown(f"an answer was lost: it may have been done or not. Then came: {error}")


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


# -- settling --------------------------------------------------------------------------------------


def _part(
    action: Action, receipts: list[str], held: list[wire.HeldIn], delay: Any, lease: Any,
    reason: str,
) -> wire.SettlePart:  # fmt: skip
    lease_ms = lease_of(action, lease)
    return wire.SettlePart(
        action=action,
        receipts=receipts,
        held=held,
        delay=None if delay is None else milliseconds(delay, "delay") / 1000,
        lease=None if lease_ms is None else lease_ms / 1000,
        reason=arguments.text(reason, "reason"),
    )


def _held(lease: Lease, partition: int, ranges: Ranges) -> wire.HeldIn:
    return wire.HeldIn(receipt=_receipt(lease, partition, ranges[0][0]), ranges=ranges)


def _receipt(lease: Lease, partition: int, offset: int) -> str:
    fields = lease.topic_number, lease.group_number, partition, offset, lease.epoch
    return receipt_text(Receipt(*fields), lease.tag)


def _warn(reply: Reply) -> None:
    told = reply.headers.get(wire.WARNINGS_HEADER)
    if told is not None:
        for one in msgspec.json.decode(told, type=list[wire.Warned]):
            notices.warn(
                UnreadableMessages(one.message)
                if one.unreadable
                else BehindRetention(one.message, one.topic, one.group, one.count)
            )

"""A real engine on a disk that may fail, a model beside it, and everybody who uses them.

Every command goes through `commit`. The engine writes, syncs and applies it; then a second core,
loaded from the state as a snapshot would keep it, applies the same entry and must give the same
answer and the same state. So whatever a snapshot forgets is noticed at the next entry, and the
model can look at the state after each single entry, also when a crash has left only some of them.

Time is a number that goes up when a test says so. `arm` lets the machine stop at a later operation
on the disk, whatever that is part of.
"""

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar, Literal

import pyarrow as pa

from quiver.batches.attributes import attributes_of
from quiver.batches.codec import encode_whole
from quiver.batches.keys import Partitioner
from quiver.batches.rows import Row, pack
from quiver.core.delivery import DeliveryCore
from quiver.errors import DiskFull
from quiver.model.commands import (
    AlterTopic,
    Command,
    Commit,
    Compact,
    DeleteGroup,
    DeleteTopic,
    Entry,
    Heartbeat,
    Held,
    Join,
    Leave,
    PauseGroup,
    Pick,
    ProducerStamp,
    Receive,
    Run,
    Send,
    Settle,
    Tick,
    Transact,
)
from quiver.model.replies import (
    Assigned,
    Outcome,
    Received,
    SentMany,
    SentReply,
    Settled,
    Transacted,
)
from quiver.model.topic import TopicPolicy
from quiver.node.cache import BatchCache
from quiver.node.compaction import KeyScan, ReadKeys, read_keys
from quiver.node.engine import Proposal
from quiver.node.peer import Peer
from quiver.node.snapshots import Snapshot
from quiver.storage import codec
from quiver.testing import MemoryFiles, SimulatedCrash
from tests.properties import history as told
from tests.properties.history import History, Status
from tests.properties.ledger import check_sums
from tests.properties.model import Model, renewed_ms, singles, stored

START_MS = 1_700_000_000_000
SECRET = b"a secret of the tests"
Survival = Literal["none", "all"] | int  # an int seeds the chance of each write to survive


@dataclass(frozen=True, slots=True)
class Ask:
    """A command, and what the sender meant by it."""

    command: Command
    rows: tuple[tuple[Row, ...], ...] = ()
    packed_ms: int = 0
    batch: pa.RecordBatch | None = None
    encoded: bytes = b""


@dataclass(frozen=True, slots=True)
class Lease:
    """What a consumer remembers of one receive from one partition."""

    topic: int
    group: int
    partition: int
    epoch: int
    offsets: tuple[int, ...]


@dataclass(slots=True)
class Written:
    """An entry that was given to the disk; `outcome` is what its client was told, if anything."""

    index: int
    now_ms: int
    ask: Ask
    outcome: Outcome | None = None


@dataclass(slots=True)
class Checkpoint:
    """Everything as it was when all of the log was surely on disk."""

    model: bytes
    state: bytes
    events: int
    written: list[Written] = field(default_factory=list)


class World:
    """An engine under test."""

    sizes: ClassVar = {"file_bytes": 2_000, "allocate_bytes": 1_024, "reserve_bytes": 256}

    def __init__(self, *, bounded: bool = False) -> None:
        self.files = MemoryFiles()
        self.now_ms = START_MS
        self.model = Model(bounded=bounded)
        self.history = History()
        self.leases: list[Lease] = []
        self.snapshot: Snapshot | None = None
        self.saved = False
        self.crashes = 0
        self.sound = True  # no step has failed
        self.sent = 0
        self.transactions = 0
        self._turn = 0
        self._checkpoint: Checkpoint | None = None
        self._survival: Survival = "none"
        self._peer_is(self._opened())
        self.model.now_ms = self.engine.core.now_ms
        self.state = codec.encode_state(self.engine.core.dump())

    # -- committing --------------------------------------------------------------------------------

    def commit(self, *asks: Ask, sync: bool = True) -> list[Outcome]:
        """Do commands in one write; the answers, or nothing if the machine stopped meanwhile."""
        proposals = [Proposal(ask.command, ask.batch, ask.encoded) for ask in asks]
        first = self.engine.core.index + 1
        now_ms = max(self.now_ms, self.engine.core.now_ms)
        if not sync or self.files.crash_at is not None:
            self._keep_checkpoint()
        try:
            outcomes = self.peer.commit(proposals, now_ms=self.now_ms, sync=sync)
        except SimulatedCrash:
            self._crashed([Written(first + n, now_ms, ask) for n, ask in enumerate(asks)])
            return []
        index = first
        for ask, outcome in zip(asks, outcomes, strict=True):
            if isinstance(outcome.reply, DiskFull):
                self._check_full()
                self._refused(ask)
                continue
            entry = Written(index, now_ms, ask, outcome)
            if self._checkpoint is not None:
                self._checkpoint.written.append(entry)
            self._follow(entry)
            index += 1
        assert self.engine.core.index == index - 1
        self._meet()
        if sync and self.engine.wal.synced_index == self.engine.wal.last_index:
            self._checkpoint = None
        for outcome in outcomes:
            self._remember(outcome.reply)
        return outcomes

    def one(self, command: Command) -> Any:
        """Do a command that sends nothing; its reply, or None if the machine stopped."""
        outcomes = self.commit(Ask(command))
        return outcomes[0].reply if outcomes else None

    def _follow(self, entry: Written) -> None:
        """Apply an entry to the state as a snapshot has it, and let the model judge."""
        self.sound = False
        ask, index, now_ms = entry.ask, entry.index, entry.now_ms
        before = self.model.ready_groups(now_ms)
        core = DeliveryCore.load(codec.decode_state(self.state))
        assert codec.encode_state(core.dump()) == self.state, "a state is not what was saved"
        due_ms = core.next_tick_ms()
        later = None
        if due_ms is not None and due_ms <= now_ms:
            later = self._later(index, now_ms)
        command = codec.decode(*codec.encode(ask.command))
        outcome = core.apply(Entry(index, now_ms, command))
        if entry.outcome is not None:
            assert plain(outcome) == plain(entry.outcome), "a loaded state answers differently"
        if isinstance(outcome.reply, Exception):
            unchanged = forgetful((later or self._later(index, now_ms)).dump())
            assert forgetful(core.dump()) == unchanged, "a refused command changed something"
        if entry.outcome is None:
            core.check()
        self.state = codec.encode_state(core.dump())
        self.model.pass_time(now_ms, later)
        self.model.do(index, command, ask.rows, ask.packed_ms, outcome, core)
        self.model.compare(core, swept=isinstance(command, Tick) and command.sweep)
        woken = set(outcome.woken) & set(entry.outcome.woken if entry.outcome else outcome.woken)
        for topic, group in self.model.ready_groups(now_ms) - before:
            assert topic in woken or self._new(topic, group), "nobody wakes who waits for this"
        if isinstance(command, DeleteGroup) and not isinstance(outcome.reply, Exception):
            assert command.topic in woken, "whoever waits for a group must hear that it is gone"
        self._record(entry, outcome)
        self.sound = True

    def _later(self, index: int, now_ms: int) -> DeliveryCore:
        """The state after time has passed and nothing else has happened."""
        core = DeliveryCore.load(codec.decode_state(self.state))
        core.apply(Entry(index, now_ms, Tick()))
        return core

    def _new(self, topic: int, group: int) -> bool:
        """Nobody can wait yet for a group that this entry has made."""
        return (topic, group) in {(t, g) for t, g, _ in self.model.starts}

    def _meet(self) -> None:
        """The engine is in the state that its entries lead to."""
        self.engine.core.check()
        assert codec.encode_state(self.engine.core.dump()) == self.state

    # -- stopping and starting -----------------------------------------------------------------------

    def arm(self, operations: int, *, late: bool, survival: Survival) -> None:
        """Let the machine stop at one of the next operations on the disk."""
        self.files.crash_at = self.files.operations + operations
        self.files.crash_late = late
        self._survival = survival

    def crash(self, survival: Survival) -> None:
        """Stop the machine between two commands."""
        self._survival = survival
        self._crashed([])

    def reopen(self) -> None:
        """Close and open, as a program does that ends well."""
        self.free_disk()
        try:
            self.engine.close()
        except SimulatedCrash:
            self._crashed([])
            return
        try:
            self._peer_is(Peer.open(self.files, now_ms=self.now_ms, secret=b"", **self.sizes))
        except SimulatedCrash:
            self._crashed([])
            return
        self._meet()
        self._checkpoint = None
        self.read_everything()

    def _crashed(self, unanswered: list[Written]) -> None:
        """Find out what has survived, and that it is what it should be."""
        self.crashes += 1
        self.files = self.files.crash(self._chance())
        self.files.capacity_bytes = None
        self._peer_is(self._opened())
        index = self.engine.core.index
        checkpoint, self._checkpoint = self._checkpoint, None
        if checkpoint is None:
            assert not unanswered
            self._meet()
        else:
            written = [*checkpoint.written, *unanswered]
            self.model = pickle.loads(checkpoint.model)
            self.state = checkpoint.state
            del self.history.events[checkpoint.events :]
            base = codec.decode_state(checkpoint.state)[0]
            assert base <= index <= base + len(written), "a confirmed entry is lost"
            for entry in written[: index - base]:
                self._follow(entry)
            for entry in written[index - base :]:
                if entry.outcome is None:
                    self._lost(entry)
            self._meet()
        self.read_everything()

    def _opened(self) -> Peer:
        """Open what a crash has left, however often it crashes meanwhile."""
        while True:
            try:
                return Peer.open(self.files, now_ms=self.now_ms, secret=SECRET, **self.sizes)
            except SimulatedCrash:
                self.files = self.files.crash(self._chance())

    def _peer_is(self, peer: Peer) -> None:
        self.peer, self.engine = peer, peer.engine
        assert self.engine.core.secret == SECRET
        self.snapshot, self.saved = None, False

    def _chance(self) -> Random | Literal["none", "all"]:
        return Random(self._survival) if isinstance(self._survival, int) else self._survival

    def _keep_checkpoint(self) -> None:
        if self._checkpoint is None:
            events = len(self.history.events)
            self._checkpoint = Checkpoint(pickle.dumps(self.model), self.state, events)

    # -- snapshots and the disk --------------------------------------------------------------------

    def begin_snapshot(self) -> None:
        """Take the state to be saved, unless one is being saved."""
        if self.snapshot is not None:
            return
        index, now_ms = self.engine.core.index + 1, max(self.now_ms, self.engine.core.now_ms)
        sweep = Written(index, now_ms, Ask(Tick(sweep=True)))
        if self.files.crash_at is not None:
            self._keep_checkpoint()
        try:
            self.snapshot, self.saved = self.peer.begin_snapshot(self.now_ms), False
        except SimulatedCrash:
            self._crashed([sweep])
            return
        except DiskFull:
            self._check_full()
            return
        if self.engine.core.index == index:
            if self._checkpoint is not None:
                self._checkpoint.written.append(sweep)
            self._follow(sweep)
        self._meet()
        if self.engine.wal.synced_index == self.engine.wal.last_index:
            self._checkpoint = None

    def save_snapshot(self) -> None:
        """Write it, as another thread would."""
        if self.snapshot is None or self.saved:
            return
        try:
            self.snapshot.save()
            self.saved = True
        except SimulatedCrash:
            self._crashed([])
        except DiskFull:
            self._check_full()
            self.snapshot = None
            self.engine.snapshots.drop()

    def finish_snapshot(self) -> None:
        """Let the log go of what only older states needed."""
        if self.snapshot is None or not self.saved:
            return
        made, self.snapshot, self.saved = self.snapshot, None, False
        try:
            self.engine.snapshots.finish(made)
        except SimulatedCrash:
            self._crashed([])
            return
        self.read_everything()

    def _check_full(self) -> None:
        """There is no room, or what there is was lent to the snapshot."""
        assert self.files.capacity_bytes is not None or self.snapshot is not None

    def fill_disk(self, free_bytes: int) -> None:
        self.files.capacity_bytes = self.files.used_bytes + free_bytes

    def free_disk(self) -> None:
        self.files.capacity_bytes = None

    # -- reading -----------------------------------------------------------------------------------

    def bodies(self, topic: int, slices: Sequence[Any]) -> list[bytes]:
        """The bodies of slices, as the engine has stored them."""
        found: list[bytes] = []
        for batch, at, part in self.engine.source(topic, slices).pieces():
            found += batch.column("body").slice(at, part.count).to_pylist()
        return found

    def read_everything(self) -> list[tuple[told.Place, bytes]]:
        """Every stored message is there, with the body that it was sent with; the ledger adds up."""
        found: list[tuple[told.Place, bytes]] = []
        for topic in self.model.topics.values():
            for partition, messages in enumerate(topic.partitions):
                pieces = stored(self.engine.core, topic.number, partition)
                for piece, body in zip(pieces, self.bodies(topic.number, pieces), strict=True):
                    assert body == messages[piece.offset].body
                    found.append(((topic.number, partition, piece.offset), body))
        check_sums(self.engine)
        return found

    # -- compaction --------------------------------------------------------------------------------

    def survey(self, number: int) -> Compact | None:
        """What a compaction finds now, which must be exactly what is superseded."""
        topic = self.model.topics.get(number)
        if topic is None:
            return None
        picks: list[Pick] = []
        for partition, messages in enumerate(topic.partitions):
            scan = KeyScan(self.now_ms)
            query = ReadKeys(number, partition, 0, len(messages), BatchCache())
            page = read_keys(self.engine, query, self.now_ms)
            for row in page.rows():
                scan.look(*row)
            scan.finish()
            ranges = scan.take()
            found = [offset for start, end in ranges for offset in range(start, end)]
            assert found == self.model.superseded(topic, partition)
            picks.append(Pick(partition, ranges))
        return Compact(number, tuple(picks))

    # -- what clients do ---------------------------------------------------------------------------

    def number(self, name: str) -> int:
        """The topic's number; one that does not exist if it was deleted."""
        return self.model.names.get(name, 0)

    def policy(self, number: int) -> TopicPolicy:
        topic = self.model.topics.get(number)
        return topic.policy if topic is not None else TopicPolicy()

    def body(self) -> bytes:
        """A body that nobody else has; some are longer, so that files fill at different places."""
        self.sent += 1
        return b"message %d" % self.sent + b"." * (self.sent * 7 % 50)

    def send(
        self,
        topic: int,
        requests: Sequence[Sequence[Row]],
        *,
        producer: ProducerStamp | None = None,
        packed_ms: int | None = None,
    ) -> Ask:
        """Several requests as one Send, each placed by the topic's own rule."""
        policy = self.policy(topic)
        partitioner = Partitioner(policy)
        rows: list[Row] = []
        runs: list[Run] = []
        counts: list[int] = []
        for request in requests:
            self._turn += 1
            places: dict[int, list[Row]] = {}
            for row in request:
                places.setdefault(partitioner.one(row.key, self._turn), []).append(row)
            for partition in sorted(places):
                runs.append(Run(partition, len(places[partition]), _nbytes(places[partition])))
                rows += places[partition]
            counts.append(len(places))
        at = self.now_ms if packed_ms is None else packed_ms
        if policy.order == "partition":
            # A message whose life is over when it is stored ends with the next entry if it is
            # behind a delayed one, and at once elsewhere. The model only knows the latter.
            at = max(self.now_ms, self.model.now_ms)
        batch = pack(rows, at)
        command = Send(
            topic,
            tuple(runs),
            tuple(counts),
            attributes_of(batch, keyed=policy.keyed),
            producer=producer,
        )
        return Ask(command, (tuple(rows),), at, batch, encode_whole(batch, policy.compression))

    def transact(self, settles: Sequence[Settle], sends: Sequence[tuple[int, list[Row]]]) -> Ask:
        """Receipts and messages as one step."""
        at = max(self.now_ms, self.model.now_ms)
        asks = [self.send(topic, [rows], packed_ms=at) for topic, rows in sends]
        commands: list[Send] = []
        rows: list[Row] = []
        for ask in asks:
            assert isinstance(ask.command, Send)
            commands.append(replace(ask.command, first_row=len(rows)))
            rows += ask.rows[0]
        batch = pack(rows, at) if rows else None
        return Ask(
            Transact(tuple(settles), tuple(commands)),
            tuple(ask.rows[0] for ask in asks),
            at,
            batch,
            encode_whole(batch, None) if batch is not None else b"",
        )

    def settle(self, lease: Lease, action: Any, offsets: Sequence[int], **fields: Any) -> Settle:
        """Settle some offsets of a lease."""
        return Settle(
            lease.topic,
            lease.group,
            action,
            (Held(lease.partition, lease.epoch, self.ranges(lease.topic, offsets)),),
            **fields,
        )

    def ranges(self, topic: int, offsets: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Offsets as ranges. With jitter a range has one chance, so each message gets its own."""
        joined: list[tuple[int, int]] = []
        alone = self.policy(topic).retry.jitter
        for offset in offsets:
            if joined and joined[-1][1] == offset and not alone:
                joined[-1] = (joined[-1][0], offset + 1)
            else:
                joined.append((offset, offset + 1))
        return tuple(joined)

    def _remember(self, reply: Any) -> None:
        """A consumer keeps its receipts, also when they are no longer good."""
        if isinstance(reply, Received):
            self.leases += self.leases_of(reply)
            del self.leases[:-30]

    @staticmethod
    def leases_of(reply: Received) -> list[Lease]:
        """The receipts of one receive, by partition; at most once, only what was reserved has one."""
        offsets: dict[int, list[int]] = {}
        for piece in singles(reply.slices):
            if piece.reserved or not reply.settled:
                offsets.setdefault(piece.partition, []).append(piece.offset)
        return [
            Lease(reply.topic, reply.group, partition, reply.epoch, tuple(sorted(found)))
            for partition, found in offsets.items()
        ]

    # -- the history -------------------------------------------------------------------------------

    def _record(self, entry: Written, outcome: Outcome) -> None:
        """What clients learn from an answered entry, and what anybody may learn from the log."""
        status: Status = "ok" if entry.outcome is not None else "info"
        self._record_notes()
        command, reply, now_ms = entry.ask.command, outcome.reply, entry.now_ms
        match command:
            case Send():
                answers = reply.answers if isinstance(reply, SentMany) else ()
                self._record_send(status, command, entry.ask.rows[0], entry, answers)
            case Receive() if isinstance(reply, Received):
                self._record_receive(status, reply, now_ms)
            case Settle():
                self._record_settle(status, command, reply, now_ms)
            case Transact():
                self._record_transaction(status, command, reply, entry)
            case AlterTopic() if not isinstance(reply, Exception):
                window_ms = self.model.topics[command.topic].policy.dedup_window_ms
                self.history.add(told.Altered(command.topic, window_ms, now_ms))
            case DeleteTopic() if not isinstance(reply, Exception):
                self.history.add(told.Deleted(command.topic))
            case Commit() if isinstance(reply, Assigned):
                self._record_assigned(command.topic, command.group, reply, command)
            case Join() | Heartbeat() if isinstance(reply, Assigned):
                self._record_assigned(command.topic, command.group, reply)

    def _record_notes(self) -> None:
        """What the model has seen that no answer tells."""
        known = {e.topic for e in self.history.events if isinstance(e, told.TopicMade)}
        for topic in self.model.topics.values():
            if topic.number not in known:
                window_ms = topic.policy.dedup_window_ms
                self.history.add(told.TopicMade(topic.number, topic.policy.order, window_ms))
        for move in self.model.moves:
            self.history.add(
                told.Moved(
                    move.message.body,
                    move.source,
                    move.target,
                    self.model.now_ms,
                    move.group,
                    move.message.key,
                    move.only,
                )
            )
        for topic_number, group_number, partition in self.model.starts:
            group = self.model.topics[topic_number].numbered(group_number)
            assert group is not None
            slots = group.slots[partition]
            wanted = tuple(o for o, slot in enumerate(slots) if slot.state != "settled")
            self.history.add(told.Owed(topic_number, group_number, partition, wanted, len(slots)))
        for topic_number, group_number in self.model.ends:
            self.history.add(told.Deleted(topic_number, group_number))
        if self.model.drops:
            self.history.add(told.Dropped(tuple(self.model.drops)))
        for begun in self.model.begins:
            self.history.add(
                told.Begun(
                    begun.seat, begun.epoch, self.model.now_ms, begun.deadline_ms, begun.settled
                )
            )
        self.model.moves, self.model.starts, self.model.begins = [], [], []
        self.model.ends, self.model.drops = [], []

    def _record_send(
        self,
        status: Status,
        command: Send,
        rows: Sequence[Row],
        entry: Written,
        answers: Sequence[SentReply | Exception],
        transaction: int = 0,
    ) -> None:
        """One event for each row; a refused or lost request has no places."""
        places: list[tuple[Status, told.Place | None, bool]] = []
        run = 0
        if not answers:
            places = [("fail", None, False)] * len(rows)
        for count, answer in zip(command.requests, answers, strict=False):
            length = sum(one.rows for one in command.runs[run : run + count])
            run += count
            if isinstance(answer, Exception):
                places += [("fail", None, False)] * length
                continue
            for placed in answer.placed:
                for at in range(placed.count):
                    place = (command.topic, placed.partition, placed.offset + at)
                    known = place if placed.partition >= 0 else None
                    places.append((status, known, placed.duplicate))
        keyed = self.policy(command.topic).keyed
        for row, (result, where, duplicate) in zip(rows, places, strict=True):
            self.history.add(
                told.Sent(
                    result,
                    row.body,
                    command.topic,
                    entry.now_ms,
                    where,
                    (row.key or "") if keyed else "",
                    entry.ask.packed_ms + row.ttl_ms if row.ttl_ms else 0,
                    row.dedup_id,
                    duplicate,
                    transaction,
                )
            )

    def _record_receive(self, status: Status, reply: Received, now_ms: int) -> None:
        pieces = singles(reply.slices)
        if status == "ok":
            bodies = self.bodies(reply.topic, pieces)
        else:
            partitions = self.model.topics[reply.topic].partitions
            bodies = [partitions[piece.partition][piece.offset].body for piece in pieces]
        for piece, body in zip(pieces, bodies, strict=True):
            seat = (reply.topic, reply.group, piece.partition, piece.offset)
            if piece.reserved:
                reserved = told.Reserved(seat, body, reply.epoch, now_ms, reply.deadline_ms)
                self.history.add(reserved)
                continue
            self.history.add(
                told.Delivered(
                    seat,
                    body,
                    reply.epoch,
                    now_ms,
                    reply.deadline_ms,
                    piece.attempt,
                    reply.settled,
                    status,
                )
            )

    def _record_settle(
        self, status: Status, command: Settle, reply: Any, now_ms: int, transaction: int = 0
    ) -> None:
        named = Counter(_seats(command.held))
        refused = Counter(_seats(reply.refused)) if isinstance(reply, Settled) else Counter()
        deadline_ms = renewed_ms(command, now_ms)
        for partition, epoch, offset in named:
            failed = isinstance(reply, Exception) or (
                refused[partition, epoch, offset] == named[partition, epoch, offset]
            )
            self.history.add(
                told.Settled(
                    "fail" if failed else status,
                    command.action,
                    (command.topic, command.group, partition, offset),
                    epoch,
                    now_ms,
                    deadline_ms,
                    transaction,
                )
            )

    def _record_transaction(
        self, status: Status, command: Transact, reply: Any, entry: Written
    ) -> None:
        self.transactions += 1
        number = self.transactions
        if isinstance(reply, Exception):
            status = "fail"
        self.history.add(told.Transaction(status, number))
        answers = reply.sent if isinstance(reply, Transacted) else [None] * len(command.sends)
        for settle in command.settles:
            self._record_settle(status, settle, reply, entry.now_ms, number)
        for send, rows, answer in zip(command.sends, entry.ask.rows, answers, strict=True):
            whole = replace(send, requests=(len(send.runs),))
            given = [answer] if answer is not None else []
            self._record_send(status, whole, rows, entry, given, number)

    def _record_assigned(
        self, topic: int, group: str, reply: Assigned, said: Commit | None = None
    ) -> None:
        number = self.model.topics[topic].groups[group].number
        for partition, offset in said.offsets if said is not None else ():
            self.history.add(told.Committed(topic, number, partition, offset, said=True))
        for partition, offset in reply.partitions:
            self.history.add(told.Committed(topic, number, partition, offset))

    def _refused(self, ask: Ask) -> None:
        """The disk was full: nothing of it was done."""
        for rows in ask.rows:
            for row in rows:
                self.history.add(told.Sent("fail", row.body, 0, self.now_ms))

    def _lost(self, entry: Written) -> None:
        """Nobody was told, and it is not in the log."""
        for rows in entry.ask.rows:
            for row in rows:
                self.history.add(told.Sent("info", row.body, 0, entry.now_ms))

    # -- the end -----------------------------------------------------------------------------------

    def drain(self) -> None:
        """Heal everything, let every group process all that it is owed, and check the history."""
        self.free_disk()
        self.files.crash_at = None
        self.save_snapshot()
        self.finish_snapshot()
        for topic in list(self.model.topics.values()):
            for group in list(topic.groups.values()):
                for member in list(group.members):
                    self.one(Leave(topic.number, group.name, member))
                if group.paused:
                    self.one(PauseGroup(topic.number, group.name, paused=False))
        for _ in range(60):
            self.now_ms += 1_000
            if not self._drain_once():
                break
        else:
            raise AssertionError("something is never delivered")
        self.read_everything()
        for place, body in self.read_everything():
            self.history.add(told.Left(place, body))
        self.history.add(told.Clock(self.model.now_ms))
        self.history.check()

    def _drain_once(self) -> bool:
        """Receive and ack everything that is there now; whether anything is left."""
        self.one(Tick())
        for topic in list(self.model.topics.values()):
            groups = [group.name for group in topic.groups.values()] or ["drain"]
            for group in groups:
                while self._ack_all(self.one(Receive(topic.number, group, 1_000, 10))):
                    pass
        return any(
            group.lag() for topic in self.model.topics.values() for group in topic.groups.values()
        )

    def _ack_all(self, reply: Received) -> bool:
        """Whether there was anything."""
        if reply.settled or not reply.slices:
            return bool(reply.slices)
        offsets: dict[int, list[int]] = {}
        for piece in singles(reply.slices):
            offsets.setdefault(piece.partition, []).append(piece.offset)
        held = tuple(
            Held(partition, reply.epoch, tuple((o, o + 1) for o in found))
            for partition, found in offsets.items()
        )
        self.one(Settle(reply.topic, reply.group, "ack", held))
        return True


def _seats(held: Sequence[Held]) -> Iterator[tuple[int, int, int]]:
    """Partition, epoch and offset of everything that is held, once for each holding."""
    for one in held:
        offsets = {offset for start, end in one.ranges for offset in range(start, end)}
        yield from ((one.partition, one.epoch, offset) for offset in sorted(offsets))


def _nbytes(rows: Sequence[Row]) -> int:
    return sum(row.nbytes for row in rows)


def plain(outcome: Outcome) -> Any:
    """An outcome that can be compared: errors by their kind and words."""

    def words(value: Any) -> Any:
        return (type(value), str(value)) if isinstance(value, Exception) else value

    reply = outcome.reply
    if isinstance(reply, SentMany):
        return [words(answer) for answer in reply.answers]
    return words(reply)


def forgetful(dump: list[Any]) -> bytes:
    """A state without the dedup ids whose time is over: when they are dropped, nobody can tell."""
    now_ms = dump[1]
    state = codec.decode_state(codec.encode_state(dump))
    for topic in state[5]:
        topic[5] = [known for known in topic[5] if known[1] > now_ms]
    return codec.encode_state(state)

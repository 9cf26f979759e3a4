"""What delivery promises, message by message: slow, plain, and obviously right.

A topic is a list of messages for each partition; a group has a slot for every one of them. There
are no ranges, heaps, rings or timers here, and nothing is taken over from the implementation but
its vocabulary. Where the promise is exact, so is the model: who may have which message, how often
it was tried, what is refused, what is counted. Where the implementation may choose, the model looks
at the choice and asserts that it was one of the allowed ones:

- a receive takes as many as it may, in the order that the policy promises (`_check_order`);
- messages that fail together may be buried in any order, but those of one source in offset order;
- what nobody needs any more may stay or go (`gone`), but never comes back.

`pass_time` and then `do` are called for every entry of the log, each with the core as it is
afterwards; `compare` looks at everything else that the core tells.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from quiver.batches.rows import Row
from quiver.core.delivery import DeliveryCore
from quiver.errors import (
    GroupNotFound,
    InvalidRequest,
    MemberFenced,
    ProducerFenced,
    QueueFull,
    ReceiptExpired,
    ReceiptInvalid,
    TopicExists,
    TopicNotFound,
)
from quiver.model import levels
from quiver.model.commands import (
    AlterTopic,
    Command,
    Commit,
    Compact,
    CreateGroup,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    Discard,
    Found,
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
    Raise,
    Receive,
    Redrive,
    Seek,
    Send,
    SetPeers,
    SetTime,
    Settle,
    Tick,
    Transact,
)
from quiver.model.replies import (
    Assigned,
    Done,
    Moved,
    Origin,
    Outcome,
    PeersSet,
    Placed,
    Positioned,
    ProducerOpened,
    Received,
    SentMany,
    SentReply,
    Settled,
    Slice,
    TopicCreated,
    Transacted,
)
from quiver.model.topic import Guarantee, TopicPolicy

EVERYTHING = 1_000_000
FOREVER_MS = 10**12
ROUNDING_BYTES = 60  # a message's share of its batch is not exact
FIXED = ("partitions", "order", "fair", "partition_by", "split_keys")

Kind = Literal["plain", "strict", "key", "fair"]
Refusals = set[type[Exception]]
Place = tuple[int, int]  # partition, offset
Source = tuple[int, int, int, int, tuple[int, int]]  # topic, partition, offset, group, lease


@dataclass(slots=True)
class Message:
    """A stored message; `index` and `row` say where its bytes are."""

    body: bytes
    index: int
    row: int
    time_ms: int
    key: str = ""  # if delivery looks at it
    text: str = ""  # the key, whether or not
    nbytes: int = 0
    priority: int = 0
    deliver_at: int = 0
    expires_at: int = 0
    origin: Origin | None = None
    removed: bool = (
        False  # purged, discarded, compacted, redriven or expired: for no group any more
    )
    gone: bool = False  # not stored any more

    @property
    def tenant(self) -> str:
        return self.key.partition("/")[0]

    def over(self, now_ms: int) -> bool:
        """Its time to live has ended."""
        return 0 < self.expires_at <= now_ms


@dataclass(slots=True)
class Slot:
    """A message as one group sees it. An open one may be delivered, but not before `due_ms`."""

    state: Literal["open", "leased", "settled"] = "open"
    attempts: int = 0
    due_ms: int = 0
    back: bool = False  # it had to wait or was tried before: it goes before fresh ones
    unseen: bool = False  # it came while members were there, who need no leases
    epoch: int = 0
    deadline_ms: int = 0
    steal_ms: int = 0  # leased and not begun: from then on others may take it over

    @property
    def reserved(self) -> bool:
        return self.state == "leased" and self.steal_ms > 0

    @property
    def begun(self) -> bool:
        return self.state == "leased" and not self.steal_ms


@dataclass(frozen=True, slots=True)
class Begun:
    """What was reserved has begun; at most once it is settled with that."""

    seat: tuple[int, int, int, int]  # topic, group, partition, offset
    epoch: int
    deadline_ms: int
    settled: bool


@dataclass(frozen=True, slots=True)
class Move:
    """A message came to a second place; `group` is 0 if it left the first for all.

    With `only`, a group's number, it is for no other group there.
    """

    message: Message
    source: tuple[int, int, int]  # topic, partition, offset
    group: int
    target: tuple[int, int, int]
    only: int


@dataclass(slots=True)
class Turns:
    """Who had a turn, and since when others wait: one partition of a group with fairness."""

    clock: int = 0
    waiting: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # head, priority, since
    last: dict[tuple[int, str], int] = field(default_factory=dict)  # priority, key
    last_tenant: dict[tuple[int, str], int] = field(default_factory=dict)


@dataclass(slots=True)
class Group:
    """An independent set of consumers."""

    name: str
    number: int
    guarantee: Guarantee
    slots: list[list[Slot]]
    turns: list[Turns]
    paused: bool = False
    members: dict[str, tuple[int, int]] = field(default_factory=dict)  # session, deadline
    owned: dict[str, set[int]] = field(default_factory=dict)  # what each was told that it owns
    generation: int = 0
    delivered: int = 0
    acked: int = 0
    nacked: int = 0
    redelivered: int = 0
    timed_out: int = 0
    dead_lettered: int = 0
    redriven: int = 0
    expired: int = 0
    behind_retention: int = 0
    untold: int = 0
    released: int = 0

    def told(self, lost: int) -> None:
        """A consumer hears of everything that was lost since the last time."""
        assert lost == self.untold, f"{self.untold} were lost, and {lost} are told"
        self.untold = 0

    def all_slots(self) -> Iterator[tuple[int, int, Slot]]:
        for partition, slots in enumerate(self.slots):
            for offset, slot in enumerate(slots):
                yield partition, offset, slot

    def lag(self) -> int:
        return sum(slot.state != "settled" for _, _, slot in self.all_slots())

    def leased(self) -> int:
        return sum(slot.state == "leased" for _, _, slot in self.all_slots())

    def reserved(self) -> int:
        return sum(slot.reserved for _, _, slot in self.all_slots())

    def committed(self, partition: int) -> int:
        """The first offset that is not settled."""
        slots = self.slots[partition]
        return next((o for o, slot in enumerate(slots) if slot.state != "settled"), len(slots))


@dataclass(slots=True)
class Topic:
    """A named log with a policy."""

    number: int
    name: str
    policy: TopicPolicy
    partitions: list[list[Message]]
    groups: dict[str, Group] = field(default_factory=dict)
    dedup: dict[str, tuple[int, Placed]] = field(default_factory=dict)
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)  # epoch, stored
    sent: int = 0
    duplicates: int = 0
    compacted: int = 0

    @property
    def kind(self) -> Kind:
        if self.policy.order == "partition":
            return "strict"
        if self.policy.order == "key":
            return "key"
        return "fair" if self.policy.fair else "plain"

    def unsettled(self) -> int:
        """What the slowest group has not settled; all there is, without a group."""
        if self.groups:
            return max(group.lag() for group in self.groups.values())
        return sum(not (m.removed or m.gone) for part in self.partitions for m in part)

    def numbered(self, number: int) -> Group | None:
        return next((group for group in self.groups.values() if group.number == number), None)


@dataclass(frozen=True, slots=True)
class Moving:
    """A message on its way; with `only` it is for no other group of the topic."""

    topic: Topic
    partition: int
    message: Message
    source: Source
    only: str


class Model:
    """All topics. `bounded` means that a receive may stop early, because of the bytes it carries."""

    def __init__(self, *, bounded: bool = False) -> None:
        self.bounded = bounded
        self.now_ms = 0
        self.topics: dict[int, Topic] = {}
        self.names: dict[str, int] = {}
        self._last_number = 0
        self.level = levels.FIRST
        self.peers = b""
        self._moving: list[Moving] = []
        self._index = 0
        self._trimmed: set[Place] = set()  # partitions whose head this entry must let go of
        # What happened that no answer tells; whoever keeps a history takes it from here.
        self.moves: list[Move] = []
        self.starts: list[tuple[int, int, int]] = []  # topic, group, partition
        self.ends: list[tuple[int, int]] = []  # topic, group
        self.drops: list[tuple[int, int, int]] = []  # topic, partition, offset
        self.begins: list[Begun] = []

    # -- what may be delivered ---------------------------------------------------------------------

    def available(
        self, topic: Topic, group: Group, partition: int, now_ms: int, per_key: int = 1
    ) -> dict[str, list[int]]:
        """The offsets that may be delivered now, in their order; by key where keys matter."""
        if group.paused or group.members:
            return {}
        messages, slots = topic.partitions[partition], group.slots[partition]
        pending = [offset for offset, slot in enumerate(slots) if slot.state != "settled"]
        if topic.kind == "strict":
            out = any(slots[offset].state == "leased" for offset in pending)
            return {"": [] if out else _head_run(messages, slots, pending, now_ms)}
        ready = [
            offset
            for offset in pending
            if slots[offset].state == "open"
            and max(slots[offset].due_ms, messages[offset].deliver_at) <= now_ms
        ]
        if topic.kind == "plain":
            ready.sort(key=lambda o: (-messages[o].priority, not slots[o].back, o))
            return {"": ready}
        chains: dict[str, list[int]] = {}
        ready.sort(key=lambda o: (not slots[o].back, o))
        for offset in ready:
            chains.setdefault(messages[offset].key, []).append(offset)
        if topic.kind == "key":
            for key in [key for key in chains if key]:
                of_key = [offset for offset in pending if messages[offset].key == key]
                chains[key] = _head_run(messages, slots, of_key, now_ms)[:per_key]
        return {key: chain for key, chain in chains.items() if chain}

    def is_ready(self, topic: Topic, group: Group, now_ms: int) -> bool:
        """A receive would get something, be it what others have reserved for long enough."""
        return bool(self.stealable(topic, group, now_ms)) or any(
            chain
            for partition in range(len(topic.partitions))
            for chain in self.available(topic, group, partition, now_ms).values()
        )

    @staticmethod
    def stealable(topic: Topic, group: Group, now_ms: int) -> list[tuple[int, int, int, int]]:
        """Since when, epoch, partition and offset of what may be taken over, oldest first.

        In strict order only where nothing has begun.
        """
        if group.paused or group.members:
            return []
        found = []
        for partition, slots in enumerate(group.slots):
            if topic.kind == "strict" and any(slot.begun for slot in slots):
                continue
            found += [
                (slot.steal_ms, slot.epoch, partition, offset)
                for offset, slot in enumerate(slots)
                if slot.reserved and slot.steal_ms <= now_ms
            ]
        return sorted(found)

    def ready_groups(self, now_ms: int) -> set[tuple[int, int]]:
        """Topic and group, by number, of everybody whose receive would get something."""
        return {
            (topic.number, group.number)
            for topic in self.topics.values()
            for group in topic.groups.values()
            if self.is_ready(topic, group, now_ms)
        }

    # -- time --------------------------------------------------------------------------------------

    def pass_time(self, now_ms: int, core: DeliveryCore | None) -> None:
        """End the leases, lives and sessions that are due; without a core, there are none."""
        assert now_ms >= self.now_ms
        self.now_ms = now_ms
        self._trimmed = set()
        if core is None:
            self._check_nothing_due()
            return
        for topic in list(self.topics.values()):
            for group in topic.groups.values():
                for partition, offset, slot in group.all_slots():
                    if slot.reserved and slot.deadline_ms <= now_ms:
                        self._release(topic, group, (partition, offset), 0)
                    elif slot.state == "leased" and slot.deadline_ms <= now_ms:
                        group.timed_out += 1
                        self._fail(topic, group, (partition, offset), 0, "lease expired", core)
                for name, (_, deadline_ms) in list(group.members.items()):
                    if deadline_ms <= now_ms:
                        self._leave(topic, group, name)
        for topic in self.topics.values():
            self._end_lives(topic)
        self._settle_moves(core)
        for topic in self.topics.values():
            self._note_gone(topic, core)

    def _check_nothing_due(self) -> None:
        for topic in self.topics.values():
            for group in topic.groups.values():
                for _, _, slot in group.all_slots():
                    assert slot.state != "leased" or slot.deadline_ms > self.now_ms
                for _, deadline_ms in group.members.values():
                    assert deadline_ms > self.now_ms
            for messages in topic.partitions:
                for message in messages:
                    assert message.removed or message.gone or not message.over(self.now_ms)

    def _end_lives(self, topic: Topic) -> None:
        for partition, messages in enumerate(topic.partitions):
            for offset, message in enumerate(messages):
                if message.removed or not message.over(self.now_ms):
                    continue
                message.removed = True
                for group in topic.groups.values():
                    slot = group.slots[partition][offset]
                    if slot.state == "open" or slot.reserved:
                        slot.state = "settled"
                        group.expired += 1

    def _release(self, topic: Topic, group: Group, place: Place, delay_ms: int) -> None:
        """A leased message goes back, and the attempt does not count."""
        partition, offset = place
        slot, message = group.slots[partition][offset], topic.partitions[partition][offset]
        group.released += 1
        slot.attempts -= slot.begun
        if message.over(self.now_ms):
            slot.state = "settled"
            group.expired += 1
        else:
            self._reopen(topic, group, place, delay_ms)

    def _reopen(self, topic: Topic, group: Group, place: Place, delay_ms: int) -> None:
        """It may be had again; if it is urgent, its key leaves its place among those that are not."""
        partition, offset = place
        slot = group.slots[partition][offset]
        slot.state, slot.back, slot.due_ms = "open", True, self.now_ms + delay_ms
        waiting, key = group.turns[partition].waiting, topic.partitions[partition][offset].key
        _, priority, _ = waiting.get(key, (0, levels.bounds_of(self.level).priority_max, 0))
        if not delay_ms and priority < self._priority(topic, place):
            del waiting[key]

    def _begin(self, topic: Topic, group: Group, place: Place, lease_ms: int) -> None:
        """A leased message has begun: if it was reserved, that is an attempt."""
        partition, offset = place
        slot = group.slots[partition][offset]
        once = group.guarantee == "at-most-once"
        if lease_ms:
            slot.deadline_ms = self.now_ms + lease_ms
        if slot.reserved:
            group.delivered += 1
            group.redelivered += slot.attempts > 0
            group.acked += once
            slot.attempts += 1
            slot.steal_ms = 0
            seat = (topic.number, group.number, partition, offset)
            self.begins.append(Begun(seat, slot.epoch, slot.deadline_ms, once))
        if once:
            slot.state = "settled"

    def _fail(
        self,
        topic: Topic,
        group: Group,
        place: Place,
        delay_ms: int,
        reason: str,
        core: DeliveryCore,
    ) -> None:
        """A leased message was not settled: again after `delay_ms`, or to the dead letters."""
        partition, offset = place
        slot, message = group.slots[partition][offset], topic.partitions[partition][offset]
        last = topic.policy.max_attempts
        if last is not None and slot.attempts >= last and topic.policy.dead_letter is not None:
            self._bury(topic, group, place, reason, core)
        elif message.over(self.now_ms):
            slot.state = "settled"
            group.expired += 1
        else:
            self._reopen(topic, group, place, delay_ms)

    def _bury(
        self, topic: Topic, group: Group, place: Place, reason: str, core: DeliveryCore
    ) -> None:
        partition, offset = place
        slot, message = group.slots[partition][offset], topic.partitions[partition][offset]
        name = topic.policy.dead_letter
        assert name is not None
        target = self._named(name) or self._new_topic(name, TopicPolicy(), core)
        origin = Origin(
            topic.name, partition, offset, group.name, slot.attempts, reason[:1_000], self.now_ms
        )
        slot.state = "settled"
        group.dead_lettered += 1
        lease = (slot.epoch, slot.deadline_ms)
        source = (topic.number, partition, offset, group.number, lease)
        self._move(message, target, partition, origin, source)

    # -- messages that move --------------------------------------------------------------------------

    def _move(
        self,
        message: Message,
        target: Topic,
        partition: int,
        origin: Origin | None,
        source: Source,
        only: str = "",
    ) -> None:
        moved = Message(
            message.body,
            message.index,
            message.row,
            self.now_ms,
            key=message.key,
            text=message.text,
            nbytes=message.nbytes,
            priority=message.priority,
            origin=origin,
        )
        only = only if only in target.groups else ""
        self._moving.append(Moving(target, partition % len(target.partitions), moved, source, only))

    def _settle_moves(self, core: DeliveryCore) -> None:
        """See in which order the messages that moved arrived: it may be any, but for their source."""
        for topic in {moving.topic.number: moving.topic for moving in self._moving}.values():
            for partition, messages in enumerate(topic.partitions):
                expected = [
                    moving
                    for moving in self._moving
                    if moving.topic is topic and moving.partition == partition
                ]
                found = stored(core, topic.number, partition, len(messages))
                assert len(found) >= len(expected), "a moved message did not arrive"
                arrived: dict[tuple[Any, ...], list[int]] = {}
                for piece in found[: len(expected)]:
                    assert piece.offset == len(messages), "offsets have no gaps"
                    at = next((n for n, x in enumerate(expected) if _same(x.message, piece)), None)
                    assert at is not None, f"nobody moved {piece}"
                    moving = expected.pop(at)
                    number, source, offset, group, lease = moving.source
                    arrived.setdefault((number, source, group, lease), []).append(offset)
                    place = (topic.number, partition, piece.offset)
                    only = topic.groups[moving.only].number if moving.only else 0
                    self.moves.append(
                        Move(moving.message, (number, source, offset), group, place, only)
                    )
                    self._append(topic, partition, moving.message, moving.only)
                for offsets in arrived.values():
                    assert offsets == sorted(offsets), "what ends at the same time keeps its order"
        self._moving = []

    def _append(self, topic: Topic, partition: int, message: Message, only: str = "") -> None:
        topic.partitions[partition].append(message)
        for group in topic.groups.values():
            self._admit(group, partition, message)
            if only and group.name != only:
                group.slots[partition][-1].state = "settled"
            elif only:
                group.redriven += 1

    def _admit(self, group: Group, partition: int, message: Message) -> None:
        """A group sees a message for the first time."""
        slot = Slot(back=message.deliver_at > self.now_ms, unseen=bool(group.members))
        if message.over(self.now_ms) and not group.members:  # else it ends with the next entry
            slot.state = "settled"
            group.expired += 1
        group.slots[partition].append(slot)

    # -- commands ----------------------------------------------------------------------------------

    def do(
        self,
        index: int,
        command: Command,
        rows: Sequence[Sequence[Row]],
        packed_ms: int,
        outcome: Outcome,
        core: DeliveryCore,
    ) -> None:
        """The command of entry `index`; `rows` are those of each send in it."""
        self._index = index
        reply = outcome.reply
        if isinstance(command, Send):
            self._on_send(command, rows[0], packed_ms, reply, core)
        else:
            refusals, certain = self._refusals(command, rows)
            if isinstance(reply, Exception):
                assert type(reply) in refusals, f"{reply!r} was not to be expected"
                return
            assert not (refusals and certain), f"{command} should be refused with {refusals}"
            self._accepted(command, rows, packed_ms, reply, core)
        self._settle_moves(core)

    def _accepted(
        self,
        command: Command,
        rows: Sequence[Sequence[Row]],
        packed_ms: int,
        reply: Any,
        core: DeliveryCore,
    ) -> None:
        match command:
            case Receive():
                self._on_receive(command, reply, core)
            case Settle():
                self._on_settle(command, reply, core)
            case Transact():
                self._on_transact(command, rows, packed_ms, reply, core)
            case CreateTopic():
                self._on_create_topic(command, reply, core)
            case AlterTopic():
                self._on_alter_topic(command, reply, core)
            case DeleteTopic():
                topic = self.topics.pop(command.topic)
                del self.names[topic.name]
            case OpenProducer():
                self._on_open_producer(command, reply)
            case CreateGroup():
                self._on_create_group(command, reply, core)
            case DeleteGroup():
                gone = self.topics[command.topic].groups.pop(command.group)
                self.ends.append((command.topic, gone.number))
                self._expect_trim(self.topics[command.topic])
            case Seek():
                self._on_seek(command, reply)
            case PauseGroup():
                self.topics[command.topic].groups[command.group].paused = command.paused
            case Purge():
                self._on_purge(command, reply)
            case Discard():
                self._on_discard(command, reply)
            case Compact():
                self._on_compact(command, reply)
            case Redrive():
                self._on_redrive(command, reply)
            case Join():
                self._on_join(command, reply, core)
            case Heartbeat():
                group = self.topics[command.topic].groups[command.group]
                self._heard_of(group, command.member)
                self._assigned(group, command.member, reply)
            case Commit():
                self._on_commit(command, reply)
            case Leave():
                topic = self.topics[command.topic]
                self._leave(topic, topic.groups[command.group], command.member)
            case Tick():
                for topic in self.topics.values() if command.sweep else ():
                    self._expect_trim(topic)
                    self._enforce(topic, core)
                assert reply == Done()
            case Found():
                assert reply == Done()
            case Raise():
                assert reply == Done()
                self.level = command.level
            case SetPeers():
                assert reply == PeersSet(self.peers)
                self.peers = command.peers

    def _refusals(self, command: Command, rows: Sequence[Sequence[Row]]) -> tuple[Refusals, bool]:
        """What the command may be refused with, and whether it must be refused."""
        match command:
            case Found() | Tick() | SetTime() | SetPeers():
                return set(), True
            case Raise():
                return ({InvalidRequest} if command.level <= self.level else set()), True
            case CreateTopic():
                known = self._named(command.name)
                other = known is not None and known.policy != command.policy
                return ({TopicExists} if other else set()), True
            case Transact():
                return self._transact_refusals(command, rows), True
            case Settle():
                return self._settle_refusals(command), True
        topic = self.topics.get(command.topic)
        if topic is None:
            return {TopicNotFound}, True
        match command:
            case CreateGroup():
                known_group = topic.groups.get(command.group)
                bad = known_group is not None and known_group.guarantee != command.guarantee
                return ({InvalidRequest} if bad else set()), True
            case Receive():
                receiver = topic.groups.get(command.group)
                bad = receiver is not None and bool(receiver.members)
                bad = bad or (command.begin is not None and command.per_key > 1)
                return ({InvalidRequest} if bad else set()), True
            case Join():
                joined = topic.groups.get(command.group)
                bad = joined is not None and joined.leased() > 0
                return ({InvalidRequest} if bad else set()), True
            case Discard():
                return self._pick_refusals(topic, command.picks), True
            case Compact():
                refusals = self._pick_refusals(topic, command.picks)
                return refusals if topic.policy.retention.compact else {InvalidRequest}, True
            case AlterTopic():
                bad = any(name in FIXED for name in command.fields)
                bad = bad or _impossible(_altered(topic, command))
                return ({InvalidRequest} if bad else set()), True
            case Redrive():
                return self._redrive_refusals(topic, command), True
            case Publish():
                raise NotImplementedError("test_staging has a model of its own")
            case Send() | DeleteTopic() | OpenProducer() | Purge():
                return set(), True
        group = topic.groups.get(command.group)
        if group is None:
            return {GroupNotFound}, True
        match command:
            case Seek():
                wanted = command.position.partition
                bad = wanted is not None and wanted >= len(topic.partitions)
                return ({InvalidRequest} if bad or group.members else set()), True
            case Heartbeat() | Leave():
                return (set() if command.member in group.members else {MemberFenced}), True
            case Commit():
                return self._commit_refusals(topic, group, command)
        return set(), True

    # -- topics ------------------------------------------------------------------------------------

    def _named(self, name: str) -> Topic | None:
        number = self.names.get(name)
        return None if number is None else self.topics[number]

    def _new_number(self, number: int) -> int:
        assert number > self._last_number, "numbers of topics and groups are not used again"
        self._last_number = number
        return number

    def _new_topic(self, name: str, policy: TopicPolicy, core: DeliveryCore) -> Topic:
        number = self._new_number(core.names[name])
        topic = Topic(number, name, policy, [[] for _ in range(policy.partitions)])
        self.topics[number] = topic
        self.names[name] = number
        return topic

    def _on_create_topic(self, command: CreateTopic, reply: Any, core: DeliveryCore) -> None:
        fresh = command.name not in self.names
        if fresh:
            self._new_topic(command.name, command.policy, core)
            dead_letter = command.policy.dead_letter
            if dead_letter is not None and dead_letter not in self.names:
                self._new_topic(dead_letter, TopicPolicy(), core)
        assert reply == TopicCreated(self.names[command.name], fresh)

    def _on_alter_topic(self, command: AlterTopic, reply: Any, core: DeliveryCore) -> None:
        topic = self.topics[command.topic]
        topic.policy = _altered(topic, command)
        assert reply == Done()
        assert core.topics[topic.number].policy == topic.policy
        dead_letter = topic.policy.dead_letter
        if dead_letter is not None and dead_letter not in self.names:
            self._new_topic(dead_letter, TopicPolicy(), core)
        latest_ms = self.now_ms + topic.policy.dedup_window_ms
        for dedup_id, (until_ms, where) in topic.dedup.items():
            topic.dedup[dedup_id] = (min(until_ms, latest_ms), where)
        self._expect_trim(topic)
        self._enforce(topic, core)

    # -- sending -----------------------------------------------------------------------------------

    def _on_send(
        self, command: Send, rows: Sequence[Row], packed_ms: int, reply: Any, core: DeliveryCore
    ) -> None:
        topic = self.topics.get(command.topic)
        if topic is None:
            assert isinstance(reply, TopicNotFound)
            return
        assert isinstance(reply, SentMany)
        assert len(reply.answers) == len(command.requests)
        run = row = 0
        backlog = topic.unsettled()
        for count, answer in zip(command.requests, reply.answers, strict=True):
            runs = command.runs[run : run + count]
            length = sum(one.rows for one in runs)
            request = replace(command, runs=runs, requests=(count,), first_row=row)
            refusals = self._send_refusals(topic, request, rows[row : row + length], backlog)
            if isinstance(answer, Exception):
                assert type(answer) in refusals, f"{answer!r} was not to be expected"
            else:
                assert not refusals, f"should be refused with {refusals}"
                before = topic.sent
                self._store(topic, request, rows[row : row + length], packed_ms, answer)
                backlog += topic.sent - before
            run += count
            row += length
        assert row == len(rows)
        self._enforce(topic, core)

    def _send_refusals(
        self, topic: Topic, send: Send, rows: Sequence[Row], backlog: int
    ) -> Refusals:
        refusals: Refusals = set()
        new = sum(not self._is_known(topic, row) for row in rows)
        if send.producer is not None:
            epoch, count = topic.producers.get(send.producer.name, (0, 0))
            first = send.producer.sequence
            if epoch != send.producer.epoch:
                refusals.add(ProducerFenced)
            elif first + len(rows) <= count:
                new = 0
            elif first != count:
                refusals.add(InvalidRequest)
        limit = topic.policy.max_backlog
        if limit is not None and new and backlog + new > limit:
            refusals.add(QueueFull)
        return refusals

    def _is_known(self, topic: Topic, row: Row) -> bool:
        known = topic.dedup.get(row.dedup_id or "")
        return row.dedup_id is not None and known is not None and known[0] > self.now_ms

    def _store(
        self, topic: Topic, send: Send, rows: Sequence[Row], packed_ms: int, answer: SentReply
    ) -> None:
        if send.producer is not None:
            epoch, count = topic.producers[send.producer.name]
            if send.producer.sequence < count:
                topic.duplicates += len(rows)
                assert answer == SentReply((Placed(-1, -1, len(rows), 0, 0, duplicate=True),))
                return
            topic.producers[send.producer.name] = (epoch, count + len(rows))
        partitions = [run.partition for run in send.runs for _ in range(run.rows)]
        places = _places(answer)
        assert len(places) == len(rows) == len(partitions)
        for at, (row, partition, place) in enumerate(zip(rows, partitions, places, strict=True)):
            if self._is_known(topic, row):
                assert place == replace(topic.dedup[row.dedup_id or ""][1], duplicate=True)
                topic.duplicates += 1
                continue
            messages = topic.partitions[partition]
            new = Placed(partition, len(messages), 1, self._index, send.first_row + at)
            assert place == new, f"{place} instead of {new}"
            self._append(topic, partition, self._message(topic, row, new, packed_ms))
            topic.sent += 1
            if row.dedup_id is not None:
                topic.dedup[row.dedup_id] = (self.now_ms + topic.policy.dedup_window_ms, new)

    def _message(self, topic: Topic, row: Row, place: Placed, packed_ms: int) -> Message:
        return Message(
            row.body,
            place.index,
            place.row,
            self.now_ms,
            key=(row.key or "") if topic.policy.keyed else "",
            text=row.key or "",
            nbytes=row.nbytes,
            priority=row.priority,
            deliver_at=packed_ms + row.delay_ms if row.delay_ms else 0,
            expires_at=packed_ms + row.ttl_ms if row.ttl_ms else 0,
        )

    def _on_open_producer(self, command: OpenProducer, reply: Any) -> None:
        topic = self.topics[command.topic]
        _, count = topic.producers.get(command.name, (0, 0))
        topic.producers[command.name] = (self._index, count)
        assert reply == ProducerOpened(self._index, count)

    # -- receiving ---------------------------------------------------------------------------------

    def _on_receive(self, command: Receive, reply: Any, core: DeliveryCore) -> None:
        assert isinstance(reply, Received)
        topic = self.topics[command.topic]
        self._enforce(topic, core)
        group = topic.groups.get(command.group)
        if group is None:
            group = self._new_group(topic, command.group, reply.group, Position(), "at-least-once")
        group.told(reply.lost)
        once = group.guarantee == "at-most-once"
        deadline_ms = self.now_ms + command.lease_ms
        header = (topic.number, group.number, self._index, deadline_ms, once)
        assert header == (reply.topic, reply.group, reply.epoch, reply.deadline_ms, reply.settled)
        got: list[Place] = []
        for piece in singles(reply.slices):
            message = topic.partitions[piece.partition][piece.offset]
            slot = group.slots[piece.partition][piece.offset]
            assert _same(message, piece), f"{piece} is not {message}"
            assert piece.attempt == slot.attempts + 1
            got.append((piece.partition, piece.offset))
        chains = [
            self.available(topic, group, partition, self.now_ms, command.per_key)
            for partition in range(len(topic.partitions))
        ]
        bounds = levels.bounds_of(self.level)
        steal_ms = self.now_ms + bounds.reserved_ms_min
        if command.begin != 0 and not any(any(found.values()) for found in chains):
            if self._take_over(topic, group, command.max_messages):
                steal_ms = self.now_ms + bounds.stolen_ms_min
            chains = [
                self.available(topic, group, partition, self.now_ms, command.per_key)
                for partition in range(len(topic.partitions))
            ]
        room = sum(len(chain) for of_partition in chains for chain in of_partition.values())
        begun = len(got) if command.begin is None else min(command.begin, len(got))
        told = [piece.reserved for piece in singles(reply.slices)]
        assert told == [False] * begun + [True] * (len(got) - begun)
        self._check_order(topic, group, got, chains, command.per_key)
        total = len(got)
        if self.bounded:
            assert min(room, 1) <= total <= min(room, command.max_messages)
        else:
            assert total == min(room, command.max_messages), f"{total} of {room} delivered"
        group.delivered += begun
        for at, (partition, offset) in enumerate(got):
            slot = group.slots[partition][offset]
            slot.epoch, slot.deadline_ms, slot.state = self._index, deadline_ms, "leased"
            slot.steal_ms = 0 if at < begun else steal_ms
            if at < begun:
                group.redelivered += slot.attempts > 0
                slot.attempts += 1
                slot.state = "settled" if once else "leased"
        if once and total:
            group.acked += begun
            self._expect_trim(topic)

    def _take_over(self, topic: Topic, group: Group, most: int) -> bool:
        """Half of what others have reserved for long enough is ready now, as if it never had been."""
        found = self.stealable(topic, group, self.now_ms)
        chosen = found[: min((len(found) + 1) // 2, most)]
        if topic.kind == "strict":  # all of a partition, or nothing of it
            partitions = {partition for _, _, partition, _ in chosen}
            chosen = [one for one in found if one[2] in partitions]
        for _, _, partition, offset in chosen:
            self._release(topic, group, (partition, offset), 0)
        return bool(found)

    def _check_order(
        self,
        topic: Topic,
        group: Group,
        got: list[Place],
        chains: list[dict[str, list[int]]],
        per_key: int,
    ) -> None:
        """Each message was the next of its key, of the highest priority, and its key's turn."""
        for partition, ready in enumerate(chains):
            self._note_waiting(topic, group, partition, ready)
        at = 0
        while at < len(got):
            partition, offset = got[at]
            ready = chains[partition]
            key = topic.partitions[partition][offset].key if topic.kind in ("key", "fair") else ""
            assert ready.get(key), f"{got[at]} delivered, and it was not ready"
            priority = self._priority(topic, got[at])
            best = max(
                self._priority(topic, (number, chain[0]))
                for number, of_partition in enumerate(chains)
                for chain in of_partition.values()
                if chain
            )
            if not self.bounded or topic.kind in ("plain", "strict"):
                assert priority == best, f"{got[at]} delivered before one of priority {best}"
            if not self.bounded:
                self._check_turn(group.turns[partition], key, priority)
            elif offset in ready[key]:
                self._prefer(group, partition, ready[key], offset)
            length = 1
            if self._blocks(topic, key):
                length = min(per_key, len(ready[key]), len(got) - at)
            run = [(partition, offset) for offset in ready[key][:length]]
            assert got[at : at + length] == run, f"{got[at:]} instead of {run} of key {key!r}"
            ready[key] = [] if self._blocks(topic, key) else ready[key][length:]
            at += length
            self._take_turn(group.turns[partition], key, priority)
            self._note_waiting(topic, group, partition, ready)

    @staticmethod
    def _priority(topic: Topic, place: Place) -> int:
        return 0 if topic.kind == "strict" else topic.partitions[place[0]][place[1]].priority

    @staticmethod
    def _prefer(group: Group, partition: int, chain: list[int], offset: int) -> None:
        """What did not fit into an earlier receive goes before fresh ones, like what came back."""
        slots = group.slots[partition]
        alike = [other for other in chain if slots[other].back == slots[offset].back]
        if alike[0] == offset:
            chain.remove(offset)
            chain.insert(0, offset)

    @staticmethod
    def _blocks(topic: Topic, key: str) -> bool:
        return topic.kind == "key" and key != ""

    def _note_waiting(
        self, topic: Topic, group: Group, partition: int, chains: dict[str, list[int]]
    ) -> None:
        """Remember since when each key waits with the message that it waits with now."""
        turns = group.turns[partition]
        heads = {key: chain[0] for key, chain in chains.items() if chain}
        for key in list(turns.waiting):
            if heads.get(key) != turns.waiting[key][0]:
                del turns.waiting[key]
        for key, head in heads.items():
            priority = self._priority(topic, (partition, head))
            turns.waiting.setdefault(key, (head, priority, turns.clock))

    @staticmethod
    def _check_turn(turns: Turns, key: str, priority: int) -> None:
        """Nobody has had a turn since this key's last one began to wait for its own."""
        tenant = key.partition("/")[0]
        last = turns.last.get((priority, key), -1)
        last_tenant = turns.last_tenant.get((priority, tenant), -1)
        for other, (_, of_priority, since) in turns.waiting.items():
            if other == key or of_priority != priority:
                continue
            other_tenant = other.partition("/")[0]
            if other_tenant == tenant:
                assert last <= since, f"{key!r} has a second turn before {other!r}"
            else:
                their_last = turns.last_tenant.get((priority, other_tenant), 0)
                assert last_tenant <= max(since, their_last), (
                    f"{tenant!r} has a second turn before {other!r}"
                )

    @staticmethod
    def _take_turn(turns: Turns, key: str, priority: int) -> None:
        turns.clock += 1
        turns.last[priority, key] = turns.clock
        turns.last_tenant[priority, key.partition("/")[0]] = turns.clock
        turns.waiting.pop(key, None)

    # -- settling ----------------------------------------------------------------------------------

    def _held(self, group: Group, settle: Settle) -> tuple[list[tuple[Place, Slot]], int]:
        """The messages that the receipts hold, in their order, and how many they do not hold."""
        found: list[tuple[Place, Slot]] = []
        refused = 0
        for held in settle.held:
            for start, end in held.ranges:
                for offset in range(start, end):
                    slots = group.slots[held.partition]
                    slot = slots[offset] if offset < len(slots) else Slot()
                    if settle.action == "dismiss":
                        good = offset < len(slots) and slot.state != "settled"
                    elif settle.action in ("nack", "dead_letter") and (
                        group.guarantee == "at-most-once"
                    ):
                        good = False
                    else:
                        good = slot.state == "leased" and slot.epoch == held.epoch
                    if good:
                        found.append(((held.partition, offset), slot))
                    else:
                        refused += 1
        return found, refused

    def _settle_refusals(self, settle: Settle) -> Refusals:
        topic = self.topics.get(settle.topic)
        group = topic.numbered(settle.group) if topic is not None else None
        if topic is None or group is None:
            return {ReceiptInvalid}
        refusals: Refusals = set()
        if settle.action == "dead_letter" and topic.policy.dead_letter is None:
            refusals.add(InvalidRequest)
        if any(held.partition >= len(topic.partitions) for held in settle.held):
            refusals.add(ReceiptInvalid)
        return refusals

    def _on_settle(self, settle: Settle, reply: Any, core: DeliveryCore) -> None:
        topic = self.topics[settle.topic]
        group = topic.numbered(settle.group)
        assert group is not None
        count = 0
        refused: list[Held] = []
        for held in settle.held:  # piece by piece: what one has settled, the next no longer holds
            named = {offset for start, end in held.ranges for offset in range(start, end)}
            for start, end in held.ranges:
                one = replace(settle, held=(replace(held, ranges=((start, end),)),))
                for place, slot in self._held(group, one)[0]:
                    count += 1
                    named.discard(place[1])
                    self._settle_one(topic, group, settle, place, slot, core)
            if named:
                refused.append(replace(held, ranges=_ranges(sorted(named))))
        once = group.guarantee == "at-most-once"
        if settle.action == "dismiss" or (settle.action == "ack" and not once):
            group.acked += count
        elif settle.action == "nack":
            group.nacked += count
        assert reply == Settled(count, tuple(refused), renewed_ms(settle, self.now_ms))
        if once or settle.action not in ("extend", "begin"):
            self._trimmed.update((topic.number, held.partition) for held in settle.held)

    def _settle_one(
        self,
        topic: Topic,
        group: Group,
        settle: Settle,
        place: Place,
        slot: Slot,
        core: DeliveryCore,
    ) -> None:
        if slot.reserved and settle.action in ("ack", "nack", "dead_letter"):
            self._begin(topic, group, place, 0)
        match settle.action:
            case "ack" | "dismiss":
                slot.state = "settled"
            case "begin":
                self._begin(topic, group, place, settle.lease_ms)
            case "release":
                self._release(topic, group, place, settle.delay_ms or 0)
            case "extend":
                slot.deadline_ms = self.now_ms + settle.lease_ms
            case "dead_letter":
                self._bury(topic, group, place, settle.reason, core)
            case "nack":
                delay_ms = settle.delay_ms
                if delay_ms is None:
                    delay_ms = retry_delay_ms(topic.policy, slot.attempts, settle.seed ^ place[1])
                reason = settle.reason or "nacked"
                self._fail(topic, group, place, delay_ms, reason, core)

    def _transact_refusals(self, command: Transact, rows: Sequence[Sequence[Row]]) -> Refusals:
        refusals: Refusals = set()
        named: Counter[tuple[int, Place, int]] = Counter()
        for settle in command.settles:
            problems = self._settle_refusals(settle)
            refusals |= problems
            if ReceiptInvalid in problems:
                continue
            group = self.topics[settle.topic].numbered(settle.group)
            assert group is not None
            found, not_held = self._held(group, settle)
            if not_held:
                refusals.add(ReceiptExpired)
            named.update((group.number, place, slot.epoch) for place, slot in found)
        if any(count > 1 for count in named.values()):
            refusals.add(InvalidRequest)
        ahead: Counter[int] = Counter()
        for send, of_send in zip(command.sends, rows, strict=True):
            topic = self.topics.get(send.topic)
            if topic is None:
                refusals.add(TopicNotFound)
                continue
            backlog = topic.unsettled() + ahead[topic.number]
            refusals |= self._send_refusals(topic, send, of_send, backlog)
            ahead[topic.number] += sum(not self._is_known(topic, row) for row in of_send)
        return refusals

    def _on_transact(
        self,
        command: Transact,
        rows: Sequence[Sequence[Row]],
        packed_ms: int,
        reply: Any,
        core: DeliveryCore,
    ) -> None:
        assert isinstance(reply, Transacted)
        for settle in command.settles:
            held = sum(end - start for held in settle.held for start, end in held.ranges)
            self._on_settle(settle, Settled(held, (), renewed_ms(settle, self.now_ms)), core)
        self._settle_moves(core)
        for send, of_send, answer in zip(command.sends, rows, reply.sent, strict=True):
            self._store(self.topics[send.topic], send, of_send, packed_ms, answer)
        for send in command.sends:
            self._enforce(self.topics[send.topic], core)

    # -- groups ------------------------------------------------------------------------------------

    def _new_group(
        self, topic: Topic, name: str, number: int, position: Position, guarantee: Guarantee
    ) -> Group:
        group = Group(
            name,
            self._new_number(number),
            guarantee,
            [[] for _ in topic.partitions],
            [Turns() for _ in topic.partitions],
        )
        topic.groups[name] = group
        for partition in range(len(topic.partitions)):
            self._start(topic, group, partition, position)
        return group

    def _start(self, topic: Topic, group: Group, partition: int, position: Position) -> None:
        """The group sees a partition from `position` on: what is stored there, and what comes."""
        group.slots[partition] = []
        group.turns[partition] = Turns()
        self.starts.append((topic.number, group.number, partition))
        for offset, message in enumerate(topic.partitions[partition]):
            wanted = {
                "earliest": True,
                "latest": False,
                "offset": offset >= position.value,
                "time": message.time_ms >= position.value,
            }[position.start]
            if wanted and not (message.removed or message.gone):
                self._admit(group, partition, message)
            else:
                group.slots[partition].append(Slot("settled"))

    def _on_create_group(self, command: CreateGroup, reply: Any, core: DeliveryCore) -> None:
        topic = self.topics[command.topic]
        self._check_behind(topic, command.position, reply)
        if command.group not in topic.groups:
            number = core.topics[topic.number].groups[command.group].number
            self._new_group(topic, command.group, number, command.position, command.guarantee)

    def _check_behind(self, topic: Topic, position: Position, reply: Any) -> None:
        """Only who asks for something that retention has dropped is told that it is gone."""
        assert isinstance(reply, Positioned)
        for partition, start in reply.behind:
            messages = topic.partitions[partition]
            assert position.partition in (None, partition)
            assert any(message.gone or message.over(self.now_ms) for message in messages[:start])
            assert all(message.gone or message.removed for message in messages[:start])
            if position.start == "offset":
                assert position.value < start
            else:
                assert position.start == "time"
                assert all(message.time_ms >= position.value for message in messages[start:])

    def _on_seek(self, command: Seek, reply: Any) -> None:
        topic = self.topics[command.topic]
        self._check_behind(topic, command.position, reply)
        group = topic.groups[command.group]
        for partition in range(len(topic.partitions)):
            if command.position.partition in (None, partition):
                self._start(topic, group, partition, command.position)
        self._expect_trim(topic)

    # -- taking messages out -----------------------------------------------------------------------

    def _remove(self, topic: Topic, partition: int, offset: int) -> None:
        topic.partitions[partition][offset].removed = True
        self.drops.append((topic.number, partition, offset))
        for group in topic.groups.values():
            group.slots[partition][offset].state = "settled"

    def _on_purge(self, command: Purge, reply: Any) -> None:
        topic = self.topics[command.topic]
        assert reply == Moved(topic.unsettled())
        for partition, messages in enumerate(topic.partitions):
            for offset in range(len(messages)):
                self._remove(topic, partition, offset)
        for group in topic.groups.values():
            for partition in range(len(topic.partitions)):
                self._start(topic, group, partition, Position("latest"))
        self._expect_trim(topic)

    def _picked(self, topic: Topic, picks: Sequence[Pick]) -> list[Place]:
        """The chosen messages that somebody still wants and nobody holds."""
        chosen = sorted(
            {
                (pick.partition, offset)
                for pick in picks
                for start, end in pick.ranges
                for offset in range(start, min(end, len(topic.partitions[pick.partition])))
            }
        )
        return [place for place in chosen if self._may_pick(topic, place)]

    def _may_pick(self, topic: Topic, place: Place) -> bool:
        partition, offset = place
        message = topic.partitions[partition][offset]
        if message.removed or message.gone:
            return False
        states = [group.slots[partition][offset].state for group in topic.groups.values()]
        return not states or ("open" in states and "leased" not in states)

    def _pick_refusals(self, topic: Topic, picks: Sequence[Pick]) -> Refusals:
        bad = any(pick.partition >= len(topic.partitions) for pick in picks)
        return {InvalidRequest} if bad else set()

    def _on_discard(self, command: Discard, reply: Any) -> None:
        topic = self.topics[command.topic]
        places = self._picked(topic, command.picks)
        assert reply == Moved(len(places))
        for partition, offset in places:
            self._remove(topic, partition, offset)
        self._expect_trim(topic)

    def superseded(self, topic: Topic, partition: int) -> list[int]:
        """Stored messages whose key a newer stored one has."""
        there = [
            (offset, message.text)
            for offset, message in enumerate(topic.partitions[partition])
            if message.text and not (message.removed or message.gone)
        ]
        return [offset for offset, key in there if any(o > offset and k == key for o, k in there)]

    def _on_compact(self, command: Compact, reply: Any) -> None:
        topic = self.topics[command.topic]
        chosen = {
            (pick.partition, offset)
            for pick in command.picks
            for start, end in pick.ranges
            for offset in range(start, min(end, len(topic.partitions[pick.partition])))
        }
        count = 0
        for partition, offset in chosen:
            message = topic.partitions[partition][offset]
            states = [group.slots[partition][offset].state for group in topic.groups.values()]
            if message.removed or message.gone or any(state != "settled" for state in states):
                continue
            message.removed = True
            self.drops.append((topic.number, partition, offset))
            count += 1
        assert reply == Moved(count)
        topic.compacted += count
        self._expect_trim(topic)

    def _redrive_refusals(self, topic: Topic, command: Redrive) -> Refusals:
        if command.target is not None and command.target not in self.topics:
            return {TopicNotFound}
        refusals = self._pick_refusals(topic, command.picks)
        if refusals or command.target is not None:
            return refusals
        for partition, offset in self._picked(topic, command.picks):
            origin = topic.partitions[partition][offset].origin
            if origin is None or origin.topic == topic.name:
                refusals.add(InvalidRequest)
            elif origin.topic not in self.names:
                refusals.add(TopicNotFound)
        return refusals

    def _on_redrive(self, command: Redrive, reply: Any) -> None:
        topic = self.topics[command.topic]
        places = self._picked(topic, command.picks)
        assert reply == Moved(len(places))
        for partition, offset in places:
            message = topic.partitions[partition][offset]
            origin = message.origin
            source = (topic.number, partition, offset, 0, (0, 0))
            number = partition if origin is None else origin.partition
            if command.target is not None:
                self._move(message, self.topics[command.target], number, origin, source)
            else:
                assert origin is not None
                target = self.topics[self.names[origin.topic]]
                self._move(message, target, number, origin, source, only=origin.group)
            self._remove(topic, partition, offset)
        self._expect_trim(topic)

    # -- members -----------------------------------------------------------------------------------

    def _on_join(self, command: Join, reply: Any, core: DeliveryCore) -> None:
        topic = self.topics[command.topic]
        group = topic.groups.get(command.group)
        if group is None:
            number = core.topics[topic.number].groups[command.group].number
            group = self._new_group(topic, command.group, number, Position(), "at-least-once")
        group.members[command.member] = (command.session_ms, self.now_ms + command.session_ms)
        self._assigned(group, command.member, reply)

    def _leave(self, topic: Topic, group: Group, member: str) -> None:
        """A member is gone; with the last one messages are leased again, as if they came now."""
        del group.members[member], group.owned[member]
        if not group.members:
            for partition, offset, slot in group.all_slots():
                if slot.unseen:
                    message = topic.partitions[partition][offset]
                    slot.unseen, slot.back = False, message.deliver_at > self.now_ms

    def _heard_of(self, group: Group, member: str) -> None:
        session_ms, _ = group.members[member]
        group.members[member] = (session_ms, self.now_ms + session_ms)

    def _assigned(self, group: Group, member: str, reply: Any) -> None:
        """A member is told what it owns: nobody else may believe to own it."""
        assert isinstance(reply, Assigned)
        owned = {partition for partition, _ in reply.partitions}
        for other, theirs in group.owned.items():
            assert other == member or not owned & theirs, f"{member} and {other} own the same"
        group.owned[member] = owned
        assert set(reply.revoked) <= owned
        group.told(reply.lost)
        assert reply.generation >= group.generation
        group.generation = reply.generation
        for partition, committed in reply.partitions:
            assert committed == group.committed(partition)

    def _commit_refusals(
        self, topic: Topic, group: Group, command: Commit
    ) -> tuple[Refusals, bool]:
        if command.member not in group.members:
            return {MemberFenced}, True
        refusals: Refusals = set()
        certain = False
        for partition, offset in command.offsets:
            if partition not in group.owned[command.member]:
                refusals.add(MemberFenced)  # or it was given the partition and not told yet
                certain = certain or any(partition in owned for owned in group.owned.values())
            if partition < len(topic.partitions) and offset > len(topic.partitions[partition]):
                refusals.add(InvalidRequest)
                certain = True
        return refusals, certain

    def _on_commit(self, command: Commit, reply: Any) -> None:
        topic = self.topics[command.topic]
        group = topic.groups[command.group]
        self._heard_of(group, command.member)
        for partition, offset in command.offsets:
            for slot in group.slots[partition][:offset]:
                if slot.state == "open":
                    slot.state = "settled"
                    group.acked += 1
        self._assigned(group, command.member, reply)
        self._expect_trim(topic)

    # -- what the core tells -----------------------------------------------------------------------

    def compare(self, core: DeliveryCore, *, swept: bool = False) -> None:
        """Everything that the core can be asked is as it should be."""
        assert core.names == self.names
        assert core.now_ms == self.now_ms
        assert (core.level, core.peers) == (self.level, self.peers)
        assert core.bounds == levels.bounds_of(self.level)
        tick_ms = core.next_tick_ms()
        for topic in self.topics.values():
            self._compare_stored(topic, core, swept)
            self._compare_stats(topic, core)
            for group in topic.groups.values():
                self._compare_promises(topic, group, core, tick_ms)

    def _compare_stored(self, topic: Topic, core: DeliveryCore, swept: bool) -> None:
        """What must be kept is there, what is gone stays away, what is done with was let go of."""
        self._note_gone(topic, core)
        everywhere = dict.fromkeys(range(len(topic.partitions)), 0)
        readable = sum(
            piece.count for piece in core.browse(topic.number, everywhere, EVERYTHING)[0]
        )
        assert core.stats(topic.number, self.now_ms).stored == readable
        for partition, messages in enumerate(topic.partitions):
            pending = [
                piece.offset for piece in stored(core, topic.number, partition, pending=True)
            ]
            assert pending == [o for o in range(len(messages)) if self._wanted(topic, partition, o)]
            trimmed = (topic.number, partition) in self._trimmed
            if trimmed and not topic.policy.retention.keeps:
                self._check_let_go(topic, partition, swept)

    def _enforce(self, topic: Topic, core: DeliveryCore) -> None:
        """Where the policy says so, what is too old or too much is lost also for who wants it."""
        retention = topic.policy.retention
        if topic.policy.keep_unsettled:
            return
        there: list[tuple[int, int]] = []  # time and partition of what has stayed
        lost: list[tuple[int, int, int]] = []
        for partition, messages in enumerate(topic.partitions):
            found = {piece.offset for piece in stored(core, topic.number, partition)}
            for offset, message in enumerate(messages):
                old = _too_old(topic.policy, message, self.now_ms)
                if offset in found:
                    assert not old, f"message {offset} is too old and still there"
                    there.append((message.time_ms, partition))
                elif not (message.removed or message.gone):
                    if retention.settled and not old:
                        continue  # then everybody must be done with it: `_note_gone` sees to that
                    if not old:
                        assert retention.size_bytes is not None, f"message {offset} is lost"
                        lost.append((message.time_ms, partition, offset))
                    self._lose(topic, partition, offset)
                elif message.removed and self._let_go(topic, partition, offset, core):
                    assert old or retention.size_bytes is not None, f"message {offset} is lost"
                    self._lose(topic, partition, offset)
        if retention.size_bytes is not None:
            assert core.stats(topic.number, 0).stored_bytes <= retention.size_bytes
        self._check_size(topic, [one[:2] for one in lost], core)
        for time_ms, partition, _ in lost:
            assert not any(t < time_ms or (t, p) < (time_ms, p) for t, p in there if p == partition)
            assert not any(t < time_ms for t, _ in there), "an older one has stayed"

    @staticmethod
    def _let_go(topic: Topic, partition: int, offset: int, core: DeliveryCore) -> bool:
        """Its life ended while somebody held it, and nobody does any more."""
        groups = core.topics[topic.number].groups
        return any(
            group.slots[partition][offset].state == "leased"
            and offset in groups[name].views[partition].settled
            for name, group in topic.groups.items()
        )

    def _lose(self, topic: Topic, partition: int, offset: int) -> None:
        message = topic.partitions[partition][offset]
        message.gone = not message.removed
        self.drops.append((topic.number, partition, offset))
        for group in topic.groups.values():
            slot = group.slots[partition][offset]
            if slot.state != "settled":
                slot.state = "settled"
                group.behind_retention += 1
                group.untold += 1

    def _check_size(self, topic: Topic, gone: list[tuple[int, int]], core: DeliveryCore) -> None:
        """If the last batch that went had stayed, the topic would have been too large."""
        limit = topic.policy.retention.size_bytes
        if not gone or limit is None:
            return
        batches: Counter[tuple[int, int]] = Counter()
        for partition, messages in enumerate(topic.partitions):
            for message in messages:
                batches[message.time_ms, partition] += message.nbytes + ROUNDING_BYTES
        kept = core.stats(topic.number, 0).stored_bytes
        assert kept + max(batches[batch] for batch in gone) > limit, "more went than had to"

    def _note_gone(self, topic: Topic, core: DeliveryCore) -> None:
        """See what is no longer stored, and that it may be so."""
        sized: list[tuple[int, int]] = []
        for partition, messages in enumerate(topic.partitions):
            found = {piece.offset: piece for piece in stored(core, topic.number, partition)}
            for offset, message in enumerate(messages):
                piece = found.pop(offset, None)
                if piece is None:
                    assert self._may_go(topic, partition, offset), f"message {offset} is lost"
                    if not (message.gone or message.removed or topic.policy.retention.time_ms):
                        sized.append((message.time_ms, partition))
                    message.gone = message.gone or not message.removed
                else:
                    assert not message.gone, f"message {offset} came back"
                    assert not message.removed, f"message {offset} is still there"
                    assert _same(message, piece), f"{piece} is not {message}"
            assert not found, f"messages nobody sent: {found}"
        self._check_size(topic, sized, core)

    def _wanted(self, topic: Topic, partition: int, offset: int) -> bool:
        """Some group has not settled it, or there is no group."""
        message = topic.partitions[partition][offset]
        if message.removed or message.gone:
            return False
        groups = topic.groups.values()
        return not groups or any(g.slots[partition][offset].state != "settled" for g in groups)

    def _expect_trim(self, topic: Topic) -> None:
        self._trimmed.update(
            (topic.number, partition) for partition in range(len(topic.partitions))
        )

    def _may_go(self, topic: Topic, partition: int, offset: int) -> bool:
        message, retention = topic.partitions[partition][offset], topic.policy.retention
        if message.removed or message.gone:
            return True
        watched = bool(topic.groups)
        if self._wanted(topic, partition, offset) and watched:
            return False
        if retention.settled and watched:
            return True
        if not (retention.bounded or retention.compact or retention.forever):
            return watched
        return retention.size_bytes is not None or _too_old(topic.policy, message, self.now_ms)

    def _check_let_go(self, topic: Topic, partition: int, swept: bool) -> None:
        """Messages that were stored together and are settled by all do not stay at the head.

        After a sweep they do not stay anywhere.
        """
        if not topic.groups:
            return
        messages = topic.partitions[partition]
        batches: list[list[int]] = []
        for offset, message in enumerate(messages):
            if message.gone:
                continue
            follows = batches and batches[-1][-1] == offset - 1
            if follows and messages[offset - 1].index == message.index:
                batches[-1].append(offset)
            else:
                batches.append([offset])
        for offsets in batches:
            slots = [g.slots[partition][o] for g in topic.groups.values() for o in offsets]
            done = all(slot.state == "settled" for slot in slots)
            removed = all(messages[offset].removed for offset in offsets)
            assert removed or not done, f"messages {offsets} were not let go of"
            if not swept and not done:
                return

    def _compare_stats(self, topic: Topic, core: DeliveryCore) -> None:
        stats = core.stats(topic.number, self.now_ms)
        assert (stats.topic, stats.partitions) == (topic.name, len(topic.partitions))
        assert (stats.sent, stats.duplicates) == (topic.sent, topic.duplicates)
        assert stats.compacted == topic.compacted
        messages = [message for part in topic.partitions for message in part]
        # One that has become too old and whose life has ended meanwhile may count as either.
        assert stats.dropped <= sum(m.gone or m.over(self.now_ms) for m in messages)
        assert stats.depth == topic.unsettled()
        assert sorted(stats.groups) == sorted(topic.groups)
        for group in topic.groups.values():
            told = stats.groups[group.name]
            assert told.lag == group.lag()
            assert told.in_flight == group.leased()
            assert (told.paused, told.guarantee) == (group.paused, group.guarantee)
            assert told.members == len(group.members)
            counts = (told.delivered, told.acked, told.nacked)
            assert counts == (group.delivered, group.acked, group.nacked)
            counts = (told.timed_out, told.dead_lettered, told.expired)
            assert counts == (group.timed_out, group.dead_lettered, group.expired)
            assert (told.redelivered, told.redriven) == (group.redelivered, group.redriven)
            assert told.behind_retention == group.behind_retention
            assert (told.reserved, told.released) == (group.reserved(), group.released)
            assert told.ready + told.in_flight + told.delayed == told.lag
            if topic.kind in ("plain", "fair") and not group.members:
                assert told.delayed == self._delayed(topic, group)
            times = [
                topic.partitions[partition][offset].time_ms
                for partition, offset, slot in group.all_slots()
                if slot.state != "settled"
            ]
            assert told.oldest_age == (self.now_ms - min(times, default=self.now_ms)) / 1000

    def _delayed(self, topic: Topic, group: Group) -> int:
        return sum(
            slot.state == "open"
            and max(slot.due_ms, topic.partitions[partition][offset].deliver_at) > self.now_ms
            for partition, offset, slot in group.all_slots()
        )

    def _compare_promises(
        self, topic: Topic, group: Group, core: DeliveryCore, tick_ms: int | None
    ) -> None:
        """A consumer that waits is told in time: by `is_ready`, `next_due_ms` or `next_tick_ms`."""
        ready = self.is_ready(topic, group, self.now_ms)
        if ready:
            assert core.is_ready(topic.number, group.name, self.now_ms)
            return
        due_ms = core.next_due_ms(topic.number, group.name)
        told = [due for due in (tick_ms, due_ms) if due is not None]
        until_ms = min(told) - 1 if told else FOREVER_MS
        if until_ms > self.now_ms and not core.is_ready(topic.number, group.name, self.now_ms):
            early = self.is_ready(topic, group, until_ms)
            assert not early, f"something of {group.name!r} is ready before anybody is told"
        leases = [slot for _, _, slot in group.all_slots() if slot.state == "leased"]
        for slot in leases:
            assert tick_ms is not None
            assert tick_ms <= slot.deadline_ms
        for _, deadline_ms in group.members.values():
            assert tick_ms is not None
            assert tick_ms <= deadline_ms


# -- plain functions -------------------------------------------------------------------------------


def renewed_ms(settle: Settle, now_ms: int) -> int:
    """Until when a settle holds what it leaves leased; 0 if it says nothing about that."""
    renews = settle.action == "extend" or (settle.action == "begin" and settle.lease_ms)
    return now_ms + settle.lease_ms if renews else 0


def retry_delay_ms(policy: TopicPolicy, attempt: int, seed: int) -> int:
    """How long a failed message waits: the formula of the docs, and chance only inside its bounds."""
    retry = policy.retry
    factor = {"fixed": 1, "linear": attempt, "exponential": 2 ** (attempt - 1)}[retry.kind]
    full = min(retry.base_ms * factor, retry.cap_ms)
    if not retry.jitter:
        return full
    delay_ms = retry.delay_ms(attempt, seed)
    assert full // 2 <= delay_ms <= full
    return delay_ms


def _altered(topic: Topic, command: AlterTopic) -> TopicPolicy:
    changes = {name: getattr(command.policy, name) for name in command.fields}
    return replace(topic.policy, **changes)


def _impossible(policy: TopicPolicy) -> bool:
    """Its parts contradict each other."""
    kept = policy.retention
    ends = kept.time_ms is not None or kept.size_bytes is not None
    scattered = policy.partition_by == "round-robin"
    return (
        (kept.forever and (ends or kept.compact))
        or (not policy.keep_unsettled and not ends)
        or (kept.settled and (kept.compact or not ends or policy.keep_unsettled))
        or (kept.compact and scattered)
    )


def _too_old(policy: TopicPolicy, message: Message, now_ms: int) -> bool:
    time_ms = policy.retention.time_ms
    return time_ms is not None and message.time_ms + time_ms <= now_ms


def stored(
    core: DeliveryCore, topic: int, partition: int, start: int = 0, *, pending: bool = False
) -> list[Slice]:
    """The messages of a partition, one by one."""
    found, ahead = core.browse(topic, {partition: start}, EVERYTHING, pending=pending)
    assert ahead[partition] == core.topics[topic].partitions[partition].end
    return singles(found)


def singles(pieces: Sequence[Slice]) -> list[Slice]:
    """Slices of one message each."""
    return [
        Slice(
            piece.partition,
            piece.offset + at,
            1,
            piece.index,
            piece.row + at,
            piece.time_ms,
            piece.attempt,
            piece.origin and replace(piece.origin, offset=piece.origin.offset + at),
            piece.reserved,
        )
        for piece in pieces
        for at in range(piece.count)
    ]


def _places(answer: SentReply) -> list[Placed]:
    """The places of a send's messages, one by one."""
    return [
        replace(piece, offset=piece.offset + at, row=piece.row + at, count=1)
        for piece in answer.placed
        for at in range(piece.count)
    ]


def _ranges(offsets: Sequence[int]) -> tuple[tuple[int, int], ...]:
    joined: list[tuple[int, int]] = []
    for offset in offsets:
        if joined and joined[-1][1] == offset:
            joined[-1] = (joined[-1][0], offset + 1)
        else:
            joined.append((offset, offset + 1))
    return tuple(joined)


def _same(message: Message, piece: Slice) -> bool:
    """The piece is this message."""
    told = (piece.index, piece.row, piece.time_ms, piece.origin)
    return told == (message.index, message.row, message.time_ms, message.origin)


def _head_run(
    messages: Sequence[Message], slots: Sequence[Slot], pending: list[int], now_ms: int
) -> list[int]:
    """What may be delivered in order: everything up to one that is out or is to wait."""
    run: list[int] = []
    for offset in pending:
        due_ms = max(slots[offset].due_ms, messages[offset].deliver_at)
        if slots[offset].state == "leased" or due_ms > now_ms:
            break
        run.append(offset)
    return run

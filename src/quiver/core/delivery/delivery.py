"""The delivery state machine: entries in, outcomes out.

`apply` is the only mutator. It is deterministic: time, chance and order come in with the entry,
ids come from the entry's index, nothing iterates a set. A command that cannot be done is refused
before it has changed anything, and the refusal is its outcome; so a log replays to the same state
and the same answers everywhere.

Time: an entry's `now_ms` first ends the leases, lives and sessions that are due by then; only then
the command is looked at. Nothing happens between entries.
"""

from collections.abc import Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush
from heapq import merge as heap_merge
from typing import Any, Final, assert_never

from quiver import limits
from quiver.core.delivery import letters, sending, timers
from quiver.core.delivery.extents import Columns, Extent
from quiver.core.delivery.lanes import Taken
from quiver.core.delivery.ledger import Ledger
from quiver.core.delivery.partition import Partition
from quiver.core.delivery.reasons import Reasons
from quiver.core.delivery.retention import enforce, is_overdue, sweep, trim
from quiver.core.delivery.rewind import Rewind, life_ends, rewind
from quiver.core.delivery.timers import Timer
from quiver.core.delivery.topic import Group, KnownProducer, Topic
from quiver.core.delivery.view import Lease, View, ViewPiece
from quiver.errors import (
    InvalidRequest,
    LimitExceeded,
    MemberFenced,
    QueueFull,
    QuiverError,
    ReceiptExpired,
    ReceiptInvalid,
    TopicExists,
    TopicNotFound,
    UnsupportedFormat,
)
from quiver.model import levels
from quiver.model.commands import (
    UNNAMED,
    AlterTopic,
    Commit,
    Compact,
    CreateGroup,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    Discard,
    Entry,
    Found,
    Heartbeat,
    Held,
    Join,
    Leave,
    OpenProducer,
    PauseGroup,
    Position,
    Publish,
    Purge,
    Raise,
    Receive,
    Redrive,
    Run,
    Seek,
    Send,
    SetPeers,
    SetTime,
    Settle,
    Tick,
    Transact,
)
from quiver.model.ledger import Event
from quiver.model.ranges import Range, merge, subtract, union
from quiver.model.replies import (
    Assigned,
    Done,
    Moved,
    Origin,
    Outcome,
    PeersSet,
    Positioned,
    ProducerOpened,
    Published,
    Received,
    Reply,
    SentMany,
    SentReply,
    Settled,
    Slice,
    TopicCreated,
    Transacted,
)
from quiver.model.stats import TopicStats
from quiver.model.topic import (
    ALTERABLE,
    Guarantee,
    TopicPolicy,
    differences,
    how_to_change,
    is_staging,
    staged_for,
    staging_name,
)

ALONE: Final[list[Any]] = [levels.FIRST, 0, b""]  # level, shard and peers of a log in no cluster
TIMERS_MIN: Final = 4_096  # below this many, timers of things that are gone are not worth clearing


class DeliveryCore:
    """All topics of a shard."""

    def __init__(self) -> None:
        """An empty shard; the first entry is `Found`."""
        self.index = 0
        self.now_ms = 0
        self.level = levels.FIRST
        self.bounds = levels.bounds_of(self.level)
        self.secret = b""
        self.created_ms = 0
        self.shard = 0
        self.peers = b""  # who shares the log; only kept
        self.ledger = Ledger()  # what happened; not a part of the state
        self.reasons = Reasons()  # why messages were given up; not a part of it either
        self.topics: dict[int, Topic] = {}
        self.names: dict[str, int] = {}
        self._numbers = 0  # topics and groups are numbered from one counter, never reused
        self._timers: list[Timer] = []
        self._clear_timers_at = TIMERS_MIN
        self._woken: dict[int, None] = {}

    # -- the one way in ----------------------------------------------------------------------------

    def apply(self, entry: Entry) -> Outcome:
        """Let the entry's time pass, then do its command."""
        assert entry.index == self.index + 1, "entries are applied in order, once each"
        self.index = entry.index
        self._woken = {}
        now_ms = max(self.now_ms, entry.now_ms)
        self.ledger.at(entry.index, now_ms)
        self._advance(now_ms)
        reply: Reply | Exception
        try:
            reply = self._do(entry)
        except QuiverError as refusal:
            reply = refusal
        return Outcome(reply, tuple(self._woken))

    def _do(self, entry: Entry) -> Reply:
        match entry.command:
            case Send() as command:
                return self._on_send(command)
            case Receive() as command:
                return self._on_receive(command)
            case Settle() as command:
                return self._on_settle(command)
            case Transact() as command:
                return self._on_transact(command)
            case CreateTopic() as command:
                return self._on_create_topic(command)
            case AlterTopic() as command:
                return self._on_alter_topic(command)
            case DeleteTopic() as command:
                return self._on_delete_topic(command)
            case OpenProducer() as command:
                return self._on_open_producer(command)
            case CreateGroup() as command:
                return self._on_create_group(command)
            case DeleteGroup() as command:
                return self._on_delete_group(command)
            case Seek() as command:
                return self._on_seek(command)
            case PauseGroup() as command:
                return self._on_pause_group(command)
            case Purge() as command:
                return self._on_purge(command)
            case Discard() as command:
                return self._on_discard(command)
            case Compact() as command:
                return self._on_compact(command)
            case Redrive() as command:
                return self._on_redrive(command)
            case Publish() as command:
                return self._on_publish(command)
            case Join() as command:
                return self._on_join(command)
            case Heartbeat() as command:
                return self._on_heartbeat(command)
            case Commit() as command:
                return self._on_commit(command)
            case Leave() as command:
                return self._on_leave(command)
            case Tick() as command:
                return self._on_tick(command)
            case SetTime() as command:
                return self._on_set_time(command)
            case Found() as command:
                return self._on_found(command)
            case Raise() as command:
                return self._on_raise(command)
            case SetPeers() as command:
                return self._on_set_peers(command)
            case never:
                assert_never(never)

    # -- questions; they change nothing ------------------------------------------------------------

    def topic_named(self, name: str) -> Topic:
        """The topic, which must exist."""
        number = self.names.get(name)
        if number is None:
            raise TopicNotFound(f"there is no topic {name!r}; make it with create_topic({name!r})")
        return self.topics[number]

    def is_ready(self, topic: int, group: str, now_ms: int, *, begins: bool = True) -> bool:
        """Whether a receive is worth an entry: something may be ready, or it must be answered.

        One that `begins` something may also take over what others have reserved.
        """
        known = self.topics.get(topic)
        if known is None or group not in known.groups:
            return True
        state = known.groups[group]
        if state.members.members or state.untold:
            return True
        return not state.paused and any(
            view.is_ready(now_ms) or (begins and view.may_steal(now_ms)) for view in state.views
        )

    def ready_count(self, topic: int, group: str, now_ms: int) -> int:
        """At most how many messages the group could be given now."""
        known = self.topics.get(topic)
        if known is None or group not in known.groups:
            return 1
        views = known.groups[group].views
        count = sum(view.partition.end - view.settled.count - view.leased for view in views)
        return count + sum(view.reserved for view in views if view.may_steal(now_ms))

    def in_flight(self, topic: int, group: str) -> int:
        """How many messages the group's consumers hold."""
        known = self.topics.get(topic)
        if known is None or group not in known.groups:
            return 0
        return sum(view.leased for view in known.groups[group].views)

    def assigned(self, topic: int, group: str, member: str) -> Assigned:
        """What a member owns; it must be in the group."""
        state = self._topic(topic).group(group)
        state.members.require(member)
        return self._assigned(state, member, state.untold)

    def is_paused(self, topic: int, group: str) -> bool:
        """Whether the group gets nothing for now."""
        known = self.topics.get(topic)
        return known is not None and group in known.groups and known.groups[group].paused

    def guarantee(self, topic: int, group: int) -> Guarantee | None:
        """What a group is promised, if it is there."""
        known = self.topics.get(topic)
        found = self._numbered(known, group) if known is not None else None
        return found.guarantee if found is not None else None

    def next_due_ms(self, topic: int, group: str) -> int | None:
        """When a waiting message of the group becomes ready by itself, or a reserved one for others."""
        known = self.topics.get(topic)
        if known is None or group not in known.groups or known.groups[group].paused:
            return None
        views = known.groups[group].views
        dues = [due for view in views for due in (view.next_due_ms(), view.steal_due_ms())]
        return min((due for due in dues if due is not None), default=None)

    def next_tick_ms(self) -> int | None:
        """When the next lease, life or session ends: an entry should be applied then.

        Timers of what has ended otherwise are forgotten here. That changes no answer: they would
        have done nothing, and `dump` leaves them out.
        """
        while self._timers and not self._matters(self._timers[0]):
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def is_overdue(self, now_ms: int) -> bool:
        """Whether messages of some topic have become too old since anything happened to it."""
        return any(is_overdue(topic, now_ms) for topic in self.topics.values())

    def browse(
        self,
        topic: int,
        positions: dict[int, int],
        limit: int,
        *,
        ends: dict[int, int] | None = None,
        pending: bool = False,
    ) -> tuple[list[Slice], dict[int, int]]:
        """Up to `limit` messages from `positions` (partition to offset) to `ends`, oldest first, no lease.

        Fewer if they are large, or if they came one by one: others wait meanwhile. Returns where to go
        on. With `pending`, only what some group has not settled.
        """
        known = self._topic(topic)
        until = {number: known.partitions[number].end for number in positions}
        if ends is not None:
            until = {number: min(end, ends[number]) for number, end in until.items()}
        parts = [
            _browsed(known, number, start, until[number], pending)
            for number, start in positions.items()
        ]
        found: list[Slice] = []
        ahead = dict(positions)
        room = limits.PAGE_BYTES
        for piece, nbytes in heap_merge(*parts, key=lambda one: (one[0].time_ms, one[0].partition)):
            each = max(nbytes // piece.count, 1)
            count = min(piece.count, limit, max(room // each, 1))
            found.append(replace(piece, count=count))
            ahead[piece.partition] = piece.offset + count
            limit -= count
            room -= count * each
            full = limit <= 0 or room <= 0 or len(found) == limits.BROWSED_SLICES_MAX
            if full or count < piece.count:
                return found, ahead
        return found, until

    def fetchable(
        self, topic: int, positions: dict[int, int], now_ms: int
    ) -> tuple[dict[int, int], int | None]:
        """How far members may read: up to the first delayed message; and when the next one is due."""
        parts = self._topic(topic).partitions
        found = {at: parts[at].first_delayed(start, now_ms) for at, start in positions.items()}
        dues = [due_ms for _, due_ms in found.values() if due_ms is not None]
        return {at: end for at, (end, _) in found.items()}, min(dues, default=None)

    def stats(self, topic: int, now_ms: int) -> TopicStats:
        """A topic as numbers."""
        found = self._topic(topic).stats(max(now_ms, self.now_ms))
        staging = self.names.get(staging_name(found.topic))
        if staging is None:
            return found
        return replace(found, staged=self.topics[staging].unsettled())

    def check(self) -> None:
        """Every invariant; tests and simulations call it after each step."""
        assert {topic.name: number for number, topic in self.topics.items()} == self.names
        for topic in self.topics.values():
            topic.check()

    # -- topics ------------------------------------------------------------------------------------

    def _on_found(self, command: Found) -> Reply:
        assert not self.secret, "a log is founded once"
        self.secret = command.secret
        self.created_ms = command.created_ms
        self.shard = command.shard
        return Done()

    def _on_raise(self, command: Raise) -> Reply:
        if command.level <= self.level:
            raise InvalidRequest(
                f"the log is at level {self.level} already, and a level is never taken back"
            )
        self.level = command.level
        self.bounds = levels.bounds_of(self.level)
        return Done()

    def _on_set_peers(self, command: SetPeers) -> Reply:
        if len(command.peers) > self.bounds.peers_bytes_max:
            raise LimitExceeded(
                f"who shares the log may take {self.bounds.peers_bytes_max:,} bytes, and this takes "
                f"{len(command.peers):,}"
            )
        before, self.peers = self.peers, command.peers
        return PeersSet(before)

    def _on_create_topic(self, command: CreateTopic) -> Reply:
        number = self.names.get(command.name)
        if number is not None:
            known = self.topics[number].policy
            if known != command.policy:
                raise TopicExists(
                    f"topic {command.name!r} exists with another policy; "
                    + how_to_change(differences(known, command.policy))
                )
            return TopicCreated(number, fresh=False)
        if is_staging(command.name):
            self.topic_named(staged_for(command.name))
        if len(self.topics) >= self.bounds.topics_max:
            raise LimitExceeded(f"there are {self.bounds.topics_max} topics already; delete some")
        topic = self._make_topic(command.name, command.policy)
        self._make_dead_letter(command.policy)
        return TopicCreated(topic.number, fresh=True)

    def _make_dead_letter(self, policy: TopicPolicy) -> None:
        if policy.dead_letter is not None and policy.dead_letter not in self.names:
            self._make_topic(policy.dead_letter, TopicPolicy(ledger=policy.ledger))

    def _on_alter_topic(self, command: AlterTopic) -> Reply:
        topic = self._topic(command.topic)
        fixed = [name for name in command.fields if name not in ALTERABLE]
        if fixed:
            raise InvalidRequest(f"topic {topic.name!r} is there already; {how_to_change(fixed)}")
        changes = {name: getattr(command.policy, name) for name in command.fields}
        policy = replace(topic.policy, **changes)
        fault = policy.fault()
        if fault is not None:
            raise InvalidRequest(fault)
        self._make_dead_letter(policy)
        topic.policy = policy
        sending.shorten_memory(topic, self.now_ms)
        self._enforce(topic)
        return Done()

    def _make_topic(self, name: str, policy: TopicPolicy) -> Topic:
        self._numbers += 1
        topic = Topic(self._numbers, name, policy, self.ledger)
        self.topics[topic.number] = topic
        self.names[name] = topic.number
        return topic

    def _on_delete_topic(self, command: DeleteTopic) -> Reply:
        topic = self._topic(command.topic)
        for name in (topic.name, staging_name(topic.name)):
            if name in self.names:
                gone = self.topics.pop(self.names.pop(name))
                gone.ledger.add(Event.TOPIC_DELETED, name, -1, 0, 0)
                self._wake(gone)
        return Done()

    def _topic(self, number: int) -> Topic:
        topic = self.topics.get(number)
        if topic is None:
            raise TopicNotFound("the topic was deleted; make it again with create_topic")
        return topic

    # -- sending -----------------------------------------------------------------------------------

    def _on_send(self, command: Send) -> Reply:
        topic = self._topic(command.topic)
        columns = Columns.of(command.attributes)
        answers: list[SentReply | Exception] = []
        at = row = 0
        for count in command.requests:
            runs = command.runs[at : at + count]
            rows = runs[0].rows if count == 1 else sum([run.rows for run in runs])
            try:
                sending.check(topic, command, rows, row, self.now_ms, self.bounds)
            except QuiverError as refusal:
                answers.append(refusal)
            else:
                answers.append(self._place(topic, command, runs, rows, row, columns))
            at += count
            row += rows
        topic.catch_up(self.now_ms)
        if topic.policy.retention.bounded:
            self._enforce(topic)
        self._wake(topic)
        return SentMany(tuple(answers))

    def _place(
        self,
        topic: Topic,
        command: Send,
        runs: tuple[Run, ...],
        rows: int,
        row: int,
        columns: Columns | None,
    ) -> SentReply:
        sent = sending.place(topic, command, runs, rows, row, columns, self.index, self.now_ms)
        sending.note(topic, command, sent, columns)
        if columns is not None and columns.expires_at and not command.staged:
            for piece in sent.placed:
                if not piece.duplicate:
                    base = piece.row - command.first_row
                    lives = columns.expires_at[base : base + piece.count]
                    self._set_lives(topic, piece.partition, piece.offset, lives)
        return sent

    def _set_lives(
        self, topic: Topic, partition: int, offset: int, lives: "memoryview[int]"
    ) -> None:
        """The messages from `offset` on end at these times, if they end."""
        for at, expires_at in enumerate(lives):
            if expires_at:
                self._set_timer(timers.of_life(expires_at, topic.number, partition, offset + at))

    def _on_open_producer(self, command: OpenProducer) -> Reply:
        topic = self._topic(command.topic)
        known = topic.producers.pop(command.name, None)
        if known is None and len(topic.producers) >= self.bounds.producers_max:
            unnamed = (name for name in topic.producers if name.startswith(UNNAMED))
            del topic.producers[next(unnamed, next(iter(topic.producers)))]
        producer = KnownProducer(self.index, known.sequence if known else 0)
        topic.producers[command.name] = producer
        return ProducerOpened(producer.epoch, producer.sequence)

    # -- receiving ---------------------------------------------------------------------------------

    def _on_receive(self, command: Receive) -> Reply:
        topic = self._topic(command.topic)
        group = topic.groups.get(command.group)
        if group is not None and group.members.members:
            raise InvalidRequest(
                f"group {group.name!r} has members that own whole partitions; join it instead of "
                "receiving, or receive with another group"
            )
        if command.begin is not None and command.per_key > 1:
            raise InvalidRequest(
                "a receive that takes several messages of a key begins all of them; leave begin out"
            )
        if not topic.policy.keep_unsettled:
            self._enforce(topic)  # what is too old must not be delivered
        if group is None:
            group = self._make_group(topic, command.group, Position(), "at-least-once")
        while self._timers and self._timers[0][0] <= self.now_ms:
            self._advance(self.now_ms)  # what has expired must not be delivered, however much it is
        deadline_ms = self.now_ms + command.lease_ms
        steal_ms = self.now_ms + self.bounds.reserved_ms_min
        slices: list[Slice] = []
        found = self._take(group, command, slices)
        if not found and command.begin != 0 and self._take_over(topic, group, command.max_messages):
            found = self._take(group, command, slices)
            steal_ms = self.now_ms + self.bounds.stolen_ms_min
        if command.begin is not None:
            slices = _reserve(slices, command.begin)
        for view, taken in found:
            self._grant(topic, group, command, view, taken, slices, deadline_ms, steal_ms)
        if group.guarantee == "at-most-once" and slices:
            trim(topic, self.now_ms)
        return Received(
            topic.number, group.number, self.index, deadline_ms, tuple(slices),
            group.guarantee == "at-most-once", group.tell(),
        )  # fmt: skip

    def _grant(
        self, topic: Topic, group: Group, command: Receive, view: View, taken: list[Taken],
        slices: list[Slice], deadline_ms: int, steal_ms: int,
    ) -> None:  # fmt: skip
        """Lease what was taken of a partition, and begin what `slices` have as begun."""
        number = view.partition.number
        begun, reserved = taken, list[Taken]()
        if command.begin is not None:
            begun, reserved = _divided(
                taken, sum(x.count for x in slices if x.partition == number and not x.reserved)
            )
        once = group.guarantee == "at-most-once"
        if not once or reserved:
            view.lease(self.index, command.consumer, [] if once else begun, reserved,
                       deadline_ms, steal_ms)  # fmt: skip
            self._set_timer(
                timers.of_lease(deadline_ms, topic.number, group.number, number, self.index)
            )
        for start, end, _ in begun if once else ():
            view.settle(start, end, self.now_ms)
        for start, end, attempts in sorted(begun) if len(begun) > 1 else begun:
            self._count_begun(
                topic, group, number, start, end, attempts + 1, deadline_ms, command.consumer
            )
        for start, end, _ in sorted(reserved):
            topic.ledger.add(Event.RESERVED, topic.name, number, start, end, group.name,
                             command.consumer, until_ms=deadline_ms)  # fmt: skip

    @staticmethod
    def _count_begun(
        topic: Topic, group: Group, partition: int, start: int, end: int, attempt: int,
        until_ms: int, consumer: str,
    ) -> None:  # fmt: skip
        """A consumer begins these: an attempt. At most once, they are settled with that."""
        event, count = Event.LEASED, end - start
        if group.guarantee == "at-most-once":
            event, until_ms = Event.DELIVERED, 0
            group.acked += count
        topic.ledger.add(event, topic.name, partition, start, end, group.name, consumer, attempt,
                         until_ms=until_ms)  # fmt: skip
        group.delivered += count
        if attempt > 1:
            group.redelivered += count

    def _take_over(self, topic: Topic, group: Group, most: int) -> bool:
        """Make ready, not counted, half of what others have reserved for long enough, oldest first.

        Whether there was any. From then on these are messages like others that are ready.
        """
        if group.paused:
            return False
        found = sorted(
            (steal_ms, epoch, view.partition.number, pieces)
            for view in group.views
            for steal_ms, epoch, pieces in view.stealable(self.now_ms)
        )
        total = sum(piece.end - piece.start for *_, pieces in found for piece in pieces)
        left = min((total + 1) // 2, most)
        for _, epoch, number, pieces in found:
            if left <= 0:
                break
            view = group.views[number]
            consumer = view.leases[epoch].consumer
            for piece in pieces:
                end = piece.end if view.steals_all else min(piece.end, piece.start + left)
                released = view.release(epoch, piece.start, end)
                self._give_back(topic, group, view, released, consumer, "taken over")
                left -= end - piece.start
            self._wake(topic)
        return bool(found)

    def _give_back(
        self, topic: Topic, group: Group, view: View, released: list[ViewPiece], consumer: str,
        reason: str, delay_ms: int = 0,
    ) -> None:  # fmt: skip
        """These go back as if they had never been begun, to be delivered after `delay_ms`."""
        due_ms = self.now_ms + delay_ms
        for piece in released:
            attempt = 0 if piece.steal_ms else piece.attempt
            topic.ledger.add(Event.RELEASED, topic.name, view.partition.number, piece.start,
                             piece.end, group.name, consumer, attempt, reason, due_ms)  # fmt: skip
            group.released += piece.end - piece.start
            view.give_back(piece.start, piece.end, piece.attempt - 1, due_ms, self.now_ms)

    def _take(
        self, group: Group, command: Receive, slices: list[Slice]
    ) -> list[tuple[View, list[Taken]]]:
        """Take what is ready: highest priority first, and inside one in turns between partitions.

        What was taken goes to `slices` in that order, and is returned for each view.
        """
        if group.paused:
            return []
        group.turn += 1
        first = group.turn % len(group.views)
        views = [*group.views[first:], *group.views[:first]]
        for view in views:
            view.prepare(self.now_ms, self.bounds.mature_max)
        kept: list[list[Taken]] = [[] for _ in views]
        room, room_bytes = command.max_messages, self.bounds.receive_bytes_max
        told = command.told_bytes
        level = self.bounds.priority_max + 1
        while room > 0 and room_bytes > 0:
            lower = [below for view in views for below in view.levels() if below < level]
            if not lower:
                break
            level = max(lower)
            for at, view in enumerate(views):
                if room <= 0 or room_bytes <= 0:
                    break
                taken = view.take(level, room, command.per_key, self.now_ms)
                fitting, pieces, nbytes = self._fit(view, taken, room_bytes, told, fresh=not slices)
                kept[at] += fitting
                slices += pieces
                if told is not None:
                    told -= sum(piece.told_bytes(self.bounds) for piece in pieces)
                room -= sum(piece.count for piece in pieces)
                room_bytes -= nbytes
        return [(view, pieces) for view, pieces in zip(views, kept, strict=True) if pieces]

    def _fit(
        self, view: View, taken: list[Taken], room: int, told: int | None, *, fresh: bool
    ) -> tuple[list[Taken], list[Slice], int]:
        """Find where the taken messages are; from the first that is too many bytes all go back.

        There is `room` for so many bytes of messages, and so many may be `told` of them, or any. The first
        of a receive always fits. The bytes returned leave no room once something went back: nothing that
        comes later may overtake it.
        """
        kept: list[Taken] = []
        slices: list[Slice] = []
        nbytes = 0
        full = False
        for start, end, attempts in taken:
            position = start
            for piece, piece_bytes in view.partition.slices(start, end, attempts + 1):
                if full:
                    break
                fits = piece.count
                if nbytes + piece_bytes > room:
                    fits = max((room - nbytes) * piece.count // piece_bytes, 0)
                if told is not None:
                    told -= piece.told_bytes(self.bounds)
                    fits = fits if told >= 0 else 0
                if not fits and fresh and not slices:
                    fits = 1
                if fits:
                    slices.append(piece if fits == piece.count else replace(piece, count=fits))
                    nbytes += piece_bytes * fits // piece.count
                    position += fits
                full = fits < piece.count
            if position > start:
                kept.append((start, position, attempts))
            if position < end:
                view.untake(position, end, attempts, self.now_ms)
        return kept, slices, max(room, nbytes) if full else nbytes

    # -- settling ----------------------------------------------------------------------------------

    def _on_settle(self, command: Settle) -> Reply:
        topic, group = self._lease_owner(command)
        return self._settle(topic, group, command)

    def _lease_owner(self, command: Settle) -> tuple[Topic, Group]:
        topic = self.topics.get(command.topic)
        group = self._numbered(topic, command.group) if topic is not None else None
        if topic is None or group is None:
            raise ReceiptInvalid("the receipt belongs to a topic or group that was deleted")
        if command.action == "dead_letter" and topic.policy.dead_letter is None:
            raise InvalidRequest(
                f"topic {topic.name!r} has no dead-letter topic; make it with "
                "create_topic(…, dead_letter=…), or nack instead"
            )
        if any(held.partition >= len(group.views) for held in command.held):
            raise ReceiptInvalid("the receipt names a partition that does not exist")
        return topic, group

    def _settle(self, topic: Topic, group: Group, command: Settle) -> Settled:
        count = 0
        refused: list[Held] = []
        deadline_ms = self.now_ms + command.lease_ms
        renews = command.action == "extend" or (command.action == "begin" and command.lease_ms > 0)
        once = group.guarantee == "at-most-once"
        for held in command.held:
            view = group.views[held.partition]
            done = [
                piece
                for start, end in held.ranges
                for piece in self._settle_range(topic, group, view, held.epoch, start, end, command)
            ]
            count += sum(end - start for start, end in done)
            missing = subtract(merge(list(held.ranges)), merge(done))
            if missing:
                refused.append(Held(held.partition, held.epoch, tuple(missing)))
            if renews and held.epoch in view.leases:
                place = topic.number, group.number, held.partition
                self._set_timer(timers.of_lease(deadline_ms, *place, held.epoch))
        if command.action == "dismiss" or (command.action == "ack" and not once):
            group.acked += count  # at most once it is counted as it begins
        elif command.action == "nack":
            group.nacked += count
        if command.action not in ("extend", "begin") or once:
            trim(topic, self.now_ms, [held.partition for held in command.held])
            if command.action in ("nack", "release") or topic.policy.order != "none":
                self._wake(topic)
        return Settled(count, tuple(refused), deadline_ms if renews else 0)

    def _settle_range(
        self, topic: Topic, group: Group, view: View, epoch: int, start: int, end: int,
        command: Settle,
    ) -> list[Range]:  # fmt: skip
        """Settle what the lease holds of `start … end`; return what that was."""
        if command.action == "dismiss":
            return self._dismiss(topic, group, view, start, min(end, view.partition.end))
        lease = view.leases.get(epoch)
        if lease is None or not _may_settle(command.action, group):
            return []
        number, consumer = view.partition.number, lease.consumer
        if command.action == "begin":
            until_ms = self.now_ms + command.lease_ms if command.lease_ms else 0
            return self._begin(topic, group, view, lease, start, end, until_ms)
        if command.action == "extend":
            until_ms = self.now_ms + command.lease_ms
            extended = view.extend(epoch, start, end, until_ms)
            for low, high in extended:
                topic.ledger.add(Event.EXTENDED, topic.name, number, low, high, group.name,
                                 consumer, until_ms=until_ms)  # fmt: skip
            return extended
        if command.action == "ack" and group.guarantee == "at-most-once":
            return self._begin(topic, group, view, lease, start, end, 0)
        released = view.release(epoch, start, end)
        if command.action == "release":
            self._give_back(topic, group, view, released, consumer, command.reason,
                            command.delay_ms or 0)  # fmt: skip
            return [(piece.start, piece.end) for piece in released]
        for low, high, attempt, deadline_ms, steal_ms in released:
            if steal_ms:
                self._count_begun(topic, group, number, low, high, attempt, deadline_ms, consumer)
        match command.action:
            case "ack":
                for low, high, attempt, *_ in released:
                    topic.ledger.add(Event.ACKED, topic.name, number, low, high, group.name,
                                     consumer, attempt)  # fmt: skip
                    view.settle(low, high, self.now_ms)
            case "dead_letter":
                for piece in released:
                    self._bury(topic, group, view, piece.start, piece.end, piece.attempt,
                               command.reason, consumer)  # fmt: skip
            case "nack":
                self._nack(topic, group, view, released, command, consumer)
        return [piece[:2] for piece in released]

    def _begin(
        self, topic: Topic, group: Group, view: View, lease: Lease, start: int, end: int,
        until_ms: int,
    ) -> list[Range]:  # fmt: skip
        """Begin what the lease holds of `start … end`; return what that is.

        What has begun before stays as it is, so that to say it twice is to say it once.
        """
        if group.guarantee == "at-most-once":
            before = view.release(lease.epoch, start, end)
            for piece in before:
                view.settle(piece.start, piece.end, self.now_ms)
        else:
            before = view.begin(lease.epoch, start, end, until_ms)
        number = view.partition.number
        for piece in before:
            if piece.steal_ms:
                self._count_begun(
                    topic, group, number, piece.start, piece.end, piece.attempt,
                    until_ms or piece.deadline_ms, lease.consumer,
                )  # fmt: skip
            elif until_ms:
                topic.ledger.add(Event.EXTENDED, topic.name, number, piece.start, piece.end,
                                 group.name, lease.consumer, until_ms=until_ms)  # fmt: skip
        return [(piece.start, piece.end) for piece in before]

    def _dismiss(self, topic: Topic, group: Group, view: View, start: int, end: int) -> list[Range]:
        """Settle what the group has not settled of `start … end`; return what that was."""
        done = list(view.settled.gaps(start, end))
        for low, high in done:
            topic.ledger.add(Event.ACKED, topic.name, view.partition.number, low, high, group.name)
        view.lose(start, end, self.now_ms)
        return done

    def _nack(
        self, topic: Topic, group: Group, view: View, released: list[ViewPiece], command: Settle,
        consumer: str,
    ) -> None:  # fmt: skip
        """These were given back: all are written down before the first is given up."""
        delays: list[int] = []
        for low, high, attempt, *_ in released:
            delay_ms = command.delay_ms
            if delay_ms is None:
                delay_ms = topic.policy.retry.delay_ms(attempt, command.seed ^ low)
            delays.append(delay_ms)
            due_ms = 0 if self._was_last(topic, attempt) else self.now_ms + delay_ms
            topic.ledger.add(Event.NACKED, topic.name, view.partition.number, low, high,
                             group.name, consumer, attempt, command.reason, due_ms)  # fmt: skip
        reason = command.reason or "nacked"
        for (low, high, attempt, *_), delay_ms in zip(released, delays, strict=True):
            self._retry(topic, group, view, low, high, attempt, delay_ms, reason)

    def _retry(
        self, topic: Topic, group: Group, view: View, start: int, end: int, attempt: int,
        delay_ms: int, reason: str,
    ) -> None:  # fmt: skip
        """These failed: try again after `delay_ms`, or bury them if they had their last attempt."""
        if self._was_last(topic, attempt):
            self._bury(topic, group, view, start, end, attempt, reason)
        else:
            view.give_back(start, end, attempt, self.now_ms + delay_ms, self.now_ms)

    @staticmethod
    def _was_last(topic: Topic, attempt: int) -> bool:
        last = topic.policy.max_attempts
        return last is not None and attempt >= last and topic.policy.dead_letter is not None

    def _bury(
        self, topic: Topic, group: Group, view: View, start: int, end: int, attempt: int,
        reason: str, consumer: str = "",
    ) -> None:  # fmt: skip
        """Move messages to the dead-letter topic: append there, settle here, in one step."""
        name = topic.policy.dead_letter
        assert name is not None
        number = self.names.get(name)
        policy = TopicPolicy(ledger=topic.policy.ledger)
        target = self.topics[number] if number else self._make_topic(name, policy)
        reason = reason[: self.bounds.reason_chars_max]
        at = view.partition.number
        origin = Origin(topic.name, at, start, group.name, attempt, reason, self.now_ms)
        to = letters.link(view.partition, start, end, target, origin, self.now_ms)
        _ledger_of(topic, target).add(
            Event.DEAD_LETTERED, topic.name, at, start, end, group.name, consumer, attempt, reason,
            0, target.name, *to,
        )  # fmt: skip
        self._wake(target)
        view.settle(start, end, self.now_ms)
        group.dead_lettered += end - start
        self.reasons.add(reason, end - start)

    # -- transactions ------------------------------------------------------------------------------

    def _on_transact(self, command: Transact) -> Reply:
        owners = [self._lease_owner(settle) for settle in command.settles]
        self._check_leases(command, owners)
        backlog: dict[int, int] = {}
        for send in command.sends:
            topic = self._topic(send.topic)
            rows = sum(run.rows for run in send.runs)
            before = backlog.get(topic.number, 0)
            try:
                new = sending.check(topic, send, rows, 0, self.now_ms, self.bounds, before)
            except QueueFull as full:
                raise QueueFull(f"nothing of the transaction was done: {full}") from None
            backlog[topic.number] = before + new
        for (topic, group), settle in zip(owners, command.settles, strict=True):
            self._settle(topic, group, settle)
        sent: list[SentReply] = []
        for send in command.sends:
            topic = self._topic(send.topic)
            rows = sum(run.rows for run in send.runs)
            columns = Columns.of(send.attributes)
            sent.append(self._place(topic, send, send.runs, rows, 0, columns))
            topic.catch_up(self.now_ms)
            self._wake(topic)
        for send in command.sends:  # when all is settled: it may end leases
            topic = self._topic(send.topic)
            if topic.policy.retention.bounded:
                self._enforce(topic)
        return Transacted(tuple(sent))

    def _check_leases(self, command: Transact, owners: list[tuple[Topic, Group]]) -> None:
        """Every offset to settle is held, and is named once."""
        named: dict[tuple[int, int, int], list[Range]] = {}
        for (_, group), settle in zip(owners, command.settles, strict=True):
            for held in settle.held:
                view = group.views[held.partition]
                lease = view.leases.get(held.epoch)
                may = lease is not None and _may_settle(settle.action, group)
                for start, end in held.ranges:
                    if lease is None or not may or not lease.holds(start, end):
                        raise ReceiptExpired(
                            "a lease of the transaction has ended, so nothing of it was done; "
                            "the message is or will be delivered again"
                        )
                    key = (group.number, held.partition, held.epoch)
                    named.setdefault(key, []).append((start, end))
        for ranges in named.values():
            total = sum(end - start for start, end in ranges)
            if total != sum(end - start for start, end in merge(ranges)):
                raise InvalidRequest("a transaction settles the same message twice")

    # -- groups ------------------------------------------------------------------------------------

    def _make_group(
        self, topic: Topic, name: str, position: Position, guarantee: Guarantee
    ) -> Group:
        if len(topic.groups) >= self.bounds.groups_max:
            raise LimitExceeded(f"topic {topic.name!r} has {self.bounds.groups_max} groups already")
        self._numbers += 1
        group = Group(self._numbers, name, guarantee, len(topic.partitions))
        group.views = [
            topic.view_at(name, part, position, self.now_ms) for part in topic.partitions
        ]
        topic.groups[name] = group
        return group

    def _on_create_group(self, command: CreateGroup) -> Reply:
        topic = self._topic(command.topic)
        group = topic.groups.get(command.group)
        if group is None:
            self._make_group(topic, command.group, command.position, command.guarantee)
            return Positioned(self._behind(topic, command.position))
        if group.guarantee != command.guarantee:
            raise InvalidRequest(
                f"group {group.name!r} exists and is {group.guarantee}; delete it first"
            )
        return Positioned()

    def _on_delete_group(self, command: DeleteGroup) -> Reply:
        topic = self._topic(command.topic)
        topic.group(command.group)
        del topic.groups[command.group]
        topic.ledger.add(Event.GROUP_DELETED, topic.name, -1, 0, 0, command.group)
        trim(topic, self.now_ms)
        self._wake(topic)
        return Done()

    def _on_seek(self, command: Seek) -> Reply:
        topic = self._topic(command.topic)
        group = topic.group(command.group)
        if group.members.members:
            raise InvalidRequest(
                f"group {group.name!r} has members, who know their own positions; seek when they "
                "have left"
            )
        wanted = command.position.partition
        if wanted is not None and wanted >= len(topic.partitions):
            raise InvalidRequest(
                f"topic {topic.name!r} has partitions 0 to {len(topic.partitions) - 1}"
            )
        behind = self._behind(topic, command.position)
        for at, partition in enumerate(topic.partitions):
            if wanted is None or wanted == at:
                start = topic.start_of(partition, command.position)
                topic.ledger.add(Event.SOUGHT, topic.name, at, start, start, group.name)
                view = topic.view_at(group.name, partition, command.position, self.now_ms)
                view.expired += group.views[at].expired
                group.views[at] = view
        trim(topic, self.now_ms)
        self._wake(topic)
        return Positioned(behind)

    @staticmethod
    def _behind(topic: Topic, position: Position) -> tuple[tuple[int, int], ...]:
        """Where the position asks for messages that retention has let go of."""
        return tuple(
            (partition.number, partition.first)
            for partition in topic.partitions
            if position.partition in (None, partition.number)
            and topic.is_behind(partition, position)
        )

    def _on_pause_group(self, command: PauseGroup) -> Reply:
        topic = self._topic(command.topic)
        topic.group(command.group).paused = command.paused
        self._wake(topic)
        return Done()

    # -- taking messages out -----------------------------------------------------------------------

    def _on_purge(self, command: Purge) -> Reply:
        topic = self._topic(command.topic)
        count = topic.unsettled()
        for at, partition in enumerate(topic.partitions):
            for start, end in list(partition.removed.gaps(partition.first, partition.end)):
                topic.ledger.add(Event.PURGED, topic.name, at, start, end)
            partition.removed.add(partition.first, partition.end)
        for group in topic.groups.values():
            for at, partition in enumerate(topic.partitions):
                expired = group.views[at].expired
                group.views[at] = topic.view_at(
                    group.name, partition, Position("latest"), self.now_ms
                )
                group.views[at].expired = expired
        trim(topic, self.now_ms)
        return Moved(count)

    def _on_discard(self, command: Discard) -> Reply:
        topic = self._topic(command.topic)
        count = 0
        for partition, start, end in letters.pick(topic, command.picks):
            topic.ledger.add(Event.DISCARDED, topic.name, partition.number, start, end)
            letters.remove(topic, partition, start, end, self.now_ms)
            count += end - start
        trim(topic, self.now_ms)
        self._wake(topic)
        return Moved(count)

    def _on_compact(self, command: Compact) -> Reply:
        topic = self._topic(command.topic)
        if not topic.policy.retention.compact:
            raise InvalidRequest(
                f"topic {topic.name!r} is not compacted; "
                'change that with alter_topic(…, retention="compact")'
            )
        count = 0
        for partition, start, end in letters.pick_settled(topic, command.picks):
            topic.ledger.add(Event.COMPACTED, topic.name, partition.number, start, end)
            partition.removed.add(start, end)
            count += end - start
        topic.compacted += count
        trim(topic, self.now_ms)
        return Moved(count)

    def _on_redrive(self, command: Redrive) -> Reply:
        topic = self._topic(command.topic)
        target = self._topic(command.target) if command.target is not None else None
        picked = letters.pick(topic, command.picks)
        moves: list[tuple[Extent, Partition, int, int, Topic]] = []
        for partition, start, end in picked:
            for extent in partition.since(start):
                if extent.first >= end:
                    break
                low, high = max(start, extent.first), min(end, extent.end)
                origin = extent.origin
                if target is None and (origin is None or origin.topic == topic.name):
                    raise InvalidRequest(
                        f"message {low} of {topic.name!r} is not a dead letter here, so it is not "
                        "known where it came from; say to=<topic>"
                    )
                back_to = target or self.topic_named(origin.topic if origin else "")
                moves.append((extent, partition, low, high, back_to))
        for extent, partition, start, end, to in moves:
            number, first, alone = letters.revive(
                extent, partition, start, end, to, self.now_ms, alone=target is None
            )
            _ledger_of(topic, to).add(
                Event.REDRIVEN, topic.name, partition.number, start, end, alone,
                to_topic=to.name, to_partition=number, also=first,
            )  # fmt: skip
            self._wake(to)
            letters.remove(topic, partition, start, end, self.now_ms)
        trim(topic, self.now_ms)
        self._wake(topic)
        return Moved(sum(end - start for _, _, start, end, _ in moves))

    def _on_publish(self, command: Publish) -> Reply:
        topic, staged = self._topic(command.topic), self._topic(command.staged)
        known = sending.published(topic, command)
        if known is not None:
            return known
        picked = letters.pick(staged, command.picks)
        rows = sum(end - start for _, start, end in picked)
        sending.check_published(topic, staged, command, rows)
        for partition, start, end in picked:
            number, first = letters.link(
                partition, start, end, topic, None, self.now_ms, timed=True
            )
            for extent in topic.partitions[number].since(first):
                if extent.columns is not None and extent.columns.expires_at:
                    self._set_lives(topic, number, extent.first, extent.columns.expires_at)
            _ledger_of(staged, topic).add(
                Event.PUBLISHED, staged.name, partition.number, start, end,
                to_topic=topic.name, to_partition=number, also=first,
            )  # fmt: skip
            letters.remove(staged, partition, start, end, self.now_ms)
        topic.sent += rows
        sending.note_published(topic, command, rows, self.bounds.applications_max)
        trim(staged, self.now_ms)
        if topic.policy.retention.bounded:
            self._enforce(topic)
        self._wake(topic)
        return Published(rows, command.nbytes)

    # -- members -----------------------------------------------------------------------------------

    def _on_join(self, command: Join) -> Reply:
        topic = self._topic(command.topic)
        group = topic.groups.get(command.group)
        if group is None:
            group = self._make_group(topic, command.group, Position(), "at-least-once")
        if any(view.leases for view in group.views):
            raise InvalidRequest(
                f"group {group.name!r} has leased messages out; settle them before joining it, "
                "or join another group"
            )
        known = group.members.members.get(command.member)
        before_ms = known.deadline_ms if known is not None else None
        member = group.members.join(
            command.member, command.session_ms, self.now_ms, self.bounds.members_max
        )
        if (
            before_ms is None or member.deadline_ms < before_ms
        ):  # else its timer is set again in time
            place = topic.number, group.number, member.number
            self._set_timer(timers.of_session(member.deadline_ms, *place))
        self._wake(topic)
        return self._assigned(group, command.member, group.tell())

    def _on_heartbeat(self, command: Heartbeat) -> Reply:
        topic = self._topic(command.topic)
        group = topic.group(command.group)
        group.members.beat(command.member, command.released, self.now_ms)
        if command.released:
            self._wake(topic)
        return self._assigned(group, command.member, group.tell())

    def _on_commit(self, command: Commit) -> Reply:
        topic = self._topic(command.topic)
        group = topic.group(command.group)
        members = group.members
        members.require(command.member)
        for partition, offset in command.offsets:
            if members.owner.get(partition) != command.member:
                raise MemberFenced(
                    f"member {command.member!r} does not own partition {partition}; what it "
                    "processed there since its last commit will be processed by the new owner"
                )
            if offset > topic.partitions[partition].end:
                raise InvalidRequest(f"partition {partition} has no offset {offset} yet")
        members.beat(command.member, (), self.now_ms)
        count = 0
        for partition, offset in command.offsets:
            view = group.views[partition]
            for start, end in list(view.settled.gaps(0, offset)):
                count += end - start
                topic.ledger.add(Event.ACKED, topic.name, partition, start, end, group.name,
                                 command.member)  # fmt: skip
                view.drop(start, end, self.now_ms)
        group.acked += count
        trim(topic, self.now_ms)
        return self._assigned(group, command.member, group.tell())

    def _on_leave(self, command: Leave) -> Reply:
        topic = self._topic(command.topic)
        group = topic.group(command.group)
        group.members.leave(command.member)
        self._catch_up(group)
        self._wake(topic)
        return Done()

    def _catch_up(self, group: Group) -> None:
        """Look at what came while members were there: without them, messages are leased again."""
        if not group.members.members:
            for view in group.views:
                view.catch_up(self.now_ms)

    def _assigned(self, group: Group, member: str, lost: int) -> Assigned:
        owned = group.members.owned(member)
        return Assigned(
            group.members.generation,
            tuple((partition, group.views[partition].settled.low) for partition in owned),
            tuple(group.members.revoked(member)),
            lost,
        )

    # -- time --------------------------------------------------------------------------------------

    def _on_tick(self, command: Tick) -> Reply:
        if command.sweep:
            for topic in self.topics.values():
                sweep(topic, self.now_ms, self.bounds.sweep_hole_min)
                self._enforce(topic)
        return Done()

    def _enforce(self, topic: Topic) -> None:
        """Let retention drop what it may; what that frees may be what somebody waits for."""
        if enforce(topic, self.now_ms):
            self._wake(topic)

    def _on_set_time(self, command: SetTime) -> Reply:
        if command.time_ms >= self.now_ms:
            return Done()  # forward it goes by itself, with the next entry
        back = Rewind(self.now_ms, command.time_ms)
        self._timers = [self._moved(timer, back) for timer in self._timers if self._matters(timer)]
        heapify(self._timers)
        for topic in self.topics.values():
            rewind(topic, back)
            self._wake(topic)
        self.created_ms = back.past(self.created_ms)
        self.now_ms = command.time_ms
        return Done()

    def _moved(self, timer: Timer, back: Rewind) -> Timer:
        """A timer after the time was set back; to be asked before the messages are changed."""
        when_ms, kind, number, first, second, third = timer
        if kind == timers.LIFE:
            when_ms = life_ends(self.topics[number].partitions[first], second, when_ms, back)
        else:
            when_ms = back.wait(when_ms)
        return when_ms, kind, number, first, second, third

    def _advance(self, now_ms: int) -> None:
        """End what is due by `now_ms`; lives beyond the bound end with the next entry."""
        self.now_ms = now_ms
        lives: dict[tuple[int, int], list[Range]] = {}
        room = self.bounds.expire_max
        while self._timers and self._timers[0][0] <= now_ms and room > 0:
            timer = heappop(self._timers)
            if not self._matters(timer):  # `dump` leaves it out, so it must do nothing
                continue
            match timer:
                case (when_ms, timers.LEASE, topic, group, partition, epoch):
                    self._end_lease(self.topics[topic], group, partition, epoch, when_ms)
                case (_, timers.LIFE, topic, partition, offset, _):
                    lives.setdefault((topic, partition), []).append((offset, offset + 1))
                    room -= 1
                case (_, timers.SESSION, topic, group, member, _):
                    self._end_session(self.topics[topic], group, member)
        for (number, at), offsets in lives.items():
            self._end_lives(self.topics[number], at, merge(offsets))

    def _end_lease(
        self, topic: Topic, number: int, partition: int, epoch: int, when_ms: int
    ) -> None:
        """End what was held until `when_ms`; what ends later has a timer of its own, in its order."""
        group = self._numbered(topic, number)
        assert group is not None, "a timer that matters has a group"
        view = group.views[partition]
        lease = view.leases.get(epoch)
        consumer = lease.consumer if lease is not None else ""
        released = view.release_due(epoch, when_ms)
        begun = [piece for piece in released if not piece.steal_ms]
        for start, end, attempt, *_ in begun:
            topic.ledger.add(Event.TIMED_OUT, topic.name, partition, start, end, group.name,
                             consumer, attempt, until_ms=when_ms)  # fmt: skip
        for start, end, attempt, *_ in begun:
            group.timed_out += end - start
            self._retry(topic, group, view, start, end, attempt, 0, "lease expired")
        reserved = [piece for piece in released if piece.steal_ms]
        self._give_back(topic, group, view, reserved, consumer, "lease expired")
        if released:
            self._wake(topic)

    def _end_lives(self, topic: Topic, at: int, ranges: list[Range]) -> None:
        partition = topic.partitions[at]
        views = [group.views[at] for group in topic.groups.values()]
        waiting = merge([gap for view in views for gap in view.unheld(ranges)])
        for view in views:
            view.expire(ranges, self.now_ms)
        held = merge([range_ for view in views for range_ in view.held_ranges()])
        expected = subtract(waiting, held)  # somebody waits, and nobody holds them
        for start, end in subtract(ranges, expected):
            topic.ledger.add(Event.EXPIRED, topic.name, at, start, end)
        for start, end in ranges:
            if end > partition.first:
                partition.removed.add(start, end)
        trim(topic, self.now_ms)
        self._wake(topic)

    def _end_session(self, topic: Topic, number: int, member: int) -> None:
        group = self._numbered(topic, number)
        assert group is not None, "a timer that matters has a group"
        name = group.members.by_number(member)
        assert name is not None, "and the member is in it"
        deadline_ms = group.members.members[name].deadline_ms
        if deadline_ms > self.now_ms:  # it was heard of: its timer is set again only now
            self._set_timer(timers.of_session(deadline_ms, topic.number, number, member))
        else:
            group.members.leave(name)
            self._catch_up(group)
            self._wake(topic)

    @staticmethod
    def _numbered(topic: Topic, number: int) -> Group | None:
        return next((group for group in topic.groups.values() if group.number == number), None)

    def _set_timer(self, timer: Timer) -> None:
        heappush(self._timers, timer)
        if len(self._timers) > self._clear_timers_at:
            self._timers = [timer for timer in self._timers if self._matters(timer)]
            heapify(self._timers)
            self._clear_timers_at = max(TIMERS_MIN, 2 * len(self._timers))

    def _matters(self, timer: Timer) -> bool:
        """Whether what the timer would end is still there."""
        when_ms, kind, number, first, second, third = timer
        topic = self.topics.get(number)
        if topic is None:
            return False
        if kind == timers.LIFE:
            partition = topic.partitions[first]
            return second >= partition.first and second not in partition.removed
        group = self._numbered(topic, first)
        if group is None:
            return False
        if kind == timers.LEASE:
            lease = group.views[second].leases.get(third)
            return lease is not None and any(x.deadline_ms == when_ms for x in lease.held)
        return group.members.by_number(second) is not None

    def _wake(self, topic: Topic) -> None:
        self._woken[topic.number] = None

    # -- as plain data -----------------------------------------------------------------------------

    def dump(self) -> list[Any]:
        """The whole state, as lists, numbers, strings and bytes.

        What is about a cluster comes last, and only where there is one: without it this is what
        Quivers wrote and read that knew of no levels.
        """
        of_cluster = [self.level, self.shard, self.peers]
        return [
            self.index,
            self.now_ms,
            self.secret,
            self.created_ms,
            self._numbers,
            [topic.dump() for topic in self.topics.values()],
            sorted({*filter(self._matters, self._timers)}),
            *([of_cluster] if of_cluster != ALONE else []),
        ]

    @classmethod
    def load(cls, data: list[Any]) -> "DeliveryCore":
        """What `dump` gave; `UnsupportedFormat` if there is more in it than this Quiver knows."""
        try:
            return cls._loaded(*data)
        except (ValueError, TypeError) as error:  # something has another number of parts
            raise UnsupportedFormat(
                "The snapshot has more of a state than this Quiver knows. "
                "Open the directory with the newer Quiver that wrote it."
            ) from error

    @classmethod
    def _loaded(
        cls, index: int, now_ms: int, secret: bytes, created_ms: int, numbers: int,
        topics: list[Any], stored: list[Any], of_cluster: list[Any] = ALONE,
    ) -> "DeliveryCore":  # fmt: skip
        made = cls()
        made.level, made.shard, made.peers = of_cluster
        made.bounds = levels.bounds_of(made.level)
        made.index, made.now_ms, made._numbers = index, now_ms, numbers
        made.secret, made.created_ms = secret, created_ms
        made.ledger = Ledger(made.index)
        for topic in (Topic.load(topic_data, made.ledger) for topic_data in topics):
            made.topics[topic.number] = topic
            made.names[topic.name] = topic.number
        made._timers = [tuple(timer) for timer in stored]
        return made


def _ledger_of(source: Topic, target: Topic) -> Ledger:
    """A move belongs to both topics: it is written down if either keeps a ledger."""
    return source.ledger if source.policy.ledger else target.ledger


def _may_settle(action: str, group: Group) -> bool:
    """Whether the action may be done to what is leased.

    At most once only what has not begun is leased, so that none of it can have failed.
    """
    return group.guarantee != "at-most-once" or action not in ("nack", "dead_letter")


def _reserve(slices: list[Slice], begin: int) -> list[Slice]:
    """The same messages; all but the first `begin` of them are marked as reserved."""
    made: list[Slice] = []
    for piece in slices:
        begun = min(begin, piece.count)
        begin -= begun
        if begun:
            made.append(piece.cut(0, begun))
        if begun < piece.count:
            made.append(replace(piece.cut(begun, piece.count - begun), reserved=True))
    return made


def _divided(taken: list[Taken], count: int) -> tuple[list[Taken], list[Taken]]:
    """The first `count` messages of these, and the others."""
    first: list[Taken] = []
    others: list[Taken] = []
    for start, end, attempts in taken:
        at = min(start + count, end)
        count -= at - start
        if at > start:
            first.append((start, at, attempts))
        if at < end:
            others.append((at, end, attempts))
    return first, others


def _browsed(
    topic: Topic, number: int, start: int, end: int, pending: bool
) -> Iterator[tuple[Slice, int]]:
    """The messages `start … end` of a partition, and how many bytes each piece has."""
    partition = topic.partitions[number]
    views = [group.views[number] for group in topic.groups.values()] if pending else []
    gaps = [view.settled.gaps(start, end) for view in views]
    for low, high in union(*gaps) if views else [(start, end)]:
        for extent in partition.since(low):
            if extent.first >= high:
                break
            cut = max(low, extent.first), min(high, extent.end)
            for first, last in partition.removed.gaps(*cut):
                nbytes = extent.nbytes * (last - first) // extent.count
                yield extent.slice(number, first, last, 0), nbytes

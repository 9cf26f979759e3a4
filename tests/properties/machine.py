"""Everything that can happen to a queue, as the rules of a state machine.

`DeliveryMachine` is a producer, a consumer, an operator and a failing machine at once; every rule is
one thing that they do. Hypothesis or chance (`storm`) choose which, and the `World` behind them
compares each step with the model. Its first topic has the order that the class says; everything
else is chosen: what messages carry, the other policies, who asks for what, when, and where the
machine stops.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
)

from quiver.batches.rows import Row
from quiver.model.commands import (
    AlterTopic,
    Commit,
    Compact,
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
    ProducerStamp,
    Purge,
    Raise,
    Receive,
    Redrive,
    Seek,
    SetPeers,
    Settle,
    Tick,
)
from quiver.model.replies import ProducerOpened, Received
from quiver.model.topic import ALTERABLE, Order, Retry, TopicPolicy
from quiver.node.peer import Peer
from quiver.storage import codec
from tests.properties.storm import RETENTIONS
from tests.properties.world import START_MS, Ask, Lease, World

KEYS = (None, "a", "b", "t/1", "t/2", "u/1")

topics = st.sampled_from(["a", "a", "a", "a", "b", "dead"])
groups = st.sampled_from(["one", "one", "one", "one", "two", "three"])
members = st.sampled_from(["m1", "m2", "m3"])
partitions = st.integers(0, 2)
offsets = st.integers(0, 12)
times = st.sampled_from([1, 5, 10, 20, 50, 100, 300, 1_000])
leases = st.sampled_from([10, 20, 50, 200])
counts = st.integers(1, 8) | st.just(100)
survivals = st.sampled_from(["none", "all"]) | st.integers(0, 1_000)
parts = st.tuples(st.integers(0, 3), st.sampled_from([1, 2, 3, 100]))
row_specs = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from([0, 0, 0, 1, 5, 9]),
    st.sampled_from([0, 0, 0, 0, 10, 50, 150]),
    st.sampled_from([0, 0, 0, 0, 15, 60, 200]),
    st.sampled_from([None, None, None, "x", "y", "z"]),
)
row_lists = st.lists(row_specs, min_size=1, max_size=4)
requests = st.lists(row_lists, min_size=1, max_size=3)
mostly = st.sampled_from([True, True, True, False])
actions = st.sampled_from(
    ["ack", "ack", "nack", "nack", "extend", "dead_letter", "dismiss", "begin", "begin", "release"]
)
begins = st.sampled_from([None, None, None, 0, 1, 2])
delays = st.sampled_from([None, None, 0, 10, 100])
endings = st.lists(st.tuples(actions, st.sampled_from([1, 1, 2, 100]), delays), max_size=4)
positions = st.builds(
    Position,
    st.sampled_from(["earliest", "latest", "offset", "time"]),
    offsets,
    st.none() | partitions,
)
retries = st.builds(
    Retry,
    st.sampled_from(["fixed", "linear", "exponential"]),
    st.sampled_from([0, 1, 10, 40]),
    st.sampled_from([30, 100, 300_000]),
    st.booleans(),
)
retentions = st.sampled_from(RETENTIONS)
policies = st.builds(
    TopicPolicy,
    partitions=st.sampled_from([1, 1, 2, 3]),
    order=st.sampled_from(["none", "key", "partition"]),
    fair=st.booleans(),
    partition_by=st.sampled_from(["hash", "round-robin"]),
    retention=retentions,
    max_attempts=st.sampled_from([None, 1, 2, 3]),
    dead_letter=st.sampled_from([None, "dead", "dead", "b"]),
    retry=retries,
    dedup_window_ms=st.sampled_from([0, 20, 200, 5_000]),
    max_backlog=st.sampled_from([None, None, 6, 15]),
    compression=st.sampled_from([None, None, "lz4"]),
    keep_unsettled=st.booleans(),
)
alterations = st.lists(st.sampled_from([*ALTERABLE, "order"]), min_size=1, max_size=3, unique=True)


def possible(policy: TopicPolicy) -> TopicPolicy:
    """The policy, without what contradicts the rest of it."""
    if policy.retention.compact and policy.partition_by == "round-robin":
        policy = replace(policy, partition_by="hash")
    return replace(policy, keep_unsettled=not policy.keep_unsettled) if policy.fault() else policy


class DeliveryMachine(RuleBasedStateMachine):
    """Producers, consumers, operators and a failing machine, one step at a time."""

    order: ClassVar[Order] = "none"
    fair: ClassVar[bool] = False
    bounded: ClassVar[bool] = False
    told_bytes: ClassVar[int | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.world = World(bounded=self.bounded)
        self.features: set[str] = set()
        self.producers: dict[tuple[int, str], tuple[int, int]] = {}  # epoch, sent
        self.gathered: list[Ask] = []
        self.surveys: list[Compact] = []
        self.wanted = 1
        self.seed = 0

    @initialize(
        first=policies,
        second=policies,
        features=st.sets(st.sampled_from(["keys", "priorities", "delays", "lives", "ids"])),
        specs=st.lists(row_specs, max_size=6),
    )
    def found(
        self, first: TopicPolicy, second: TopicPolicy, features: set[str], specs: list[Any]
    ) -> None:
        self.features = features
        if self.order != "none" or self.fair or first.retention.compact:
            self.features = features | {"keys"}
        self.policies = {
            "a": possible(replace(first, order=self.order, fair=self.fair)),
            "b": possible(replace(second, dead_letter=second.dead_letter and "dead")),
        }
        for name, policy in self.policies.items():
            self.world.one(CreateTopic(name, policy))
        if specs:
            self.do(self.world.send(self.world.number("a"), [self.rows(specs)]))

    def teardown(self) -> None:
        if self.world.sound:  # else a step has failed, and that is what should be reported
            self.flush()
            self.world.drain()
            self.finally_check()

    def finally_check(self) -> None:
        """Whatever else must be true in the end."""

    # -- helpers -----------------------------------------------------------------------------------

    def do(self, ask: Ask, *, sync: bool = True) -> None:
        """Commit, or wait until there are as many commands as shall be committed together."""
        self.gathered.append(ask)
        if len(self.gathered) >= self.wanted:
            self.flush(sync=sync)

    def flush(self, *, sync: bool = True) -> None:
        asks, self.gathered, self.wanted = self.gathered, [], 1
        if asks:
            self.world.commit(*asks, sync=sync)

    def rows(self, specs: list[Any]) -> list[Row]:
        """Messages that have only what this run is about."""
        return [self.row(*spec) for spec in specs]

    def row(
        self, key: str | None, priority: int, delay_ms: int, ttl_ms: int, dedup_id: str | None
    ) -> Row:
        body = self.world.body()
        return Row(
            body,
            key if "keys" in self.features else None,
            None,
            priority if "priorities" in self.features else 0,
            delay_ms if "delays" in self.features else 0,
            ttl_ms if "lives" in self.features else 0,
            dedup_id if "ids" in self.features else None,
            len(body),
        )

    def lease(self, which: int) -> Lease | None:
        leases = self.world.leases
        return leases[-1 - which % len(leases)] if leases else None

    def chance(self) -> int:
        self.seed += 1
        return self.seed * 7_919

    # -- sending -----------------------------------------------------------------------------------

    def send(self, topic: str, requests: list[list[Any]], late: bool, sync: bool) -> None:
        number = self.world.number(topic)
        packed_ms = self.world.now_ms - (20 if late else 0)
        rows = [self.rows(specs) for specs in requests]
        self.do(self.world.send(number, rows, packed_ms=packed_ms), sync=sync)

    @rule(topic=topics, requests=requests, late=st.booleans(), sync=mostly)
    def produce(self, topic: str, requests: list[list[Any]], late: bool, sync: bool) -> None:
        self.send(topic, requests, late, sync)

    @rule(requests=requests)
    def produce_more(self, requests: list[list[Any]]) -> None:
        self.send("a", requests, late=False, sync=True)

    @rule(
        act=st.sampled_from(["open", "next", "next", "next", "again", "overlap", "ahead", "old"]),
        topic=topics,
        name=st.sampled_from(["p", "q"]),
        specs=row_lists,
    )
    def produce_under_a_name(self, act: str, topic: str, name: str, specs: list[Any]) -> None:
        self.flush()
        number = self.world.number(topic)
        if act == "open" or (number, name) not in self.producers:
            reply = self.world.one(OpenProducer(number, name))
            if isinstance(reply, ProducerOpened):
                self.producers[number, name] = (reply.epoch, reply.sequence)
            return
        epoch, sequence = self.producers[number, name]
        first = {
            "again": max(sequence - len(specs), 0),
            "overlap": max(sequence - 1, 0),
            "ahead": sequence + 1,
        }.get(act, sequence)
        producer = ProducerStamp(name, epoch - 1 if act == "old" else epoch, first)
        self.world.commit(self.world.send(number, [self.rows(specs)], producer=producer))
        known = self.world.model.topics.get(number)
        if known is not None and name in known.producers:
            self.producers[number, name] = (epoch, known.producers[name][1])

    # -- receiving and settling ----------------------------------------------------------------------

    @rule(
        topic=topics,
        group=groups,
        count=counts,
        lease_ms=leases,
        per_key=st.sampled_from([1, 1, 1, 2, 3]),
        begin=st.sampled_from([None, None, None, None, 0, 1]),
        sync=mostly,
    )
    def receive(
        self,
        topic: str,
        group: str,
        count: int,
        lease_ms: int,
        per_key: int,
        begin: int | None,
        sync: bool,
    ) -> None:
        number, told = self.world.number(topic), self.told_bytes
        command = Receive(number, group, count, lease_ms, "me", per_key, begin, told)
        self.do(Ask(command), sync=sync)

    @rule(
        group=groups,
        count=counts,
        begin=st.sampled_from([0, 0, 1, 2]),
        lease_ms=st.sampled_from([100, 1_000, 5_000]),
    )
    def reserve(self, group: str, count: int, begin: int, lease_ms: int) -> None:
        """A consumer that looks ahead, and holds what it has for long enough to lose it to others."""
        self.do(Ask(Receive(self.world.number("a"), group, count, lease_ms, "me", 1, begin)))

    @rule(which=st.integers(0, 9), part=parts, lease_ms=st.sampled_from([0, 0, 50, 500]))
    def begin(self, which: int, part: tuple[int, int], lease_ms: int) -> None:
        """It begins some of it, if it still has it."""
        lease = self.lease(which)
        if lease is not None:
            skip, length = part
            chosen = lease.offsets[skip : skip + length] or lease.offsets
            self.do(Ask(self.world.settle(lease, "begin", chosen, lease_ms=lease_ms)), sync=False)

    @rule(group=groups, count=counts, begin=begins)
    def receive_in_need(self, group: str, count: int, begin: int | None) -> None:
        """There is nothing for a consumer that waits, until it may have what others have reserved."""
        self.flush()
        topic = self.world.number("a")
        due_ms = self.world.engine.core.next_due_ms(topic, group)
        if due_ms is not None:
            self.world.now_ms = max(self.world.now_ms, due_ms)
        self.do(Ask(Receive(topic, group, count, 2_000, "you", 1, begin)))

    def receive_and_settle(
        self,
        topic: str,
        group: str,
        count: int,
        ends: list[tuple[str, int, int | None]],
        begin: int | None = None,
    ) -> None:
        """A consumer at work: what it receives ends well, or badly, or not at all."""
        self.flush()
        command = Receive(self.world.number(topic), group, count, 50, "", 1, begin)
        reply = self.world.one(command)
        if not isinstance(reply, Received):
            return
        for lease in self.world.leases_of(reply):
            left = lease.offsets
            for action, length, delay_ms in ends:
                chosen, left = left[:length], left[length:]
                if chosen:
                    self._settle(lease, action, chosen, delay_ms=delay_ms)

    @rule(topic=topics, group=groups, count=counts, ends=endings)
    def consume(self, topic: str, group: str, count: int, ends: list[Any]) -> None:
        self.receive_and_settle(topic, group, count, ends)

    @rule(count=counts, ends=endings, begin=begins)
    def consume_more(self, count: int, ends: list[Any], begin: int | None) -> None:
        self.receive_and_settle("a", "one", count, ends, begin)

    @rule(action=actions, which=st.integers(0, 9), part=parts, delay_ms=delays, sync=mostly)
    def settle(
        self, action: str, which: int, part: tuple[int, int], delay_ms: int | None, sync: bool
    ) -> None:
        """Some of what an earlier receive got, which may be settled or over by now."""
        lease = self.lease(which)
        if lease is not None:
            skip, length = part
            chosen = lease.offsets[skip : skip + length] or lease.offsets
            self._settle(lease, action, chosen, sync, delay_ms=delay_ms)

    def _settle(
        self,
        lease: Lease,
        action: str,
        offsets: Sequence[int],
        sync: bool = True,
        delay_ms: int | None = None,
    ) -> None:
        if action in ("extend", "begin"):
            command = self.world.settle(lease, action, offsets, lease_ms=delay_ms or 30)
        else:
            reason = ("", "bad", "worse" * 250)[self.seed % 3]
            command = self.world.settle(
                lease, action, offsets, delay_ms=delay_ms, reason=reason, seed=self.chance()
            )
        self.do(Ask(command), sync=sync)

    @rule(
        action=st.sampled_from(["ack", "nack", "extend", "dismiss", "begin", "release"]),
        which=st.lists(st.integers(0, 5), min_size=2, max_size=4),
    )
    def settle_many(self, action: Any, which: list[int]) -> None:
        """Receipts of several receives in one command, some of them twice."""
        first = self.lease(which[0])
        if first is None:
            return
        chosen = [lease for lease in map(self.lease, which) if lease is not None]
        held = tuple(
            Held(x.partition, x.epoch, self.world.ranges(x.topic, x.offsets))
            for x in chosen
            if (x.topic, x.group) == (first.topic, first.group)
        )
        self.do(Ask(Settle(first.topic, first.group, action, held, None, 30, "", self.chance())))

    @rule(
        which=st.integers(0, 5),
        what=st.sampled_from(["epoch", "partition", "offset", "group", "topic"]),
        by=st.sampled_from([1, -1, 5]),
        action=actions,
    )
    def forge(self, which: int, what: str, by: int, action: str) -> None:
        """A receipt that was never given, or of somebody else."""
        lease = self.lease(which)
        if lease is None:
            return
        if what == "offset":
            moved = tuple(max(offset + by, 0) for offset in lease.offsets)
            forged = replace(lease, offsets=moved)
        else:
            forged = replace(lease, **{what: max(getattr(lease, what) + by, 0)})
        self._settle(forged, action, forged.offsets)

    @rule(
        which=st.lists(st.integers(0, 4), max_size=3),
        action=st.sampled_from(["ack", "ack", "ack", "nack", "dead_letter"]),
        sends=st.lists(st.tuples(topics, row_lists), max_size=2),
    )
    def transact(self, which: list[int], action: str, sends: list[Any]) -> None:
        leases = [lease for lease in map(self.lease, which) if lease is not None]
        settles = [
            self.world.settle(lease, action, lease.offsets, seed=self.chance()) for lease in leases
        ]
        outputs = [(self.world.number(topic), self.rows(specs)) for topic, specs in sends]
        if settles or outputs:
            self.do(self.world.transact(settles, outputs))

    @rule(count=counts, sends=st.lists(st.tuples(topics, row_lists), min_size=1, max_size=2))
    def consume_and_produce(self, count: int, sends: list[Any]) -> None:
        """What was received and what comes of it, in one step."""
        self.flush()
        reply = self.world.one(Receive(self.world.number("a"), "one", count, 50))
        if isinstance(reply, Received) and reply.slices and not reply.settled:
            leases = self.world.leases_of(reply)
            settles = [self.world.settle(lease, "ack", lease.offsets) for lease in leases]
            outputs = [(self.world.number(topic), self.rows(specs)) for topic, specs in sends]
            self.do(self.world.transact(settles, outputs))

    # -- time --------------------------------------------------------------------------------------

    @rule(ms=times)
    def wait(self, ms: int) -> None:
        self.flush()
        self.world.now_ms += ms

    @rule()
    def wait_until_something_is_due(self) -> None:
        self.flush()
        core = self.world.engine.core
        dues = [core.next_tick_ms()]
        dues += [
            core.next_due_ms(topic.number, group)
            for topic in core.topics.values()
            for group in topic.groups
        ]
        due_ms = min((due for due in dues if due is not None), default=0)
        self.world.now_ms = max(self.world.now_ms, due_ms)

    @rule(act=st.sampled_from(["tick", "sweep", "back"]))
    def tick(self, act: str) -> None:
        """Only time passes; or the clock goes back, which it does for nobody in here."""
        if act == "back":
            self.world.now_ms = max(self.world.now_ms - 30, START_MS)
        self.do(Ask(Tick(act == "sweep")))

    # -- a cluster ---------------------------------------------------------------------------------

    @rule(level=st.sampled_from([1, 2, 2, 3]))
    def rise(self, level: int) -> None:
        self.do(Ask(Raise(level)))

    @rule(peers=st.sampled_from([b"", b"a", b"a b"]))
    def set_peers(self, peers: bytes) -> None:
        self.do(Ask(SetPeers(peers)))

    # -- operators ---------------------------------------------------------------------------------

    @rule(
        act=st.sampled_from(["seek", "seek", "pause", "resume", "resume", "purge", "delete"]),
        topic=topics,
        group=groups,
        position=positions,
    )
    def operate(self, act: str, topic: str, group: str, position: Position) -> None:
        number = self.world.number(topic)
        match act:
            case "seek":
                self.do(Ask(Seek(number, group, self._position(position))))
            case "pause" | "resume":
                self.do(Ask(PauseGroup(number, group, act == "pause")))
            case "purge":
                self.do(Ask(Purge(number)))
            case "delete":
                self.do(Ask(DeleteGroup(number, group)))

    def _position(self, position: Position) -> Position:
        """Times are of this run."""
        if position.start != "time":
            return position
        return replace(position, value=self.world.now_ms - position.value * 10)

    @rule(
        topic=st.sampled_from(["a", "b", "dead", "dead", "dead"]),
        picks=st.lists(st.tuples(partitions, offsets, st.integers(1, 5)), min_size=1, max_size=3),
        to=st.sampled_from([None, None, None, "a", "b"]),
    )
    def redrive(self, topic: str, picks: list[Any], to: str | None) -> None:
        number = self.world.number(topic)
        target = self.world.number(to) if to is not None else None
        self.do(Ask(Redrive(number, self._picks(number, picks), target)))

    @rule(
        topic=topics,
        picks=st.lists(st.tuples(partitions, offsets, st.integers(1, 3)), min_size=1, max_size=2),
    )
    def discard(self, topic: str, picks: list[Any]) -> None:
        number = self.world.number(topic)
        self.do(Ask(Discard(number, self._picks(number, picks))))

    def _picks(self, topic: int, picks: list[Any]) -> tuple[Pick, ...]:
        """Mostly partitions that exist."""
        count = self.world.policy(topic).partitions
        made = []
        for partition, start, length in picks:
            at = partition % count if start % 10 else partition
            made.append(Pick(at, ((start, start + length),)))
        return tuple(made)

    @rule(
        topic=topics,
        group=groups,
        position=positions,
        guarantee=st.sampled_from(["at-least-once", "at-most-once"]),
    )
    def create_group(self, topic: str, group: str, position: Position, guarantee: Any) -> None:
        start = replace(self._position(position), partition=None)
        self.do(Ask(CreateGroup(self.world.number(topic), group, start, guarantee)))

    @rule(act=st.sampled_from(["delete", "create", "create", "differ"]), topic=topics)
    def make_topics(self, act: str, topic: str) -> None:
        policy = self.policies.get(topic, TopicPolicy())
        match act:
            case "delete":
                self.do(Ask(DeleteTopic(self.world.number(topic))))
            case "create":
                self.do(Ask(CreateTopic(topic, policy)))
            case "differ":
                other = replace(policy, dedup_window_ms=policy.dedup_window_ms + 1)
                self.do(Ask(CreateTopic(topic, other)))

    @rule(topic=topics, policy=policies, fields=alterations)
    def alter(self, topic: str, policy: TopicPolicy, fields: list[str]) -> None:
        policy = replace(policy, dead_letter=policy.dead_letter and "dead")
        if topic == "dead":
            policy = replace(policy, dead_letter=None)
        self.do(Ask(AlterTopic(self.world.number(topic), policy, tuple(fields))))

    @rule(topic=topics)
    def survey(self, topic: str) -> None:
        """A compaction reads; what it has found it may ask for much later."""
        self.flush()
        compacted = [
            known.name
            for known in self.world.model.topics.values()
            if known.policy.retention.compact
        ]
        if compacted and topic not in compacted:
            topic = compacted[0]
        found = self.world.survey(self.world.number(topic))
        if found is not None:
            self.surveys.append(found)

    @rule(which=st.integers(0, 3), now=mostly, topic=topics)
    def compact(self, which: int, now: bool, topic: str) -> None:
        if now:
            self.survey(topic)
        if self.surveys:
            self.do(Ask(self.surveys.pop(-1 - which % len(self.surveys))))

    # -- members -----------------------------------------------------------------------------------

    @rule(topic=topics, group=groups, member=members, session_ms=times)
    def join(self, topic: str, group: str, member: str, session_ms: int) -> None:
        self.do(Ask(Join(self.world.number(topic), group, member, session_ms)))

    @rule(
        act=st.sampled_from(["beat", "beat", "commit", "commit", "commit", "leave"]),
        which=st.integers(0, 5),
        member=members,
        partition=partitions,
        offset=offsets,
    )
    def be_a_member(self, act: str, which: int, member: str, partition: int, offset: int) -> None:
        """Somebody who is in a group, or perhaps no longer."""
        known = [
            (topic.number, group.name, name)
            for topic in self.world.model.topics.values()
            for group in topic.groups.values()
            for name in group.members
        ]
        if not known:
            return
        topic, group, name = known[which % len(known)]
        name = member if which == 5 else name
        match act:
            case "beat":
                self.do(Ask(Heartbeat(topic, group, name, (partition,))))
            case "commit":
                at = partition % self.world.policy(topic).partitions
                self.do(Ask(Commit(topic, group, name, ((at, offset),))))
            case "leave":
                self.do(Ask(Leave(topic, group, name)))

    # -- the machine -------------------------------------------------------------------------------

    @rule(count=st.integers(2, 4))
    def gather(self, count: int) -> None:
        """Let the next commands share a write."""
        self.wanted = count

    @rule(act=st.sampled_from(["begin", "save", "finish", "whole"]))
    def snapshot(self, act: str) -> None:
        self.flush()
        if act in ("begin", "whole"):
            self.world.begin_snapshot()
        if act in ("save", "whole"):
            self.world.save_snapshot()
        if act in ("finish", "whole"):
            self.world.finish_snapshot()

    @rule(act=st.sampled_from(["close", "crash"]), survival=survivals)
    def close_or_crash_and_open(self, act: str, survival: Any) -> None:
        if act == "close":
            self.flush()
            self.world.reopen()
        else:
            self.gathered = []
            self.world.crash(survival)

    @rule(operations=st.integers(1, 9), late=st.booleans(), survival=survivals)
    def crash_soon(self, operations: int, late: bool, survival: Any) -> None:
        self.world.arm(operations, late=late, survival=survival)

    @rule(free=st.none() | st.integers(0, 2_000))
    def fill_or_free_the_disk(self, free: int | None) -> None:
        if free is None:
            self.world.free_disk()
        else:
            self.world.fill_disk(free)


class UnsnappedMachine(DeliveryMachine):
    """Never a snapshot, so that in the end the whole log can be replayed from its first entry."""

    snapshot = None  # type: ignore[assignment]

    def finally_check(self) -> None:
        world = self.world
        world.engine.close()
        copy = world.files.crash("none")
        again = Peer.open(copy, now_ms=0, secret=b"another", **world.sizes).engine
        assert codec.encode_state(again.digest_state()) == world.state

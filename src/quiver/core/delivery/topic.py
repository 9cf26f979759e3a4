"""A topic's state: partitions, groups, and what it remembers of senders."""

from dataclasses import astuple, fields
from functools import partial
from typing import Any

from quiver.core.delivery.ledger import Ledger, NoLedger
from quiver.core.delivery.members import Members
from quiver.core.delivery.partition import Partition
from quiver.core.delivery.view import View, make_view
from quiver.errors import GroupNotFound
from quiver.model.commands import Position
from quiver.model.ledger import Event
from quiver.model.ranges import merge, subtract
from quiver.model.replies import Application, Placed
from quiver.model.stats import GroupStats, TopicStats
from quiver.model.topic import Guarantee, Retention, Retry, TopicPolicy

_NO_LEDGER = NoLedger()


class Group:
    """An independent set of consumers: a view of each partition."""

    __slots__ = ("acked", "behind_retention", "dead_lettered", "delivered", "guarantee", "members",
                 "nacked", "name", "number", "paused", "redelivered", "redriven", "released",
                 "timed_out", "turn", "untold", "views")  # fmt: skip

    def __init__(self, number: int, name: str, guarantee: Guarantee, partitions: int) -> None:
        """The caller fills `views`."""
        self.number = number
        self.name = name
        self.guarantee: Guarantee = guarantee
        self.paused = False
        self.views: list[View] = []
        self.members = Members(partitions)
        self.turn = 0  # which partition a receive begins with
        self.delivered = self.redelivered = self.acked = self.nacked = 0
        self.timed_out = self.dead_lettered = self.redriven = self.released = 0
        self.behind_retention = 0
        self.untold = 0  # of those, what no consumer has been told of

    def lose(self, partition: int, start: int, end: int, now_ms: int) -> None:
        """Retention takes messages away."""
        lost = self.views[partition].lose(start, end, now_ms)
        self.behind_retention += lost
        self.untold += lost

    def tell(self) -> int:
        """What was lost since somebody was told last; the caller tells."""
        untold, self.untold = self.untold, 0
        return untold

    def stats(self, now_ms: int) -> GroupStats:
        """The group as numbers."""
        lag = sum(view.partition.end - view.settled.count for view in self.views)
        in_flight = sum(view.leased for view in self.views)
        delayed = sum(view.waiting(now_ms) for view in self.views)
        oldest_ms = now_ms
        for view in self.views:
            low = view.settled.low
            if low < view.partition.end:
                oldest_ms = min(oldest_ms, view.partition.find(low).time_ms)
        return GroupStats(
            group=self.name,
            lag=lag,
            ready=max(lag - in_flight - delayed, 0),
            in_flight=in_flight,
            delayed=delayed,
            oldest_age=(now_ms - oldest_ms) / 1000,
            paused=self.paused,
            guarantee=self.guarantee,
            members=len(self.members.members),
            delivered=self.delivered,
            acked=self.acked,
            nacked=self.nacked,
            timed_out=self.timed_out,
            redelivered=self.redelivered,
            dead_lettered=self.dead_lettered,
            redriven=self.redriven,
            expired=sum(view.expired for view in self.views),
            behind_retention=self.behind_retention,
            reserved=sum(view.reserved for view in self.views),
            released=self.released,
        )


class KnownProducer:
    """A named producer: its epoch, and how many of its messages are stored."""

    __slots__ = ("epoch", "sequence")

    def __init__(self, epoch: int, sequence: int) -> None:
        """A newer epoch fences older ones."""
        self.epoch = epoch
        self.sequence = sequence


class Topic:
    """A named log with a policy."""

    __slots__ = ("applications", "compacted", "dedup", "dropped", "duplicates", "groups", "ledger",
                 "name", "number", "partitions", "policy", "producers", "sent")  # fmt: skip

    def __init__(self, number: int, name: str, policy: TopicPolicy, ledger: Ledger) -> None:
        """An empty topic. What happens in it goes to `ledger`, unless its policy says no."""
        self.ledger = ledger if policy.ledger else _NO_LEDGER
        self.number = number
        self.name = name
        self.policy = policy
        self.partitions = [Partition(at) for at in range(policy.partitions)]
        self.groups: dict[str, Group] = {}
        self.dedup: dict[str, tuple[int, Placed]] = {}  # id -> (forget at, where); oldest first
        self.producers: dict[str, KnownProducer] = {}  # least recently used first
        self.applications: dict[str, Application] = {}  # the same
        self.sent = 0
        self.duplicates = 0
        self.dropped = 0
        self.compacted = 0

    def group(self, name: str) -> Group:
        """The group, which must exist."""
        group = self.groups.get(name)
        if group is None:
            raise GroupNotFound(
                f"topic {self.name!r} has no group {name!r}; it is made by its first receive "
                "or by create_group"
            )
        return group

    @staticmethod
    def start_of(partition: Partition, position: Position) -> int:
        """The offset that a position means."""
        match position.start:
            case "earliest":
                return partition.first
            case "latest":
                return partition.end
            case "offset":
                return min(max(position.value, partition.first), partition.end)
            case "time":
                return partition.offset_at(position.value)

    @classmethod
    def is_behind(cls, partition: Partition, position: Position) -> bool:
        """Whether retention has let go of messages that the position asks for."""
        first = partition.first
        if cls.start_of(partition, position) != first:
            return False
        if position.start == "offset":
            return position.value < min(first, partition.gone_end)
        return position.start == "time" and position.value <= partition.gone_ms

    def view_at(self, group: str, partition: Partition, position: Position, now_ms: int) -> View:
        """A new view for a group that starts at `position`."""
        view = self._view(group, partition, self.start_of(partition, position))
        view.catch_up(now_ms)
        return view

    def _view(self, group: str, partition: Partition, start: int) -> View:
        lapsed = partial(self._lapsed, group, partition.number)
        return make_view(partition, self.policy, start, lapsed)

    def _lapsed(self, group: str, partition: int, start: int, end: int) -> None:
        """The life of these messages has ended for a group."""
        self.ledger.add(Event.EXPIRED, self.name, partition, start, end, group)

    def catch_up(self, now_ms: int) -> None:
        """Let every group look at what was appended; members read by offset and need no look."""
        for group in self.groups.values():
            for view in group.views if not group.members.members else ():
                view.catch_up(now_ms)

    def unsettled(self) -> int:
        """What the slowest group has not settled; all there is, without a group."""
        if not self.groups:
            return sum(partition.messages() for partition in self.partitions)
        return max(
            sum(view.partition.end - view.settled.count for view in group.views)
            for group in self.groups.values()
        )

    def stats(self, now_ms: int) -> TopicStats:
        """The topic as numbers."""
        groups = {name: group.stats(now_ms) for name, group in self.groups.items()}
        oldest = max((stats.oldest_age for stats in groups.values()), default=0.0)
        delayed = max((stats.delayed for stats in groups.values()), default=0)
        if not groups:
            times = [found.time_ms for p in self.partitions if (found := p.oldest()) is not None]
            oldest = (now_ms - min(times, default=now_ms)) / 1000
        return TopicStats(
            topic=self.name,
            partitions=len(self.partitions),
            depth=self.unsettled(),
            in_flight=sum(stats.in_flight for stats in groups.values()),
            delayed=delayed,
            oldest_age=oldest,
            stored=sum(partition.messages() for partition in self.partitions),
            stored_bytes=sum(p.nbytes for p in self.partitions),
            sent=self.sent,
            duplicates=self.duplicates,
            dropped=self.dropped,
            compacted=self.compacted,
            groups=groups,
            arrived=sum(partition.end for partition in self.partitions),
        )

    def check(self) -> None:
        """Every invariant of the topic."""
        for partition in self.partitions:
            at = 0
            for extent in partition.live():
                assert extent.first >= at
                assert extent.count > 0
                at = extent.end
            assert at <= partition.end
            assert partition.nbytes == sum(extent.nbytes for extent in partition.live())
            there = list(partition.removed.gaps(0, partition.end))
            assert partition.messages() == sum(end - start for start, end in there)
            held = merge([(extent.first, extent.end) for extent in partition.live()])
            assert not subtract(there, held), "a message that is in no extent counts as stored"
        for group in self.groups.values():
            group.members.check()
            for view in group.views:
                view.check()
                assert view.next <= view.partition.end
                exists = [(x.first, x.end) for x in view.partition.live()]
                for start, end in view.settled.gaps(0, view.next):
                    assert any((low <= start and end <= high) or (low < end and start < high)
                               for low, high in exists), "an unsettled message was dropped"  # fmt: skip

    def dump(self) -> list[Any]:
        """As plain data."""
        groups = [
            [g.number, g.name, g.guarantee, g.paused, g.members.dump(),
             [g.turn, g.delivered, g.redelivered, g.acked, g.nacked, g.timed_out,
              g.dead_lettered, g.redriven, g.behind_retention, g.untold, g.released],
             [view.dump() for view in g.views]]
            for g in self.groups.values()
        ]  # fmt: skip
        dedup = [
            [key, until, [w.partition, w.offset, w.count, w.index, w.row]]
            for key, (until, w) in self.dedup.items()
        ]
        producers = [[name, x.epoch, x.sequence] for name, x in self.producers.items()]
        return [self.number, self.name, astuple(self.policy), [x.dump() for x in self.partitions],
                groups, dedup, producers,
                [self.sent, self.duplicates, self.dropped, self.compacted],
                [[name, *x] for name, x in self.applications.items()]]  # fmt: skip

    @classmethod
    def load(cls, data: list[Any], ledger: Ledger) -> "Topic":
        """What `dump` gave."""
        number, name, policy, partitions, groups, dedup, producers, totals, *more = data
        made = cls(number, name, _load_policy(policy), ledger)
        made.partitions = [Partition.load(at, part) for at, part in enumerate(partitions)]
        for group_number, group_name, guarantee, paused, members, counts, views in groups:
            group = Group(group_number, group_name, guarantee, len(made.partitions))
            group.paused = paused
            group.members = Members.load(len(made.partitions), members)
            (group.turn, group.delivered, group.redelivered, group.acked, group.nacked,
             group.timed_out, group.dead_lettered, group.redriven, group.behind_retention,
             group.untold, *more_counts) = counts  # fmt: skip
            (group.released,) = more_counts or [0]  # older states have none
            for partition, view_data in zip(made.partitions, views, strict=True):
                view = made._view(group_name, partition, 0)
                view.load(view_data)
                group.views.append(view)
            made.groups[group_name] = group
        made.dedup = {key: (until, Placed(*where)) for key, until, where in dedup}
        made.producers = {x: KnownProducer(epoch, sequence) for x, epoch, sequence in producers}
        made.sent, made.duplicates, made.dropped, made.compacted = totals
        (published,) = more or [[]]  # older states have none
        made.applications = {x: Application(*rest) for x, *rest in published}
        return made


def _load_policy(data: list[Any]) -> TopicPolicy:
    """What `astuple` gave, also before fields were added at the end."""
    names = [one.name for one in fields(TopicPolicy)]
    given = dict(zip(names[: len(data)], data, strict=True))
    given["split_keys"] = tuple(given["split_keys"])
    given["retention"] = Retention(*given["retention"])
    given["retry"] = Retry(*given["retry"])
    return TopicPolicy(**given)

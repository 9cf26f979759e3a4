"""What may be forgotten: messages that everybody is done with, as far as the topic's policy says.

An unsettled message is kept, unless the policy says otherwise (`keep_unsettled=False`): then what is
too old or too much goes whoever still wants it, and each group is told how much it lost (`enforce`).
Messages are dropped by whole extents: usually from the oldest on (`trim`), and now and then anywhere
(`sweep`), so that one that waits for a month does not keep a month of others.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice

from quiver.core.delivery.extents import Extent
from quiver.core.delivery.partition import Partition
from quiver.core.delivery.topic import Topic
from quiver.model.ledger import Event
from quiver.model.ranges import Range, merge, subtract
from quiver.model.topic import Retention


def trim(topic: Topic, now_ms: int, numbers: Iterable[int] | None = None) -> None:
    """Drop the oldest messages of some or all partitions, up to the first that somebody needs."""
    for number in range(len(topic.partitions)) if numbers is None else numbers:
        partition = topic.partitions[number]
        while (extent := partition.oldest()) is not None and _may_go(
            topic, partition, extent, now_ms
        ):
            _drop_oldest(topic, partition, extent, for_age=topic.policy.retention.keeps)
    _shrink(topic, now_ms, unsettled=False)


def enforce(topic: Topic, now_ms: int) -> bool:
    """Drop what is too old or too much; whether some group has lost messages by that."""
    if topic.policy.keep_unsettled:
        trim(topic, now_ms)
        return False
    before = sum(group.behind_retention for group in topic.groups.values())
    for partition in topic.partitions:
        while (extent := partition.oldest()) is not None and _too_old(
            topic.policy.retention, extent, now_ms
        ):
            _take_away(topic, partition, extent, now_ms)
            _drop_oldest(topic, partition, extent, for_age=True)
    _shrink(topic, now_ms, unsettled=True)
    return sum(group.behind_retention for group in topic.groups.values()) > before


def sweep(topic: Topic, now_ms: int, hole_min: int) -> None:
    """Drop messages anywhere, also behind one that has been waiting for long.

    An extent that only a part is wanted of is cut down to it: the rest is not worth a place in a
    segment. Holes smaller than `hole_min` stay, or every second message settled would make an extent
    of each other.
    """
    for partition in topic.partitions:
        wanted = _wanted(topic, partition, now_ms)
        if _is_cut(partition, wanted, hole_min):  # else all stays, however many they are
            partition.retain(_left(topic, partition, wanted, hole_min))
    if topic.policy.keep_unsettled:
        _shrink_anywhere(topic)


def _is_cut(partition: Partition, wanted: list[Range], hole_min: int) -> bool:
    """Whether something goes: anything but small holes in the middle of an extent."""
    holes = subtract([(partition.first, partition.end)], wanted)
    return any(
        end - start >= hole_min or extent is None or not extent.first < start < end < extent.end
        for start, end in holes
        for extent in [next(partition.since(start), None)]
    )


def _left(
    topic: Topic, partition: Partition, wanted: list[Range], hole_min: int
) -> Iterator[Extent]:
    """What a sweep leaves of a partition: the wanted parts of its extents, with small holes."""
    at = 0
    for extent in partition.live():
        while at < len(wanted) and wanted[at][1] <= extent.first:
            at += 1
        parts: list[Range] = []
        for low, high in islice(wanted, at, None):
            if low >= extent.end:
                break
            small = parts and low - parts[-1][1] < hole_min
            start = parts.pop()[0] if small else max(low, extent.first)
            parts.append((start, min(high, extent.end)))
        for start, end in subtract([(extent.first, extent.end)], parts):
            _note(topic, partition, extent.part(start, end), for_age=topic.policy.retention.keeps)
        for start, end in parts:
            yield extent.part(start, end)


def is_overdue(topic: Topic, now_ms: int) -> bool:
    """Whether a sweep would find something at the head that has become too old by itself."""
    retention, keep = topic.policy.retention, topic.policy.keep_unsettled
    return any(
        extent is not None
        and _too_old(retention, extent, now_ms)
        and (not keep or _settled(topic, partition, extent))
        for partition in topic.partitions
        for extent in [partition.oldest()]
    )


def _wanted(topic: Topic, partition: Partition, now_ms: int) -> list[Range]:
    """The messages that somebody needs, or that retention keeps whatever the topic's size."""
    first, end = partition.first, partition.end
    views = [group.views[partition.number] for group in topic.groups.values()]
    found = [gap for view in views for gap in view.settled.gaps(first, end)]
    retention = topic.policy.retention
    if retention.keeps and retention.time_ms is not None:
        first = partition.offset_at(now_ms - retention.time_ms + 1)
    if retention.keeps or not views:
        found += partition.removed.gaps(first, end)
    return merge(found)


def _may_go(topic: Topic, partition: Partition, extent: Extent, now_ms: int) -> bool:
    """Whether nobody needs the extent, and retention lets go of it whatever the topic's size."""
    if not _settled(topic, partition, extent):
        return False
    if partition.removed.covers(extent.first, extent.end):
        return True
    retention = topic.policy.retention
    if not retention.keeps:
        return bool(topic.groups)  # without a group it waits for the first
    return _too_old(retention, extent, now_ms)


def _settled(topic: Topic, partition: Partition, extent: Extent) -> bool:
    """Whether every group is done with the extent."""
    views = [group.views[partition.number] for group in topic.groups.values()]
    return all(view.settled.covers(extent.first, extent.end) for view in views)


def _too_old(retention: Retention, extent: Extent, now_ms: int) -> bool:
    return retention.time_ms is not None and extent.time_ms + retention.time_ms <= now_ms


def _shrink(topic: Topic, now_ms: int, *, unsettled: bool) -> None:
    """While the topic is too large, drop the oldest of its heads that may go."""
    excess = _excess(topic)
    if excess <= 0:
        return
    heads = [
        (extent.time_ms, partition.number)
        for partition in topic.partitions
        if (extent := partition.oldest()) is not None
    ]
    heapify(heads)
    while heads and excess > 0:
        partition = topic.partitions[heappop(heads)[1]]
        extent = partition.oldest()
        if extent is None or not (unsettled or _settled(topic, partition, extent)):
            continue
        excess -= extent.nbytes
        _take_away(topic, partition, extent, now_ms)
        _drop_oldest(topic, partition, extent, for_age=True)
        if (following := partition.oldest()) is not None:
            heappush(heads, (following.time_ms, partition.number))


def _shrink_anywhere(topic: Topic) -> None:
    """While the topic is too large, drop the oldest that everybody has settled, wherever it is."""
    excess = _excess(topic)
    if excess <= 0:
        return
    found = [
        (extent.time_ms, partition.number, extent.first, extent)
        for partition in topic.partitions
        for extent in partition.live()
        if _settled(topic, partition, extent)
    ]
    going: dict[tuple[int, int], None] = {}
    for _, number, first, extent in sorted(found, key=lambda one: one[:3]):
        if excess <= 0:
            break
        excess -= extent.nbytes
        going[number, first] = None
        _note(topic, topic.partitions[number], extent, for_age=True)
    for number in {number: None for number, _ in going}:
        partition = topic.partitions[number]
        partition.retain(x for x in partition.live() if (number, x.first) not in going)


def _excess(topic: Topic) -> int:
    """How many bytes the topic has beyond what it may keep."""
    limit = topic.policy.retention.size_bytes
    return 0 if limit is None else sum(part.nbytes for part in topic.partitions) - limit


def _take_away(topic: Topic, partition: Partition, extent: Extent, now_ms: int) -> None:
    """Settle the extent for groups that have not, and count what they lose."""
    number = partition.number
    for group in topic.groups.values():
        for start, end in group.views[number].settled.gaps(extent.first, extent.end):
            topic.ledger.add(Event.LOST, topic.name, number, start, end, group.name)
        group.lose(number, extent.first, extent.end, now_ms)


def _drop_oldest(topic: Topic, partition: Partition, extent: Extent, *, for_age: bool) -> None:
    _note(topic, partition, extent, for_age=for_age)
    partition.drop_oldest()


def _note(topic: Topic, partition: Partition, extent: Extent, *, for_age: bool) -> None:
    """Remember what retention lets go of, so that whoever asks for it can be told.

    What goes `for_age`, or for the topic's size, is counted; not what goes because it is settled.
    """
    gaps = list(partition.removed.gaps(extent.first, extent.end))
    if gaps:
        partition.gone_end = max(partition.gone_end, extent.end)
        partition.gone_ms = max(partition.gone_ms, extent.time_ms)
    for start, end in gaps if for_age and topic.policy.retention.bounded else ():
        topic.dropped += end - start
        topic.ledger.add(Event.DROPPED, topic.name, partition.number, start, end)

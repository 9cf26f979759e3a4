"""What may be forgotten: messages that everybody is done with, as far as the topic's policy says.

An unsettled message is always kept. Messages are dropped by whole extents: usually from the oldest
on (`trim`), and now and then anywhere (`sweep`), so that one that waits for a month does not keep a
month of others.
"""

from collections.abc import Iterable

from quiver import limits
from quiver.core.delivery.extents import Extent
from quiver.core.delivery.offsets import Range, merge
from quiver.core.delivery.partition import Partition
from quiver.core.delivery.topic import Topic


def trim(topic: Topic, now_ms: int, numbers: Iterable[int] | None = None) -> None:
    """Drop the oldest messages of some or all partitions, up to the first that somebody needs."""
    for number in range(len(topic.partitions)) if numbers is None else numbers:
        partition = topic.partitions[number]
        while (extent := partition.oldest()) is not None and _may_go(
            topic, partition, extent, now_ms
        ):
            partition.drop_oldest()


def sweep(topic: Topic, now_ms: int) -> None:
    """Drop messages anywhere, also behind one that has been waiting for long.

    An extent that only a part is wanted of is cut down to it: the rest is not worth a place in a
    segment. Small holes stay, or every second message settled would make an extent of each other.
    """
    for partition in topic.partitions:
        partition.retain(
            [
                extent.part(start, end)
                for extent in partition.live()
                if not _may_go(topic, partition, extent, now_ms)
                for start, end in _wanted(topic, partition, extent)
            ]
        )


def _wanted(topic: Topic, partition: Partition, extent: Extent) -> list[Range]:
    """The parts of an extent that somebody needs, or that retention keeps, with small holes."""
    views = [group.views[partition.number] for group in topic.groups.values()]
    found = [gap for view in views for gap in view.settled.gaps(extent.first, extent.end)]
    if topic.policy.retention.kind != "settled" or not views:
        found += partition.removed.gaps(extent.first, extent.end)
    joined: list[Range] = []
    for start, end in merge(found):
        if joined and start - joined[-1][1] < limits.SWEEP_HOLE_MIN:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _may_go(topic: Topic, partition: Partition, extent: Extent, now_ms: int) -> bool:
    """Whether nobody needs the extent, and retention lets go of it."""
    views = [group.views[partition.number] for group in topic.groups.values()]
    if not all(view.settled.covers(extent.first, extent.end) for view in views):
        return False
    if partition.removed.covers(extent.first, extent.end):
        return True
    retention = topic.policy.retention
    match retention.kind:
        case "settled":
            return bool(views)  # without a group it waits for the first
        case "time":
            return extent.time_ms + retention.amount <= now_ms
        case "size":
            return sum(part.nbytes for part in topic.partitions) > retention.amount
        case "forever":
            return False

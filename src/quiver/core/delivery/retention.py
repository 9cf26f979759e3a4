"""What may be forgotten: messages that everybody is done with, as far as the topic's policy says.

An unsettled message is always kept. Messages are dropped by whole extents: usually from the oldest
on (`trim`), and now and then anywhere (`sweep`), so that one that waits for a month does not keep a
month of others.
"""

from collections.abc import Iterable

from quiver.core.delivery.partition import Extent, Partition
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
    """Drop messages anywhere, also behind one that has been waiting for long."""
    for partition in topic.partitions:
        extents = partition.live()
        partition.retain([x for x in extents if not _may_go(topic, partition, x, now_ms)])


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

"""Moving messages between topics, and taking them out: dead letters, redrive, publish, discard.

A moved message is not copied. The target gets an extent that points at the same rows of the log.
"""

from collections.abc import Iterator
from dataclasses import replace

from quiver.core.delivery.extents import Extent
from quiver.core.delivery.partition import Partition
from quiver.core.delivery.topic import Topic
from quiver.errors import InvalidRequest
from quiver.model.commands import Pick
from quiver.model.ranges import Range, merge, subtract
from quiver.model.replies import Origin


def link(
    source: Partition, start: int, end: int, target: Topic, origin: Origin | None, now_ms: int,
    number: int | None = None, *, timed: bool = False,
) -> tuple[int, int]:  # fmt: skip
    """Append messages of `source` to `target`, to partition `number` or the one like theirs.

    Keys and priorities go along; delay and time to live do if they are `timed`, and otherwise have
    had their effect. Returns the partition and where in it they begin.
    """
    number = source.number if number is None else number
    partition = target.partitions[number % len(target.partitions)]
    first = partition.end
    for extent in source.since(start):
        if extent.first >= end:
            break
        low, high = max(start, extent.first), min(end, extent.end)
        row = extent.base + low - extent.first
        columns = extent.columns and extent.columns.cut(row, high - low, timed=timed)
        partition.append(
            high - low,
            extent.index,
            extent.row + low - extent.first,
            now_ms,
            extent.nbytes * (high - low) // extent.count,
            columns,
            0,
            origin and replace(origin.shift(low - start), stored_ms=extent.stored_ms),
        )
    target.catch_up(now_ms)
    return partition.number, first


def revive(
    extent: Extent, source: Partition, start: int, end: int, target: Topic, now_ms: int,
    *, alone: bool,
) -> tuple[int, int, str]:  # fmt: skip
    """Give buried messages another life; `alone`, only for the group that had failed.

    Returns the partition, where in it they begin, and the group if it is only for one.
    """
    origin = extent.origin and extent.origin.shift(start - extent.first)
    number = origin.partition if origin else source.number
    at, first = link(source, start, end, target, origin, now_ms, number)
    group = target.groups.get(origin.group) if origin else None
    if group is None or not alone:
        return at, first, ""
    group.redriven += end - start
    for other in target.groups.values():
        if other is not group:
            other.views[at].drop(first, target.partitions[at].end, now_ms)
    return at, first, group.name


def pick(topic: Topic, picks: tuple[Pick, ...]) -> list[tuple[Partition, int, int]]:
    """The picked messages that are still there for somebody and that nobody holds a lease on."""
    found: list[tuple[Partition, int, int]] = []
    for partition, there in _there(topic, picks):
        wanted = there
        views = [group.views[partition.number] for group in topic.groups.values()]
        if views:
            pending = merge([gap for view in views for gap in view.unheld(wanted)])
            held = merge([range_ for view in views for range_ in view.held_ranges()])
            wanted = subtract(pending, held)
        found += [(partition, start, end) for start, end in wanted]
    return found


def existing(topic: Topic, picks: tuple[Pick, ...]) -> tuple[Pick, ...]:
    """Those of the picked messages that exist now."""
    return tuple(
        Pick(partition.number, tuple(there)) for partition, there in _there(topic, picks) if there
    )


def origins(topic: Topic, picks: tuple[Pick, ...]) -> list[str]:
    """Where the picked messages that still exist would be redriven to, had no target been named."""
    found: dict[str, None] = {}
    for partition, there in _there(topic, picks):
        for start, end in there:
            for extent in partition.since(start):
                if extent.first >= end:
                    break
                if extent.origin is not None:
                    found[extent.origin.topic] = None
    return list(found)


def pick_settled(topic: Topic, picks: tuple[Pick, ...]) -> list[tuple[Partition, int, int]]:
    """The picked messages that are still there and that every group has settled."""
    found: list[tuple[Partition, int, int]] = []
    for partition, wanted in _there(topic, picks):
        views = [group.views[partition.number] for group in topic.groups.values()]
        pending = [gap for view in views for start, end in wanted
                   for gap in view.settled.gaps(start, end)]  # fmt: skip
        left = subtract(wanted, merge(pending))
        found += [(partition, start, end) for start, end in left]
    return found


def _there(topic: Topic, picks: tuple[Pick, ...]) -> Iterator[tuple[Partition, list[Range]]]:
    """What of the picked messages still exists, by partition."""
    chosen: dict[int, list[Range]] = {}
    for one in picks:
        if one.partition >= len(topic.partitions):
            raise InvalidRequest(f"topic {topic.name!r} has no partition {one.partition}")
        chosen.setdefault(one.partition, []).extend(one.ranges)
    for number, ranges in chosen.items():
        partition = topic.partitions[number]
        yield (
            partition,
            [
                gap
                for start, end in merge(ranges)
                for gap in partition.removed.gaps(start, min(end, partition.end))
            ],
        )


def remove(topic: Topic, partition: Partition, start: int, end: int, now_ms: int) -> None:
    """Take messages out, for every group."""
    partition.removed.add(start, end)
    for group in topic.groups.values():
        group.views[partition.number].drop(start, end, now_ms)

"""Which messages are in which segments, and which should be written next.

The core says "row r of entry i" of every message, for ever. As long as the log has the entry, that
is where it is read. Afterwards it is in a segment of its partition and found by its offset: this
table says in which. It is kept in the snapshot, so it changes together with what the log forgets.

A letter that was buried after its message had left the log is for a while in no segment of its own
topic. Its bytes are still where they were; they are found by entry and row, and the next plan gives
it a place of its own.
"""

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

from quiver import limits
from quiver.core.delivery import DeliveryCore
from quiver.core.delivery.extents import Extent
from quiver.core.delivery.partition import Partition
from quiver.core.delivery.topic import Topic
from quiver.model.ranges import Range, merge
from quiver.model.replies import Slice
from quiver.storage.parquet import Blocks
from quiver.storage.segment import name_of

SMALL: Final = 8  # a segment is small if so many of them would make a large one


class Segment:
    """One file: which offsets are in it, about how many bytes, and of which entries of the log."""

    __slots__ = ("blocks", "count", "ends", "first_entry", "last_entry", "name", "nbytes", "starts")

    def __init__(
        self, name: str, starts: "array[int]", ends: "array[int]", nbytes: int, first_entry: int,
        last_entry: int, blocks: Blocks | None = None,
    ) -> None:  # fmt: skip
        """The offsets are those from each of `starts` to its end; there may be many holes.

        `blocks` is known once the file is written.
        """
        self.name = name
        self.starts = starts
        self.ends = ends
        self.count = sum(ends) - sum(starts)
        self.nbytes = nbytes
        self.first_entry = first_entry
        self.last_entry = last_entry
        self.blocks = blocks

    @classmethod
    def of(cls, name: str, parts: list[Slice], nbytes: int) -> "Segment":
        """The segment with these messages in it."""
        ranges = merge([(part.offset, part.offset + part.count) for part in parts])
        entries = [part.index for part in parts]
        starts, ends = (array("q", side) for side in zip(*ranges, strict=True))
        return cls(name, starts, ends, nbytes, min(entries), max(entries))

    def dump(self) -> list[Any]:
        """As plain data."""
        assert self.blocks is not None, "a segment that was not written"
        return [self.name, self.starts.tobytes(), self.ends.tobytes(), self.nbytes,
                self.first_entry, self.last_entry, self.blocks.dump()]  # fmt: skip

    @classmethod
    def load(cls, data: list[Any]) -> "Segment":
        """What `dump` gave."""
        name, starts, ends, nbytes, first_entry, last_entry, blocks = data
        return cls(
            name, array("q", starts), array("q", ends), nbytes, first_entry, last_entry,
            Blocks.load(blocks),
        )  # fmt: skip


class PartitionSegments:
    """The segments of one partition. No offset is in two of them."""

    __slots__ = ("_ends", "_segments", "_starts", "segments")

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments
        runs = sorted(
            (start, end, at)
            for at, one in enumerate(segments)
            for start, end in zip(one.starts, one.ends, strict=True)
        )
        assert all(before[1] <= after[0] for before, after in pairwise(runs))
        self._starts = array("q", (start for start, _, _ in runs))
        self._ends = array("q", (end for _, end, _ in runs))
        self._segments = array("q", (at for _, _, at in runs))

    def split(self, start: int, end: int) -> Iterator[tuple[int, int, Segment | None]]:
        """The pieces of `start … end` by the segment that holds them; None for those in none."""
        at = bisect_right(self._starts, start) - 1
        while start < end:
            if at >= 0 and self._ends[at] > start:
                stop, found = min(end, self._ends[at]), self.segments[self._segments[at]]
            else:
                at += 1
                stop = min(end, self._starts[at]) if at < len(self._starts) else end
                found = None
            if stop > start:
                yield start, stop, found
            start = stop

    def share_out(
        self, live: Iterable[Range]
    ) -> tuple[list[tuple[Segment, list[Range]]], list[Range]]:
        """What of these offsets is in which segment, and the ranges that have all others.

        Offsets that are not asked for may be in such a range. Segments of which there are only many
        small pieces are not named, so that there are never very many ranges.
        """
        pieces = [piece for low, high in live for piece in self.split(low, high)]
        counts = Counter(found.name for _, _, found in pieces if found is not None)
        named: dict[str, list[Range]] = {}
        rest: list[Range] = []
        follows = False  # the piece before is of the rest, too
        for start, end, found in pieces:
            if found is not None and counts[found.name] <= limits.SEALED_RANGES_MAX:
                named.setdefault(found.name, []).append((start, end))
                follows = False
            else:
                rest.append((rest.pop()[0] if follows else start, end))
                follows = True
        return [(one, named[one.name]) for one in self.segments if one.name in named], rest


class Write(NamedTuple):
    """A segment that is to be written, and the messages that go into it."""

    segment: Segment
    topic: int
    topic_name: str
    parts: list[Slice]


class Plan(NamedTuple):
    """What a snapshot writes, the table of segments as it is then, and the entries that the log keeps."""

    writes: list[Write]
    segments: "Segments"
    logged: list[int]


class Segments:
    """The table: the segments of each partition, by the topic's number and the partition's."""

    def __init__(self, shelves: dict[tuple[int, int], PartitionSegments]) -> None:
        self._shelves = shelves

    def dump(self) -> list[Any]:
        """As plain data."""
        return [
            [topic, partition, [one.dump() for one in shelf.segments]]
            for (topic, partition), shelf in self._shelves.items()
        ]

    @classmethod
    def load(cls, data: list[Any]) -> "Segments":
        """What `dump` gave."""
        return cls(
            {
                (topic, partition): PartitionSegments([Segment.load(one) for one in found])
                for topic, partition, found in data
            }
        )

    def __iter__(self) -> Iterator[Segment]:
        """All of them."""
        for shelf in self._shelves.values():
            yield from shelf.segments

    def shelf(self, topic: int, partition: int) -> PartitionSegments:
        """The segments of a partition."""
        return self._shelves.get((topic, partition)) or PartitionSegments([])

    def with_entry(self, index: int) -> list[Segment]:
        """Every segment that may hold messages of an entry."""
        return [one for one in self if one.first_entry <= index <= one.last_entry]

    def plan(
        self,
        core: DeliveryCore,
        stays: Callable[[int], bool],
        logged_at_all: Callable[[int], bool],
        *,
        write: bool,
        spared: Collection[str] | None = None,
    ) -> Plan:
        """What to write now; `stays` says whether the log has an entry and keeps it.

        Unless it may `write`, only segments that nobody needs are taken off the table. Once some of
        them could not be read there are those to be `spared`: they and letters astray are left as
        they are, because what cannot be read must not be lost on the way either.
        """
        logged: dict[int, None] = {}
        strays: dict[int, None] = {}
        works: dict[tuple[int, int], _Work] = {}
        for topic in core.topics.values():
            for partition in topic.partitions:
                place = topic.number, partition.number
                work = works[place] = _Work(self.shelf(*place), topic, partition)
                work.look(stays, logged)
                if spared is not None or not write:
                    strays |= work.leave_strays(logged_at_all)
        # Neither may go nor be rewritten: in the new one these letters would be missing.
        needed = {
            one.name: None
            for one in self
            if any(one.first_entry <= index <= one.last_entry for index in strays)
        }
        shelves = {
            place: [one for one in shelf.segments if one.name in needed]
            for place, shelf in self._shelves.items()
        }
        writes: list[Write] = []
        room = limits.SEAL_BYTES_MAX
        for place, work in works.items():
            made = []
            if write:
                room -= work.rewrite(room, {*(spared or ()), *needed})
                made = work.writes(core.index, len(writes))
                writes += made
            kept = [one for one in work.kept() if one.name not in needed]
            shelves[place] = [*shelves.get(place, ()), *kept, *(one.segment for one in made)]
        full = {place: PartitionSegments(found) for place, found in shelves.items() if found}
        return Plan(writes, Segments(full), sorted(logged))


class _Work:
    """One partition while a plan is made."""

    def __init__(self, shelf: PartitionSegments, topic: Topic, partition: Partition) -> None:
        self._shelf = shelf
        self._topic = topic
        self._partition = partition
        views = [group.views[partition.number] for group in topic.groups.values()]
        # One that expired while it was leased is removed, and may still be buried.
        held = [range_ for view in views for range_ in view.held_ranges()]
        self._live = merge([*partition.removed.gaps(partition.first, partition.end), *held])
        self._alive: dict[str, list[Range]] = {}  # what is wanted of each segment
        self._kept = list(shelf.segments)
        self.moving: list[tuple[Extent, int, int]] = []  # what needs a place

    def look(self, stays: Callable[[int], bool], logged: dict[int, None]) -> None:
        """Find where every message is; only those that are in no segment are looked at one by one."""
        for low, high in self._live:
            for start, end, found in self._shelf.split(low, high):
                if found is not None:
                    self._alive.setdefault(found.name, []).append((start, end))
                    continue
                for piece in self._extents(start, end):
                    if stays(piece[0].index):
                        logged[piece[0].index] = None
                    else:
                        self.moving.append(piece)
        self._kept = [one for one in self._shelf.segments if one.name in self._alive]

    def leave_strays(self, logged_at_all: Callable[[int], bool]) -> dict[int, None]:
        """Do not give a place to letters whose bytes are in another segment; return their entries."""
        strays = [piece for piece in self.moving if not logged_at_all(piece[0].index)]
        self.moving = [piece for piece in self.moving if logged_at_all(piece[0].index)]
        return {extent.index: None for extent, _, _ in strays}

    def rewrite(self, room: int, spared: Collection[str]) -> int:
        """Move what is left of segments that are mostly dead, or small and many.

        Returns how much of `room` that takes: bytes, but for each file, which is open meanwhile, its
        share of what all may take.
        """
        movable = [one for one in self._kept if one.name not in spared]
        left = {one.name: sum(e - s for s, e in self._alive[one.name]) for one in movable}
        small = [
            one
            for one in movable
            if one.nbytes * left[one.name] // one.count * SMALL < limits.SEGMENT_BYTES
        ]
        doomed = small if len(small) > limits.SEGMENTS_SMALL_MAX else []
        doomed += [one for one in movable if 2 * left[one.name] < one.count and one not in doomed]
        moved = 0
        for one in doomed:
            nbytes = one.nbytes * left[one.name] // one.count
            cost = max(nbytes, limits.SEAL_BYTES_MAX // limits.SEAL_FILES_MAX)
            if moved + cost > room:
                break
            moved += cost
            for start, end in self._alive[one.name]:
                self.moving += self._extents(start, end)
            self._kept.remove(one)
        return moved

    def _extents(self, start: int, end: int) -> Iterator[tuple[Extent, int, int]]:
        """The extents between two offsets, and which part of each is."""
        for extent in self._partition.since(start):
            if extent.first >= end:
                return
            yield extent, max(start, extent.first), min(end, extent.end)

    def kept(self) -> list[Segment]:
        """The segments that stay as they are."""
        return self._kept

    def writes(self, index: int, number: int) -> list[Write]:
        """What needs a place, cut into segments; the first of them is the snapshot's `number`th."""
        made: list[Write] = []
        parts: list[Slice] = []
        nbytes = 0
        self.moving.sort(key=lambda piece: piece[1])
        for extent, start, end in self.moving:
            parts.append(extent.slice(self._partition.number, start, end, 0))
            nbytes += extent.nbytes * (end - start) // extent.count
            if nbytes >= limits.SEGMENT_BYTES:
                made.append(self._write(index, number + len(made), parts, nbytes))
                parts, nbytes = [], 0
        if parts:
            made.append(self._write(index, number + len(made), parts, nbytes))
        return made

    def _write(self, index: int, which: int, parts: list[Slice], nbytes: int) -> Write:
        topic = self._topic
        name = name_of(topic.name, topic.number, self._partition.number, index, which)
        return Write(Segment.of(name, parts, nbytes), topic.number, topic.name, parts)

"""Compaction: finding messages whose key has a newer one, and having them dropped.

It goes by the text of keys, so it is not the core's business, which knows hashes at most. A pass reads
each partition of a topic in offset order, as far as it went when the pass began, and proposes a
`Compact` with what it found; the core drops of that what every group has settled.

Nothing that happens meanwhile can make a pick wrong. A message is picked only after a newer one of
its key was seen, and whatever arrives has a higher offset still. So the newest of a key is never
picked, with one exception: a tombstone (a key and an empty body), which says that the key is gone,
goes itself after a while. It must be the last of its key for that: if an older value were still kept
for a slow group, that would come back to life.

The thread works on one topic at a time and rests as long as it has worked.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from zlib import crc32

import pyarrow.compute as pc

from quiver import limits
from quiver.batches.schema import column
from quiver.core.delivery import DeliveryCore
from quiver.core.delivery.topic import Topic
from quiver.errors import QueueClosed, QuiverError
from quiver.model.commands import Command, Compact, Pick
from quiver.model.queries import Query
from quiver.model.ranges import Range, merge
from quiver.model.replies import Slice
from quiver.node.cache import BatchCache
from quiver.node.engine import Engine
from quiver.node.source import Source
from quiver.node.tickets import Ticket

A = TypeVar("A")

NEVER: Final = 2**62  # more messages than a topic can have


class Server(Protocol):
    """What it needs of a shard."""

    def ask(self, query: Query[A]) -> Ticket[A]:
        """Ask about the state."""

    def propose(self, command: Command) -> Ticket[Any]:
        """Do a command."""


class TooManyKeys(Exception):
    """A scan has seen as many keys as it may remember."""


class Newest(NamedTuple):
    """The newest message of a key so far; a tombstone has a time at which it may go."""

    offset: int
    due_ms: int  # 0: it is no tombstone
    alone: bool  # no older one of the key is stored


class KeyScan:
    """What one reading of a partition finds, for the keys of one part out of `parts`."""

    def __init__(self, now_ms: int, part: int = 0, parts: int = 1) -> None:
        self.picked = 0
        self.dropped = 0  # of those
        self.again_ms: int | None = None  # when another scan would find a tombstone to drop
        self._now_ms = now_ms
        self._part = part
        self._parts = parts
        self._newest: dict[str, Newest] = {}
        self._ranges: list[Range] = []  # picked, and nobody has taken them

    def look(self, offset: int, key: str | None, empty: bool, time_ms: int) -> None:
        """The next message, in offset order."""
        if key is None or (self._parts > 1 and crc32(key.encode()) % self._parts != self._part):
            return
        before = self._newest.get(key)
        if before is not None:
            self._pick(before.offset)
        elif len(self._newest) >= limits.COMPACT_KEYS_MAX:
            raise TooManyKeys
        due_ms = time_ms + limits.TOMBSTONE_KEEP_SECONDS * 1000 if empty else 0
        self._newest[key] = Newest(offset, due_ms, before is None)

    def finish(self) -> None:
        """There are no more: see which tombstones may go."""
        for newest in self._newest.values():
            if not newest.due_ms:
                continue
            if newest.alone and newest.due_ms <= self._now_ms:
                self._pick(newest.offset)
            else:
                again_ms = max(newest.due_ms, _later_ms(self._now_ms))
                self.again_ms = min(again_ms, self.again_ms or again_ms)

    def take(self, at_least: int = 1) -> tuple[Range, ...]:
        """What was picked since the last time, if it is so much."""
        if len(self._ranges) < at_least:
            return ()
        taken, self._ranges = merge(self._ranges), []
        return tuple(taken)

    def _pick(self, offset: int) -> None:
        self.picked += 1
        self._ranges.append((offset, offset + 1))


def _later_ms(now_ms: int) -> int:
    return now_ms + limits.COMPACT_AGAIN_SECONDS * 1000


class KeyPage(NamedTuple):
    """Messages to look at, and where the next page begins."""

    slices: list[Slice]
    source: Source
    ahead: int

    def rows(self) -> Iterator[tuple[int, str | None, bool, int]]:
        """Offset, key, whether the body is empty, and time of each message.

        If one cannot be read it is `CorruptSegment`: a tombstone might seem the last of its key.
        """
        for batch, at, part in self.source.pieces():
            keys = column(batch, "key")
            if keys is None:
                continue
            lengths = pc.binary_length(batch.column("body").slice(at, part.count)).to_pylist()
            found = zip(keys.slice(at, part.count).to_pylist(), lengths, strict=True)
            for offset, (key, length) in enumerate(found, part.offset):
                yield offset, key, length == 0, part.time_ms


@dataclass(frozen=True, slots=True)
class FindEnds(Query[list[int]]):
    """Where the partitions of a topic end; none, if it is gone."""

    topic: int


def find_ends(engine: Engine, query: FindEnds, now_ms: int) -> list[int]:
    """The answer to that."""
    known = engine.core.topics.get(query.topic)
    return [partition.end for partition in known.partitions] if known is not None else []


@dataclass(frozen=True, slots=True)
class ReadKeys(Query[KeyPage]):
    """The next messages of a partition. Of this process only: whoever asks has a cache for them."""

    topic: int
    partition: int
    start: int
    end: int
    cache: BatchCache


def read_keys(engine: Engine, query: ReadKeys, now_ms: int) -> KeyPage:
    """The answer to that."""
    topic, at = query.topic, query.partition
    most = limits.COMPACT_PAGE_MESSAGES
    slices, ahead = engine.core.browse(topic, {at: query.start}, most, ends={at: query.end})
    return KeyPage(slices, engine.source(topic, slices, query.cache), ahead[at])


class CompactionResult(NamedTuple):
    """What a pass over a topic did."""

    dropped: int
    end: int  # messages the topic had had when it began
    again_ms: int | None  # when there may be more to drop, although nothing was sent


class Pass:
    """A pass over a topic, in any thread; `rest` is told how long each step took."""

    def __init__(self, server: Server, rest: Callable[[float], object]) -> None:
        self._server = server
        self._rest = rest
        self._cache = BatchCache(0)

    def run(self, topic: int, now_ms: int) -> CompactionResult:
        """Read all partitions and have dropped what is superseded."""
        self._cache = BatchCache(limits.COMPACT_CACHE_BYTES_MAX)  # nobody else's makes room
        ends = self._server.ask(FindEnds(topic)).wait()
        dropped = 0
        again: list[int] = []
        for partition, end in enumerate(ends):
            todo = [(0, 1)]
            while todo:
                part, parts = todo.pop()
                scan = KeyScan(now_ms, part, parts)
                try:
                    self._scan(scan, topic, partition, end)
                except TooManyKeys:
                    todo += [(part, 2 * parts), (part + parts, 2 * parts)]
                dropped += scan.dropped
                if scan.again_ms is not None:
                    again.append(scan.again_ms)
                if scan.dropped < scan.picked:  # some group is behind
                    again.append(_later_ms(now_ms))
        return CompactionResult(dropped, sum(ends), min(again, default=None))

    def _scan(self, scan: KeyScan, topic: int, partition: int, end: int) -> None:
        """Read a partition up to `end`, and have dropped what the scan picks."""
        position = 0
        while position < end:
            began = time.monotonic()
            query = ReadKeys(topic, partition, position, end, self._cache)
            page = self._server.ask(query).wait()
            for row in page.rows():
                scan.look(*row)
            position = page.ahead
            self._drop(scan, topic, partition, limits.COMPACT_PICKS_MAX)
            self._rest(time.monotonic() - began)
        scan.finish()
        self._drop(scan, topic, partition, 1)

    def _drop(self, scan: KeyScan, topic: int, partition: int, at_least: int) -> None:
        ranges = scan.take(at_least)
        if ranges:
            command = Compact(topic, (Pick(partition, ranges),))
            scan.dropped += self._server.propose(command).wait().count


class Compactor:
    """The thread that compacts: there when there is something to do, for one topic at a time."""

    def __init__(self, server: Server, now_ms: Callable[[], int]) -> None:
        self._closing = Event()
        self._gently = Pass(server, self._closing.wait)
        self._at_once = Pass(server, lambda seconds: None)
        self._now_ms = now_ms
        self._lock = Lock()  # around all of these:
        self._jobs: dict[int, list[Ticket[int]]] = {}  # topics, and who waits for each
        self._thread: Thread | None = None
        self._running: int | None = None
        self._results: dict[
            int, CompactionResult
        ] = {}  # of the last pass over each topic since we opened

    def compact(self, topic: int) -> Ticket[int]:
        """Compact a topic now; the ticket gets how many messages were dropped."""
        ticket: Ticket[int] = Ticket()
        self._add(topic, ticket)
        return ticket

    def start_due(self, core: DeliveryCore, now_ms: int) -> None:
        """Begin with topics that are worth it: once after opening, and when they have grown."""
        with self._lock:
            for number in [number for number in self._results if number not in core.topics]:
                del self._results[number]
            due = [
                topic.number
                for topic in core.topics.values()
                if topic.policy.retention.compact and self._is_due(topic, now_ms)
            ]
        for number in due:
            self._add(number)

    def close(self) -> None:
        """End the thread; the shard no longer answers it."""
        with self._lock:
            self._closing.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _is_due(self, topic: Topic, now_ms: int) -> bool:
        last = self._results.get(topic.number)
        if topic.number == self._running:
            return False
        if last is None:
            return True
        if last.again_ms is not None and last.again_ms <= now_ms:
            return True
        grown = sum(partition.end for partition in topic.partitions) - last.end
        stored = sum(partition.messages() for partition in topic.partitions)
        percent = limits.COMPACT_GROWTH_PERCENT
        return grown >= max(limits.COMPACT_GROWTH_MIN, (stored - grown) * percent // 100)

    def _add(self, topic: int, *tickets: Ticket[int]) -> None:
        """One pass will do for all who ask before it begins."""
        with self._lock:
            if self._closing.is_set():
                for ticket in tickets:
                    ticket.fail(QueueClosed("the queue is closed; connect again"))
                return
            self._jobs.setdefault(topic, []).extend(tickets)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="quiver-compact", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        try:
            while (job := self._next_job()) is not None:
                self._do(*job)
        except BaseException as error:
            with self._lock:
                self._thread = self._running = None
                waiting = [ticket for tickets in self._jobs.values() for ticket in tickets]
                self._jobs = {}
            for ticket in waiting:
                ticket.fail(error)
            raise

    def _next_job(self) -> tuple[int, list[Ticket[int]]] | None:
        with self._lock:
            if not self._jobs:
                self._thread = None  # in the same breath: who adds one now starts another thread
                return None
            self._running = topic = next(iter(self._jobs))
            return topic, self._jobs.pop(topic)

    def _do(self, topic: int, tickets: list[Ticket[int]]) -> None:
        run = self._at_once.run if tickets else self._gently.run
        try:
            result = run(topic, self._now_ms())
        except BaseException as error:
            for ticket in tickets:
                ticket.fail(error)
            if not isinstance(error, QuiverError | Warning):  # of which a user may make errors
                raise
            # Closed, deleted, altered or damaged: not again soon.
            result = CompactionResult(0, NEVER, _later_ms(self._now_ms()))
        else:
            for ticket in tickets:
                ticket.resolve(result.dropped)
        with self._lock:
            self._running = None
            self._results[topic] = result

"""The log: every entry since the last snapshot, and the batches that are still needed.

The log is a chain of files (`logfile`), each named by its first entry; frames are appended to the
last one. `append` writes, `sync` makes durable, and only what is synced may be confirmed to
anybody.

Room
    Disk space is reserved ahead in steps, so that a full disk is met before anything is written.
    An ordinary append leaves `reserve_bytes` of it untouched; an urgent one may use them:
    settling and housekeeping go on when the disk is full, and they are what frees it. `DiskFull`
    means that nothing was appended, and the same append works as soon as there is room.

Rolling
    When the last file has grown past `file_bytes`, it is synced, the next one is made durable
    under its name, and only then is anything written to it. So all files but the last are
    complete on disk. If there is no room for a new file, the old one goes on.

Recovery
    The log ends where, in the last file, no good frame starts. Everything that anybody knows to
    have been on disk must be before that end: the snapshot's index, the confirmation mark
    (`mark`), and what later frames in the file say was synced before they were written. If it is,
    the rest is a torn write that nobody was told of, and it is cut off, durably, so that it can
    never come back behind new frames. If it is not, something confirmed is damaged: `CorruptLog`,
    and nothing was touched. All files but the last must be whole and continue each other.

Removing
    `keep` forgets the places of batches nobody needs, and removes files without a needed batch.
    So a log may begin with a few old files, with gaps between them, that are only read from: the
    snapshot remembers the places in them. What peers behind the snapshot still want, and what a
    transfer has pinned, stays as well.

With peers
    A node alone applies what it finds (`replay`), and what it has synced is committed. One with peers
    looks first (`scan`) and reads what is committed later (`entries`); the end that is not may have
    to go, because a leader has other entries there: `cut`. In that order, each step durable before the
    next: the mark is lowered, else the recovery would miss what is cut; files behind the cut are
    removed, the last one first, so that no crash leaves a gap; the file with the cut is truncated.
    From then on no frame says that something behind the cut was synced: those that did are gone, and
    new ones are told of `synced_index`, which is lowered, too.

Syncing
    A sync covers what was written when it began. `start_sync` remembers how far that is, any thread may
    wait for it, and `finished` counts so much as durable, whatever was appended meanwhile. Whoever
    syncs in another way waits for the one under way before: the system tells of an error only once.

One thread changes a `Wal`. Another may call `locate` meanwhile, for an entry that stays needed, and
any thread may read the `WalPlace` it gets. A write or sync that fails in another way than for want of
room makes the log useless: whether the data is there cannot be known any more before the next
recovery. From then on every call raises `StorageFailed`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise, zip_longest
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from quiver import limits
from quiver.errors import CorruptLog, DiskFull, StorageFailed
from quiver.model.histogram import Histogram
from quiver.model.stats import SYNC_BOUNDS
from quiver.storage import frame
from quiver.storage.backup import Needed
from quiver.storage.entries import EntryTable
from quiver.storage.frame import LogRecord
from quiver.storage.logfile import REMEDY, LogFile, demand_whole, first_indexes, name_of
from quiver.storage.mark import Mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from quiver.storage.files import Files
    from quiver.storage.frame import Header


@dataclass(frozen=True, slots=True)
class WalPlace:
    """Where an entry's batch is. Any thread may read it, even after the file was removed.

    The term, where it is known, tells the entry from one that took its place in the log.
    """

    log: LogFile
    index: int
    position: int
    term: int | None = None

    def read(self) -> bytes:
        """The bytes of the batch, checked."""
        return self.log.read_batch(self.index, self.position, self.term)


class FoundEntries(NamedTuple):
    """What a scan has found behind the snapshot.

    `terms` are runs: the first entry of each, and its term. The first run begins with the last entry
    of the snapshot. `sizes` has what each entry behind it takes (`LogRecord.nbytes`), and `of_kind` which
    of them are of the kind that was asked for. If the end was
    `torn`, the log was cut behind its last good frame. Most likely that was a write that nobody was told
    of. It may also be damage to entries that were synced last, which nothing vouches for.
    """

    terms: list[tuple[int, int]]
    sizes: array[int]
    torn: bool
    of_kind: Sequence[int] = ()


class PendingSync:
    """A sync that has begun. It covers entries up to `index` and none that are appended later."""

    def __init__(self, index: int, began: float, wait: Callable[[], None]) -> None:
        self.index = index
        self.began = began
        self.failure: StorageFailed | None = None
        self._wait: Callable[[], None] | None = wait
        self._lock = Lock()

    def wait(self) -> None:
        """Return when it has ended, well or not. Any thread may call it, then `Wal.finished` is due."""
        with self._lock:
            if self._wait is not None:
                try:
                    self._wait()
                except StorageFailed as failure:
                    self.failure = failure
                self._wait = None  # not if something else came in between: then it has not ended


class _Alive:
    """Around everything that changes files: the first failure is the last."""

    __slots__ = ("_wal",)

    def __init__(self, wal: Wal) -> None:
        self._wal = wal

    def __enter__(self) -> None:
        self._wal._check_alive()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StorageFailed):
            self._wal._failure = error


class Wal:
    """An open log. `replay` or `scan` must have been consumed before anything else is asked of it.

    `first_index` is the first entry that `entries` can read. `last_index` and `last_now_ms` are those
    of the last entry (the time is 0 if none was read), `synced_index` is the last durable one,
    `commit_index` the last one that nobody can take back, and `appended_bytes` is how much the log has
    grown since the snapshot that it was opened with, or since the last `keep`.
    """

    def __init__(
        self, files: Files, after: int, term: int, version: int, file_bytes: int,
        allocate_bytes: int, reserve_bytes: int, recent_bytes: int,
    ) -> None:  # fmt: skip
        self.first_index = after + 1
        self.last_index = after
        self.last_now_ms = 0
        self.synced_index = after
        self.appended_bytes = 0
        self.sync_times = Histogram(SYNC_BOUNDS)
        self._files = files
        self._after = after
        self._file_bytes = file_bytes
        self._allocate_bytes = allocate_bytes
        self._reserve_bytes = reserve_bytes
        self._version = version  # of new files
        self._mark = Mark(files, version)
        self.commit_index = max(after, self._mark.commit)
        self._alone = False  # nobody else has a say: what is synced is committed
        self._table = EntryTable(after, term if after else 0, recent_bytes)
        self._places: dict[int, tuple[int, int]] = {}  # index: first index of the file, position
        self._sizes = {first: files.open(name_of(first)).size() for first in first_indexes(files)}
        self._current: LogFile | None = None  # the last file, once everything was replayed
        self._opened = lru_cache(limits.WAL_FILES_OPEN_MAX)(partial(LogFile.open, files))
        self._failure: StorageFailed | None = None
        self._lent = False  # reserved space was given back for a snapshot
        self._sync_began: float | None = None
        self._pending: PendingSync | None = None
        self._pinned: Counter[int] = Counter()  # files, by how many transfers need them
        self._torn = False  # the end, when it was opened
        self._vouched = 0  # the last entry that a later one knows to have been synced

    @classmethod
    def open(
        cls,
        files: Files,
        *,
        after: int,
        term: int = 1,
        places: Iterable[tuple[int, int, int]] = (),
        version: int = 1,
        file_bytes: int = limits.WAL_FILE_BYTES,
        allocate_bytes: int = limits.WAL_ALLOCATE_BYTES,
        reserve_bytes: int = limits.WAL_RESERVE_BYTES,
        recent_bytes: int = 0,
    ) -> Wal:
        """The log behind the snapshot of entry `after` (0: none) that kept these `places`.

        `term` is that of entry `after`. New files get the format `version`: 2 in a directory that has
        joined a cluster. So many `recent_bytes` of entries are kept in memory for peers.
        """
        wal = cls(
            files, after, term, version, file_bytes, allocate_bytes, reserve_bytes, recent_bytes
        )
        wal._demand_files(after, places)
        return wal

    def replay(self) -> Iterator[LogRecord]:
        """Every entry behind the snapshot, without its batch; a torn end is cut in the end.

        For a node without peers: from then on everything that is synced is committed.
        """
        self._alone = True
        for header, command in self._recover():
            yield header.record(command)

    def scan(self, kind: int | None = None) -> FoundEntries:
        """What `replay` would find, of which nothing may be applied yet: all behind the commit may go."""
        sizes, of_kind = array("Q"), []
        for header, _ in self._recover():
            sizes.append(header.nbytes)
            if header.kind == kind:
                of_kind.append(header.index)
        return FoundEntries(list(self._table.terms), sizes, self._torn, of_kind)

    def follow(self, confirmed: int | None) -> Iterator[LogRecord]:
        """`replay` for somebody who does not own the directory: nothing is changed.

        It goes up to entry `confirmed`, or, if that is None, to where no good frame starts. A second
        call goes on from there. `CorruptLog`: what is confirmed is not in the files that are there.
        """
        if self._current is None:
            firsts = [first for first in self._sizes if first <= self._after + 1]
            if not firsts:
                raise CorruptLog(f"There is no log. {REMEDY}")
            self._advance(max(firsts))
        while confirmed is None or self._tip.next <= confirmed:
            for header, command in self._walk(self._tip, confirmed):
                yield header.record(command)
            if not self._has_next:
                break
            self._advance(self._tip.next)
        if confirmed is not None and self._tip.next <= confirmed:
            raise CorruptLog(
                f"{self._tip.file.name} is damaged at byte {self._tip.end}, or a file behind it is "
                f"missing: entries {self._tip.next} to {confirmed} were confirmed. {REMEDY}"
            )

    @property
    def is_current(self) -> bool:
        """Whether the file that is followed is still what its name says: a directory can be replaced."""
        return LogFile.open(self._files, self._tip.first).salt == self._tip.salt

    @property
    def goes_on(self) -> bool:
        """Whether there seems to be more than what was followed."""
        return self._tip.goes_on or self._has_next

    def lost(self) -> CorruptLog | None:
        """What is wrong if later entries than those followed were on disk: later frames tell.

        The mark may be behind, or gone. To be asked while nobody owns the directory, who would write
        such frames.
        """
        last, synced = self._tip.next - 1, self._tip.tail().synced
        return self._unreadable(self._tip, last, synced) if last < synced else None

    def settle(self) -> None:
        """Make durable what was followed and is not confirmed; its owner may have had no time for it."""
        self._tip.file.sync()

    def append(self, records: Sequence[LogRecord], *, urgent: bool) -> None:
        """Write entries that continue the log, all or none; the next `sync` makes them durable."""
        with _Alive(self):
            if self._tip.end >= self._file_bytes or self._tip.version < self._version:
                self._begin_file()
            log, position = self._tip, self._tip.end
            index, term, places = self.last_index, self._table.term, {}
            buffers: list[memoryview] = []
            positions: list[int] = []
            for record in records:
                index += 1
                assert record.index == index, f"entry {record.index} appended as {index}"
                assert record.term >= term, f"term {record.term} appended behind {term}"
                term = record.term
                positions.append(position)
                pieces = frame.encode(
                    record, synced=self.synced_index, salt=log.salt, version=log.version
                )
                if memoryview(record.batch).nbytes:
                    places[index] = (log.first, position)
                position += sum(piece.nbytes for piece in pieces)
                buffers += pieces
            self._reserve(position, urgent=urgent)
            self._write(buffers)
            self.appended_bytes += position - log.end
            log.end = position
            self._places |= places
            for record, at in zip(records, positions, strict=True):
                self._table.add(record, log.first, at)
            self.last_index, self.last_now_ms = index, records[-1].now_ms

    def begin_sync(self) -> None:
        """Let the disk work already, while what was appended is applied."""
        self._sync_began = perf_counter()
        self._tip.file.begin_sync()

    def sync(self) -> None:
        """Return when everything appended is durable."""
        with _Alive(self):
            self._drain()
            if self.synced_index < self.last_index:
                self._finish(self._start())

    def start_sync(self) -> PendingSync:
        """Begin to make durable what was appended until now; one at a time."""
        with _Alive(self):
            assert self._pending is None, "a sync is under way"
            self._pending = self._start()
            return self._pending

    def finished(self, pending: PendingSync) -> None:
        """What this sync covers is durable; wait for that if it has not ended yet.

        Nothing happens if somebody else was in need of its end before.
        """
        with _Alive(self):
            if pending is self._pending:
                self._finish(pending)

    def commit(self, index: int) -> None:
        """Entries up to this one are committed. Readers are told as far as they are durable here."""
        assert self.commit_index <= index <= self.last_index, f"entry {index} committed"
        self.commit_index = index
        self._write_mark()

    def cut(self, after: int) -> None:
        """Take all entries behind `after` out of the log, durably. None of them is committed.

        `DiskFull`: nothing was cut. The module says what the order is for.
        """
        with _Alive(self):
            assert not self._alone, "nobody can take back what a node alone has written"
            assert self.commit_index <= after, (
                f"cut behind {after}: {self.commit_index} is committed"
            )
            if after >= self.last_index:
                return
            self._drain()
            log, now_ms = self._rewound(after)
            kept_bytes = self.size_bytes
            synced = min(self.synced_index, after)
            self._mark.lower(synced, min(self.commit_index, synced), self.term_of(synced))
            doomed = [first for first in [*self._sizes, self._tip.first] if first > log.first]
            for first in reversed(doomed):
                self._files.remove(name_of(first))
                self._files.sync_directory()
            log.file.truncate(log.end)
            log.file.sync()
            for first in (*doomed, log.first):
                self._sizes.pop(first, None)
            self._current = log
            self._opened.cache_clear()  # of files that get their name again
            self._places = {index: at for index, at in self._places.items() if index <= after}
            self._table.cut(after)
            self.last_index, self.last_now_ms = after, now_ms
            self.appended_bytes = max(0, self.appended_bytes - (kept_bytes - self.size_bytes))
            self.synced_index = 0  # of another log; this one was synced as a whole
            self._count_synced(after)

    def entries(self, first: int, bytes_max: int) -> list[LogRecord]:
        """Records from entry `first` on with their batches, up to so many bytes, but at least one."""
        self._check_alive()
        assert first >= self.first_index, f"entry {first} is asked for, {self.first_index} is there"
        found: list[LogRecord] = []
        for nbytes, read in self._read_from(first):
            bytes_max -= nbytes
            if found and bytes_max < 0:
                break
            found.append(read())
        return found

    def term_of(self, index: int) -> int:
        """The term of an entry, from the one before `first_index` to the last."""
        term = self._table.find_term(index) if index <= self.last_index else None
        assert term is not None, f"entry {index} is not in the log"
        return term

    @property
    def last_term(self) -> int:
        """The term of the last entry."""
        return self._table.term

    @property
    def version(self) -> int:
        """The format of what is written from now on."""
        return max(self._version, self._tip.version)

    def read(self, index: int) -> bytes:
        """The batch of an entry."""
        return self.locate(index).read()

    def locate(self, index: int) -> WalPlace:
        """Where the batch of an entry is, to be read now or later, here or in another thread."""
        self._check_alive()
        assert index in self._places, f"entry {index} has no batch in the log"
        first, position = self._places[index]
        return WalPlace(self._log(first), index, position, self._table.find_term(index))

    def places(self, indexes: Iterable[int]) -> list[tuple[int, int, int]]:
        """The places of these entries' batches, as a snapshot keeps them and `open` wants them."""
        return [(index, *self._places[index]) for index in indexes]

    def file_of(self, index: int) -> int | None:
        """The first entry of the file that has the batch of an entry; None if none has."""
        place = self._places.get(index)
        return None if place is None else place[0]

    @property
    def after(self) -> int:
        """The entry of the snapshot that it was opened with, 0 for none."""
        return self._after

    def needed_files(self) -> list[Needed]:
        """The files of the log that the snapshot and what was followed need, and how much of each."""
        sizes = {**self._sizes, self._tip.first: self._tip.end}
        start = max(first for first in sizes if first <= self._after + 1)
        last: dict[int, int] = {}  # the last entry that each of them must have
        for index, (first, _) in self._places.items():
            last[first] = max(index, last.get(first, 0))
        followed = sorted(first for first in sizes if start <= first <= self._tip.first)
        for first, following in pairwise([*followed, self._tip.next]):
            last[first] = following - 1
        return [
            Needed(name_of(first), sizes[first], partial(demand_whole, first, last[first]))
            for first in sorted(last)
        ]

    def complete(self, before: int) -> dict[int, None]:
        """The files (by their first entry) that hold no entry behind `before`, and never will."""
        firsts = [*self._sizes, self._tip.first]
        return {a: None for a, b in pairwise(firsts) if b <= before + 1}

    def roll(self) -> bool:
        """Begin a new file, so that what is written so far is in complete ones; False without room."""
        with _Alive(self):
            if self._tip.first > self.last_index:
                return True
            return self._roll(allocate=self._allocate_bytes) or self._roll(allocate=0)

    def pin(self, firsts: Iterable[int]) -> Callable[[], None]:
        """Let no `keep` remove these files, by their first entries, until what this returns is called."""
        pinned = Counter(firsts)
        self._pinned += pinned
        return partial(self._pinned.subtract, pinned)

    def keep(self, live: Iterable[int], *, before: int, wanted: int | None = None) -> None:
        """Up to `before`, the index of a saved snapshot, only the batches of `live` are needed.

        A peer that is behind may want entries from `wanted` on. They stay, the last ones of them if it
        is more than peers are worth (`limits.WAL_BEHIND_BYTES_MAX`): the others need the snapshot.
        """
        with _Alive(self):
            kept = {index: self._places[index] for index in live}
            kept |= {index: place for index, place in self._places.items() if index > before}
            self._places = kept
            used = {first for first, _ in kept.values()}
            floor = min(before + 1, self._floor(wanted))
            doomed = [
                first
                for first, following in pairwise([*self._sizes, self._tip.first])
                if following <= floor and first not in used and self._pinned[first] <= 0
            ]
            for first in doomed:
                self._files.remove(name_of(first))
                del self._sizes[first]
            if doomed:
                self._opened.cache_clear()  # an open file keeps its disk space
                self._files.sync_directory()
                gone = max(doomed)
                goes_on = min(first for first in [*self._sizes, self._tip.first] if first > gone)
                self.first_index = max(self.first_index, goes_on)
                self._table.forget(self.first_index)
            self.appended_bytes = 0
            self._lent = False

    def take_back(self) -> None:
        """There was no snapshot: reserve space again."""
        self._lent = False

    def lend(self) -> None:
        """Give reserved space back to the disk, for a snapshot that will free more than that.

        A file without room of its own is begun, so that the last one may go as well.
        """
        with _Alive(self):
            self._drain()
            self._lent = True
            self._tip.file.truncate(self._tip.end)
            if self._tip.first <= self.last_index:  # an empty one would be replaced by itself
                self._roll(allocate=0)

    @property
    def files(self) -> int:
        """How many files the log has."""
        return len(self._sizes) + 1

    @property
    def size_bytes(self) -> int:
        """What the log takes on disk, without what is only reserved."""
        return sum(self._sizes.values()) + self._tip.end

    def close(self) -> None:
        """Give back what is reserved and make everything durable; after a failure, only let go."""
        log, self._current = self._current, None  # whoever has a place in it may go on reading
        failure, self._failure = self._failure, StorageFailed("it was closed.")
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.wait()
            failure = failure or pending.failure
        self._opened.cache_clear()
        if log is not None and failure is None:
            log.file.truncate(log.end)
            log.file.sync()
            self._count_synced(self.last_index)
            self._mark.sync()
        self._mark.close()

    # -- recovery ----------------------------------------------------------------------------------

    def _demand_files(self, after: int, places: Iterable[tuple[int, int, int]]) -> None:
        """Every file that must be there is there."""
        for index, first, position in places:
            if first not in self._sizes:
                raise CorruptLog(f"{name_of(first)} is missing: it has entry {index}. {REMEDY}")
            self._places[index] = (first, position)
        confirmed = max(after, self._mark.synced)
        missing = min(self._sizes) > after + 1 if self._sizes else confirmed > 0
        if missing:
            raise CorruptLog(f"The log file with entry {after + 1} is missing. {REMEDY}")

    @property
    def _has_next(self) -> bool:
        """Whether another file goes on where the one that is followed has ended so far."""
        tip = self._tip
        return tip.next > tip.first and name_of(tip.next) in self._files.names()

    def _advance(self, first: int) -> None:
        """Go on with the file that begins with this entry."""
        log = LogFile.open(self._files, first)
        if self._current is not None:
            self._sizes[self._current.first] = self._current.end
        self._sizes.pop(first, None)
        self._current = log

    def _recover(self) -> Iterator[tuple[Header, bytes]]:
        """Header and command of every entry behind the snapshot; then the log may be written."""
        start = max((first for first in self._sizes if first <= self._after + 1), default=1)
        firsts = [first for first in self._sizes if first >= start]
        log = None
        for first, following in zip_longest(firsts, firsts[1:]):
            log = LogFile.open(self._files, first)
            yield from self._walk(log)
            self._sizes[first] = log.end
            if following is not None:
                self._demand_whole(log, following)
        if log is not None:
            self._settle_end(log)
        else:
            log = LogFile.create(
                self._files, 1, allocate=self._allocate_bytes, version=self._version
            )
        self._sizes.pop(log.first, None)
        self._current = log
        self._count_synced(self.last_index)

    def _walk(self, log: LogFile, confirmed: int | None = None) -> Iterator[tuple[Header, bytes]]:
        """Go through a file, on from where a walk before has ended."""
        self.last_index = log.next - 1
        for position, header, command in log.walk(confirmed):
            index = header.index
            self.last_index, self.last_now_ms = index, header.now_ms
            self._vouched = max(self._vouched, header.synced)
            self._table.add_place(index, log.first, position)
            if index > self._after:
                if header.batch_bytes:
                    self._places[index] = (log.first, position)
                self._table.add_term(index, header.term)
                self.appended_bytes += header.frame_bytes
                yield header, command

    def _demand_whole(self, log: LogFile, following: int) -> None:
        """A file that is not the last is complete and continued by the next."""
        if self.last_index + 1 != following or not log.tail().clean:
            raise CorruptLog(
                f"{log.file.name} is damaged at byte {log.end}, or a file behind it is missing: "
                f"entries {self.last_index + 1} to {following - 1}. {REMEDY}"
            )

    def _settle_end(self, log: LogFile) -> None:
        """Cut the log where its last good frame ends, unless something confirmed would be lost."""
        tail = log.tail()
        confirmed = max(self._after, self._mark.synced, tail.synced)
        if self.last_index < confirmed:
            raise self._unreadable(log, self.last_index, confirmed)
        self._torn = not tail.clean
        if self._torn:
            log.file.truncate(log.end)
        # What we found may be in the system's memory only: the process that wrote it may have ended
        # before its sync, or that has failed. From here on it counts as kept.
        vouched = max(confirmed, self._vouched)
        if self.last_index > vouched:
            self._write_again(log, vouched)
        log.file.sync()
        self._files.sync_directory()

    @staticmethod
    def _unreadable(log: LogFile, last: int, confirmed: int) -> CorruptLog:
        return CorruptLog(
            f"{log.file.name} is damaged at byte {log.end}: entry {last + 1} cannot be read, and "
            f"entries up to {confirmed} were confirmed. {REMEDY}"
        )

    def _write_again(self, log: LogFile, vouched: int) -> None:
        """Write what comes after entry `vouched` once more, as it is.

        After a sync that failed the system may take for written what is not, and only a new write
        changes its mind. A disk without room for it, where that takes room, is no reason to stay shut.
        """
        known = LogFile.open(self._files, log.first)
        for _ in known.walk(vouched):
            pass
        with suppress(DiskFull):
            for at in range(known.end, log.end, limits.WAL_CHECK_BYTES):
                count = min(limits.WAL_CHECK_BYTES, log.end - at)
                log.file.write(at, [log.file.read(at, count)])

    # -- writing -----------------------------------------------------------------------------------

    @property
    def _tip(self) -> LogFile:
        assert self._current is not None, "the log was not replayed"
        return self._current

    def _begin_file(self) -> None:
        """Begin a new file, or go on with the old one without room for it, if the format allows that."""
        if not self._roll(allocate=self._allocate_bytes) and self._tip.version < self._version:
            raise DiskFull(f"There is no room for a log file of format {self._version}. Retry.")

    def _roll(self, *, allocate: int) -> bool:
        """Begin a new file, if there is room for one: whether there is."""
        self.sync()
        try:
            log = LogFile.create(
                self._files, self.last_index + 1, allocate=allocate, version=self.version
            )
        except DiskFull:
            return False
        old, self._current = self._tip, log
        if old.first < log.first:  # else the new one has replaced it: it was empty
            self._sizes[old.first] = old.end
            old.file.truncate(old.end)
        return True

    def _reserve(self, end: int, *, urgent: bool) -> None:
        """Have room on disk up to `end` of the last file, and the reserve behind it."""
        file = self._tip.file
        room, wanted = file.size(), end + self._reserve_bytes
        if wanted <= room:
            return
        if self._lent:  # what is free is for the snapshot: take no more than must be
            if not urgent:
                raise DiskFull(f"{file.name}: the disk is full, and room is being made. Retry.")
            file.allocate(end)
            return
        sizes = [wanted + -wanted % self._allocate_bytes, wanted]  # a step ahead, or what there is
        if urgent and end > room:
            sizes.append(end)
        for size in sizes:
            try:
                file.allocate(size)
            except DiskFull:
                if size == sizes[-1] and (not urgent or end > room):
                    raise
            else:
                return

    def _write(self, buffers: list[memoryview]) -> None:
        log = self._tip
        try:
            log.file.write(log.end, buffers)
        except DiskFull:
            # Some file systems run full in spite of a reservation. What was refused must not be
            # found by a recovery, so it is taken back durably.
            self._drain()
            log.file.truncate(log.end)
            log.file.sync()
            raise

    # -- with peers --------------------------------------------------------------------------------

    def _start(self) -> PendingSync:
        began, self._sync_began = self._sync_began or perf_counter(), None
        return PendingSync(self.last_index, began, self._tip.file.start_sync())

    def _finish(self, pending: PendingSync) -> None:
        pending.wait()
        self._pending = None
        if pending.failure is not None:
            raise pending.failure
        self.sync_times.add(perf_counter() - pending.began)
        self._count_synced(pending.index)

    def _drain(self) -> None:
        """Wait for the sync that is under way."""
        if self._pending is not None:
            self._finish(self._pending)

    def _count_synced(self, index: int) -> None:
        self.synced_index = max(self.synced_index, index)
        if self._alone:
            self.commit_index = self.synced_index
        self._write_mark()

    def _write_mark(self) -> None:
        synced = self.synced_index
        self._mark.write(synced, min(self.commit_index, synced), self.term_of(synced))

    def _rewound(self, after: int) -> tuple[LogFile, int]:
        """The file in which the log will end behind `after`, and the time of that entry."""
        last = max(first for first in [*self._sizes, self._tip.first] if first <= after + 1)
        log, now_ms = LogFile.open(self._files, last), 0
        point = self._table.point_before(after)
        if point is not None:
            holds = log if point.file == last else LogFile.open(self._files, point.file)
            now_ms = holds.rewind(point.position, point.index, after).now_ms
        return log, now_ms

    def _read_from(self, index: int) -> Iterator[tuple[int, Callable[[], LogRecord]]]:
        """All records from an entry on: what each takes, and what reads it."""
        firsts = [*self._sizes, self._tip.first]
        while index <= self.last_index:
            if (record := self._table.recent(index)) is not None:
                yield record.nbytes, partial(_itself, record)
                index += 1
                continue
            point = self._table.point_before(index)
            assert point is not None, f"the place of entry {index} is not known"
            last = min((first - 1 for first in firsts if first > index), default=self.last_index)
            for header, read in self._log(point.file).headers(point.position, point.index):
                if header.index >= index:
                    yield header.nbytes, read
                if header.index >= last:
                    break
            index = last + 1

    def _floor(self, wanted: int | None) -> int:
        """The first entry that stays in the log for peers."""
        floor, room = self._tip.first, limits.WAL_BEHIND_BYTES_MAX
        if wanted is None:
            return floor
        for first, nbytes in reversed(self._sizes.items()):
            room -= nbytes
            if floor <= max(wanted, self.first_index) or room < 0:
                break
            floor = first
        return floor

    def _log(self, first: int) -> LogFile:
        """The file that begins with this entry, to be read."""
        return self._tip if self._tip.first == first else self._opened(first)

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise StorageFailed(f"The log has stopped: {self._failure}") from self._failure


def _itself(record: LogRecord) -> LogRecord:
    return record

"""Small logs, and what must be true of them."""

from collections.abc import Iterable, Sequence

from quiver.storage import codec, snapshot
from quiver.storage.files import Files
from quiver.storage.frame import EntryOrigin, LogRecord
from quiver.storage.wal import FoundEntries, Wal

FILE_BYTES = 400
ALLOCATE_BYTES = 512
RESERVE_BYTES = 128


def open_v2(
    files: Files, *, after: int = 0, term: int = 1, recent_bytes: int = 0
) -> tuple[Wal, FoundEntries]:
    """A log of a node with peers, and what was found in it."""
    wal = Wal.open(
        files,
        after=after,
        term=term,
        version=2,
        file_bytes=FILE_BYTES,
        allocate_bytes=ALLOCATE_BYTES,
        reserve_bytes=RESERVE_BYTES,
        recent_bytes=recent_bytes,
    )
    return wal, wal.scan()


def peer_record(index: int, term: int, *, take: int = 0) -> LogRecord:
    """Entry `index` of a term, as a node with peers writes it; every fourth has no batch."""
    command = b"command %d of term %d, take %d" % (index, term, take)
    batch = b"" if index % 4 == 0 else b"batch %d.%d/%d " % (index, term, take) * (index % 3 + 1)
    origin = EntryOrigin(index % 3 + 1, term, index)
    return LogRecord(index, term, 1_000 + index, index % 7, command, batch, origin, index % 2)


def records_of(wal: Wal, first: int) -> list[LogRecord]:
    """All records from an entry on, read in small steps."""
    found: list[LogRecord] = []
    while first <= wal.last_index:
        part = wal.entries(first, 300)
        found += part
        first = part[-1].index + 1
    return found


def record(index: int, *, take: int = 0) -> LogRecord:
    """Entry `index`, always the same; every third has no batch, and another `take` is another entry."""
    command = b"command %d of take %d" % (index, take)
    batch = b"" if index % 3 == 0 else b"batch %d/%d " % (index, take) * (index % 4 + 1)
    return LogRecord(index, 1, 1_000 + index, index % 7, command, batch)


def open_log(
    files: Files, *, after: int = 0, places: Iterable[tuple[int, int, int]] = (), version: int = 1
) -> tuple[Wal, list[LogRecord]]:
    """A log with small files, and the entries it came back with."""
    wal = Wal.open(
        files,
        after=after,
        places=places,
        version=version,
        file_bytes=FILE_BYTES,
        allocate_bytes=ALLOCATE_BYTES,
        reserve_bytes=RESERVE_BYTES,
    )
    return wal, list(wal.replay())


def fill(wal: Wal, count: int, *, sync: bool = True) -> list[LogRecord]:
    """Append `count` entries, each by itself."""
    records = [record(wal.last_index + 1 + number) for number in range(count)]
    for each in records:
        wal.append([each], urgent=False)
        if sync:
            wal.sync()
    return records


def assert_holds(wal: Wal, found: Sequence[LogRecord], expected: Sequence[LogRecord]) -> None:
    """What a replay found is `expected`, batches included."""
    without_batch = [LogRecord(r.index, r.term, r.now_ms, r.kind, r.command) for r in expected]
    assert list(found) == without_batch
    for each in expected:
        if each.batch != b"":
            assert wal.read(each.index) == each.batch


def save_state(files: Files, wal: Wal, live: Sequence[int]) -> None:
    """A snapshot of everything synced, that needs the batches of `live`; the log drops the rest."""
    index = wal.synced_index
    state = codec.encode_state([list(live), wal.places(live)])
    snapshot.save(files, index, codec.encode_state([state, []]))
    wal.keep(live, before=index)


def open_directory(files: Files) -> tuple[Wal, list[LogRecord], int, list[int]]:
    """Open a directory as a node does: the log, its entries, the snapshot's index, its live entries."""
    snapshot.clean(files)
    saved = snapshot.load(files)
    after, live, places = 0, [], []
    if saved is not None:
        after = saved.index
        state, _ = codec.decode_state(saved.payload)
        live, places = codec.decode_state(state)
    wal, found = open_log(files, after=after, places=[tuple(place) for place in places])
    return wal, found, after, live

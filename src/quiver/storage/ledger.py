"""The ledger on disk: what happened to messages, as Parquet files that any tool can read.

    file `ledger-<first>-<last>.parquet` = the rows of the entries first … last, in their order

A file is made by a snapshot, of all rows since the one before, and is durable before the snapshot
is. The rows of later entries are in memory, and the log brings them again: so after a crash a file
that reaches beyond the snapshot is removed, and no row is lost or there twice. Neighbours are
merged now and then; a file whose entries are all in another one is what a crash left of that, and
is removed, too. The queue needs no ledger file to open: if one is damaged, only its rows are lost.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from quiver import limits
from quiver.batches.ledger import SCHEMA, chosen, concat, table
from quiver.errors import CorruptLedger, DiskFull, StorageError
from quiver.storage import parquet
from quiver.storage.parquet import Readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from quiver.model.ledger import LedgerRows
    from quiver.storage.files import File, Files

RETENTION_MS: Final = 30 * 86_400_000
NAME: Final = re.compile(r"ledger-(\d{20})-(\d{20})\.parquet")
TIME: Final = SCHEMA.get_field_index("time")
ENTRY: Final = SCHEMA.get_field_index("entry")


class LedgerSpan(NamedTuple):
    """A file: the entries whose rows it has."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """Its name."""
        return f"ledger-{self.first:020}-{self.last:020}.parquet"

    def inside(self, other: LedgerSpan) -> bool:
        """Whether another file has all its rows."""
        return self != other and other.first <= self.first and self.last <= other.last


Timed = tuple[LedgerSpan, int, int]  # with the times of the first and the last row


def span_of(name: str) -> LedgerSpan | None:
    """The span of the file with this name, if it is one of the ledger."""
    found = NAME.fullmatch(name)
    return LedgerSpan(int(found[1]), int(found[2])) if found else None


def spans(files: Files) -> list[LedgerSpan]:
    """The files that there are, oldest first."""
    found = map(span_of, files.names())
    return [span for span in found if span is not None]


def count(files: Files, span: LedgerSpan) -> int:
    """How many rows a file has; all of it is read."""
    return sum(part.num_rows for part in Reading([files.open(span.name)], []).tables())


class LedgerFiles:
    """The ledger of a directory, used by one thread; a `LedgerPage` may be saved by another."""

    def __init__(self, files: Files, after: int, retention_ms: int) -> None:
        """Find what is there of the entries up to `after`, the last one in the snapshot."""
        self._files = files
        self._retention_ms = retention_ms
        found = [span for span in spans(files) if span.last <= after]
        self._spans = [span for span in found if not any(map(span.inside, found))]
        self._pending: list[LedgerRows] = []  # taken from the core, and not yet surely on disk

    def begin(self, rows: LedgerRows | None, now_ms: int) -> LedgerPage:
        """What the next snapshot must save: these rows, and those that an earlier one could not."""
        if rows is not None:
            self._pending.append(rows)
        oldest_ms = now_ms - self._retention_ms
        return LedgerPage(self._files, tuple(self._pending), tuple(self._spans), oldest_ms)

    def finish(self, page: LedgerPage) -> None:
        """The page and its snapshot are durable."""
        del self._pending[: len(page.rows)]
        self._spans = [*page.kept, *([page.span] if page.span else [])]
        self.clean()

    @property
    def names(self) -> list[str]:
        """Its files."""
        return [span.name for span in self._spans]

    def reading(self, rows: LedgerRows | None) -> Reading:
        """Everything as it is now; `rows` are those that the core still has."""
        pending = [*self._pending, *([rows] if rows is not None else [])]
        return Reading([self._files.open(span.name) for span in self._spans], pending)

    def clean(self) -> None:
        """Remove the files that are not needed. Only the owner of the directory may do this."""
        others = [span for span in spans(self._files) if span not in self._spans]
        for span in others:
            self._files.remove(span.name)
        if others:
            self._files.sync_directory()


@dataclass(slots=True)
class LedgerPage:
    """Rows to be saved, and files to be tidied up, by any thread."""

    files: Files
    rows: tuple[LedgerRows, ...]
    spans: tuple[LedgerSpan, ...]
    oldest_ms: int  # a file that has nothing later may go
    kept: list[LedgerSpan] = field(init=False)

    def __post_init__(self) -> None:
        self.kept = list(self.spans)

    @property
    def span(self) -> LedgerSpan | None:
        """The file that is made."""
        return LedgerSpan(self.rows[0].first, self.rows[-1].last) if self.rows else None

    def save(self, rest: Callable[[], None]) -> None:
        """Write the rows; when this returns they are durable. `rest` is called now and then."""
        if self.span is not None:
            _write(self.files, self.span.name, _tables(self.rows), rest)

    def tidy(self, rest: Callable[[], None]) -> None:
        """Let go of what is too old, and make few files of many; that can also wait.

        A file that cannot be read, and all before it, are left for a person to look at.
        """
        found: list[Timed] = []
        for span in self.kept:
            try:
                found.append((span, *_times(self.files, span)))
            except StorageError:
                found = []
        # Not always the first ones: before the queue's time was set back there may be later times.
        left = [one for one in found if one[2] >= self.oldest_ms]
        old = {span for span, *_ in found} - {span for span, *_ in left}
        self.kept = [span for span in self.kept if span not in old]
        if len(left) >= limits.LEDGER_FILES_MAX:
            with suppress(DiskFull, StorageError):
                self._merge(left, rest)

    def _merge(self, found: list[Timed], rest: Callable[[], None]) -> None:
        for group in _grouped(found, limits.LEDGER_FILES_MAX // 2):
            if len(group) > 1:
                made = LedgerSpan(group[0].first, group[-1].last)
                parts = (self.files.open(span.name) for span in group)
                tables = (table for file in parts for table in Reading([file], []).tables())
                _write(self.files, made.name, tables, rest)
                at = self.kept.index(group[0])
                self.kept[at : at + len(group)] = [made]


def _grouped(found: list[Timed], most: int) -> list[list[LedgerSpan]]:
    """Files in at most so many groups of neighbours: time and again the two that span least time.

    So no group spans more than a small part of the whole, and old rows go soon after their time.
    """
    groups = [([span], start_ms, end_ms) for span, start_ms, end_ms in found]
    while len(groups) > most:
        at = min(range(len(groups) - 1), key=lambda at: groups[at + 1][2] - groups[at][1])
        (left, start_ms, _), (right, _, end_ms) = groups[at : at + 2]
        groups[at : at + 2] = [(left + right, start_ms, end_ms)]
    return [spans for spans, _, _ in groups]


class Reading:
    """The ledger as it was at one moment, for any thread; it ends by being read or closed."""

    def __init__(self, files: list[File], rows: list[LedgerRows]) -> None:
        self._files = files
        self._rows = rows

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files:
            file.close()

    def tables(
        self,
        topic: str | None = None,
        start_ms: int | None = None,
        end_ms: int | None = None,
        first: int = 0,
    ) -> Iterator[pa.Table]:
        """The rows of entries from `first` on, a part at a time, oldest first; see `chosen`."""
        try:
            for file in self._files:
                for part in _parts(file, start_ms, end_ms, first):
                    yield chosen(part, topic, start_ms, end_ms)
            for part in _tables(self._rows):
                yield chosen(part, topic, start_ms, end_ms)
        finally:
            self.close()


def _tables(rows: Iterable[LedgerRows]) -> Iterator[pa.Table]:
    """Rows as tables that are not too long."""
    for some in rows:
        yield from map(table, some.parts(limits.LEDGER_GROUP_ROWS))


def _parts(file: File, start_ms: int | None, end_ms: int | None, first: int) -> Iterator[pa.Table]:
    """The row groups of a file that may have rows of a span of time and from an entry on."""
    span = span_of(file.name)
    if span is not None and span.last < first:
        return
    with damage(file.name):
        parts = pq.ParquetFile(  # without threads of Arrow's, as in `segment`
            Readable(file), page_checksum_verification=True, pre_buffer=False
        )
        for at in range(parts.metadata.num_row_groups):
            group = parts.metadata.row_group(at)
            low_ms, high_ms = _milliseconds(group, "min"), _milliseconds(group, "max")
            if (
                (start_ms is None or high_ms >= start_ms)
                and (end_ms is None or low_ms < end_ms)
                and group.column(ENTRY).statistics.max >= first
            ):
                yield parts.read_row_group(at, use_threads=False).cast(SCHEMA)


def _times(files: Files, span: LedgerSpan) -> tuple[int, int]:
    """When the first and the last row of a file happened."""
    file = files.open(span.name)
    try:
        with damage(span.name):
            metadata = pq.read_metadata(Readable(file))
            last = metadata.num_row_groups - 1
            return (
                _milliseconds(metadata.row_group(0), "min"),
                _milliseconds(metadata.row_group(last), "max"),
            )
    finally:
        file.close()


def _milliseconds(group: Any, which: str) -> int:
    statistics = group.column(TIME).statistics
    return int(pa.scalar(getattr(statistics, which), SCHEMA.field(TIME).type).value)


def _write(files: Files, name: str, tables: Iterable[pa.Table], rest: Callable[[], None]) -> None:
    """Make a file of these rows, durable under its name."""
    parquet.write(
        files, name, _groups(tables), SCHEMA, rest,
        rows=limits.LEDGER_GROUP_ROWS, compression="zstd", write_page_checksum=True,
    )  # fmt: skip
    files.sync_directory()


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Tables put together until they are long enough for a row group."""
    gathered: list[pa.Table] = []
    for part in tables:
        gathered.append(part)
        if sum(map(len, gathered)) >= limits.LEDGER_GROUP_ROWS:
            yield concat(gathered)
            gathered = []
    if gathered:
        yield concat(gathered)


class damage:  # noqa: N801  # reads as what it is about
    """What Arrow says of a broken file, in our words."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, pa.ArrowException | OSError | ValueError | AttributeError):
            raise CorruptLedger(
                f"{self._name} is damaged: {error}. Put it back from a backup, or move it away and "
                "open the queue again: messages are not affected, but what it told is lost."
            ) from error

"""Where messages are, and how they are read: from memory, from the log, or from segments."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

import pyarrow as pa

from quiver import limits, notices
from quiver.batches import codec
from quiver.batches.output import Piece
from quiver.errors import (
    CorruptLog,
    CorruptSegment,
    ReadFailed,
    StorageError,
    UnreadableMessages,
)
from quiver.model.replies import Slice
from quiver.node.cache import BatchCache
from quiver.node.segments import Segment, Segments
from quiver.storage import segment
from quiver.storage.files import Files
from quiver.storage.segment import SegmentFile
from quiver.storage.wal import Wal, WalPlace

Where: TypeAlias = pa.RecordBatch | WalPlace | SegmentFile | list[SegmentFile] | StorageError


class Source:
    """Where the messages of some slices are: in memory, in the log, or in segments.

    Any thread may read it, also after the log or the table of segments has let go of the files.
    """

    def __init__(self, cache: BatchCache, parts: Sequence[tuple[Slice, Where]]) -> None:
        self._cache = cache
        self._parts = parts

    @property
    def at_hand(self) -> bool:
        """Whether all of them are in memory, so that reading them waits for no disk."""
        return all(isinstance(where, pa.RecordBatch) for _, where in self._parts)

    def pieces(self) -> Iterator[Piece]:
        """The messages, in order, and all of them, or what is wrong with them."""
        for part, where in self._parts:
            yield from self._read(part, where)

    def readable(self, *, some: bool) -> Iterator[Piece]:
        """The messages that can be read, and a warning if others cannot.

        Who must have `some` gets the error if there are none. A disk that could not be read is
        no reason to go past messages: who need not have some gets that error at once.
        """
        damage: CorruptSegment | CorruptLog | ReadFailed | None = None
        found = missing = 0
        try:
            for part, where in self._parts:
                before = found
                try:
                    for piece in self._read(part, where):
                        found += piece.part.count
                        yield piece
                except (CorruptSegment, CorruptLog, ReadFailed) as error:
                    if isinstance(error, ReadFailed) and not some:
                        raise
                    damage = error
                    missing += part.count - (found - before)
            if damage is not None and some and not found:
                raise damage
        finally:  # also for who has had enough before the end
            if missing and (found or not some):
                notices.warn(UnreadableMessages(
                    f"{missing:,} messages were left out, because they cannot be read: {damage}"
                ))  # fmt: skip

    def _read(self, part: Slice, where: Where) -> Iterator[Piece]:
        match where:
            case WalPlace():
                batch = self._cached(part.index, lambda: codec.decode(where.read()))
                yield Piece(batch, part.row, part)
            case SegmentFile():
                yield from self._sealed(part, where)
            case list():
                yield from self._astray(part, where)
            case StorageError():
                raise where
            case _:
                yield Piece(where, part.row, part)

    def _sealed(self, part: Slice, file: SegmentFile) -> Iterator[Piece]:
        done = 0
        while done < part.count:
            group = file.group_of(part.offset + done)
            at, count = file.position(group, part.offset + done, part.count - done)
            yield Piece(self._group(file, group), at, part.cut(done, count))
            done += count

    def _astray(self, part: Slice, files: list[SegmentFile]) -> Iterator[Piece]:
        """Messages that are in segments of another partition, found by entry and row."""
        end = part.row + part.count
        found = [(run, file) for file in files for run in file.find(part.index, part.row, end)]
        done = 0
        for run, file in sorted(found, key=lambda one: one[0].row):
            row = part.row + done
            known = row - run.row  # a message may be in several files
            if known < 0:
                break
            if known < run.length:
                count = run.length - known
                piece = part.cut(done, count)
                yield Piece(self._group(file, run.group), run.at + known, piece)
                done += count
        if done < part.count:
            raise CorruptSegment(f"message {part.index}-{part.row + done} is in no segment")

    def _group(self, file: SegmentFile, group: int) -> pa.RecordBatch:
        return self._cached((file.name, group), lambda: file.batch(group))

    def _cached(self, key: Hashable, read: Callable[[], pa.RecordBatch]) -> pa.RecordBatch:
        batch = self._cache.get(key)
        if batch is None:
            batch = read()
            self._cache.put(key, batch)
        return batch


class Locator:
    """Finds the batches of messages. Used by one thread; a `Source` that it made, by any."""

    def __init__(self, files: Files, wal: Wal) -> None:
        self.segments = Segments({})
        self.cache = BatchCache()
        self._files = files
        self._wal = wal
        self._opened = lru_cache(limits.SEGMENT_FILES_OPEN_MAX)(self._open_segment)

    def source(
        self, topic: int, slices: Iterable[Slice], cache: BatchCache | None = None
    ) -> Source:
        """Hold on to where the messages of these slices are, so that they can be read later.

        Who reads very much does so with a `cache` of his own.
        """
        found: list[tuple[Slice, Where]] = []
        for part in slices:
            batch = self.cache.get(part.index) if cache is None else None
            if batch is not None:
                found.append((part, batch))
            elif self._wal.file_of(part.index) is not None:
                found.append((part, self._logged(part.index)))
            else:
                found += self._sealed(topic, part)
        return Source(cache or self.cache, found)

    def _logged(self, index: int) -> Where:
        try:
            return self._wal.locate(index)
        except StorageError as error:  # its file is damaged, or there are too many open ones
            return error

    def _sealed(self, topic: int, part: Slice) -> Iterator[tuple[Slice, Where]]:
        shelf = self.segments.shelf(topic, part.partition)
        for start, end, holder in shelf.split(part.offset, part.offset + part.count):
            piece = part.cut(start - part.offset, end - start)
            try:
                if holder is not None:
                    yield piece, self._opened(holder)
                else:
                    others = self.segments.with_entry(piece.index)
                    yield piece, [self._opened(one) for one in others]
            except StorageError as error:
                # Anything but a missing file, such as too many open ones, may be over soon.
                text = f"Offsets {start} to {end - 1} cannot be read: {error}"
                gone = holder is not None and self._is_gone(holder.name)
                yield piece, CorruptSegment(text) if gone else error

    def _is_gone(self, name: str) -> bool:
        try:
            return name not in self._files.names()
        except StorageError:
            return False

    def _open_segment(self, one: Segment) -> SegmentFile:
        assert one.blocks is not None
        return SegmentFile(self._files.open(one.name), one.blocks)

    def clean(self) -> None:
        """Remove segments that a crash left over.

        What was sealed after the end of the log is of another history, of which somebody has put
        back a part; that is not ours to remove.
        """
        needed = {one.name for one in self.segments}
        over = [name for name in segment.names(self._files) if name not in needed]
        over = [name for name in over if segment.index_of(name) <= self._wal.last_index]
        for name in over:
            self._files.remove(name)
        if over:
            self._opened.cache_clear()  # an open file keeps its disk space
            self._files.sync_directory()

    def close(self) -> None:
        """Let go of the segments."""
        self._opened.cache_clear()

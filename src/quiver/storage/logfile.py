"""One file of the log: a header, then frames without gaps, then zeros reserved for frames to come.

    file   = header (32 bytes) · frame · frame · … · zeros
    header = magic      8 bytes  "QuiverWL"
             version    u32      of everything in the file: 1, or 2 with the frames of a cluster
             salt       u32      a random number that the headers of its frames are checked with
             first      u64      index of the first frame, as in the name
             zero       4 bytes
             crc        u32      CRC-32C of the 28 bytes before

Numbers are little endian. Magic, version and crc stay where they are in all versions to come, so
that an old Quiver can say that it is old.

A file gets its name only when its header is on disk (`files.publish`), so a bad header is damage
and never an unlucky moment. This module finds out what is there; what it means is for `wal` to
judge.
"""

from __future__ import annotations

import re
import secrets
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from quiver import limits
from quiver.errors import CorruptLog, UnsupportedFormat
from quiver.storage import frame
from quiver.storage.files import publish
from quiver.storage.frame import ALIGNMENT, Header, header_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from quiver.storage.files import File, Files
    from quiver.storage.frame import LogRecord

VERSION: Final = 2  # the newest one
REMEDY: Final = (
    "Nothing was changed. `quiver doctor <directory>` shows what is affected; "
    "restore the directory from a backup or a replica."
)

_NAME: Final = re.compile(r"wal-(\d{20})\.log")
_MAGIC: Final = b"QuiverWL"
_HEADER: Final = Struct("<8sIIQ4x")
_CRC: Final = Struct("<I")
_START: Final = _HEADER.size + _CRC.size  # where the first frame is


def name_of(first: int) -> str:
    """The name of the file whose first entry is `first`."""
    return f"wal-{first:020}.log"


def first_of(name: str) -> int | None:
    """The first index in the file of this name, if it is one of the log."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def first_indexes(files: Files) -> list[int]:
    """The first index of each file of the log, in order."""
    return [int(match[1]) for name in files.names() if (match := _NAME.fullmatch(name))]


class Tail(NamedTuple):
    """What lies behind the good frames of a file."""

    clean: bool  # nothing but zeros
    synced: int  # the highest index that a frame in there knows to have been synced


class LogFile:
    """An open file of the log. `end` is where its next frame goes, once `walk` has been through.

    `next` is the index of that frame.
    """

    def __init__(self, file: File, first: int, salt: int, version: int) -> None:
        self.file = file
        self.first = first
        self.salt = salt
        self.version = version
        self.end = _START
        self.next = first
        self._header_bytes = header_bytes(version)

    @classmethod
    def create(cls, files: Files, first: int, *, allocate: int, version: int = 1) -> LogFile:
        """Make the file that starts with entry `first`, durable and with room reserved."""
        header = _HEADER.pack(_MAGIC, version, secrets.randbits(32), first)
        header += _CRC.pack(crc32c(header))
        publish(files, name_of(first), [header], allocate=allocate)
        return cls.open(files, first)

    @classmethod
    def open(cls, files: Files, first: int) -> LogFile:
        """Open the file that starts with entry `first` and check its header."""
        return cls.of(files.open(name_of(first)), first)

    @classmethod
    def of(cls, file: File, first: int) -> LogFile:
        """What starts with entry `first` in an open file, which may be a copy of another name."""
        name, data = name_of(first), file.read(0, _START)
        if len(data) < _START or data[_HEADER.size :] != _CRC.pack(crc32c(data[: _HEADER.size])):
            raise CorruptLog(f"The header of {name} is damaged. {REMEDY}", first)
        magic, version, salt, first_in_header = _HEADER.unpack_from(data)
        if magic == _MAGIC and version > VERSION:
            raise UnsupportedFormat(
                f"{name} has format {version} and this Quiver knows formats up to {VERSION}. "
                "Open the directory with the newer Quiver that wrote it."
            )
        if magic != _MAGIC or version < 1 or first_in_header != first:
            raise CorruptLog(f"{name} is not the log file that its name says. {REMEDY}", first)
        return cls(file, first, salt, version)

    def walk(self, confirmed: int | None = None) -> Iterator[tuple[int, Header, bytes]]:
        """Position, header and command of every frame up to where no good one starts.

        If only what is `confirmed` is wanted, batches are not looked at: they are known to be there.
        Either way a second walk goes on where the first one has ended.
        """
        ahead = _Ahead(self.file)
        while confirmed is None or self.next <= confirmed:
            position, commands_at = self.end, self.end + self._header_bytes
            header = self._decode(ahead.read(position, self._header_bytes))
            if header is None or header.index != self.next:
                return
            command = ahead.read(commands_at, header.command_bytes)
            if len(command) < header.command_bytes or crc32c(command) != header.command_crc:
                return
            batch_at = commands_at + len(command)
            if confirmed is None and ahead.crc(batch_at, header.batch_bytes) != header.batch_crc:
                return
            self.end += header.frame_bytes
            self.next += 1
            yield position, header, command

    def headers(
        self, position: int, index: int
    ) -> Iterator[tuple[Header, Callable[[], LogRecord]]]:
        """The headers from entry `index` on, whose frame is at `position`, and what reads the record."""
        ahead = _Ahead(self.file)
        while True:
            header = self._decode(ahead.read(position, self._header_bytes))
            if header is None or header.index != index:
                raise self._damaged(position, index)
            yield header, partial(self._record, ahead, position, header)
            position += header.frame_bytes
            index += 1

    def _record(self, ahead: _Ahead, position: int, header: Header) -> LogRecord:
        at = position + self._header_bytes
        command = ahead.read(at, header.command_bytes)
        batch = ahead.read(at + header.command_bytes, header.batch_bytes)
        if (crc32c(command), crc32c(batch)) != (header.command_crc, header.batch_crc):
            raise self._damaged(position, header.index)
        return header.record(command, batch)

    def rewind(self, position: int, index: int, after: int) -> Header:
        """End behind entry `after`, found from entry `index` on, whose frame is at `position`.

        The header of entry `after`. Nothing is changed on disk.
        """
        self.end, self.next = position, index
        headers = [header for _, header, _ in self.walk(after)]
        if self.next <= after:
            raise self._damaged(self.end, self.next)
        return headers[-1]

    @property
    def goes_on(self) -> bool:
        """Whether a frame begins at the end."""
        return self._decode(self.file.read(self.end, self._header_bytes)) is not None

    def _decode(self, data: bytes) -> Header | None:
        return frame.decode_header(data, salt=self.salt, version=self.version)

    def _damaged(self, position: int, index: int) -> CorruptLog:
        return CorruptLog(
            f"{self.file.name} is damaged at byte {position}: entry {index}. {REMEDY}", self.first
        )

    def tail(self) -> Tail:
        """Look through everything behind `end` for what should not be there."""
        clean, synced = True, 0
        for start in range(self.end, self.file.size(), limits.WAL_CHECK_BYTES):
            # Headers that lie across two pieces belong to the first one.
            data = self.file.read(start, limits.WAL_CHECK_BYTES + self._header_bytes - ALIGNMENT)
            clean = clean and data.count(0) == len(data)
            at = data.find(frame.MAGIC)
            while at >= 0:
                header = self._decode(data[at : at + self._header_bytes])
                if header is not None and (start + at) % ALIGNMENT == 0:
                    synced = max(synced, header.synced)
                at = data.find(frame.MAGIC, at + 1)
        return Tail(clean, synced)

    def read_batch(self, index: int, position: int, term: int | None = None) -> bytes:
        """The batch of the entry whose frame is at `position`. Safe from any thread."""
        header = self._decode(self.file.read(position, self._header_bytes))
        if header is not None and header.index == index and term in (None, header.term):
            start = position + self._header_bytes + header.command_bytes
            batch = self.file.read(start, header.batch_bytes)
            if len(batch) == header.batch_bytes and crc32c(batch) == header.batch_crc:
                return batch
        raise self._damaged(position, index)


def demand_whole(first: int, last: int, file: File) -> None:
    """Read all of a log file, or of a copy: it has the entries `first … last`, and nothing is damaged."""
    log = LogFile.of(file, first)
    for _ in log.walk():
        pass
    if log.next <= last or not log.tail().clean:
        raise CorruptLog(
            f"{name_of(first)} is damaged at byte {log.end}: entry {log.next}. {REMEDY}", first
        )


class _Ahead:
    """Reads a file from front to back in large pieces, however small the parts that are asked for."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._start = 0
        self._data = memoryview(b"")

    def read(self, position: int, count: int) -> bytes:
        """These bytes, or fewer if the file ends before."""
        return bytes(self._part(position, count))

    def crc(self, position: int, count: int) -> int | None:
        """The checksum of these bytes; None if the file ends before."""
        crc, end = 0, position + count
        while position < end:
            data = self._part(position, min(end - position, limits.WAL_CHECK_BYTES))
            if not data:
                return None
            crc = crc32c(data, crc)
            position += len(data)
        return crc

    def _part(self, position: int, count: int) -> memoryview:
        at = position - self._start
        if at < 0 or at + count > len(self._data):
            self._start, at = position, 0
            self._data = memoryview(self._file.read(position, max(count, limits.WAL_CHECK_BYTES)))
        return self._data[at : at + count]

"""One record of the log as bytes.

    frame  = header (64 bytes; 72 in version 2) · command · batch · zeros up to a multiple of 8
    header = magic          4 bytes  "QVfr"
             kind           u8       which command (`codec`)
             level          u8       what a node must know to apply it; zero in version 1
             zero           2 bytes
             command_bytes  u32      length and CRC-32C of the command
             command_crc    u32
             batch_bytes    u32      length and CRC-32C of the batch
             batch_crc      u32
             index          u64      position in the log, from 1
             term           u64
             now_ms         i64      the leader's time
             synced         u64      highest index known to be on disk when this was written
             origin         u16 u16 u32   who proposed it: node, start, number; not in version 1
             zero           4 bytes
             header_crc     u32      CRC-32C of all bytes before, started with the file's salt

All numbers are little endian. The layout belongs to the version in the file's header (`logfile`):
any change here is a new version there. Version 2 is written by nodes that have joined a cluster.

Frames start at multiples of 8, so a good one can be found again behind a damaged one. The salt is a
random number of the file: a frame that somebody sent as a message, a backup say, can then never be
mistaken for one of ours. Lengths are checked against their limits before anything is allocated.

`synced` is what tells damage from a torn write. Frames are written in order but reach the disk in
any order until they are synced; so a hole before a good frame is harmless, unless that frame
knows that the place of the hole had been synced.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from quiver import limits
from quiver.errors import LimitExceeded

if TYPE_CHECKING:
    from typing_extensions import Buffer

ALIGNMENT: Final = 8
MAGIC: Final = b"QVfr"
_HEADER: Final = Struct("<4sB3xIIIIQQqQ4x")
_HEADER_2: Final = Struct("<4sBB2xIIIIQQqQHHI4x")
_CRC: Final = Struct("<I")
HEADER_BYTES: Final = _HEADER.size + _CRC.size  # in version 1
HEADER_2_BYTES: Final = _HEADER_2.size + _CRC.size


class EntryOrigin(NamedTuple):
    """The proposal that an entry was made of: the `number`th of a node since its `start`th start."""

    node: int
    start: int
    number: int


UNTOLD: Final = EntryOrigin(0, 0, 0)  # what version 1 has no room for; nodes count from 1


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One entry of the log. `batch` is any object with a buffer, empty if the entry has none."""

    index: int
    term: int
    now_ms: int
    kind: int
    command: bytes
    batch: Buffer = b""
    origin: EntryOrigin = UNTOLD
    level: int = 0

    @property
    def nbytes(self) -> int:
        """What it takes in a frame of version 2, whatever it is stored in."""
        content = HEADER_2_BYTES + len(self.command) + memoryview(self.batch).nbytes
        return content + -content % ALIGNMENT


@dataclass(frozen=True, slots=True)
class Header:
    """What a frame says of itself; `frame_bytes` is the length of the whole frame.

    `nbytes` is that of the record, which does not depend on the version.
    """

    header_bytes: int
    index: int
    term: int
    now_ms: int
    kind: int
    synced: int
    command_bytes: int
    command_crc: int
    batch_bytes: int
    batch_crc: int
    origin: EntryOrigin = UNTOLD
    level: int = 0

    @property
    def frame_bytes(self) -> int:
        content = self.header_bytes + self.command_bytes + self.batch_bytes
        return content + -content % ALIGNMENT

    @property
    def nbytes(self) -> int:
        return self.frame_bytes - self.header_bytes + HEADER_2_BYTES

    def record(self, command: bytes, batch: Buffer = b"") -> LogRecord:
        """The record, of what follows this header."""
        return LogRecord(
            self.index, self.term, self.now_ms, self.kind, command, batch, self.origin, self.level
        )


def header_bytes(version: int) -> int:
    """The length of a frame's header in a file of this version."""
    return HEADER_BYTES if version == 1 else HEADER_2_BYTES


def encode(record: LogRecord, *, synced: int, salt: int, version: int = 1) -> list[memoryview]:
    """The frame of `record` in pieces; command and batch are not copied."""
    command, batch = memoryview(record.command), memoryview(record.batch)
    if command.nbytes > limits.WAL_COMMAND_BYTES_MAX or batch.nbytes > limits.WAL_BATCH_BYTES_MAX:
        raise LimitExceeded(
            f"A log entry with {command.nbytes:,} bytes of command and {batch.nbytes:,} of batch: "
            f"{limits.WAL_COMMAND_BYTES_MAX:,} and {limits.WAL_BATCH_BYTES_MAX:,} are allowed. "
            "Send smaller batches."
        )
    if version == 1:
        assert (record.origin, record.level) == (UNTOLD, 0), "version 1 has no room for them"
        header = _HEADER.pack(
            MAGIC,
            record.kind,
            command.nbytes,
            crc32c(command),
            batch.nbytes,
            crc32c(batch),
            record.index,
            record.term,
            record.now_ms,
            synced,
        )
    else:
        header = _HEADER_2.pack(
            MAGIC,
            record.kind,
            record.level,
            command.nbytes,
            crc32c(command),
            batch.nbytes,
            crc32c(batch),
            record.index,
            record.term,
            record.now_ms,
            synced,
            *record.origin,
        )
    padding = bytes(-(command.nbytes + batch.nbytes) % ALIGNMENT)
    return [
        memoryview(header + _CRC.pack(crc32c(header, salt))),
        command,
        batch,
        memoryview(padding),
    ]


def decode_header(data: bytes, *, salt: int, version: int = 1) -> Header | None:
    """The header at the start of `data`, or None if there is no good one."""
    layout = _HEADER if version == 1 else _HEADER_2
    nbytes = layout.size + _CRC.size
    if len(data) < nbytes or not data.startswith(MAGIC):
        return None
    (crc,) = _CRC.unpack_from(data, layout.size)
    if crc != crc32c(data[: layout.size], salt):
        return None
    origin, level = UNTOLD, 0
    if version == 1:
        (
            _,
            kind,
            command_bytes,
            command_crc,
            batch_bytes,
            batch_crc,
            index,
            term,
            now_ms,
            synced,
        ) = layout.unpack_from(data)
    else:
        (
            _, kind, level, command_bytes, command_crc, batch_bytes, batch_crc, index, term, now_ms,
            synced, *proposal,
        ) = layout.unpack_from(data)  # fmt: skip
        origin = EntryOrigin(*proposal)
    if command_bytes > limits.WAL_COMMAND_BYTES_MAX or batch_bytes > limits.WAL_BATCH_BYTES_MAX:
        return None
    return Header(
        nbytes, index, term, now_ms, kind, synced, command_bytes, command_crc, batch_bytes,
        batch_crc, origin, level,
    )  # fmt: skip

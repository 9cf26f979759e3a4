"""One record of the log as bytes.

    frame  = header (64 bytes) · command · batch · zeros up to a multiple of 8
    header = magic          4 bytes  "QVfr"
             kind           u8       which command (`codec`)
             zero           3 bytes
             command_bytes  u32      length and CRC-32C of the command
             command_crc    u32
             batch_bytes    u32      length and CRC-32C of the batch
             batch_crc      u32
             index          u64      position in the log, from 1
             term           u64
             now_ms         i64      the leader's time
             synced         u64      highest index known to be on disk when this was written
             zero           4 bytes
             header_crc     u32      CRC-32C of the 60 bytes before, started with the file's salt

All numbers are little endian. The layout belongs to the version in the file's header (`logfile`):
any change here is a new version there.

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
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from quiver import limits
from quiver.errors import LimitExceeded

if TYPE_CHECKING:
    from typing_extensions import Buffer

ALIGNMENT: Final = 8
MAGIC: Final = b"QVfr"
_HEADER: Final = Struct("<4sB3xIIIIQQqQ4x")
_CRC: Final = Struct("<I")
HEADER_BYTES: Final = _HEADER.size + _CRC.size


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One entry of the log. `batch` is any object with a buffer, empty if the entry has none."""

    index: int
    term: int
    now_ms: int
    kind: int
    command: bytes
    batch: Buffer = b""


@dataclass(frozen=True, slots=True)
class Header:
    """What a frame says of itself; `frame_bytes` is the length of the whole frame."""

    index: int
    term: int
    now_ms: int
    kind: int
    synced: int
    command_bytes: int
    command_crc: int
    batch_bytes: int
    batch_crc: int

    @property
    def frame_bytes(self) -> int:
        content = HEADER_BYTES + self.command_bytes + self.batch_bytes
        return content + -content % ALIGNMENT


def encode(record: LogRecord, *, synced: int, salt: int) -> list[memoryview]:
    """The frame of `record` in pieces; command and batch are not copied."""
    command, batch = memoryview(record.command), memoryview(record.batch)
    if command.nbytes > limits.WAL_COMMAND_BYTES_MAX or batch.nbytes > limits.WAL_BATCH_BYTES_MAX:
        raise LimitExceeded(
            f"A log entry with {command.nbytes:,} bytes of command and {batch.nbytes:,} of batch: "
            f"{limits.WAL_COMMAND_BYTES_MAX:,} and {limits.WAL_BATCH_BYTES_MAX:,} are allowed. "
            "Send smaller batches."
        )
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
    padding = bytes(-(command.nbytes + batch.nbytes) % ALIGNMENT)
    return [
        memoryview(header + _CRC.pack(crc32c(header, salt))),
        command,
        batch,
        memoryview(padding),
    ]


def decode_header(data: bytes, *, salt: int) -> Header | None:
    """The header at the start of `data`, or None if there is no good one."""
    if len(data) < HEADER_BYTES or not data.startswith(MAGIC):
        return None
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if crc != crc32c(data[: _HEADER.size], salt):
        return None
    (_, kind, command_bytes, command_crc, batch_bytes, batch_crc, index, term, now_ms, synced) = (
        _HEADER.unpack_from(data)
    )
    if command_bytes > limits.WAL_COMMAND_BYTES_MAX or batch_bytes > limits.WAL_BATCH_BYTES_MAX:
        return None
    return Header(
        index, term, now_ms, kind, synced, command_bytes, command_crc, batch_bytes, batch_crc
    )

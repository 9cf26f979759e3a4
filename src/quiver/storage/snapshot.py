"""The core's state after an entry, so that the log before it need not be replayed.

    file `snapshot-<index>.snap` = header (40 bytes) · in version 2: term u64 · payload
    header                       = magic    8 bytes  "QuiverSN"
                                   version  u32      of the file and its payload
                                   level    u8       of that entry; zero in version 1
                                   zero     3 bytes
                                   index    u64      of the last entry in it, as in the name
                                   length   u64      of the payload
                                   chain    u32      of the log up to it; zero in version 1
                                   crc      u32      CRC-32C of the 36 bytes before and all behind

Version 2 says how the log goes on: only who knows the term of its last entry can compare the entries
behind it with those of a peer. It is written in directories that have joined a cluster.

Numbers are little endian; magic, version and crc stay where they are in all versions to come. A
snapshot is complete and durable before it gets its name and before anything that it replaces is
removed. It may only be made of entries that are synced in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from quiver.errors import CorruptLog, UnsupportedFormat
from quiver.storage import identity, vote
from quiver.storage.files import TEMPORARY, publish
from quiver.storage.logfile import REMEDY

if TYPE_CHECKING:
    from quiver.storage.files import Files

VERSION: Final = 2  # the newest one

_MAGIC: Final = b"QuiverSN"
_HEADER: Final = Struct("<8sIB3xQQI")
_CRC: Final = Struct("<I")
_TERM: Final = Struct("<Q")
_START: Final = _HEADER.size + _CRC.size


@dataclass(frozen=True, slots=True)
class LastEntry:
    """What a state says of the last entry in it. The defaults are of an entry of version 1."""

    term: int = 1
    chain: int = 0
    level: int = 0


@dataclass(frozen=True, slots=True)
class SavedState:
    """A snapshot: the state after entry `index`, as bytes."""

    index: int
    payload: bytes
    last: LastEntry = LastEntry()


def name_of(index: int) -> str:
    """The name of the snapshot made after entry `index`."""
    return f"snapshot-{index:020}.snap"


def save(files: Files, index: int, payload: bytes, last: LastEntry | None = None) -> None:
    """Keep `payload` as the state after entry `index`; older snapshots go.

    It is of version 2 if it is told of the `last` entry.
    """
    version, of, term = (1, LastEntry(), b"") if last is None else (2, last, _TERM.pack(last.term))
    header = _HEADER.pack(_MAGIC, version, of.level, index, len(payload), of.chain)
    crc = _CRC.pack(crc32c(payload, crc32c(term, crc32c(header))))
    publish(files, name_of(index), [header, crc, term, payload])
    older = [name for name in names(files) if name < name_of(index)]
    for name in older:
        files.remove(name)
    if older:
        files.sync_directory()


def load(files: Files) -> SavedState | None:
    """The newest snapshot."""
    found = names(files)
    if not found:
        return None
    newest = found[-1]
    file = files.open(newest)
    data = file.read(0, file.size())
    file.close()
    header, crc, behind = data[: _HEADER.size], data[_HEADER.size : _START], data[_START:]
    if len(data) < _START or crc != _CRC.pack(crc32c(behind, crc32c(header))):
        raise CorruptLog(f"{newest} is damaged. {REMEDY}")
    magic, version, level, index, length, chain = _HEADER.unpack(header)
    if magic == _MAGIC and version > VERSION:
        raise UnsupportedFormat(
            f"{newest} has format {version} and this Quiver knows formats up to {VERSION}. "
            "Open the directory with the newer Quiver that wrote it."
        )
    start = _TERM.size if version > 1 else 0
    if (magic, name_of(index), start + length) != (_MAGIC, newest, len(behind)) or version < 1:
        raise CorruptLog(f"{newest} is not the snapshot that its name says. {REMEDY}")
    term = _TERM.unpack_from(behind)[0] if start else LastEntry().term
    return SavedState(index, behind[start:], LastEntry(term, chain, level))


def clean(files: Files) -> None:
    """Remove what a crash left half made. Only the owner of the directory may do this."""
    for name in files.names():
        ours = name.startswith(("snapshot-", "wal-", "ledger-")) or "@" in name
        ours = ours or name.removesuffix(TEMPORARY) in (vote.NAME, identity.NAME)
        if ours and name.endswith(TEMPORARY):
            files.remove(name)


def names(files: Files) -> list[str]:
    """The names of all snapshots, oldest first."""
    return list(filter(is_name, files.names()))


def is_name(name: str) -> bool:
    """Whether a file is a snapshot."""
    return name.startswith("snapshot-") and name.endswith(".snap")

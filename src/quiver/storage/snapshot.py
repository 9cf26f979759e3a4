"""The core's state after an entry, so that the log before it need not be replayed.

    file `snapshot-<index>.snap` = header (40 bytes) · payload
    header                       = magic    8 bytes  "QuiverSN"
                                   version  u32      of the file and its payload
                                   zero     4 bytes
                                   index    u64      of the last entry in it, as in the name
                                   length   u64      of the payload
                                   zero     4 bytes
                                   crc      u32      CRC-32C of the 36 bytes before and the payload

Numbers are little endian; magic, version and crc stay where they are in all versions to come. A
snapshot is complete and durable before it gets its name and before anything that it replaces is
removed. It may only be made of entries that are synced in the log.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from quiver.errors import CorruptLog, UnsupportedFormat
from quiver.storage.files import TEMPORARY, publish
from quiver.storage.logfile import REMEDY

if TYPE_CHECKING:
    from quiver.storage.files import Files

VERSION: Final = 1

_MAGIC: Final = b"QuiverSN"
_HEADER: Final = Struct("<8sI4xQQ4x")
_CRC: Final = Struct("<I")
_START: Final = _HEADER.size + _CRC.size


def name_of(index: int) -> str:
    """The name of the snapshot made after entry `index`."""
    return f"snapshot-{index:020}.snap"


def save(files: Files, index: int, payload: bytes) -> None:
    """Keep `payload` as the state after entry `index`; older snapshots go."""
    header = _HEADER.pack(_MAGIC, VERSION, index, len(payload))
    crc = _CRC.pack(crc32c(payload, crc32c(header)))
    publish(files, name_of(index), [header, crc, payload])
    older = [name for name in names(files) if name < name_of(index)]
    for name in older:
        files.remove(name)
    if older:
        files.sync_directory()


def load(files: Files) -> tuple[int, bytes] | None:
    """Index and payload of the newest snapshot."""
    found = names(files)
    if not found:
        return None
    newest = found[-1]
    file = files.open(newest)
    data = file.read(0, file.size())
    file.close()
    header, crc, payload = data[: _HEADER.size], data[_HEADER.size : _START], data[_START:]
    if len(data) < _START or crc != _CRC.pack(crc32c(payload, crc32c(header))):
        raise CorruptLog(f"{newest} is damaged. {REMEDY}")
    magic, version, index, length = _HEADER.unpack(header)
    if magic == _MAGIC and version > VERSION:
        raise UnsupportedFormat(
            f"{newest} has format {version} and this Quiver knows formats up to {VERSION}. "
            "Open the directory with the newer Quiver that wrote it."
        )
    if (magic, version, name_of(index), length) != (_MAGIC, VERSION, newest, len(payload)):
        raise CorruptLog(f"{newest} is not the snapshot that its name says. {REMEDY}")
    return index, payload


def clean(files: Files) -> None:
    """Remove what a crash left half made. Only the owner of the directory may do this."""
    for name in files.names():
        ours = name.startswith(("snapshot-", "wal-", "ledger-")) or "@" in name
        if ours and name.endswith(TEMPORARY):
            files.remove(name)


def names(files: Files) -> list[str]:
    """The names of all snapshots, oldest first."""
    return list(filter(is_name, files.names()))


def is_name(name: str) -> bool:
    """Whether a file is a snapshot."""
    return name.startswith("snapshot-") and name.endswith(".snap")

"""The confirmation mark: up to which entry the log is known to be on disk.

    file `confirmed` = slot · slot, 64 bytes each
    slot             = magic "QuiverMK" · index u64 · CRC-32C of both u32 · zeros

Frames say what was synced before them, so only what was synced last has nobody to vouch for it:
that is what the mark is for. It is written after every sync of the log and not synced itself,
which costs next to nothing. It may therefore be behind after a power failure, or gone; it is
never ahead. The two slots are written in turn, so a torn write cannot spoil both; the highest
good one counts, and none means 0.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from quiver.errors import DiskFull

if TYPE_CHECKING:
    from quiver.storage.files import File, Files

NAME: Final = "confirmed"

_MAGIC: Final = b"QuiverMK"
_SLOT: Final = Struct("<8sQ")
_CRC: Final = Struct("<I")
_SLOT_BYTES: Final = 64


class Mark:
    """The mark of a directory. Nothing is changed before the first `write`."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._file: File | None = files.open(NAME) if NAME in files.names() else None
        self.index = 0  # what is confirmed
        self._next = 0  # the slot to write
        for slot in (0, 1):
            if (index := self._read(slot)) > self.index:
                self.index, self._next = index, 1 - slot

    def write(self, index: int) -> None:
        """Everything up to `index` is on disk."""
        slot = _SLOT.pack(_MAGIC, index)
        with suppress(DiskFull):  # an old mark is weaker, not wrong
            self._opened().write(self._next * _SLOT_BYTES, [slot + _CRC.pack(crc32c(slot))])
            self.index, self._next = index, 1 - self._next

    def sync(self) -> None:
        """Make it durable, as it should be in a directory that is put away."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Let go of the file; a queue that is closed holds nothing open, whoever still refers to it."""
        if self._file is not None:
            self._file.close()

    def _read(self, slot: int) -> int:
        data = self._file.read(slot * _SLOT_BYTES, _SLOT_BYTES) if self._file is not None else b""
        content, crc = data[: _SLOT.size], data[_SLOT.size : _SLOT.size + _CRC.size]
        if not content.startswith(_MAGIC) or crc != _CRC.pack(crc32c(content)):
            return 0
        index: int = _SLOT.unpack(content)[1]
        return index

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._files.create(NAME)
            self._files.sync_directory()
        return self._file

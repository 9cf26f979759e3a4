"""The confirmation mark: up to which entry the log is known to be on disk, and committed.

    file `confirmed` = slot · slot, 64 bytes each
    slot, version 1  = magic "QuiverMK" · index u64 · CRC-32C of both u32 · zeros
    slot, version 2  = magic "QuiverM2" · sequence u64 · synced u64 · commit u64 · term u64
                       · CRC-32C of all before u32 · zeros

Frames say what was synced before them, so only what was synced last has nobody to vouch for it:
that is what the mark is for. It is written after every sync of the log and not synced itself,
which costs next to nothing. It may therefore be behind after a power failure, or gone; it is
never ahead. The two slots are written in turn, so a torn write cannot spoil both.

Version 1 is written as long as nobody can take entries back: what is synced is committed, and the
highest good slot counts. A directory that has joined a cluster has version 2: the last `sequence`
counts, so `lower` can take back what is cut off the log. It writes and syncs both slots, for either
may have to stand in for the other later. `synced` is for the recovery, `commit` for readers, `term`
is that of the entry `synced`. A slot of version 2 comes after any of version 1, and none means 0.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from quiver.errors import DiskFull

if TYPE_CHECKING:
    from quiver.storage.files import File, Files

NAME: Final = "confirmed"

_MAGIC: Final = b"QuiverMK"
_MAGIC_2: Final = b"QuiverM2"
_SLOT: Final = Struct("<8sQ")
_SLOT_2: Final = Struct("<8sQQQQ")
_CRC: Final = Struct("<I")
_SLOT_BYTES: Final = 64


class _Slot(NamedTuple):
    """What a slot says; the greater one counts. Those of version 1 have no sequence."""

    sequence: int = 0
    synced: int = 0
    commit: int = 0
    term: int = 0


class Mark:
    """The mark of a directory. Nothing is changed before the first `write`.

    It is written in the `version` asked for, or in 2 if it is that already.
    """

    def __init__(self, files: Files, version: int = 1) -> None:
        self._files = files
        self._file: File | None = files.open(NAME) if NAME in files.names() else None
        slots = [self._read(at) for at in (0, 1)]
        self._last = max(slots)
        self._next = 1 - slots.index(self._last) if any(self._last) else 0  # the slot to write
        self.version = 2 if self._last.sequence else version

    @property
    def synced(self) -> int:
        """The last entry known to be on disk."""
        return self._last.synced

    @property
    def commit(self) -> int:
        """The last entry known to be committed; a reader may go so far."""
        return self._last.commit

    @property
    def term(self) -> int:
        """The term of entry `synced`, 0 if there is none."""
        return self._last.term

    def write(self, synced: int, commit: int, term: int = 1) -> None:
        """Everything up to `synced` is on disk, and up to `commit` it is committed."""
        with suppress(DiskFull):  # an old mark is weaker, not wrong
            self._write(synced, commit, term)

    def lower(self, synced: int, commit: int, term: int) -> None:
        """Nothing behind `synced` counts as being on disk any more, durably, whichever slot is read."""
        assert self.version > 1, "what is in version 1 cannot be taken back"
        for _ in (0, 1):
            self._write(synced, commit, term)
            self.sync()

    def sync(self) -> None:
        """Make it durable, as it should be in a directory that is put away."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Let go of the file; a queue that is closed holds nothing open, whoever still refers to it."""
        if self._file is not None:
            self._file.close()

    def _write(self, synced: int, commit: int, term: int) -> None:
        if self.version == 1:
            last = _Slot(0, synced, synced, 1)
            slot = _SLOT.pack(_MAGIC, synced)
        else:
            last = _Slot(self._last.sequence + 1, synced, commit, term)
            slot = _SLOT_2.pack(_MAGIC_2, *last)
        self._opened().write(self._next * _SLOT_BYTES, [slot + _CRC.pack(crc32c(slot))])
        self._last, self._next = last, 1 - self._next

    def _read(self, at: int) -> _Slot:
        data = self._file.read(at * _SLOT_BYTES, _SLOT_BYTES) if self._file is not None else b""
        if data.startswith(_MAGIC):
            content = _content(data, _SLOT)
            if not content:
                return _Slot()
            _, index = _SLOT.unpack(content)
            return _Slot(0, index, index, 1)
        content = _content(data, _SLOT_2)
        return _Slot(*_SLOT_2.unpack(content)[1:]) if content.startswith(_MAGIC_2) else _Slot()

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._files.create(NAME)
            self._files.sync_directory()
        return self._file


def _content(data: bytes, layout: Struct) -> bytes:
    """What is in a slot before its checksum, nothing if that is wrong."""
    content, crc = data[: layout.size], data[layout.size : layout.size + _CRC.size]
    return content if crc == _CRC.pack(crc32c(content)) else b""

"""The vote: what a node must never forget, or two leaders may be elected in one term.

    file `vote` = slot · slot, 4096 bytes apart
    slot        = magic "QuiverVT" · version u32 · shard u32 · sequence u64 · term u64 · peer u32
                  · CRC-32C of all before u32

`term` is the newest term that the node knows of, and `peer` whom it has voted for in it, 0 for nobody.

A vote is written into both slots, one after the other, each synced before the next step; `write`
returns when both are durable. So whatever was told to anybody is there twice, and either slot may be
damaged: the other one has it, or, after a crash in the middle, a newer one that nobody was told of. The
slot that is older or damaged is written first, because the good one is all there is until then.

`CorruptVote` is raised if no slot is good, if the two contradict each other, or if the file is not there
in a directory that has joined a cluster. Such a node may not vote: it cannot know what it has promised.
A directory that never joined has no vote.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from quiver.errors import CorruptVote, StorageError, StorageFailed, UnsupportedFormat
from quiver.storage import identity
from quiver.storage.files import publish

if TYPE_CHECKING:
    from quiver.storage.files import File, Files

NAME: Final = "vote"
VERSION: Final = 1
REMEDY: Final = (
    "This node may not vote, because it cannot know what it has promised. Nothing was changed. "
    "Remove it from the cluster, and let it join again with an empty directory."
)

_MAGIC: Final = b"QuiverVT"
_SLOT: Final = Struct("<8sIIQQI")
_CRC: Final = Struct("<I")
_SLOT_BYTES: Final = 4096  # no write tears two of them, whatever a sector is
_NOBODY: Final = 0


class _Ballot(NamedTuple):
    """A good slot; the greater one is the newer one."""

    sequence: int
    term: int
    peer: int

    def may_follow(self, other: _Ballot) -> bool:
        """Whether a node may have written this right after the other."""
        same = self.term == other.term and other.peer in (_NOBODY, self.peer)
        return self.sequence == other.sequence + 1 and (self.term > other.term or same)


class VoteFile:
    """The vote of a directory. Nothing is changed before the first `write`."""

    def __init__(self, files: Files, shard: int = 0) -> None:
        self._files = files
        self._shard = shard
        self._file: File | None = None
        self._last = _Ballot(0, 0, _NOBODY)
        self._weaker = 0  # the slot to be written first
        self._failure: StorageFailed | None = None
        names = files.names()
        if NAME in names:
            self._file = files.open(NAME)
            try:
                self._load(self._file)
            except StorageError:
                self._file.close()
                raise
        elif identity.NAME in names:
            raise CorruptVote(f"The file {NAME} is missing. {REMEDY}")

    @property
    def term(self) -> int:
        """The newest term that was written, 0 for none."""
        return self._last.term

    @property
    def peer(self) -> int | None:
        """Whom the node has voted for in that term."""
        return self._last.peer or None

    def write(self, term: int, peer: int | None) -> None:
        """Return when this vote is durable; only then may it be told."""
        if self._failure is not None:
            raise StorageFailed(f"The vote cannot be written: {self._failure}") from self._failure
        last = self._last
        ballot = _Ballot(last.sequence + 1, term, peer or _NOBODY)
        assert ballot.may_follow(last), f"{ballot} is written after {last}"
        slot = _SLOT.pack(_MAGIC, VERSION, self._shard, *ballot)
        slot += _CRC.pack(crc32c(slot))
        try:
            if self._file is None:
                publish(self._files, NAME, [slot.ljust(_SLOT_BYTES, b"\0"), slot])
                self._file, self._last = self._files.open(NAME), ballot
                return
            for _ in (0, 1):
                self._file.write(self._weaker * _SLOT_BYTES, [slot])
                self._file.sync()
                self._last, self._weaker = ballot, 1 - self._weaker
        except StorageFailed as failure:
            self._failure = failure
            raise

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    def _load(self, file: File) -> None:
        slots = [self._read(file, at) for at in (0, 1)]
        good = sorted(slot for slot in slots if slot is not None)
        if not good:
            raise CorruptVote(f"The file {NAME} is damaged. {REMEDY}")
        if good[0] != good[-1] and not good[-1].may_follow(good[0]):
            raise CorruptVote(f"The file {NAME} contradicts itself. {REMEDY}")
        self._last = good[-1]
        self._weaker = 1 - slots.index(self._last)

    def _read(self, file: File, at: int) -> _Ballot | None:
        data = file.read(at * _SLOT_BYTES, _SLOT.size + _CRC.size)
        content, crc = data[: _SLOT.size], data[_SLOT.size :]
        if not content.startswith(_MAGIC) or crc != _CRC.pack(crc32c(content)):
            return None
        _, version, shard, *ballot = _SLOT.unpack(content)
        if version > VERSION:
            raise UnsupportedFormat(
                f"{NAME} has format {version} and this Quiver knows formats up to {VERSION}. "
                "Open the directory with the newer Quiver that wrote it."
            )
        return _Ballot(*ballot) if shard == self._shard else None

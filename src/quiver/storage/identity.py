"""Who a directory is in its cluster: the file `node`, which a directory that never joined has not.

    file `node` = CRC-32C of the rest, 8 hexadecimal digits · a space · one line of JSON

It can be read by people and is written by nodes only: as a whole, under a temporary name, synced and
renamed. A peer is a number and a `directory`, 128 random bits: a disk that was wiped has others, and is
refused under the old number. The addresses of peers are those last heard of; who takes part is decided
by the log. A node that joins writes its first `vote` before this file, and its log after it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from quiver import limits
from quiver.errors import CorruptIdentity, UnsupportedFormat
from quiver.storage.files import publish

if TYPE_CHECKING:
    from quiver.storage.files import Files

NAME: Final = "node"
VERSION: Final = 1
REMEDY: Final = (
    "Nothing was changed. Remove this node from the cluster, and let it join again with an empty "
    "directory."
)
_CRC_CHARS: Final = 8


@dataclass(frozen=True, slots=True)
class KnownPeer:
    """Another node, as it was last heard of."""

    number: int
    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Identity:
    """What a node tells when it meets another, and whom it asks first."""

    cluster: str  # 32 hexadecimal digits, the same in all nodes
    incarnation: int  # how often the cluster was recovered from the loss of its majority
    node: int  # the number that the cluster has given it, never to be used again
    directory: str  # 32 hexadecimal digits, random
    shard: int = 0
    peers: tuple[KnownPeer, ...] = ()

    def save(self, files: Files) -> None:
        """Replace the file; when this returns it is durable."""
        line = json.dumps({"version": VERSION, **asdict(self)}).encode() + b"\n"
        assert len(line) < limits.IDENTITY_BYTES_MAX, f"{len(self.peers)} peers"
        publish(files, NAME, [b"%08x " % crc32c(line), line])


def load(files: Files) -> Identity | None:
    """The identity of a directory, None if it never joined a cluster."""
    if NAME not in files.names():
        return None
    file = files.open(NAME)
    data = file.read(0, limits.IDENTITY_BYTES_MAX)
    file.close()
    crc, line = data[: _CRC_CHARS + 1], data[_CRC_CHARS + 1 :]
    if crc != b"%08x " % crc32c(line):
        raise CorruptIdentity(f"The file {NAME} is damaged. {REMEDY}")
    content: dict[str, Any] = json.loads(line)
    version = content.pop("version")
    if version > VERSION:
        raise UnsupportedFormat(
            f"{NAME} has format {version} and this Quiver knows formats up to {VERSION}. "
            "Open the directory with the newer Quiver that wrote it."
        )
    peers = tuple(KnownPeer(**one) for one in content.pop("peers"))
    return Identity(peers=peers, **content)

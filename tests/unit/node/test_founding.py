"""A log begins with the secret of its queue, or not at all."""

import pytest

from quiver.errors import DiskFull
from quiver.node.peer import Peer
from quiver.testing import MemoryFiles
from quiver.testing.memory_files import MemoryFile


def test_a_disk_that_refuses_the_first_entry_leaves_no_queue_without_a_secret(monkeypatch):
    files = MemoryFiles()
    real = MemoryFile.write

    def full(self, position, buffers) -> None:
        if self.name.startswith("wal-") and not self.name.endswith(".tmp"):
            raise DiskFull("in spite of a reservation")
        real(self, position, buffers)

    monkeypatch.setattr(MemoryFile, "write", full)
    with pytest.raises(DiskFull):
        Peer.open(files, now_ms=1, secret=b"s" * 32)
    monkeypatch.undo()
    peer = Peer.open(files, now_ms=2, secret=b"s" * 32)
    engine = peer.engine
    assert (engine.core.index, engine.core.secret) == (1, b"s" * 32)

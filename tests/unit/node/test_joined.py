"""A directory that has joined a cluster, in the hands of what knows of no other node."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

import quiver
from quiver.batches.codec import encode_whole
from quiver.batches.rows import make_row, pack
from quiver.model import levels
from quiver.model.commands import CreateTopic, Send
from quiver.model.queries import ReadStats
from quiver.model.topic import TopicPolicy
from quiver.node.clock import SystemClock
from quiver.node.engine import Proposal
from quiver.node.peer import Peer
from quiver.node.replica import Replica
from quiver.storage import identity, snapshot, vote
from quiver.storage.files import DiskFiles, Files
from quiver.storage.frame import UNTOLD
from quiver.storage.identity import Identity
from quiver.storage.snapshot import LastEntry
from quiver.storage.vote import VoteFile
from quiver.storage.wal import Wal
from quiver.testing import MemoryFiles
from tests.properties.workload import SECRET, START_MS, single_run
from tests.trio import Trio

TERM = 7


def opened(files: Files, now_ms: int = START_MS) -> Peer:
    return Peer.open(files, now_ms=now_ms, secret=SECRET, version=2)


def joined(files: Files, now_ms: int = START_MS) -> None:
    """A queue with three messages, and behind them the same send in a later term, not committed."""
    peer = opened(files, now_ms)
    peer.commit([Proposal(CreateTopic("t", TopicPolicy()))], now_ms=now_ms)
    batch = pack([make_row(body) for body in (b"one", b"two", b"three")], now_ms)
    proposal = Proposal(Send(1, single_run(3), (1,)), batch, encode_whole(batch, None))
    peer.commit([proposal], now_ms=now_ms)
    peer.engine.close()
    VoteFile(files).write(TERM, 1)
    Identity("c" * 32, 1, 1, "d" * 32).save(files)
    wal = Wal.open(files, after=0, version=2)
    wal.scan()
    (last,) = wal.entries(wal.last_index, 1)
    wal.append([replace(last, index=last.index + 1, term=TERM)], urgent=False)
    wal.close()


def stored(files: Files, *, owned: bool) -> int:
    reader = Replica(files, lambda: nullcontext(not owned))
    count = reader.ask(ReadStats("t")).stored
    assert reader.damage is None
    return count


@pytest.mark.parametrize("owned", [False, True])
def test_a_reader_goes_no_further_than_what_is_committed(owned):
    files = MemoryFiles()
    joined(files)
    before = files.operations
    assert stored(files, owned=owned) == 3
    assert files.operations == before
    wal = Wal.open(files, after=0, version=2)
    wal.scan()
    wal.commit(wal.last_index)
    assert stored(files, owned=owned) == 6


def test_terms_go_on_and_the_snapshot_has_the_last_one():
    trio = Trio((1,))
    peer = trio.lead(1)
    trio.send(1)
    trio.snapshot(1)
    saved = snapshot.load(trio.disks[1])
    assert saved is not None
    assert (saved.index, saved.last) == (
        peer.engine.core.index,
        LastEntry(peer.raft.term, level=levels.FIRST),
    )
    again = trio.restart(1)
    assert again.engine.wal.term_of(saved.index) == peer.raft.term
    assert [again.engine.wal.last_term, again.engine.core.index] == [peer.raft.term, saved.index]


def test_a_backup_has_the_messages_and_not_the_vote(tmp_path):
    """Two directories with one identity would be one node that votes twice."""
    data = tmp_path / "data"
    data.mkdir()
    joined(DiskFiles(data), SystemClock().now_ms())
    (tmp_path / "backup").mkdir()
    with quiver.connect(data, read_only=True) as queue:
        queue.backup(tmp_path / "backup")
    quiver.restore(tmp_path / "backup", tmp_path / "copy")
    assert not {vote.NAME, identity.NAME} & set(DiskFiles(tmp_path / "copy").names())
    with quiver.connect(tmp_path / "copy") as copy:
        assert copy.stats("t").stored == 3
        copy.send("t", b"four")
    assert vote.NAME not in DiskFiles(tmp_path / "copy").names()


def test_what_a_node_alone_writes_has_no_origin():
    files = MemoryFiles()
    joined(files)
    wal = Wal.open(files, after=0, version=2)
    wal.scan()
    assert {(one.origin, one.level) for one in wal.entries(1, 1 << 20)} == {(UNTOLD, 0)}

"""A disk that cannot be read for a while: an error of its own, not damage, and nothing is skipped."""

import errno
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quiver
from quiver.cli.checkup import examine
from quiver.client.flows import Flows
from quiver.client.local import LocalBroker
from quiver.client.sync import Queue
from quiver.node.cache import BatchCache
from quiver.node.peer import Peer
from quiver.node.replica import Replica
from quiver.node.shard import Shard
from quiver.storage.doctor import inspect
from quiver.testing import MemoryFiles, VirtualClock
from tests.contract.verbs import bodies
from tests.inside import Inside

BODIES = [b"%d" % at * 100 for at in range(6)]


class World:
    """A queue on a disk of which files can be made unreadable; it remembers nothing that it has read."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.clock = VirtualClock()
        self.open()

    def open(self) -> None:
        peer = Peer.open(self.files, now_ms=self.clock.now_ms(), secret=bytes(32))
        engine = peer.engine
        engine.locator.cache = BatchCache(0)
        self.engine = engine
        self.shard = Shard(peer, self.clock)
        self.clock.when_advanced(lambda: self.shard.ask(Inside(lambda _: None)).wait())
        self.queue = Queue(Flows(LocalBroker(self.shard), "disk"), self.shard.close)

    def fail(self, beginning: str) -> None:
        """Of the files whose name begins like this."""
        self.files.unreadable = {name for name in self.files.names() if name.startswith(beginning)}

    def heal(self) -> None:
        self.files.unreadable = set()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    made.queue.create_topic("t", retention="forever", max_attempts=9)
    yield made
    made.heal()
    made.queue.close()


def send(world: World, *, sealed: bool) -> str:
    """Two batches; how the name of the file with the first one begins."""
    world.queue.send_batch("t", BODIES[:3])
    if sealed:
        world.queue.seal()
        world.queue.send_batch("t", BODIES[3:])
        return "t@"
    world.shard.ask(Inside(lambda engine: engine.wal.roll())).wait()
    world.queue.send_batch("t", BODIES[3:])
    return min(name for name in world.files.names() if name.startswith("wal-"))


@pytest.mark.parametrize("sealed", [True, False], ids=["segment", "log"])
def test_a_read_says_so_and_a_later_one_succeeds(world, sealed):
    name = send(world, sealed=sealed)
    world.fail(name)
    for _ in range(2):
        with pytest.raises(quiver.ReadFailed, match="could not be read") as raised:
            bodies(world.queue.read("t"))
        assert raised.value.errno == errno.EIO
        assert raised.value.path.startswith(name)
        assert "damaged" not in str(raised.value)
        assert not isinstance(raised.value, quiver.StorageFailed), "the queue has not stopped"
        again = pickle.loads(pickle.dumps(raised.value))
        assert (again.errno, again.path) == (raised.value.errno, raised.value.path)
    world.queue.send("t", b"more")
    world.heal()
    assert bodies(world.queue.read("t")) == [*BODIES, b"more"]


@pytest.mark.parametrize("sealed", [True, False], ids=["segment", "log"])
def test_a_receive_gives_what_can_be_read_and_the_rest_comes_again(world, sealed):
    world.fail(send(world, sealed=sealed))
    with pytest.warns(quiver.UnreadableMessages, match="3 messages were left out"):
        got = world.queue.receive("t", "g", max_messages=9)
    assert bodies(got) == BODIES[3:]
    world.queue.ack(got)
    world.clock.advance(60)
    with pytest.raises(quiver.ReadFailed):
        world.queue.receive("t", "g", max_messages=9)
    world.heal()
    world.clock.advance(60)
    assert bodies(world.queue.receive("t", "g", max_messages=9)) == BODIES[:3]


@pytest.mark.parametrize("sealed", [True, False], ids=["segment", "log"])
def test_sealing_leaves_the_file_where_it_is_and_moves_it_as_soon_as_it_can_be_read(
    world, sealed, monkeypatch
):
    name = send(world, sealed=sealed)
    monkeypatch.setattr(quiver.limits, "SEGMENTS_SMALL_MAX", 0)  # rewrite whatever can be
    (before,) = [found for found in world.files.names() if found.startswith(name)]
    world.fail(name)
    for _ in range(2):
        world.queue.seal()
        assert before in world.files.names()
        with pytest.raises(quiver.ReadFailed):
            bodies(world.queue.read("t"))
    world.heal()
    assert bodies(world.queue.read("t")) == BODIES
    world.queue.seal()
    assert before not in world.files.names(), "it was not remembered as damaged"
    assert bodies(world.queue.read("t")) == BODIES
    world.shard.ask(Inside(lambda engine: engine.core.check())).wait()


@pytest.mark.parametrize("which", ["wal-", "snapshot-", "confirmed"])
def test_opening_says_so_changes_nothing_and_a_later_one_succeeds(world, which):
    send(world, sealed=True)
    world.queue.close()
    before = contents(world.files)
    world.fail(which)
    with pytest.raises(quiver.ReadFailed, match=which):
        world.open()
    replica = Replica(world.files, lambda: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(quiver.ReadFailed, match=which):
        replica.ask(Inside(lambda engine: engine.core.index))
    world.heal()
    assert contents(world.files) == before
    world.open()
    assert bodies(world.queue.read("t")) == BODIES


@pytest.mark.parametrize("which", ["wal-", "snapshot-", "t@", "ledger-", "confirmed"])
def test_the_doctor_does_not_call_it_damage(world, which):
    send(world, sealed=True)
    world.fail(which)
    found = [one for one in inspect(world.files) if one.severity != "ok"]
    assert {one.kind for one in found} == {"unreadable"}
    assert any("could not be read" in one.text for one in found)


def test_a_checkup_of_a_real_disk_says_what_to_do(tmp_path, monkeypatch):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t", retention="forever")
        queue.send_batch("t", BODIES)
        queue.seal()
    fail_reads_of(monkeypatch, "t@")
    with quiver.connect(tmp_path) as queue, pytest.raises(quiver.ReadFailed) as raised:
        bodies(queue.read("t"))
    assert raised.value.errno == errno.EIO
    assert Path(raised.value.path).parent == tmp_path
    assert "Input/output error" in str(raised.value)
    found = examine(tmp_path)
    assert found.status == "unreadable"
    (problem,) = [one for one in found.problems if one.severity == "error"]
    assert "does not let us read" in problem.means or "could not read" in problem.means
    assert "damaged" not in problem.what
    monkeypatch.undo()
    assert examine(tmp_path).status == "healthy"


def contents(files: MemoryFiles) -> dict[str, bytes]:
    return {name: files.open(name).read(0, files.open(name).size()) for name in files.names()}


def fail_reads_of(monkeypatch: Any, beginning: str) -> None:
    real = os.pread

    def failing(descriptor: int, count: int, at: int) -> bytes:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name.startswith(beginning):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, count, at)

    monkeypatch.setattr(os, "pread", failing)

"""The machine stops at every single operation on the disk, in turn, and nothing confirmed is lost."""

from random import Random

import pytest

from quiver.batches.codec import encode_whole
from quiver.batches.rows import make_row, pack
from quiver.errors import StorageError
from quiver.model.commands import CreateTopic, Held, Receive, Send, Settle
from quiver.model.replies import Received
from quiver.model.topic import TopicPolicy
from quiver.node.engine import Proposal
from quiver.node.peer import Peer
from quiver.testing import MemoryFiles, SimulatedCrash
from tests.lengths import quickly
from tests.properties.workload import SECRET, START_MS, bodies_of, single_run

SIZES = {"file_bytes": 2_000, "allocate_bytes": 1_024, "reserve_bytes": 256}


class Script:
    """Sends, leases, acks and snapshots; `stored` and `acked` are what somebody was told."""

    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        self.stored: list[bytes] = []
        self.acked: list[bytes] = []

    def run(self) -> None:
        peer = Peer.open(self.files, now_ms=START_MS, secret=SECRET, **SIZES)
        engine = peer.engine
        peer.commit([Proposal(CreateTopic("t", TopicPolicy()))], now_ms=START_MS)
        for turn in range(6):
            self.send(peer, turn)
            if turn % 2:
                self.receive_and_ack(peer)
            if turn in (2, 4):
                made = peer.begin_snapshot(START_MS + turn)
                made.save()
                engine.snapshots.finish(made)
        engine.close()

    def send(self, peer: Peer, turn: int) -> None:
        bodies = [b"%d-%d " % (turn, at) + bytes(100) for at in range(3)]
        batch = pack([make_row(body) for body in bodies], START_MS)
        proposal = Proposal(Send(1, single_run(3), (1,)), batch, encode_whole(batch, None))
        [outcome] = peer.commit([proposal], now_ms=START_MS + turn)
        assert not isinstance(outcome.reply, Exception)
        self.stored += bodies

    def receive_and_ack(self, peer: Peer) -> None:
        [outcome] = peer.commit([Proposal(Receive(1, "g", 2, 60_000))], now_ms=START_MS)
        got = outcome.reply
        assert isinstance(got, Received)
        ranges = tuple((piece.offset, piece.offset + piece.count) for piece in got.slices)
        bodies = [
            body
            for batch, at, part in peer.engine.source(1, got.slices).pieces()
            for body in batch.column(0).slice(at, part.count).to_pylist()
        ]
        settle = Settle(1, got.group, "ack", (Held(0, got.epoch, ranges),))
        peer.commit([Proposal(settle)], now_ms=START_MS)
        self.acked += bodies


def drained(peer: Peer) -> list[bytes]:
    """Everything that group g can still get, by real leases; all earlier leases have ended."""
    got: list[bytes] = []
    later = START_MS + 10_000_000
    while True:
        [outcome] = peer.commit([Proposal(Receive(1, "g", 100, 60_000))], now_ms=later)
        assert isinstance(outcome.reply, Received)
        slices = outcome.reply.slices
        if not slices:
            return got
        for batch, at, part in peer.engine.source(1, slices).pieces():
            got += batch.column(0).slice(at, part.count).to_pylist()


def survivals():
    return ["none", "all", *(Random(seed) for seed in range(3))]


def operations_of_the_script() -> int:
    files = MemoryFiles()
    Script(files).run()
    return files.operations


@pytest.mark.parametrize("late", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.parametrize("step", quickly(1, [5, 1]))
def test_a_crash_at_any_operation_loses_nothing_and_doubles_nothing(late, step):
    total = operations_of_the_script()
    assert total > 60
    crashes = 0
    points = range(1 + late, total + 1, step)
    for crash_at in points:
        for survival in survivals():
            files = MemoryFiles(crash_at=crash_at, crash_late=late)
            script = Script(files)
            with pytest.raises(SimulatedCrash):
                script.run()
            crashes += 1
            peer = Peer.open(files.crash(survival), now_ms=START_MS, secret=SECRET, **SIZES)
            engine = peer.engine
            engine.core.check()
            if "t" not in engine.core.names:
                assert not script.stored
                continue
            left = drained(peer)
            where = f"operation {crash_at}, {survival}"
            assert len(left) == len(set(left)), where
            lost = set(script.stored) - set(left) - set(script.acked)
            # An ack that was on its way may have taken effect without anybody being told.
            assert len(lost) <= 2, where
            if lost:
                assert sorted(lost) == sorted(
                    set(script.stored[: len(script.acked) + 2]) - set(script.acked)
                ), where
            assert not set(script.acked) & set(left), where
            Script.send(script, peer, 99)
    assert crashes == len(points) * len(survivals())


def directory_after_a_kill() -> tuple[dict[str, bytes], list[bytes]]:
    """What a process that was killed leaves on disk, and what it had confirmed."""
    files = MemoryFiles()
    script = Script(files)
    peer = Peer.open(files, now_ms=START_MS, secret=SECRET, **SIZES)
    engine = peer.engine
    peer.commit([Proposal(CreateTopic("t", TopicPolicy()))], now_ms=START_MS)
    script.send(peer, 0)
    script.send(peer, 1)
    made = peer.begin_snapshot(START_MS + 1)
    made.save()
    engine.snapshots.finish(made)
    script.send(peer, 2)
    after = files.crash("all")
    contents = {name: after.open(name).read(0, after.open(name).size()) for name in after.names()}
    return contents, script.stored


def opened(contents: dict[str, bytes]) -> list[bytes] | None:
    """What can be read after opening such a directory; None if it is refused."""
    files = MemoryFiles()
    for name, data in contents.items():
        files.create(name).write(0, [data])
    try:
        peer = Peer.open(files.crash("all"), now_ms=START_MS, secret=SECRET, **SIZES)
        engine = peer.engine
        return bodies_of(engine, 1)
    except StorageError:
        return None


@pytest.mark.parametrize("step", quickly(1, [11, 1]))
def test_any_cut_of_any_file_is_noticed_or_harmless(step):
    contents, stored = directory_after_a_kill()
    assert opened(contents) == stored
    refused = 0
    for name, data in contents.items():
        for length in range(0, len(data), step):
            got = opened({**contents, name: data[:length]})
            assert got in (None, stored), f"{name} cut at {length}"
            refused += got is None
    assert refused > 100 // step


@pytest.mark.parametrize(
    ("step", "bits"),
    [
        (7, 1),
        pytest.param(1, 1, marks=pytest.mark.check),
        pytest.param(1, 8, marks=pytest.mark.slow),
    ],
)
def test_any_flipped_bit_of_any_file_is_noticed_or_harmless(step, bits):
    contents, stored = directory_after_a_kill()
    chance = Random(bits)
    refused = flips = 0
    for name, data in contents.items():
        meaningful = len(data.rstrip(b"\0")) + 16  # behind it is reserved space: zeros
        for at in range(0, min(len(data), meaningful), step):
            for bit in chance.sample(range(8), bits):
                flipped = bytearray(data)
                flipped[at] ^= 1 << bit
                got = opened({**contents, name: bytes(flipped)})
                assert got in (None, stored), f"{name}: bit {bit} of byte {at}"
                refused += got is None
                flips += 1
    assert refused > flips // 4

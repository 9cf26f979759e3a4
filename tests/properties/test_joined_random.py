"""Random lives of three peers: whatever is lost, late or cut off, they agree, and answers are true."""

from random import Random

import pytest

from quiver.raft.ready import Role
from tests.lengths import quickly
from tests.properties.workload import START_MS
from tests.trio import SILENT_TICKS, Asked, Trio

STEPS = 1_000
HOUR_MS = 3_600_000
CRASHES_MAX = 12  # operations from now, at most: between any two of a peer's next event


class Life:
    """What happens to a group, drawn by lot; how much of what is drawn as well."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.trio = Trio(seed=seed)
        self.trio.lead(self.rng.choice((1, 2, 3)))
        self.trio.survives = self.rng.choice(("none", "all", Random(seed)))
        self.trio.slow |= {number for number in (1, 2, 3) if self.rng.random() < 0.6}
        self.asked: list[Asked] = []
        self.loss, self.double = self.rng.choice((0, 0, 0.05, 0.3)), self.rng.choice((0, 0.1))
        self.deeds = {
            self.send: self.rng.choice((1, 4)),
            self.tick: self.rng.choice((2, 6)),
            self.deliver: 25,
            self.sync: self.rng.choice((2, 8)),
            self.begin_sync: 3,
            self.crash: self.rng.choice((0, 0.3, 1)),
            self.crash_within: self.rng.choice((0, 0.3, 1)),
            self.come_back: 1,
            self.part: self.rng.choice((0, 0.2)),
            self.snapshot: 0.2,
            self.fill: self.rng.choice((0, 0.3)),
            self.make_room: 0.3,
        }
        self.away: set[int] = set()

    def live(self) -> None:
        for _ in range(STEPS):
            (deed,) = self.rng.choices([*self.deeds], [*self.deeds.values()])
            deed()
            self.look()
        self.heal()
        self.judge()

    def anybody(self) -> int | None:
        return self.rng.choice([*self.trio.peers]) if self.trio.peers else None

    # -- deeds -------------------------------------------------------------------------------------

    def send(self) -> None:
        """Mostly to who leads, or thinks so."""
        peers = self.trio.peers
        leaders = [at for at, peer in peers.items() if peer.raft.role is Role.LEADER]
        number = self.rng.choice(leaders or [None]) if self.rng.random() < 0.9 else self.anybody()
        if number is not None:
            self.asked.append(self.trio.send(number))

    def tick(self) -> None:
        self.trio.now_ms += self.rng.randrange(-100, 200)
        for number in [*self.trio.peers]:
            if number in self.trio.peers and self.rng.random() < 0.8:
                self.trio.tick(number)

    def deliver(self) -> None:
        """Some of the next messages, mostly in order."""
        packets = self.trio.packets
        for _ in range(min(self.rng.randrange(6), len(packets))):
            at = min(self.rng.choice((0, 0, 0, 1, 5)), len(packets) - 1)
            packet = packets[at]
            if self.rng.random() >= self.double:
                del packets[at]
            there = {packet.message.sender, packet.message.to}
            if self.rng.random() >= self.loss and not there & self.away:
                self.trio.deliver(packet)

    def sync(self) -> None:
        number = self.anybody()
        if number is not None:
            self.trio.end_sync(number)

    def begin_sync(self) -> None:
        number = self.anybody()
        if number is not None:
            self.trio.begin_sync(number)

    def crash(self) -> None:
        number = self.anybody()
        if number is not None:
            self.trio.crash(number)

    def crash_within(self) -> None:
        """The power fails in the middle of what it does next."""
        number = self.anybody()
        if number is not None:
            disk = self.trio.disks[number]
            disk.crash_at = disk.operations + self.rng.randrange(1, CRASHES_MAX)
            disk.crash_late = self.rng.random() < 0.5

    def come_back(self) -> None:
        down = sorted({*self.trio.disks} - {*self.trio.peers})
        if down:
            number = self.rng.choice(down)
            self.trio.disks[number].capacity_bytes = None
            self.trio.start(number)

    def part(self) -> None:
        self.away = {self.rng.choice((1, 2, 3))} if not self.away else set()

    def fill(self) -> None:
        """There is hardly any room any more."""
        disk = self.trio.disks[self.rng.choice((1, 2, 3))]
        disk.capacity_bytes = disk.used_bytes + self.rng.randrange(600)

    def make_room(self) -> None:
        self.trio.disks[self.rng.choice((1, 2, 3))].capacity_bytes = None

    def snapshot(self) -> None:
        """Only of what everybody has: nobody fetches a state here."""
        peers = self.trio.peers
        if len(peers) == len(self.trio.disks):
            self.trio.snapshot(min(peers, key=lambda number: peers[number].engine.core.index))

    # -- what must be true -------------------------------------------------------------------------

    def look(self) -> None:
        for peer in self.trio.peers.values():
            assert peer.engine.core.index <= peer.raft.commit
            assert peer.engine.core.index <= peer.engine.wal.synced_index

    def heal(self) -> None:
        """Everybody is there, nothing is lost, and all comes to rest."""
        trio = self.trio
        self.away = set()
        trio.slow = set()
        for number, disk in [*trio.disks.items()]:
            disk.crash_at = disk.capacity_bytes = None
            if number not in trio.peers:
                trio.start(number)
        for number in trio.peers:
            trio.sync(number)
        while not any(peer.raft.role is Role.LEADER for peer in trio.peers.values()):
            assert trio.now_ms < START_MS + HOUR_MS, "nobody comes to lead"
            trio.pass_time()
        trio.pass_time(SILENT_TICKS)
        (leader,) = [at for at, peer in trio.peers.items() if peer.raft.role is Role.LEADER]
        self.asked.append(trio.send(leader))
        trio.pass_time(3)

    def judge(self) -> None:
        """All have the same; what was confirmed is there once and what was refused is not."""
        trio = self.trio
        assert self.asked[-1].stored
        assert len(trio.digests()) == 1
        bodies = trio.bodies(1)
        assert trio.bodies(2) == trio.bodies(3) == bodies
        assert len({*bodies}) == len(bodies)
        assert {*bodies} <= {asked.body for asked in self.asked}
        for asked in self.asked:
            if asked.stored:
                assert bodies[asked.offset] == asked.body
            elif asked.error is not None:
                assert asked.body not in bodies, asked.error
        indexes = {peer.engine.core.index for peer in trio.peers.values()}
        assert len(indexes) == 1
        for peer in trio.peers.values():
            wal = peer.engine.wal
            stamps = [record.now_ms for record in wal.entries(wal.first_index, 1 << 24)]
            assert stamps == sorted(stamps)


@pytest.mark.parametrize("seed", quickly(12, range(60)))
def test_peers_agree_whatever_happens(seed):
    Life(seed).live()

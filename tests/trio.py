"""Peers of one log, stepped by hand: real files in memory, links and disks that wait to be told."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, NamedTuple

from quiver.batches.codec import encode_whole
from quiver.batches.rows import make_row, pack
from quiver.errors import DiskFull
from quiver.limits import ELECTION_TICKS
from quiver.model.commands import CreateTopic, Send, SetPeers
from quiver.model.replies import Outcome, SentMany, SentReply
from quiver.model.topic import TopicPolicy
from quiver.node.engine import Proposal
from quiver.node.joined import JoinedPeer
from quiver.node.peer import Effects, Peer
from quiver.node.peers import encode_peers
from quiver.raft.messages import AnyMessage, Peers, Snapshot
from quiver.raft.ready import Read, Role
from quiver.storage.frame import LogRecord
from quiver.storage.identity import Identity
from quiver.storage.vote import VoteFile
from quiver.storage.wal import PendingSync
from quiver.testing import MemoryFiles, SimulatedCrash
from tests.properties.workload import SECRET, START_MS, bodies_of, digest, single_run

CLUSTER = "c" * 32
TOPIC = 1
SILENT_TICKS = 2 * ELECTION_TICKS  # after which nobody leads or hears a leader
ELECTIONS_MAX = 5  # more say that something else is wrong
SMALL = {"file_bytes": 4_000, "allocate_bytes": 4_096, "reserve_bytes": 1_024}


class Packet(NamedTuple):
    """A message on its way, with the records of its entries."""

    message: AnyMessage
    records: Sequence[LogRecord]


@dataclass(eq=False)
class Asked:
    """A request, and the answer that it got."""

    proposal: Proposal
    body: bytes = b""
    sync: bool = True
    outcome: Outcome | None = None

    @property
    def error(self) -> Exception | None:
        """Why it was refused, if it was."""
        reply = self.outcome.reply if self.outcome is not None else None
        return reply if isinstance(reply, Exception) else None

    @property
    def offset(self) -> int:
        """Where its message is."""
        assert self.outcome is not None
        assert isinstance(self.outcome.reply, SentMany)
        (answer,) = self.outcome.reply.answers
        assert isinstance(answer, SentReply)
        return answer.placed[0].offset

    @property
    def stored(self) -> bool:
        """Whether it was confirmed."""
        return self.outcome is not None and self.error is None


@dataclass
class Trio:
    """A group, founded by the first of its voters."""

    voters: tuple[int, ...] = (1, 2, 3)
    learners: tuple[int, ...] = ()
    seed: int = 0  # of timeouts
    disks: dict[int, MemoryFiles] = field(default_factory=dict)
    peers: dict[int, JoinedPeer] = field(default_factory=dict)
    packets: deque[Packet] = field(default_factory=deque)
    slow: set[int] = field(default_factory=set)  # disks that work when they are told
    wanted: set[int] = field(default_factory=set)  # disks that are to sync
    syncs: dict[int, PendingSync] = field(default_factory=dict)  # that have begun
    reads: dict[int, list[Read]] = field(default_factory=dict)
    installs: dict[int, list[Snapshot]] = field(default_factory=dict)
    led: dict[int, set[int]] = field(default_factory=dict)  # in each term, who has
    survives: Random | Literal["none", "all"] = "none"  # of what is not synced when power fails
    now_ms: int = START_MS
    starts: int = 0
    sent: int = 0

    def __post_init__(self) -> None:
        everybody = (*self.voters, *self.learners)
        for number, files in zip(everybody, founded(self), strict=True):
            self.disks[number] = files
            self.start(number)

    # -- peers come and go -------------------------------------------------------------------------

    def start(self, number: int) -> JoinedPeer:
        self.starts += 1
        seed = 1_000 * self.seed + self.starts
        peer = JoinedPeer.reopen(self.disks[number], seed=seed, **SMALL)
        self.peers[number] = peer
        return peer

    def crash(self, number: int) -> None:
        """Power is cut: the peer is gone, and of what it had not synced what does not survive."""
        del self.peers[number]
        self.wanted.discard(number)
        self.syncs.pop(number, None)
        self.disks[number] = self.disks[number].crash(self.survives)

    def restart(self, number: int) -> JoinedPeer:
        self.crash(number)
        return self.start(number)

    # -- what peers are told -----------------------------------------------------------------------

    def send(self, number: int, body: bytes | None = None) -> Asked:
        """Ask a peer to store a message."""
        self.sent += 1
        body = b"message %d" % self.sent if body is None else body
        batch = pack([make_row(body)], self.now_ms)
        proposal = Proposal(Send(TOPIC, single_run(1), (1,)), batch, encode_whole(batch, None))
        return self.ask(number, Asked(proposal, body))

    def ask(self, number: int, asked: Asked) -> Asked:
        self.do(number, lambda peer: peer.propose([asked], self.now_ms))
        return asked

    def change(self, number: int, *voters: int) -> Asked:
        asked = Asked(Proposal(SetPeers(encode_peers(Peers(voters)))))
        self.do(number, lambda peer: peer.propose_peers(asked, self.now_ms))
        return asked

    def tick(self, number: int) -> None:
        self.do(number, lambda peer: peer.tick(self.now_ms))

    def do(self, number: int, event: Callable[[JoinedPeer], Effects]) -> None:
        """Let something happen to a peer, and do what follows."""
        peer = self.peers[number]
        try:
            effects = event(peer)
        except SimulatedCrash:
            self.crash(number)
            return
        for asked, outcome in effects.answers:
            assert asked.outcome is None, "answered twice"
            asked.outcome = outcome
        self.packets += [Packet(*packet) for packet in effects.messages]
        self.reads.setdefault(number, []).extend(effects.reads)
        if peer.raft.role is Role.LEADER:
            leaders = self.led.setdefault(peer.raft.term, set())
            leaders.add(number)
            assert len(leaders) == 1, f"two leaders in term {peer.raft.term}"
        if effects.install is not None:
            self.installs.setdefault(number, []).append(effects.install)
        if effects.sync:
            self.wanted.add(number)
            if number not in self.slow:
                self.sync(number)

    # -- disks and links ---------------------------------------------------------------------------

    def begin_sync(self, number: int) -> None:
        """The disk begins to make durable what is written by now."""
        if number in self.wanted and number not in self.syncs:
            try:
                self.syncs[number] = self.peers[number].engine.wal.start_sync()
                self.wanted.discard(number)
            except SimulatedCrash:
                self.crash(number)

    def end_sync(self, number: int) -> None:
        pending = self.syncs.pop(number, None)
        if pending is None:
            return

        def ended(peer: JoinedPeer) -> Effects:
            pending.wait()
            peer.engine.wal.finished(pending)
            return peer.synced()

        self.do(number, ended)

    def snapshot(self, number: int) -> None:
        """A peer saves its state, and lets go of what others do not need of its log."""
        peer = self.peers[number]
        try:
            made = peer.snapshot_applied()
            if made is not None:
                made.save()
                peer.engine.snapshots.finish(made)
                peer.compacted(made)
        except DiskFull:
            peer.engine.snapshots.drop()
        except SimulatedCrash:
            self.crash(number)

    def sync(self, number: int) -> None:
        """What has begun ends, and what has not begun is done as well."""
        self.end_sync(number)
        self.begin_sync(number)
        self.end_sync(number)

    def deliver(self, packet: Packet) -> None:
        if packet.message.to in self.peers:
            self.do(packet.message.to, lambda peer: peer.step(*packet))

    def settle(self, *away: int) -> None:
        """Deliver all that is on its way, and what comes of it, but for peers that are away."""
        while self.packets:
            packet = self.packets.popleft()
            if not {packet.message.to, packet.message.sender} & {*away}:
                self.deliver(packet)

    def lead(self, number: int, *away: int) -> JoinedPeer:
        """Nobody hears of anybody for a while, then this peer asks for votes, until it leads."""
        for _ in range(ELECTIONS_MAX):
            if self.peers[number].raft.role is Role.LEADER:
                return self.peers[number]
            for other in [*self.peers] * SILENT_TICKS:
                if other not in away:
                    self.tick(other)
            self.packets.clear()
            self.do(number, JoinedPeer.campaign)
            self.settle(*away)
        raise AssertionError(f"peer {number} does not come to lead")

    def pass_time(self, count: int = 1, *away: int) -> None:
        """All tick, so the followers hear what is committed."""
        for _ in range(count):
            self.now_ms += 100
            for number in [*self.peers]:
                if number not in away:
                    self.tick(number)
            self.settle(*away)

    # -- what must be true -------------------------------------------------------------------------

    def bodies(self, number: int) -> list[bytes]:
        return bodies_of(self.peers[number].engine, TOPIC)

    def digests(self) -> set[str]:
        return {digest(peer.engine) for peer in self.peers.values()}


def founded(trio: Trio) -> list[MemoryFiles]:
    """The directories of those who take part: each has the whole log of the founder, all committed."""
    first = MemoryFiles()
    peer = Peer.open(first, now_ms=START_MS, secret=SECRET, version=2, **SMALL)
    everybody = SetPeers(encode_peers(Peers(trio.voters, (), trio.learners)))
    peer.commit([Proposal(CreateTopic("t", TopicPolicy())), Proposal(everybody)], now_ms=START_MS)
    peer.close()
    numbers = (*trio.voters, *trio.learners)
    disks = [first.crash("all") for _ in numbers]
    for number, files in zip(numbers, disks, strict=True):
        VoteFile(files).write(1, numbers[0])
        Identity(CLUSTER, 1, number, f"{number:032x}").save(files)
    return disks

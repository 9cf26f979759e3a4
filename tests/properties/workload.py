"""A seeded workload over a real engine: every kind of command, on topics of every kind."""

from hashlib import blake2b
from random import Random

from quiver.batches.attributes import attributes_of
from quiver.batches.codec import encode_whole
from quiver.batches.keys import Partitioner
from quiver.batches.rows import make_row, pack
from quiver.model.commands import (
    Action,
    Command,
    Commit,
    CreateTopic,
    Heartbeat,
    Held,
    Join,
    Leave,
    PauseGroup,
    Pick,
    Position,
    Purge,
    Receive,
    Redrive,
    Run,
    Seek,
    Send,
    SetPeers,
    Settle,
    Tick,
    Transact,
)
from quiver.model.replies import Outcome, Received, SentMany, Transacted
from quiver.model.topic import Retry, TopicPolicy
from quiver.node.engine import Engine, Proposal
from quiver.node.peer import Peer
from quiver.storage import codec
from quiver.storage.files import Files

START_MS = 1_767_225_600_000
SECRET = b"the secret of a test, 32 bytes.."
POLICIES = {
    "plain": TopicPolicy(partitions=2, max_attempts=3, dead_letter="dead"),
    "keys": TopicPolicy(order="key", retry=Retry("exponential", 100, 5_000, True)),
    "strict": TopicPolicy(order="partition", max_backlog=40),
    "fair": TopicPolicy(fair=True, partitions=3, max_attempts=2, dead_letter="dead"),
}


class Workload:
    """Drives an engine; `confirmed` is what was acknowledged as stored, by body."""

    def __init__(self, files: Files, seed: int, **sizes: int) -> None:
        self.rng = Random(seed)
        self.now_ms = START_MS
        self.confirmed: list[bytes] = []
        self.settled: list[bytes] = []
        self.leases: list[Received] = []
        self.sent = 0
        self.peer = Peer.open(files, now_ms=START_MS, secret=SECRET, **sizes)
        self.engine = self.peer.engine
        for name, policy in POLICIES.items():
            self.do(CreateTopic(name, policy))
        self.do(CreateTopic("dead", TopicPolicy()))

    def do(self, command: Command, batch=None, encoded: bytes = b"") -> Outcome:
        """One command, synced."""
        proposal = Proposal(command, batch, encoded)
        [outcome] = self.peer.commit([proposal], now_ms=self.now_ms)
        return outcome

    def step(self) -> None:
        """Something or other."""
        self.now_ms += self.rng.choice([0, 1, 50, 400, 3_000])
        act = self.rng.choices(
            [self.send, self.receive, self.settle, self.transact, self.rare],
            [6, 5, 5, 1, 2],
        )[0]
        act()

    def topic(self):
        """Any topic."""
        return self.engine.core.topics[self.rng.choice(list(self.engine.core.topics))]

    def rows(self, count: int):
        """New messages, each with a body of its own."""
        rng = self.rng
        made = []
        for _ in range(count):
            self.sent += 1
            made.append(
                make_row(
                    b"message %d" % self.sent,
                    key=rng.choice([None, "a", "b", "acme/1", "acme/2"]),
                    priority=rng.choice([0, 0, 0, 5, 9]),
                    delay=rng.choice([None, None, None, 0.2, 5]),
                    ttl=rng.choice([None, None, None, None, 2]),
                    dedup_id=rng.choice([None, None, None, f"id{rng.randrange(40)}"]),
                )
            )
        return made

    def packed(self, topic, first_row: int = 0):
        """A Send of some messages, its batch, and their bodies."""
        rows = self.rows(self.rng.choice([1, 1, 2, 7]))
        batch = pack(rows, self.now_ms)
        batch, runs = Partitioner(topic.policy).split(batch, self.sent)
        attributes = attributes_of(batch, keyed=topic.policy.keyed)
        bodies = batch.column(0).to_pylist()
        return Send(topic.number, runs, (len(runs),), attributes, first_row), batch, bodies

    def send(self) -> None:
        """A batch."""
        command, batch, bodies = self.packed(self.topic())
        reply = self.do(command, batch, encode_whole(batch, self.rng.choice([None, "zstd"]))).reply
        if isinstance(reply, SentMany) and not isinstance(reply.answers[0], Exception):
            self.note(reply.answers[0].placed, bodies)

    def note(self, placed, bodies) -> None:
        """Remember what is confirmed; a duplicate was confirmed before."""
        at = 0
        for piece in placed:
            if not piece.duplicate:
                self.confirmed += bodies[at : at + piece.count]
            at += piece.count

    def receive(self) -> None:
        """A lease."""
        topic = self.topic()
        command = Receive(
            topic.number, self.rng.choice("gh"), self.rng.choice([1, 3, 20]), 1_000,
            begin=self.rng.choice([None, None, 0, 1]),
        )  # fmt: skip
        reply = self.do(command).reply
        if isinstance(reply, Received) and reply.slices:
            self.leases.append(reply)

    def held(self, lease: Received) -> tuple[Held, ...]:
        """All or some of a lease."""
        found: dict[int, list[tuple[int, int]]] = {}
        for piece in lease.slices:
            if self.rng.random() < 0.8:
                found.setdefault(piece.partition, []).append(
                    (piece.offset, piece.offset + piece.count)
                )
        return tuple(Held(p, lease.epoch, tuple(ranges)) for p, ranges in found.items())

    def settle(self) -> None:
        """Of a lease that may have ended."""
        if not self.leases:
            return
        lease = self.rng.choice(self.leases)
        actions: list[Action] = ["ack", "ack", "nack", "extend", "dead_letter", "begin", "release"]
        action = self.rng.choice(actions)
        delay_ms = self.rng.choice([None, 0, 700])
        seed = self.rng.getrandbits(60)
        self.do(
            Settle(lease.topic, lease.group, action, self.held(lease), delay_ms, 2_000, "x", seed)
        )

    def transact(self) -> None:
        """Ack and send together."""
        settles: tuple[Settle, ...] = ()
        if self.leases:
            lease = self.rng.choice(self.leases)
            settles = (Settle(lease.topic, lease.group, "ack", self.held(lease)),)
        command, batch, bodies = self.packed(self.topic())
        reply = self.do(Transact(settles, (command,)), batch, encode_whole(batch, None)).reply
        if isinstance(reply, Transacted):
            self.note(reply.sent[0].placed, bodies)

    def rare(self) -> None:
        """What is asked now and then."""
        topic = self.topic()
        number = topic.number
        command = self.rng.choice(
            [
                Tick(),
                Tick(sweep=True),
                SetPeers(b"peers %d" % number),
                Seek(number, "g", Position("offset", self.rng.randrange(20))),
                PauseGroup(number, "h", self.rng.random() < 0.5),
                Redrive(self.engine.core.names["dead"], (Pick(0, ((0, 5),)),)),
                Join(number, "members", self.rng.choice("xy"), 1_000),
                Heartbeat(number, "members", self.rng.choice("xy"), (0,)),
                Commit(number, "members", "x", ((0, self.rng.randrange(5)),)),
                Leave(number, "members", "y"),
                Purge(number) if self.rng.random() < 0.1 else Tick(),
            ]
        )
        self.do(command)

    def snapshot(self) -> None:
        """Take and save a snapshot, and let the log go of the rest."""
        made = self.peer.begin_snapshot(self.now_ms)
        made.save()
        self.engine.snapshots.finish(made)


def digest(engine: Engine) -> str:
    """The whole state in a few characters."""
    return blake2b(codec.encode_state(engine.core.dump()), digest_size=16).hexdigest()


def bodies_of(engine: Engine, topic: int) -> list[bytes]:
    """Every message that a topic holds."""
    partitions = engine.core.topics[topic].partitions
    slices, ahead = engine.core.browse(topic, {p.number: 0 for p in partitions}, 1_000_000)
    assert ahead == {p.number: p.end for p in partitions}, "there are more than one page has"
    return [
        body
        for batch, at, part in engine.source(topic, slices).pieces()
        for body in batch.column(0).slice(at, part.count).to_pylist()
    ]


def single_run(rows: int) -> tuple[Run, ...]:
    """All rows to partition 0."""
    return (Run(0, rows, rows),)

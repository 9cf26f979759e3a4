"""What a lease and ack, an open and a snapshot cost when a thousand messages wait, or a million."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa

import quiver
from bench.content import bodies
from bench.measure import TURNS, Row, Run, Target, times
from quiver import limits
from quiver.batches.schema import TIME
from quiver.client.local import LocalBroker
from quiver.model.topic import Order
from quiver.node.shard import _RunHere
from quiver.node.tickets import Ticket

SMALL = 1_000
BATCH = 500  # messages of a turn, and of the batches that fill a backlog and keep it at its size
TAKEN = 100  # by one receive
KEYS = 100_000
PRIORITIES = 10
DELAY_MS = 20


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of topic, and the columns its messages have."""

    name: str
    said: str
    columns: Callable[[Random, int], dict[str, pa.Array]]
    order: Order = "none"


def _keys(chance: Random, rows: int) -> dict[str, pa.Array]:
    return {"key": pa.array([f"key-{chance.randrange(KEYS)}" for _ in range(rows)])}


def _priorities(chance: Random, rows: int) -> dict[str, pa.Array]:
    return {"priority": pa.array([chance.randrange(PRIORITIES) for _ in range(rows)], pa.int8())}


def _delays(_: Random, rows: int) -> dict[str, pa.Array]:
    due_ms = time.time_ns() // 1_000_000 + DELAY_MS
    return {"deliver_at": pa.array([due_ms] * rows, TIME)}


KINDS = (
    Kind("plain", "plain messages", lambda *_: {}),
    Kind("key order", f"{KEYS:,} keys by chance, order='key'", _keys, "key"),
    Kind("priority", "priorities 0 to 9 by chance", _priorities),
    Kind("delay", f"every message was delayed by {DELAY_MS} ms and is due", _delays),
)


class Backlog:
    """A queue with so many messages waiting, before and after every turn."""

    def __init__(self, path: Path, kind: Kind, size: int) -> None:
        self.path = path
        self.queue = quiver.connect(path)
        self.queue.create_topic("t", order=kind.order)
        self.queue.create_group("t", "g")
        self._kind = kind
        self._bodies = pa.array(bodies(BATCH), pa.binary())
        self._chance = Random(size)
        self._send(size)
        # Delays that are over by now end in steps, one with each receive. That is not measured.
        for _ in range(2 + size // limits.MATURE_MAX):
            self._take(TAKEN)
            self._send(TAKEN)

    def _send(self, count: int) -> None:
        for start in range(0, count, BATCH):
            rows = min(count - start, BATCH)
            columns = self._kind.columns(self._chance, rows)
            batch = pa.record_batch({"body": self._bodies.slice(0, rows), **columns})
            self.queue.send_batch("t", batch)
        if self._kind.name == "delay":
            time.sleep(2 * DELAY_MS / 1000)

    def _take(self, count: int) -> None:
        for _ in range(count // TAKEN):
            got = self.queue.receive("t", "g", max_messages=TAKEN)
            assert len(got) == TAKEN, f"{len(got)} of {TAKEN} messages ({self._kind.name})"
            self.queue.ack(got)

    def turn(self) -> tuple[float, float]:
        """Seconds, and those of the processor, in which BATCH messages are leased and acked."""
        start, start_cpu = time.perf_counter(), time.process_time()
        self._take(BATCH)
        spent = time.perf_counter() - start, time.process_time() - start_cpu
        self._send(BATCH)
        return spent

    def pause(self) -> float:
        """Milliseconds in which the shard's thread takes the state; this one is then not written."""
        broker = self.queue._flows.broker
        assert isinstance(broker, LocalBroker)
        shard = broker.shard

        def take() -> None:
            start = time.perf_counter()
            shard._peer.begin_snapshot(shard.now_ms())
            taken.resolve((time.perf_counter() - start) * 1000)

        taken: Ticket[float] = Ticket()
        shard.submit(_RunHere(take))
        return taken.wait()

    def reopen(self) -> float:
        """Milliseconds from closed to open."""
        self.queue.close()
        start = time.perf_counter()
        self.queue = quiver.connect(self.path)
        return (time.perf_counter() - start) * 1000


def backlog(run: Run) -> Iterator[Row]:
    """Every kind with a small and a large backlog, in turns."""
    for kind in KINDS:
        small = Backlog(run.folder("small"), kind, SMALL)
        large = Backlog(run.folder("large"), kind, run.backlog)
        yield from _takes(run, kind, small, large)
        yield from _stops(run, kind, small, large)
        small.queue.close()
        large.queue.close()


def _takes(run: Run, kind: Kind, small: Backlog, large: Backlog) -> Iterator[Row]:
    walls: tuple[list[float], list[float]] = ([], [])
    processors: tuple[list[float], list[float]] = ([], [])
    for counts in run.turns():
        spent = [[0.0, 0.0], [0.0, 0.0]]
        for _ in range(TURNS):
            for at, side in enumerate((large, small)):
                wall, processor = side.turn()
                spent[at][0] += wall
                spent[at][1] += processor
        if counts:
            for at in (0, 1):
                walls[at].append(spent[at][0] / (TURNS * BATCH) * 1e6)
                processors[at].append(spent[at][1] / (TURNS * BATCH) * 1e6)
    name, peer = f"lease + ack at {run.backlog:,}, {kind.name}", f"at {SMALL:,}"
    how = (
        f"{kind.said}; receive(max_messages={TAKEN}) + ack, both synced, {BATCH} messages in each of "
        f"{TURNS} turns a round; what was taken is sent again, unmeasured, so the backlog stays; a "
        "first round does not count, nor do the receives in which delays of the filled backlog "
        "end; a snapshot that falls into a turn does."
    )
    most = Target("<=", 1.5)
    yield Row(name, walls[0], peer, walls[1], "µs/msg", how, most)
    yield Row(
        f"{name}, processor time", processors[0], peer, processors[1], "µs/msg",
        "The same loops in processor time of the process, which no wait for the disk hides.", most,
    )  # fmt: skip


def _stops(run: Run, kind: Kind, small: Backlog, large: Backlog) -> Iterator[Row]:
    paused = times(run, large.pause, small.pause)
    opened = times(run, large.reopen, small.reopen)
    peer = f"at {SMALL:,}"
    yield Row(
        f"snapshot pause at {run.backlog:,}, {kind.name}", paused[0], peer, paused[1], "ms",
        "How long the shard's thread sweeps and takes the state as bytes, and serves nobody; "
        "another thread writes them.",
    )  # fmt: skip
    yield Row(
        f"open at {run.backlog:,}, {kind.name}", opened[0], peer, opened[1], "ms",
        "connect to the directory: load the last snapshot, replay the log behind it.",
    )  # fmt: skip

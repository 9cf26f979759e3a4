"""Opening a directory of this machine: to own its queue, or to read it beside its owner."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from secrets import token_bytes
from typing import Any, Final, TypeVar

import pyarrow as pa

from quiver import limits
from quiver.batches.rows import Checked, pack
from quiver.client.flows import Flows
from quiver.client.following import Follower
from quiver.client.paths import names_in
from quiver.client.steps import Awaited
from quiver.errors import InvalidRequest
from quiver.model.commands import Command, ProducerStamp, Transact
from quiver.model.errands import Errand
from quiver.model.queries import Ability
from quiver.model.replies import Durability, Grant, SentMany, Settled, Transacted
from quiver.model.settlement import Settlement
from quiver.node.cache import BatchCache
from quiver.node.clock import Clock, SystemClock
from quiver.node.peer import Peer
from quiver.node.placing import TopicHandle, place, place_all
from quiver.node.receipts import demand_lease, until_reboot
from quiver.node.replica import Replica
from quiver.node.shard import Shard
from quiver.node.tickets import Ticket
from quiver.storage import system
from quiver.storage.files import TEMPORARY, DiskFiles
from quiver.storage.lock import DirectoryLock, unowned

A = TypeVar("A")

OURS: Final = (
    "quiver.lock",
    "wal-",
    "snapshot-",
    "ledger-",
    "confirmed",
    "access.toml",  # who may use it through a node; it may be there before the queue is
)  # how the names of our files begin; `vote` and `node` are too common to prove anything


class LocalBroker:
    """A shard of this process. What arrives together is begun in the order of the calls.

    `settle` and `transact` take leases for given out by us whose tags are right; nothing else proves it.
    """

    abilities: frozenset[Ability] = frozenset({"write", "seal", "compact", "backup"})
    remote = False
    closed = True

    def __init__(self, shard: Shard, close: Callable[[], None] | None = None) -> None:
        self.shard = shard
        self.close = shard.close if close is None else close
        # These are the shard's, with nothing in between: there may be very many of them.
        self.now_ms, self.directory = shard.now_ms, shard.directory
        self.send_row, self.receive = shard.send_row, shard.receive
        self.ask, self.watch, self.seal = shard.ask, shard.watch, shard.seal

    @property
    def secret(self) -> bytes:
        """What leases and staged messages are signed with."""
        return self.shard.secret

    def patient(self, seconds: float) -> "LocalBroker":
        """The same: there is nobody to wait for."""
        return self

    def apart(self) -> "LocalBroker":
        """The same, which goes on when this one is closed: nothing here is large to the others."""
        return LocalBroker(self.shard, _nothing)

    def propose(self, command: Command, *, sync: bool = True) -> Ticket[Any]:
        """Do a command that has no messages with it."""
        return self.shard.propose(command, sync=sync)

    def pack(self, rows: Sequence[Checked]) -> pa.RecordBatch:
        """The batch of these rows: what is packed here is sent at once."""
        return pack(rows, self.now_ms())

    def send_batch(
        self, topic: TopicHandle, batch: pa.RecordBatch, *, producer: ProducerStamp | None = None,
        staged: bool = False, sync: bool = True,
    ) -> Ticket[SentMany]:  # fmt: skip
        """Split, encode and send a canonical batch as one request."""
        command, encoded = place(topic, batch, producer, staged=staged)
        return self.shard.propose(command, encoded, sync=sync)

    def give_back(self, grant: Grant) -> None:
        """Let go of messages that were received and that nobody has seen."""
        self.shard.give_back(grant.received)

    def settle(self, settlement: Settlement, *, sync: bool = True) -> Ticket[Settled]:
        """Settle what is held under leases of ours."""
        self.verify((settlement,))
        return self.shard.propose(settlement.command, sync=sync)

    def transact(
        self,
        settlements: Sequence[Settlement],
        sends: Sequence[tuple[TopicHandle, pa.RecordBatch]],
        *,
        sync: bool = True,
    ) -> Ticket[Transacted]:
        """Settle and send in one entry."""
        self.verify(settlements)
        commands, encoded = place_all(sends)
        command = Transact(tuple(one.command for one in settlements), commands)
        return self.shard.propose(command, encoded, sync=sync)

    def verify(self, settlements: Iterable[Settlement]) -> None:
        """Refuse leases that were not given out here, by the tags that come with them."""
        secret = self.shard.secret
        for one in settlements:
            it = one.command
            for held, tag in zip(it.held, one.tags, strict=True):
                demand_lease(it.topic, it.group, held.epoch, tag, secret)

    def run(self, errand: Errand[A], batch: pa.RecordBatch | None = None) -> Awaited[A]:
        """Refused: who is here does everything himself."""
        raise InvalidRequest(f"{type(errand).__name__} is done in this process")

    def compact(self, topic: TopicHandle) -> Ticket[int]:
        """Drop what newer messages of the same key have superseded; how many."""
        return self.shard.compact(topic.number)


def _nothing() -> None:
    """Let go of nothing."""


def demand_ours(path: Path) -> None:
    """Refuse a directory that has other people's files and no queue."""
    others = names_in(path)
    if others and not any(name.startswith(OURS) for name in others):
        raise InvalidRequest(
            f"{path} has other files ({', '.join(others[:3])}{', …' if len(others) > 3 else ''}) and "
            f"no queue; give a new or empty directory, such as {path / 'queue'}"
        )


def open_flows(
    path: Path,
    ledger_ms: int,
    durability: Durability,
    cache_bytes: int = limits.CACHE_BYTES_MAX,
    *,
    accept_clock: bool = False,
    clock: Clock | None = None,
) -> tuple[Flows, Callable[[], None]]:
    """The verbs over a shard that runs on a directory that we own, and what ends it."""
    system.demand_supported()
    demand_ours(path)
    lock = DirectoryLock.acquire(path)
    clock = clock or SystemClock()
    try:
        files = DiskFiles(path)
        peer = Peer.open(files, now_ms=clock.now_ms(), secret=token_bytes(32), ledger_ms=ledger_ms)
        try:
            peer.follow_clock(clock.now_ms(), str(path), accept=accept_clock)
        except BaseException:
            peer.close()
            raise
        peer.engine.locator.cache = BatchCache(cache_bytes)
    except BaseException:
        lock.release()
        raise
    shard = Shard(peer, clock)
    if durability == "memory":
        shard.secret = until_reboot(shard.secret)

    def close() -> None:
        shard.close()
        lock.release()

    return Flows(LocalBroker(shard, close), durability, str(path.absolute())), close


def open_replica(path: Path, durability: Durability) -> tuple[Flows, Callable[[], None]]:
    """The verbs that read over a directory that we do not own, and what ends it."""
    system.demand_supported()
    names = names_in(path)
    if not any(name.startswith("wal-") and not name.endswith(TEMPORARY) for name in names):
        raise InvalidRequest(
            f"there is no queue in {path}, and with read_only=True none is made there; give the "
            "directory of one"
        )
    clock = SystemClock()
    follower = Follower(
        Replica(DiskFiles(path, read_only=True), lambda: unowned(path), clock), clock
    )
    return Flows(follower, durability, str(path.absolute())), follower.close

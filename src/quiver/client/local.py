"""Opening a directory of this machine: to own its queue, or to read it beside its owner."""

from collections.abc import Callable
from pathlib import Path
from secrets import token_bytes
from typing import Final

from quiver import limits
from quiver.client.flows import Flows
from quiver.client.following import Follower
from quiver.client.paths import names_in
from quiver.errors import InvalidRequest
from quiver.model.replies import Durability
from quiver.node.cache import BatchCache
from quiver.node.clock import Clock, SystemClock
from quiver.node.engine import Engine
from quiver.node.receipts import until_reboot
from quiver.node.replica import Replica
from quiver.node.shard import Shard
from quiver.storage import system
from quiver.storage.files import TEMPORARY, DiskFiles
from quiver.storage.lock import DirectoryLock, unowned

OURS: Final = (
    "quiver.lock",
    "wal-",
    "snapshot-",
    "ledger-",
    "confirmed",
    "access.toml",  # who may use it through a node; it may be there before the queue is
)  # how the names of our files begin


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
        engine = Engine.open(
            files, now_ms=clock.now_ms(), secret=token_bytes(32), ledger_ms=ledger_ms
        )
        try:
            engine.follow_clock(clock.now_ms(), str(path), accept=accept_clock)
        except BaseException:
            engine.close()
            raise
        engine.locator.cache = BatchCache(cache_bytes)
    except BaseException:
        lock.release()
        raise
    shard = Shard(engine, clock)
    if durability == "memory":
        shard.secret = until_reboot(shard.secret)

    def close() -> None:
        shard.close()
        lock.release()

    return Flows(shard, durability, str(path.absolute())), close


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

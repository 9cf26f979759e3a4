"""From an address to an open queue."""

import os
from collections.abc import Callable
from pathlib import Path
from secrets import token_bytes
from typing import Any, Final

from quiver import limits
from quiver.client import arguments
from quiver.client.aio import AsyncQueue
from quiver.client.flows import Flows
from quiver.client.following import Follower
from quiver.client.paths import directory, names_in
from quiver.client.remote.address import Address, is_address, parse
from quiver.client.sync import Queue
from quiver.errors import InvalidRequest
from quiver.model.replies import Durability
from quiver.model.units import Duration, milliseconds
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


def connect(
    url: str | os.PathLike[str],
    *,
    durability: Durability = "disk",
    ledger_retention: Duration = "30d",
    read_only: bool = False,
    accept_clock: bool = False,
) -> Queue:
    """Open the queue in a directory, made if it is not there, or the one of a node.

    One process owns a directory at a time; any number of them share a node.

    Args:
        url: A directory such as "data/", or the address of a node: "quiver://host:7070", with
            further nodes after commas, "quivers://" with TLS, and a token before an "@" or in the
            variable QUIVER_TOKEN.
        durability: What sends get unless they say otherwise: "disk", or "memory", where nothing
            waits for the disk: fast, and lost if the machine goes down.
        ledger_retention: How long the ledger of a directory is kept.
        read_only: Read a directory without owning it, also while another process does: what is
            confirmed there is seen, and no file is changed. Verbs that would change something raise
            ReadOnly, also for a node.
        accept_clock: The clock is right, although it is far from the time of the last entry.
    """
    return Queue(
        *_opening(
            url, durability, ledger_retention, read_only=read_only, accept_clock=accept_clock
        )()
    )


def connect_async(
    url: str | os.PathLike[str],
    *,
    durability: Durability = "disk",
    ledger_retention: Duration = "30d",
    read_only: bool = False,
    accept_clock: bool = False,
) -> AsyncQueue:
    """`connect` for event loops: `async with quiver.connect_async("data/") as queue: …`.

    Args:
        url: As for `connect`.
        durability: As for `connect`.
        ledger_retention: As for `connect`.
        read_only: As for `connect`.
        accept_clock: As for `connect`.
    """
    return AsyncQueue(
        _opening(url, durability, ledger_retention, read_only=read_only, accept_clock=accept_clock)
    )


def _opening(
    url: Any,
    durability: Durability,
    ledger_retention: Duration,
    *,
    read_only: bool,
    accept_clock: bool,
) -> Callable[[], tuple[Flows, Callable[[], None]]]:
    """What opens the queue, after its arguments are checked."""
    arguments.choice(durability, "durability", Durability)
    ledger_ms = milliseconds(ledger_retention, "ledger_retention")
    node = isinstance(url, str) and is_address(url)
    if accept_clock and (node or read_only):
        raise InvalidRequest(
            "accept_clock is for who opens a directory to write; for a node it is said where the node "
            "is started: quiver serve --accept-clock"
        )
    if isinstance(url, str) and node:
        address = parse(url)
        return lambda: open_link(address, durability, read_only=read_only)
    path = directory(url)
    if read_only:
        return lambda: open_replica(path, durability)
    return lambda: open_flows(path, ledger_ms, durability, accept_clock=accept_clock)


def open_link(
    address: Address, durability: Durability, *, read_only: bool = False
) -> tuple[Flows, Callable[[], None]]:
    """The verbs over a link to nodes that answer, and what ends it."""
    # Only who has a node pays for an HTTP client.
    from quiver.client.remote.flows import RemoteFlows  # noqa: PLC0415
    from quiver.client.remote.link import Link, Request  # noqa: PLC0415
    from quiver.client.remote.wire import About  # noqa: PLC0415

    link = Link(address, read_only=read_only)
    try:
        request = Request("GET", "/v1", repeat=True, opens=True)
        link.call(request, lambda reply: reply.json(About)).wait()
    except BaseException:
        link.close()
        raise
    return RemoteFlows(link, durability), link.close


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

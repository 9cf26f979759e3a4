"""From an address to an open queue."""

import os
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Any

from quiver.client import arguments
from quiver.client.aio import AsyncQueue, Opening
from quiver.client.flows import Flows
from quiver.client.paths import directory
from quiver.client.remote.address import Address, is_address, parse
from quiver.client.sync import Queue
from quiver.errors import InvalidRequest
from quiver.model.replies import Durability
from quiver.model.units import Duration, milliseconds


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
    opening = _opening(
        url, durability, ledger_retention, read_only=read_only, accept_clock=accept_clock
    )
    return Queue(*opening(None))


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
) -> Opening:
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
        return lambda loop: open_node(address, durability, read_only=read_only, loop=loop)
    # Only who has a directory pays for what keeps it.
    from quiver.client.local import open_flows, open_replica  # noqa: PLC0415

    path = directory(url)
    if read_only:
        return lambda _: open_replica(path, durability)
    return lambda _: open_flows(path, ledger_ms, durability, accept_clock=accept_clock)


def open_node(
    address: Address,
    durability: Durability,
    *,
    read_only: bool = False,
    loop: AbstractEventLoop | None = None,
) -> tuple[Flows, Callable[[], None]]:
    """The verbs over nodes that answer, for threads or for this loop, and what ends it."""
    # Only who has a node pays for its protocol.
    from quiver.client.remote.broker import connected  # noqa: PLC0415

    broker = connected(address, loop, read_only=read_only)
    return Flows(broker, durability, str(address)), broker.close

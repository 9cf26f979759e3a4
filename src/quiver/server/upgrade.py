"""How a request becomes a connection of another protocol: its handler takes it over from HTTP.

A request that offers one comes to its handler like any other. Its scope has a `Handover`; a handler that
accepts it answers with nothing else, and one that does not answers as always, after which the connection
ends: what came behind the head of the request may not be HTTP.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from quiver.server.traffic import ServerState, Traffic

UPGRADE: Final = "quiver.upgrade"  # where the scope has it

# What the new protocol begins with: its transport, and the bytes that came already.
Begin = Callable[[asyncio.Transport, bytes], None]


@dataclass(frozen=True, slots=True)
class Handover:
    """An offer to go on with another protocol."""

    offered: bytes  # the value of the Upgrade header
    traffic: Traffic
    state: ServerState
    peer: str
    accept: Callable[[str, Begin], None]  # with the name of the protocol

"""The connections that there are, how many bytes they keep in memory, and whether more may come."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, Self

from starlette.requests import Request

from quiver.errors import Overloaded
from quiver.server.config import NodeBounds


@dataclass(slots=True)
class ServerState:
    """What a node serves just now."""

    connections: set[Any] = field(default_factory=set)  # of HTTP and of frames
    tasks: set[asyncio.Task[None]] = field(default_factory=set)  # of requests over HTTP
    common: bytes = b""  # the lines that the head of every answer has


class Traffic:
    """What all connections of a node have taken up."""

    def __init__(self, bounds: NodeBounds) -> None:
        self.bounds = bounds
        self.peers: Counter[str] = Counter()
        self.connections = 0
        self.bytes = 0

    def enter(self, peer: str) -> bool:
        """Count a connection; whether it is one too many."""
        self.connections += 1
        self.peers[peer] += 1
        return (
            self.connections > self.bounds.connections
            or self.peers[peer] > self.bounds.connections_per_peer
        )

    def leave(self, peer: str) -> None:
        """A connection is gone."""
        self.connections -= 1
        self.peers[peer] -= 1
        if not self.peers[peer]:
            del self.peers[peer]


class HeldBytes:
    """The bytes that one request keeps in memory until it is answered."""

    __slots__ = ("_traffic", "nbytes")

    KEY: Final = "quiver.held"  # where the scope of a request has it

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self.nbytes = 0

    @classmethod
    def by(cls, request: Request) -> Self:
        """Those of this request."""
        found: Self = request.scope[cls.KEY]
        return found

    def add(self, nbytes: int) -> None:
        """Take up so many more, if there is room for them."""
        if self._traffic.bytes + nbytes > self._traffic.bounds.in_flight_bytes:
            raise self._full()
        self.note(nbytes)

    def demand_room(self) -> None:
        """Refuse a request whose answer may be large while there is no room for any."""
        if self._traffic.bytes >= self._traffic.bounds.in_flight_bytes:
            raise self._full()

    def _full(self) -> Overloaded:
        bound = self._traffic.bounds.in_flight_bytes
        return Overloaded(
            f"requests and answers keep {self._traffic.bytes:,} of {bound:,} bytes in memory "
            "already; retry after a moment"
        )

    def note(self, nbytes: int) -> None:
        """Take up so many more for an answer: it must be given, and those who come next may wait."""
        self._traffic.bytes += nbytes
        self.nbytes += nbytes

    def release(self) -> None:
        """The request is answered."""
        self._traffic.bytes -= self.nbytes
        self.nbytes = 0

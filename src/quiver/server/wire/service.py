"""What all connections of a node share."""

import asyncio
from collections import defaultdict

from quiver.client.tasks import Returns
from quiver.server.context import Context
from quiver.server.wire.calls import WireCall, go_on
from quiver.server.wire.executor import Executor

DOOR = "wire"


class WireService:
    """The wire's door of a node."""

    def __init__(self, context: Context) -> None:
        """In the event loop of the node."""
        loop = asyncio.get_running_loop()
        self.context = context
        self.metrics = context.metrics
        self.executor = Executor(context)
        self.returns: Returns[WireCall] = Returns(loop, go_on)
        self.now_ms = self.executor.broker.now_ms
        self._loop = loop
        self._counts: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._turn_ms = 0

    def turn_ms(self) -> int:
        """The time of the queue, asked once for all that is answered in this turn of the loop."""
        if not self._turn_ms:
            self._turn_ms = self.now_ms()
            self._loop.call_soon(self._turn)
        return self._turn_ms

    def count(self, operation: str, code: str, seconds: float) -> None:
        """A request was answered: those of one turn of the loop are counted together."""
        if not self._turn_ms:
            self.turn_ms()
        self._counts[operation, code].append(seconds)

    def _turn(self) -> None:
        self._turn_ms = 0
        counts, self._counts = self._counts, defaultdict(list)
        for (operation, code), seconds in counts.items():
            self.metrics.requests(DOOR, operation, code, seconds)

"""What a door gets."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from quiver.client.aio import AsyncQueue, flows_of
from quiver.client.flows import Flows
from quiver.client.local import LocalBroker
from quiver.server.auth import Guard, Principal
from quiver.server.config import NodeConfig
from quiver.server.metrics import Metrics
from quiver.server.sql.questions import Questions


@dataclass(frozen=True, slots=True)
class Context:
    """The queue, and what a door needs to know around it."""

    queue: AsyncQueue
    config: NodeConfig
    guard: Guard
    metrics: Metrics
    questions: Questions = field(default_factory=Questions)

    @property
    def flows(self) -> Flows:
        """The verbs below the queue's, for what only a node needs."""
        return flows_of(self.queue)

    @property
    def broker(self) -> LocalBroker:
        """What they stand on, for what only the owner of a directory knows: the secret."""
        broker = self.flows.broker
        assert isinstance(broker, LocalBroker)
        return broker

    @contextmanager
    def waiting(self, principal: Principal, wait: float | str) -> Iterator[None]:
        """Around a request that waits, which a principal may have only so many of."""
        if not wait:
            yield
            return
        with principal.waiting(), self.metrics.waiting():
            yield

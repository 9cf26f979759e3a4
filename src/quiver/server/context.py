"""What a door gets."""

from dataclasses import dataclass, field

from quiver.client.aio import AsyncQueue, flows_of
from quiver.client.flows import Flows
from quiver.server.auth import Guard
from quiver.server.config import Config
from quiver.server.metrics import Metrics
from quiver.server.sql.questions import Questions


@dataclass(frozen=True, slots=True)
class Context:
    """The queue, and what a door needs to know around it."""

    queue: AsyncQueue
    config: Config
    guard: Guard
    metrics: Metrics
    questions: Questions = field(default_factory=Questions)

    @property
    def flows(self) -> Flows:
        """The verbs below the queue's, for what only a node needs."""
        return flows_of(self.queue)

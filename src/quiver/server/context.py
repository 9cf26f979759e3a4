"""What a door gets."""

from dataclasses import dataclass, field

from quiver.client.aio import AsyncQueue
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

"""What no query asks: a test looks into an engine, in the thread that it belongs to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from quiver.client.flows import Flows
from quiver.client.local import LocalBroker
from quiver.model.queries import Query, Watched
from quiver.node import answers
from quiver.node.engine import Engine
from quiver.node.shard import Shard


@dataclass(frozen=True)
class Inside(Query[Any]):
    """Answered with what a function makes of the engine, by all that `ask` where the engine is."""

    look: Callable[[Engine], Any]


@dataclass(frozen=True)
class WatchInside(Watched[Any]):
    """The same until the function has an answer: it says, too, when it may have one by itself."""

    topic: int
    look: Callable[[Engine, int], tuple[Any, int | None]]


def shard_of(flows: Flows) -> Shard:
    """The shard that these verbs stand on."""
    assert isinstance(flows.broker, LocalBroker)
    return flows.broker.shard


cast(dict[Any, Any], answers.ANSWERS)[Inside] = lambda engine, query, now_ms: query.look(engine)
cast(dict[Any, Any], answers.WATCHED_ANSWERS)[WatchInside] = lambda engine, query, now_ms: (
    query.look(engine, now_ms)
)

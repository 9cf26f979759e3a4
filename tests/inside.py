"""What no query asks: a test looks into an engine, in the thread that it belongs to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from quiver.model.queries import Query
from quiver.node import answers
from quiver.node.engine import Engine


@dataclass(frozen=True)
class Inside(Query[Any]):
    """Answered with what a function makes of the engine, by all that `ask` where the engine is."""

    look: Callable[[Engine], Any]


cast(dict[Any, Any], answers.ANSWERS)[Inside] = lambda engine, query, now_ms: query.look(engine)

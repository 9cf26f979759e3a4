"""What an endpoint is: a row of the table from which routes, checks and the description are made."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from starlette.requests import Request

from quiver import limits
from quiver.client.aio import AsyncQueue
from quiver.client.flows import Flows
from quiver.server.auth import Principal, Verb
from quiver.server.context import Context
from quiver.server.traffic import HeldBytes
from quiver.wire import shapes

_making = asyncio.Semaphore(limits.ANSWERS_MADE_MAX)


@dataclass(slots=True)
class ApiCall:
    """One request, as its handler sees it: who asks, about what."""

    request: Request
    context: Context
    principal: Principal
    query: Any = None
    data: bytes = b""  # the body, if it is Arrow
    arrow: bool = False  # the answer is wanted as Arrow

    @property
    def queue(self) -> AsyncQueue:
        return self.context.queue

    @property
    def flows(self) -> Flows:
        """The verbs below the queue's, for what only a node needs."""
        return self.context.flows

    @property
    def held(self) -> HeldBytes:
        """What the request and its answer keep in memory."""
        return HeldBytes.by(self.request)

    @asynccontextmanager
    async def making(self) -> AsyncIterator[None]:
        """As `making` says."""
        async with making(self.held):
            yield

    def name(self, what: str) -> str:
        """A part of the path."""
        found: str = self.request.path_params[what]
        return found

    @property
    def topic(self) -> str:
        return self.name("topic")

    @property
    def group(self) -> str:
        return self.name("group")

    @property
    def member(self) -> str:
        return self.name("member")


@asynccontextmanager
async def making(held: HeldBytes) -> AsyncIterator[None]:
    """Around the making of an answer from messages: a few at a time, each if there is room then.

    Requests that come all at once have all been let in before the first of them has its answer.
    """
    async with _making:
        held.demand_room()
        yield


async def written(make: Callable[[], Any]) -> bytes:
    """An answer in JSON that may be long, made and written off the event loop."""
    return await asyncio.to_thread(lambda: shapes.write_json(make()))


@dataclass(frozen=True, slots=True)
class ArrowStream:
    """An answer in Arrow: tables of one schema, and what they have in common."""

    tables: Any  # a table, or a reader of batches
    about: Any = None

    @property
    def schema(self) -> pa.Schema:
        schema: pa.Schema = self.tables.schema
        if self.about is None:
            return schema
        return schema.with_metadata({shapes.ABOUT: shapes.write_json(self.about)})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A way in. `body` None means that there is none; `arrow_in` that it may be Arrow too."""

    method: Literal["GET", "PUT", "POST", "PATCH", "DELETE"]
    path: str
    verb: Verb | None  # None: for everybody, or checked by the handler
    handle: Callable[..., Awaitable[Any]]
    summary: str
    answer: Any = None  # None: 204, nothing to say
    body: Any = None
    query: Any = None
    arrow_in: bool = False
    arrow_out: bool = False
    large: bool = False  # its answer may be; it is refused while memory is full
    limit: int = limits.API_SMALL_BYTES_MAX  # of a body in JSON
    somewhere: tuple[Verb, ...] = ()  # who may do none of these anywhere need not say more

    @property
    def name(self) -> str:
        """Short, for metrics and as the description's operation id."""
        return self.handle.__name__.rstrip("_")

    @property
    def parameters(self) -> list[str]:
        """The names in its path."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

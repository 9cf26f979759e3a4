"""The ASGI application: requests to doors, errors to answers."""

from collections.abc import Awaitable, Callable
from functools import cache, partial

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from quiver.errors import QuiverError, UnavailableError
from quiver.server.api import routes as native
from quiver.server.context import Context
from quiver.server.problems import problem
from quiver.server.requests import RequestMiddleware, until_gone
from quiver.server.scrape import scrape
from quiver.server.sqs.door import Door
from quiver.server.tracing import Traced
from quiver.server.traffic import Traffic
from quiver.server.wire.door import WireDoor
from quiver.server.wire.service import WireService
from quiver.wire.frames import PATH

__all__ = ["make_app", "until_gone"]


async def always() -> None:
    """Ready, whatever happens."""


def make_app(
    context: Context,
    traffic: Traffic | None = None,
    check: Callable[[], Awaitable[None]] = always,
) -> ASGIApp:
    """All doors of a node. `check` raises the reason if it cannot serve now."""

    async def live(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        try:
            await check()
        except QuiverError as error:
            return problem(error, UnavailableError.http_status)
        return PlainTextResponse("ok\n")

    sqs = Door(context)
    routes: list[BaseRoute] = [
        _sqs_route("/", sqs),
        _sqs_route("/{account:int}/{queue}", sqs),
        *native.routes(context),
        _wire_route(WireDoor(cache(partial(WireService, context)))),
        Route("/health/live", live, methods=["GET"]),
        Route("/health/ready", ready, methods=["GET"]),
        Route("/metrics", scrape(context), methods=["GET"]),
    ]
    return RequestMiddleware(
        Traced(_Doors(sqs, routes)),
        context.config.hosts,
        traffic or Traffic(context.config.bounds),
        context.metrics,
    )


class _Doors(Router):
    """SDKs post to the root, a message at a time: they need not wait for the choice of a route."""

    def __init__(self, sqs: Door, routes: list[BaseRoute]) -> None:
        super().__init__(routes, redirect_slashes=False)
        self._sqs = sqs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/" and scope["method"] == "POST":
            await self._sqs(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _wire_route(wire: WireDoor) -> Route:
    route = Route(PATH, wire)
    route.methods = {"GET", "POST"}
    return route


def _sqs_route(path: str, door: Door) -> Route:
    route = Route(path, door)
    route.methods = {"GET", "POST"}  # and no HEAD, which Starlette adds and nobody has asked for
    return route

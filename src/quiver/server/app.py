"""The ASGI application: requests to doors, errors to answers."""

import asyncio
from collections.abc import Coroutine
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from quiver.errors import InvalidRequest, QuiverError
from quiver.server.context import Context
from quiver.server.problems import problem
from quiver.server.scrape import scrape

T = TypeVar("T")


def make_app(context: Context) -> ASGIApp:
    """All doors of a node."""
    routes: list[BaseRoute] = [
        Route("/health/live", live, methods=["GET"]),
        Route("/health/ready", live, methods=["GET"]),
        Route("/metrics", scrape(context), methods=["GET"]),
    ]
    if _exists("quiver.server.api", "routes"):
        routes += import_module("quiver.server.api.routes").routes(context)
    if _exists("quiver.server.sqs", "door"):
        routes.append(Mount("/", import_module("quiver.server.sqs.door").Door(context)))
    return Starlette(
        routes=routes,
        exception_handlers={QuiverError: _quiver_error, HTTPException: _http_error},
    )


def _exists(package: str, module: str) -> bool:
    return find_spec(package) is not None and find_spec(f"{package}.{module}") is not None


async def live(request: Request) -> Response:
    """The process answers."""
    return PlainTextResponse("ok\n")


async def until_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled if the client goes away meanwhile.

    The body must have been read. A receive that is cancelled leases nothing to nobody.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for pending in (task, gone):
            pending.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _quiver_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, QuiverError)
    return problem(error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    found = InvalidRequest(str(error.detail))
    answer = problem(found)
    answer.status_code = error.status_code
    return answer

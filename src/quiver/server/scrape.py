"""The endpoint that Prometheus reads: all figures, for those who may observe every topic."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from quiver.server.context import Context


def scrape(context: Context) -> Callable[[Request], Awaitable[Response]]:
    """The handler of GET /metrics."""

    async def answer(request: Request) -> Response:
        context.guard.by_token(request.scope).demand("observe")
        accept = request.headers.get("accept", "")
        body, content_type = await context.metrics.expose(context.queue, accept)
        return Response(body, headers={"content-type": content_type})

    return answer

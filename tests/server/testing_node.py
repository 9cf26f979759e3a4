"""`quiver serve` with a few routes more, for what lies before the doors; `TEST_LIMITS` sets limits."""

import json
import os
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from quiver import limits
from quiver.cli import main
from quiver.client.aio import AsyncQueue
from quiver.server import app as app_module
from quiver.server import serve
from quiver.server.app import until_gone
from quiver.server.body import read_body

LIMIT = 2_000_000
PIECE = 100_000


def routes(queue: AsyncQueue) -> list[Route]:
    async def count(request: Request) -> Response:
        return PlainTextResponse(str(len(await read_body(request, LIMIT))))

    async def send(request: Request) -> Response:
        await queue.send("t", await read_body(request, LIMIT))
        return PlainTextResponse("sent")

    async def receive(request: Request) -> Response:
        wait = float(request.query_params.get("wait", 0))
        got = await until_gone(request, queue.receive("t", wait=wait))
        return PlainTextResponse(",".join(f"{one.body.decode()}:{one.attempt}" for one in got))

    async def large(request: Request) -> Response:
        return Response(bytes(int(request.query_params["bytes"])))

    async def streamed(request: Request) -> Response:
        count = int(request.query_params["pieces"])

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(count):
                yield bytes(PIECE)

        return StreamingResponse(pieces(), headers={"content-length": str(count * PIECE)})

    async def broken(request: Request) -> Response:
        raise RuntimeError("a bug")

    async def break_disk(request: Request) -> Response:
        def fail(_: Any) -> None:
            raise OSError(5, "Input/output error")

        vars(os)["fdatasync"] = fail
        return PlainTextResponse("broken")

    posts = [("count", count), ("send", send), ("break-disk", break_disk)]
    gets = [("receive", receive), ("large", large), ("streamed", streamed), ("broken", broken)]
    return [
        *(Route(f"/test/{name}", act, methods=["POST"]) for name, act in posts),
        *(Route(f"/test/{name}", act, methods=["GET"]) for name, act in gets),
    ]


def make_app(context: Any, *more: Any) -> Any:
    app: Any = app_module.make_app(context, *more)
    app._doors._app.routes[:0] = routes(context.queue)
    return app


vars(serve)["make_app"] = make_app
vars(limits).update(json.loads(os.environ.get("TEST_LIMITS", "{}")))

if __name__ == "__main__":
    main()

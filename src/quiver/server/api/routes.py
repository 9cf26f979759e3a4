"""From the table of endpoints to routes: who asks, may they, what do they say, how is it answered."""

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from quiver import limits, notices
from quiver.errors import (
    InvalidRequest,
    QuiverError,
    ReceiptExpired,
    StorageFailed,
    UnreadableMessages,
)
from quiver.notices import Notice
from quiver.server.api import arrow
from quiver.server.api.endpoint import ApiCall, ArrowStream, Endpoint
from quiver.server.api.openapi import describe
from quiver.server.api.table import ENDPOINTS
from quiver.server.auth import EVERY_TOPIC
from quiver.server.body import read_body
from quiver.server.context import Context
from quiver.server.problems import let_go, problem
from quiver.server.requests import DOOR
from quiver.wire import shapes

T = TypeVar("T")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def routes(context: Context) -> list[BaseRoute]:
    """The native door's routes."""
    description = msgspec.json.encode(describe(ENDPOINTS))

    async def openapi(request: Request) -> Response:
        return Response(description, media_type=shapes.JSON)

    return [
        Route("/openapi.json", openapi, methods=["GET"]),
        *(
            Route(endpoint.path, _handler(endpoint, context), methods=[endpoint.method])
            for endpoint in ENDPOINTS
        ),
    ]


def _handler(endpoint: Endpoint, context: Context) -> Handler:
    async def handle(request: Request) -> Response:
        started = time.perf_counter()
        request.scope[DOOR] = "api"
        operation, code = endpoint.name, "ok"
        with notices.collected() as warned:
            try:
                call, body = await _understood(endpoint, context, request)
                if isinstance(body, shapes.SettlePart):  # acks have figures of their own
                    operation = body.action
                given = () if endpoint.body is None else (body,)
                answer = await _answered(call, endpoint, await endpoint.handle(call, *given))
            except QuiverError as error:
                code = error.code
                if isinstance(error, StorageFailed):
                    raise  # the whole node must know
                answer = _problem(error)
                let_go(error)
        answer.headers[shapes.TIME_HEADER] = str(context.flows.now_ms())
        if warned:
            answer.headers[shapes.WARNINGS_HEADER] = _warnings(warned)
        seconds = time.perf_counter() - started
        context.metrics.request("api", operation, code, seconds)
        return answer

    return handle


async def _understood(
    endpoint: Endpoint, context: Context, request: Request
) -> tuple[ApiCall, Any]:
    """The request, checked as far as can be without knowing what it is about."""
    principal = context.guard.by_token(request.scope)
    if endpoint.verb is not None:
        principal.demand(endpoint.verb, request.path_params.get("topic", EVERY_TOPIC))
    if endpoint.somewhere:
        principal.demand_somewhere(*endpoint.somewhere)
    call = ApiCall(request, context, principal)
    if endpoint.large:
        call.held.demand_room()
    call.arrow = endpoint.arrow_out and shapes.ARROW in request.headers.get("accept", "")
    if endpoint.query is not None:
        call.query = _query(request, endpoint.query)
    if endpoint.body is None:
        await read_body(request, 0)
        return call, None
    kind = request.headers.get("content-type", shapes.JSON).partition(";")[0].strip().lower()
    if endpoint.arrow_in and kind == shapes.ARROW:
        call.data = await read_body(request, limits.API_ARROW_BYTES_MAX)
        return call, None
    if kind != shapes.JSON:
        raise InvalidRequest(f"Content-Type must be {shapes.JSON}, not {kind[:80]!r}")
    data = await read_body(request, endpoint.limit)
    if len(data) > limits.INLINE_BYTES_MAX:
        return call, await asyncio.to_thread(shapes.read_json, data, endpoint.body)
    return call, shapes.read_json(data, endpoint.body)


def _query(request: Request, kind: type[T]) -> T:
    given = request.query_params.multi_items()
    if len({name for name, _ in given}) < len(given):
        raise InvalidRequest("a parameter is given twice")
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"a parameter is not as it should be: {error}") from None


async def _answered(call: ApiCall, endpoint: Endpoint, answer: Any) -> Response:
    if answer is None:
        return Response(status_code=204)
    if isinstance(answer, ArrowStream):
        if isinstance(answer.tables, pa.Table):
            call.held.note(answer.tables.nbytes)
        return await _streamed(call, answer)
    body = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
    call.held.note(len(body))
    return await _compressed(call.request, body, shapes.JSON)


async def _streamed(call: ApiCall, answer: ArrowStream) -> Response:
    tables, schema = answer.tables, answer.schema
    if not isinstance(tables, pa.Table):
        return StreamingResponse(arrow.pieces(tables, schema), media_type=shapes.ARROW)
    if tables.nbytes < limits.INLINE_BYTES_MAX:
        body = arrow.whole(tables, schema)
    else:
        body = await asyncio.to_thread(arrow.whole, tables, schema)
    return await _compressed(call.request, body, shapes.ARROW)


async def _compressed(request: Request, body: bytes | memoryview, media_type: str) -> Response:
    """The answer, compressed if the client can take it and it is worth it."""
    if len(body) < limits.COMPRESS_BYTES_MIN:
        return Response(body, media_type=media_type)
    wanted = request.headers.get("accept-encoding", "").lower()
    headers = {"vary": "accept-encoding"}
    if "zstd" in wanted:
        headers["content-encoding"] = "zstd"
        body = await asyncio.to_thread(lambda: pa.compress(body, "zstd", asbytes=True))
    elif "gzip" in wanted:
        headers["content-encoding"] = "gzip"
        body = await asyncio.to_thread(gzip.compress, body, 1)
    return Response(body, headers=headers, media_type=media_type)


def _problem(error: QuiverError) -> Response:
    if not isinstance(error, ReceiptExpired):
        return problem(error)
    return problem(error, refused=list(error.refused))


def _warnings(warned: list[Notice]) -> str:
    """As many as a header can carry, and the first in any case; as `shapes.WarningOut` has them."""
    told: list[dict[str, Any]] = []
    for notice in warned:
        said = [*told, _warning(notice)]
        if told and len(json.dumps(said)) > limits.WARNINGS_BYTES_MAX:
            break
        told = said
    return json.dumps(told)


def _warning(notice: Notice) -> dict[str, Any]:
    text = str(notice)[: limits.WARNING_CHARS_MAX]
    if isinstance(notice, UnreadableMessages):
        return {"message": text, "topic": "", "group": "", "count": 0, "unreadable": True}
    return {
        "message": text,
        "topic": notice.topic,
        "group": notice.group,
        "count": notice.count,
    }

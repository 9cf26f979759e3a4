"""Requests to actions, outcomes to answers, in both protocols.

JSON is a POST with `X-Amz-Target: AmazonSQS.<Action>`; a query is a form with `Action=`, posted or in
the address of a GET. Either goes to `/` or to a queue's own URL, `/<account>/<queue>`. Errors are
answers too, so nothing but a bug of ours leaves here as an exception.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import getrandbits
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from quiver import limits
from quiver.errors import QuiverError, StorageFailed
from quiver.server.body import read_packed, unpacked
from quiver.server.context import Context
from quiver.server.problems import let_go
from quiver.server.requests import AMAZON_ID, DOOR, HEADERS, REQUEST_ID, by_browser, header
from quiver.server.sqs import faults, manage, moves, query, receiving, sending, settling
from quiver.server.sqs.faults import Fault
from quiver.server.sqs.service import SqsCall, SqsService
from quiver.server.sqs.shapes import INPUTS, Output

TARGET: Final = b"AmazonSQS."
JSON: Final = b"application/x-amz-json-1.0"
XML: Final = b"text/xml"
PLAIN_JSON: Final = b"application/json"
UNKNOWN: Final = b"<UnknownOperationException/>\n"
NOT_ON_QUEUES: Final = ("CreateQueue", "ListQueues")  # which have no queue to be called at
READING: Final = ("Get", "List")  # how actions begin that change nothing

Action = Callable[[SqsCall, Any], Awaitable[Output | None]]

ACTIONS: Final[dict[str, Action]] = {
    "AddPermission": manage.add_permission,
    "CancelMessageMoveTask": moves.cancel_message_move_task,
    "ChangeMessageVisibility": settling.change_message_visibility,
    "ChangeMessageVisibilityBatch": settling.change_message_visibility_batch,
    "CreateQueue": manage.create_queue,
    "DeleteMessage": settling.delete_message,
    "DeleteMessageBatch": settling.delete_message_batch,
    "DeleteQueue": manage.delete_queue,
    "GetQueueAttributes": manage.get_queue_attributes,
    "GetQueueUrl": manage.get_queue_url,
    "ListDeadLetterSourceQueues": manage.list_dead_letter_source_queues,
    "ListMessageMoveTasks": moves.list_message_move_tasks,
    "ListQueueTags": manage.list_queue_tags,
    "ListQueues": manage.list_queues,
    "PurgeQueue": manage.purge_queue,
    "ReceiveMessage": receiving.receive_message,
    "RemovePermission": manage.remove_permission,
    "SendMessage": sending.send_message,
    "SendMessageBatch": sending.send_message_batch,
    "SetQueueAttributes": manage.set_queue_attributes,
    "StartMessageMoveTask": moves.start_message_move_task,
    "TagQueue": manage.tag_queue,
    "UntagQueue": manage.untag_queue,
}
TARGETS: Final = {TARGET + name.encode(): name for name in ACTIONS}
_DECODERS: Final = {name: msgspec.json.Decoder(shape) for name, shape in INPUTS.items()}
_encoder: Final = msgspec.json.Encoder()


@dataclass(slots=True)
class SqsAnswer:
    """What goes back."""

    status: int
    kind: bytes
    body: bytes
    code: str = "ok"
    legacy: bytes = b""  # the older code of an error, for SDKs that speak JSON


class Door:
    """The ASGI application of SQS."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._service = SqsService(context)
        bounds = context.config.sqs
        self._body_max = max(limits.SQS_REQUEST_BYTES_MAX, 6 * bounds.message_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        started = time.perf_counter()
        scope[DOOR] = "sqs"
        request_id = _request_id()
        if b"x-request-id" not in scope[HEADERS]:  # the log has the id that the client knows
            scope[REQUEST_ID] = request_id
        exchange = Exchange(self._service, Request(scope, receive), request_id)
        try:
            claim = self._context.guard.claim(scope)
            packed = await read_packed(exchange.request, self._body_max)
            principal = claim.by(packed)
            body = await unpacked(exchange.request, packed, self._body_max)
            if len(body) < limits.INLINE_BYTES_MAX:
                exchange.read(body)
            else:
                await asyncio.to_thread(exchange.read, body)
            answer = await exchange.answer(body, principal)
        except ClientDisconnect:
            raise
        except Fault as fault:
            answer = exchange.refusal(fault)
            let_go(fault)
        except QuiverError as error:
            if isinstance(error, StorageFailed):
                raise  # the node ends
            answer = exchange.refusal(faults.of(error))
            let_go(error)
        self._context.metrics.request(
            "sqs", exchange.action or "unknown", answer.code, time.perf_counter() - started
        )
        await _reply(send, answer, exchange.request_id)


class Exchange:
    """One request, and the protocol it is in."""

    def __init__(self, service: SqsService, request: Request, request_id: str) -> None:
        self._service = service
        self.request = request
        self.request_id = request_id
        self.action = ""  # one that there is, or nothing
        scope = request.scope
        target = scope[HEADERS].get(b"x-amz-target") if scope["method"] == "POST" else None
        self._target = target
        self._wants_json = target is None and PLAIN_JSON in (header(scope, b"accept") or b"")
        self._fields: dict[str, str] = {}
        parts = [part for part in scope["path"].split("/") if part]
        self._path_queue = parts[-1] if parts else None

    def read(self, body: bytes) -> None:
        """Find out which action is meant."""
        scope = self.request.scope
        if self._target is not None:
            if self._target not in TARGETS:
                raise Fault("UnknownOperationException", "The requested operation is not known.")
            self.action = TARGETS[self._target]
            return
        self._fields = query.form(scope["query_string"])
        if scope["method"] == "POST":
            self._fields |= query.form(body)
        name = self._fields.get("Action", "")
        if not name:
            raise _Nothing
        if name not in ACTIONS or (self._path_queue is not None and name in NOT_ON_QUEUES):
            raise Fault("InvalidAction", f"The action {name} is not valid for this endpoint.")
        self.action = name
        if (
            scope["method"] == "GET"
            and self._service.context.guard.open
            and not name.startswith(READING)
        ):
            self._refuse_browsers()

    def _refuse_browsers(self) -> None:
        """Nobody's signature is asked for here, so a picture on any page could be such a GET."""
        if by_browser(self.request.scope):
            raise Fault("AccessDeniedException", "A browser may not change anything by GET.")

    async def answer(self, body: bytes, principal: Any) -> SqsAnswer:
        """Do it."""
        call = SqsCall(self._service, principal, self.request, self._path_queue)
        if self._target is not None:
            decode = _DECODERS[self.action].decode
            try:
                if len(body) < limits.INLINE_BYTES_MAX:
                    request = decode(body or b"{}")
                else:
                    request = await asyncio.to_thread(decode, body)
            except (msgspec.DecodeError, RecursionError) as error:
                raise Fault(
                    "SerializationException", f"The request cannot be read: {error}"
                ) from None
            output = await ACTIONS[self.action](call, request)
            return SqsAnswer(200, JSON, b"" if output is None else _encoder.encode(output))
        output = await ACTIONS[self.action](call, query.decode(self.action, self._fields))
        if self._wants_json:
            return SqsAnswer(
                200, PLAIN_JSON, query.json_answer(self.action, output, self.request_id)
            )
        return SqsAnswer(200, XML, query.answer(self.action, output, self.request_id))

    def refusal(self, fault: Fault) -> SqsAnswer:
        """Say no in the words of the protocol."""
        if isinstance(fault, _Nothing):
            return SqsAnswer(404, XML, UNKNOWN, fault.code)
        if self._target is not None:
            who = "Sender" if fault.sender else "Receiver"
            body = {"__type": f"com.amazonaws.sqs#{fault.shape}", "message": fault.message}
            legacy = f"{fault.code};{who}".encode("latin-1", "replace")
            return SqsAnswer(fault.status, JSON, _encoder.encode(body), fault.code, legacy)
        if self._wants_json:
            text = query.json_error(fault, self.request_id)
            return SqsAnswer(fault.status, PLAIN_JSON, text, fault.code)
        return SqsAnswer(fault.status, XML, query.error(fault, self.request_id), fault.code)


class _Nothing(Fault):
    """A request that asks for nothing."""

    def __init__(self) -> None:
        super().__init__("UnknownOperationException", "")


def _request_id() -> str:
    """In the form of a UUID, as SDKs print it."""
    text = f"{getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


async def _reply(send: Send, answer: SqsAnswer, request_id: str) -> None:
    headers = [
        (b"content-type", answer.kind),
        (b"content-length", str(len(answer.body)).encode()),
        (AMAZON_ID, request_id.encode()),
    ]
    if answer.legacy:
        headers.append((b"x-amzn-query-error", answer.legacy))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})

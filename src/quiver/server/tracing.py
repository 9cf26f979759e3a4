"""A span around each request, in the trace that its `traceparent` header names.

What is sent inside such a request is in that trace too, if the message does not name one itself.
The node records spans if somebody gave the process an OpenTelemetry SDK; without one the trace is
only passed on.
"""

from typing import Final

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quiver.server.requests import HEADERS
from quiver.tracing import PARENT, STATE, continued

_CARRIED: Final = (PARENT.encode(), STATE.encode())


class Traced:
    """An application whose requests are spans."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tracer = trace.get_tracer("quiver.server")
        # An SDK is given to a process before it begins; to ask took an eighth of a request.
        self._recorded = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve; without a trace and an SDK that costs one look at the headers."""
        if not self._recorded and scope[HEADERS].keys().isdisjoint(_CARRIED):
            await self._app(scope, receive, send)
            return
        carried = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in _CARRIED
        }
        with self._tracer.start_as_current_span(
            scope["method"],
            context=continued(carried),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": scope["method"], "url.path": scope["path"]},
            record_exception=False,  # a refusal is an answer
            set_status_on_exception=False,
        ) as span:

            async def answer(message: Message) -> None:
                if message["type"] == "http.response.start":
                    _tell(span, message["status"])
                await send(message)

            try:
                await self._app(scope, receive, answer)
            except Exception as error:
                _tell(span, getattr(error, "http_status", 500))
                span.set_attribute("error.type", getattr(error, "code", type(error).__name__))
                raise


def _tell(span: Span, status: int) -> None:
    """Tell the span how the request was answered, or will be."""
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(Status(StatusCode.ERROR))

"""Traces from producer to consumer: OpenTelemetry's context, carried in the headers of messages.

A message that is sent while a span is current gets the headers `traceparent` and `tracestate` (W3C
Trace Context), unless it has them. A consumer continues the trace:

    for delivery in queue.receive("orders", "billing", wait=20):
        with quiver.tracing.consumer_span(delivery):
            charge(delivery.json())
            delivery.ack()

Without an OpenTelemetry SDK all of this does nothing, and in a program that has never loaded
OpenTelemetry it is not loaded either.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from quiver import limits

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

LOADED: Final = "opentelemetry.trace"  # is in `sys.modules` if a span may be current
PARENT: Final = "traceparent"
STATE: Final = "tracestate"


def carried(headers: Any) -> Any:
    """The headers of a message, with the current trace if there is one and they have none.

    They are not checked yet, so they may be anything.
    """
    if LOADED not in sys.modules:
        return headers
    if headers is None:
        return current() or None
    if not isinstance(headers, Mapping) or PARENT in headers:
        return headers
    joined = {**headers, **current()}
    return joined if _fits(joined) else headers


def current() -> dict[str, str]:
    """The current trace as headers; empty if there is none."""
    context: Any = sys.modules["opentelemetry.context"]  # what is LOADED has loaded it
    if not context.get_current():  # an empty one has no span
        return {}
    from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415

    carrier: dict[str, str] = {}
    tracecontext.TraceContextTextMapPropagator().inject(carrier)
    return carrier


def continued(headers: Mapping[str, str]) -> "Context":
    """The context that headers carry; an empty one if they carry none."""
    from opentelemetry.context import Context  # noqa: PLC0415
    from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415

    found = {name: headers[name] for name in (PARENT, STATE) if name in headers}
    return tracecontext.TraceContextTextMapPropagator().extract(found, Context())


@contextmanager
def consumer_span(delivery: Any, name: str | None = None) -> "Iterator[Span]":
    """A span around the work on a delivery (or a record that was read), in its producer's trace.

    It is current in the `with` block, is called `process <topic>` unless it has another name, has a
    link to the span that was current before, and says so if the block raises.
    """
    from opentelemetry import trace  # noqa: PLC0415

    around = trace.get_current_span().get_span_context()
    facts = {
        "messaging.system": "quiver",
        "messaging.operation.type": "process",
        "messaging.destination.name": delivery.topic,
        "messaging.destination.partition.id": str(delivery.partition),
        "messaging.message.id": delivery.id,
        "messaging.message.body.size": len(delivery.body),
    }
    if hasattr(delivery, "group"):
        facts["messaging.consumer.group.name"] = delivery.group
        facts["quiver.attempt"] = delivery.attempt
    with trace.get_tracer("quiver").start_as_current_span(
        name or f"process {delivery.topic}",
        context=continued(delivery.headers),
        kind=trace.SpanKind.CONSUMER,
        attributes=facts,
        links=[trace.Link(around)] if around.is_valid else [],
    ) as span:
        yield span


def _fits(headers: Mapping[Any, Any]) -> bool:
    """Whether a message may have so many; what is no text is refused later, by who checks it."""
    nbytes = sum(
        len(str(part).encode(errors="replace")) for pair in headers.items() for part in pair
    )
    return len(headers) <= limits.HEADERS_MAX and nbytes <= limits.HEADERS_BYTES_MAX

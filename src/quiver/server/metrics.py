"""What the node counts, and the text that Prometheus reads.

Requests are counted as they are answered. Figures of topics and groups are not: they are asked for
when somebody looks, so that sending and receiving cost nothing for them.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from quiver.client.aio import AsyncQueue

PLAIN = "text/plain; version=0.0.4; charset=utf-8"

SECONDS = (0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
AGES = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400)


class Metrics:
    """The counters of one node, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "quiver_requests", "Requests answered.", ["door", "operation", "code"],
            registry=self.registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "quiver_request_seconds", "How long requests took.", ["door", "operation"],
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self._received = Counter(
            "quiver_received_bytes", "Bytes of request bodies.", ["door"], registry=self.registry
        )
        self._sent = Counter(
            "quiver_sent_bytes", "Bytes of answers.", ["door"], registry=self.registry
        )
        self._ages = Histogram(
            "quiver_message_age_seconds", "How old messages were when delivered.", ["topic"],
            buckets=AGES, registry=self.registry,
        )  # fmt: skip
        self._connections = Gauge("quiver_connections", "Open connections.", registry=self.registry)

    def request(
        self, door: str, operation: str, code: str, seconds: float, received: int, sent: int
    ) -> None:
        """A request was answered: `code` is "ok" or an error's code; bytes are those of the bodies."""
        self._requests.labels(door, operation, code).inc()
        self._seconds.labels(door, operation).observe(seconds)
        self._received.labels(door).inc(received)
        self._sent.labels(door).inc(sent)

    def age(self, topic: str, seconds: float, count: int = 1) -> None:
        """Messages were delivered `seconds` after they were stored."""
        for _ in range(count):
            self._ages.labels(topic).observe(seconds)

    def watch_connections(self, count: Callable[[], int]) -> None:
        """Ask `count` how many connections are open, when somebody looks."""
        self._connections.set_function(count)

    async def expose(self, queue: AsyncQueue, accept: str = "") -> tuple[bytes, str]:
        """The body and content type of /metrics, as the Accept header asks for."""
        if "application/openmetrics-text" in accept:
            text = openmetrics.generate_latest(self.registry)  # type: ignore[no-untyped-call]  # not theirs
            return text, openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(self.registry), PLAIN

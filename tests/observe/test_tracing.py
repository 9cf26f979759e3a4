"""One trace from the producer through the node to the consumer, recorded by the real SDK."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import quiver
from quiver import limits, tracing
from tests.server.nodes import Node, start_node

# Loaded by Python when it starts: a node whose process somebody gave an SDK.
SITE = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

provider = TracerProvider()
out = open(os.environ["SPANS"], "a", buffering=1)
line = lambda span: span.to_json(indent=None) + "\\n"
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=out, formatter=line)))
trace.set_tracer_provider(provider)
"""


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    found = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    trace.set_tracer_provider(provider)  # once in a process
    return found


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    exporter.clear()
    yield exporter
    exporter.clear()


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[quiver.Queue]:
    with quiver.connect(tmp_path / "data") as opened:
        opened.create_topic("orders")
        yield opened


def in_span(name: str = "checkout"):
    return trace.get_tracer("shop").start_as_current_span(name)


def test_a_message_carries_the_trace_it_was_sent_in(
    queue: quiver.Queue, spans: InMemorySpanExporter
):
    with in_span():
        queue.send("orders", {"order": 1}, headers={"kind": "new"})
    (delivery,) = queue.receive("orders", "billing")
    with in_span("worker") as around, tracing.consumer_span(delivery) as work:
        work.set_attribute("amount", 10)
        delivery.ack()
    producer, consumer, _ = spans.get_finished_spans()
    assert producer.context is not None
    assert consumer.context is not None
    assert consumer.context.trace_id == producer.context.trace_id
    assert consumer.parent is not None
    assert consumer.parent.span_id == producer.context.span_id
    assert consumer.parent.is_remote
    assert [link.context for link in consumer.links] == [around.get_span_context()]
    assert consumer.name == "process orders"
    assert consumer.kind == trace.SpanKind.CONSUMER
    assert consumer.attributes is not None
    assert consumer.attributes["messaging.consumer.group.name"] == "billing"
    assert consumer.attributes["messaging.message.id"] == delivery.id
    assert delivery.headers["kind"] == "new"


def test_every_way_to_send_carries_it(queue: quiver.Queue, spans: InMemorySpanExporter):
    with in_span() as span:
        queue.send_batch("orders", [b"one", quiver.Message(b"two")])
        with queue.producer("orders") as producer:
            producer.send(b"three")
        with queue.transaction() as tx:
            tx.send("orders", b"four")
    wanted = f"{span.get_span_context().trace_id:032x}"
    found = queue.receive("orders", max_messages=10)
    assert [delivery.headers["traceparent"].split("-")[1] for delivery in found] == [wanted] * 4


def test_without_a_span_nothing_is_added(queue: quiver.Queue, spans: InMemorySpanExporter):
    queue.send("orders", b"plain")
    (delivery,) = queue.receive("orders")
    assert dict(delivery.headers) == {}
    with tracing.consumer_span(delivery, "bill") as span:
        pass
    (consumer,) = spans.get_finished_spans()
    assert (consumer.name, consumer.parent, consumer.links) == ("bill", None, ())
    assert span.get_span_context().is_valid


def test_what_a_message_says_itself_stays(queue: quiver.Queue, spans: InMemorySpanExporter):
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with in_span():
        queue.send("orders", b"x", headers={"traceparent": own, "tracestate": "a=1"})
    (delivery,) = queue.receive("orders")
    assert dict(delivery.headers) == {"traceparent": own, "tracestate": "a=1"}
    with tracing.consumer_span(delivery) as span:
        assert span.get_span_context().trace_state.get("a") == "1"


@pytest.mark.parametrize("broken", ["", "00-zz-b7ad6b7169203331-01", "💥", "0" * 1_000])
def test_a_broken_context_begins_a_new_trace(
    queue: quiver.Queue, spans: InMemorySpanExporter, broken: str
):
    queue.send("orders", b"x", headers={"traceparent": broken})
    (delivery,) = queue.receive("orders")
    with tracing.consumer_span(delivery):
        pass
    (consumer,) = spans.get_finished_spans()
    assert consumer.parent is None


def test_a_message_that_has_all_the_headers_it_may_have_is_sent_as_it_is(
    queue: quiver.Queue, spans: InMemorySpanExporter
):
    many = {f"h{at}": "x" for at in range(limits.HEADERS_MAX)}
    large = {"h": "x" * (limits.HEADERS_BYTES_MAX - 1)}
    with in_span():
        for headers in (many, large):
            queue.send("orders", b"x", headers=headers)
            (delivery,) = queue.receive("orders")
            assert dict(delivery.headers) == headers
        with pytest.raises(quiver.InvalidRequest, match="mapping"):
            queue.send("orders", b"x", headers=["a"])  # type: ignore[arg-type]
        with pytest.raises(quiver.InvalidRequest, match="str"):
            queue.send("orders", b"x", headers={"a": 1})  # type: ignore[dict-item]


def test_work_that_fails_is_a_failed_span(queue: quiver.Queue, spans: InMemorySpanExporter):
    queue.send("orders", b"x")
    (delivery,) = queue.receive("orders")
    with pytest.raises(KeyError), tracing.consumer_span(delivery):
        raise KeyError("amount")
    (consumer,) = spans.get_finished_spans()
    assert consumer.status.status_code == trace.StatusCode.ERROR
    assert [event.name for event in consumer.events] == ["exception"]


@pytest.mark.process
def test_a_program_without_opentelemetry_does_not_load_it():
    script = textwrap.dedent(
        """
        import sys, tempfile, quiver
        with tempfile.TemporaryDirectory() as path, quiver.connect(path) as queue:
            queue.create_topic("orders")
            queue.send("orders", b"x")
            assert not queue.receive("orders")[0].headers
        assert not any(name.startswith("opentelemetry") for name in sys.modules)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


class Traced:
    """A node whose process has an SDK, which writes its spans to a file."""

    def __init__(self, tmp_path: Path) -> None:
        site = tmp_path / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(SITE)
        self.recorded = tmp_path / "spans"
        path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {"PYTHONPATH": path, "SPANS": str(self.recorded)}
        self.node = start_node(tmp_path, env=env, fresh=True)  # it imports sitecustomize

    def spans(self) -> list[dict[str, Any]]:
        """What it recorded, all of it: it is ended for that."""
        assert self.node.stop() == 0
        return [json.loads(line) for line in self.recorded.read_text().splitlines()]


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    made = Traced(tmp_path)
    with made.node:
        yield made


def post(url: str, path: str, body: Any, method: str = "POST", **headers: str) -> Any:
    request = Request(
        url + path,
        json.dumps(body).encode(),
        {"content-type": "application/json", **headers},
        method=method,
    )
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.check
@pytest.mark.process
@pytest.mark.parametrize("wired", ["always", "never"])
def test_one_trace_goes_from_the_producer_to_the_consumer_over_a_node(
    traced: Traced, spans: InMemorySpanExporter, wired: str
):
    """In the message's own headers. Frames carry no trace of their own: the node has no spans of them."""
    with quiver.connect(f"quiver://127.0.0.1:{traced.node.port}?wire={wired}") as queue:
        queue.create_topic("orders")
        with in_span("checkout"):
            queue.send("orders", {"order": 1})
        (delivery,) = queue.receive("orders", "billing", wait=10)
        with tracing.consumer_span(delivery):
            delivery.ack()
    producer, consumer = spans.get_finished_spans()
    assert producer.context is not None
    assert consumer.context is not None
    assert consumer.parent is not None
    assert consumer.context.trace_id == producer.context.trace_id
    assert consumer.parent.span_id == producer.context.span_id
    assert not [span for span in traced.spans() if span["parent_id"] is not None]


@pytest.mark.process
def test_one_trace_goes_from_the_producer_through_the_node_to_the_consumer(
    traced: Traced, spans: InMemorySpanExporter
):
    """By HTTP, whose requests have headers for it."""
    url, topic = traced.node.url, "/v1/topics/orders"
    post(url, topic, {}, method="PUT")
    with in_span("checkout"):
        post(url, f"{topic}/messages", {"body": {"order": 1}}, **tracing.current())
    (found,) = post(url, f"{topic}/groups/billing/receive", {"wait": 10})["messages"]
    with trace.get_tracer("shop").start_as_current_span(
        "process", context=tracing.continued(found["headers"])
    ):
        settle = {"action": "ack", "receipts": [found["receipt"]]}
        post(url, "/v1/settle", settle, **tracing.current())
    producer, consumer = spans.get_finished_spans()
    assert producer.context is not None
    assert consumer.context is not None
    assert consumer.parent is not None
    assert consumer.context.trace_id == producer.context.trace_id
    served = {span["name"]: span for span in traced.spans()}
    for name, parent in (("api send", producer), ("api ack", consumer)):
        assert parent.context is not None
        assert served[name]["kind"] == "SpanKind.SERVER"
        assert served[name]["context"]["trace_id"] == f"0x{producer.context.trace_id:032x}"
        assert served[name]["parent_id"] == f"0x{parent.context.span_id:016x}"
        assert served[name]["attributes"]["quiver.code"] == "ok"
        assert served[name]["attributes"]["http.response.status_code"] == 200
    assert f"0x{consumer.parent.span_id:016x}" == served["api send"]["context"]["span_id"]
    assert served["api receive"]["parent_id"] is None, "nothing was current around the receive"


@pytest.mark.process
def test_what_a_request_sends_is_in_the_trace_of_the_request(node: Node):
    """Also on a node without an SDK."""
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    parent = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01", "tracestate": "a=1"}
    own = "00-11111111111111111111111111111111-2222222222222222-01"
    post(node.url, "/v1/topics/orders", {}, method="PUT")
    path = "/v1/topics/orders/messages"
    post(node.url, path, {"body": "1"}, **parent)
    post(node.url, path, {"body": "2", "headers": {"traceparent": own}}, **parent)
    post(node.url, path, {"body": "3"}, traceparent="garbage")
    post(node.url, path, {"body": "4"})
    path = "/v1/topics/orders/groups/billing/receive"
    found = post(node.url, path, {"max_messages": 9}, **parent)["messages"]
    headers = [message.get("headers") or {} for message in found]
    assert headers[0]["traceparent"].split("-")[1] == trace_id
    assert headers[0]["tracestate"] == "a=1"
    assert headers[1:] == [{"traceparent": own}, {}, {}]


@pytest.mark.process
def test_the_trace_header_of_sqs_is_left_alone(traced: Traced):
    boto3 = pytest.importorskip("boto3")
    sqs = boto3.client(
        "sqs", endpoint_url=traced.node.url, region_name="us-east-1",
        aws_access_key_id="x", aws_secret_access_key="x",
    )  # fmt: skip
    try:
        url = sqs.create_queue(QueueName="orders")["QueueUrl"]
        header = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"
        sqs.send_message(
            QueueUrl=url,
            MessageBody="x",
            MessageAttributes={"kind": {"DataType": "String", "StringValue": "new"}},
            MessageSystemAttributes={
                "AWSTraceHeader": {"DataType": "String", "StringValue": header}
            },
        )
        (message,) = sqs.receive_message(
            QueueUrl=url,
            WaitTimeSeconds=10,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )["Messages"]
    finally:
        sqs.close()
    assert message["Attributes"]["AWSTraceHeader"] == header
    assert message["MessageAttributes"]["kind"]["StringValue"] == "new"
    assert any(span["name"] == "sqs SendMessage" for span in traced.spans())

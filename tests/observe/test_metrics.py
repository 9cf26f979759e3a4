"""What /metrics says is what happened, in Prometheus's own format, with a bounded number of series."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics_families,
)

import quiver
from quiver import limits
from quiver.core.delivery.reasons import REST, Reasons, kind_of
from quiver.model.stats import StorageStats
from quiver.server.metrics import FAMILIES, OTHER, Metrics
from tests.observe.scraping import samples, scrape, value
from tests.server.nodes import Node


class Scraped:
    """A queue in this process, and the text that its metrics give."""

    def __init__(self, path: Path, metrics: Metrics) -> None:
        self.path = path
        self.metrics = metrics

    def text(self, accept: str = "") -> str:
        async def look() -> bytes:
            async with quiver.connect_async(self.path) as queue:
                return (await self.metrics.expose(queue, accept))[0]

        return asyncio.run(look()).decode()


@contextmanager
def limited(monkeypatch: pytest.MonkeyPatch, **bounds: int) -> Iterator[None]:
    with monkeypatch.context() as patch:
        for name, bound in bounds.items():
            patch.setattr(limits, name, bound)
        yield


@pytest.fixture
def scraped(tmp_path: Path) -> Scraped:
    return Scraped(tmp_path, Metrics())


def test_topics_and_groups_are_told_as_they_are(scraped: Scraped):
    with quiver.connect(scraped.path) as queue:
        queue.create_topic("orders", partitions=2, max_attempts=1)
        queue.send_batch("orders", [b"a", b"b", b"c", b"d"])
        queue.send("orders", b"later", delay=3600)
        first, second, third = queue.receive("orders", "billing", max_messages=3)
        first.ack()
        second.nack(reason="Timeout: no answer for order 17")
    text = scraped.text()
    orders = {"topic": "orders"}
    assert value(text, "quiver_messages_sent_total", **orders) == 5
    assert value(text, "quiver_topic_depth_messages", **orders) == 3
    assert value(text, "quiver_topic_partitions", **orders) == 2
    billing = {"topic": "orders", "group": "billing"}
    assert value(text, "quiver_group_lag_messages", **billing) == 3
    assert value(text, "quiver_group_in_flight_messages", **billing) == 1
    assert value(text, "quiver_group_delayed_messages", **billing) == 1
    assert value(text, "quiver_group_ready_messages", **billing) == 1
    assert value(text, "quiver_messages_delivered_total", **billing) == 3
    assert value(text, "quiver_messages_acked_total", **billing) == 1
    assert value(text, "quiver_messages_nacked_total", **billing) == 1
    assert value(text, "quiver_messages_dead_lettered_total", **billing) == 1
    assert value(text, "quiver_dead_letter_messages", topic="orders.dlq") == 1
    assert value(text, "quiver_topics") == 2
    assert value(text, "quiver_log_files") == 1
    assert value(text, "quiver_log_bytes") > 0
    assert value(text, "quiver_disk_bytes") >= value(text, "quiver_disk_free_bytes") > 0
    assert third.attempt == 1


def files_of(queue: quiver.Queue) -> StorageStats:
    found = queue.overview().storage
    assert found is not None
    return found


def test_syncs_and_reasons_count_what_happens_while_the_queue_is_open(tmp_path: Path):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("jobs", max_attempts=1)
        before = sum(files_of(queue).sync_counts)
        queue.send_batch("jobs", [b"a", b"b"])
        for delivery in queue.receive("jobs", max_messages=2):
            delivery.nack(reason=f"KeyError: 'amount' in {delivery.id}")
        overview = queue.overview()
        assert sum(files_of(queue).sync_counts) == before + 4
        assert files_of(queue).sync_seconds > 0
        assert overview.reasons == {"KeyError": 2}
        assert overview.dead_letter_topics == ("jobs.dlq",)
    with quiver.connect(tmp_path) as queue:
        assert queue.overview().reasons == {}, "opening the log again counts nothing again"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("Timeout: no answer for order 17", "Timeout"),
        ("ValueError('x')\nTraceback …", "ValueError('x')"),
        ("order 17 of 2026-11-01 is bad", "order # of # is bad"),
        ("  \n", "unspecified"),
        ("", "unspecified"),
        (":", "unspecified"),
        ("x" * 1_000, "x" * limits.REASON_KIND_CHARS_MAX),
    ],
)
def test_the_kind_of_a_reason_has_nothing_of_the_single_message(reason: str, kind: str):
    assert kind_of(reason) == kind


def test_kinds_of_reasons_are_bounded():
    reasons = Reasons()
    for at in range(1_000):
        reasons.add("".join("abcdefghij"[int(digit)] for digit in str(at)), 1)
    assert len(reasons) <= limits.REASON_KINDS_MAX + 1
    assert sum(reasons.values()) == 1_000
    assert reasons[REST] > 0


def test_more_topics_and_groups_than_there_are_places_are_summed(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
):
    with limited(monkeypatch, METRIC_TOPICS_MAX=2, METRIC_GROUPS_MAX=1):
        scraped.metrics = Metrics()
        with quiver.connect(scraped.path) as queue:
            for at, name in enumerate(["a", "b", "c", OTHER]):
                queue.create_topic(name)
                queue.send_batch(name, [b"x"] * (at + 1))
                for group in ("one", "two"):
                    queue.create_group(name, group)
            queue.receive("c", "two")
        text = scraped.text()
        sent = {s.labels["topic"]: s.value for s in samples(text)
                if s.name == "quiver_messages_sent_total"}  # fmt: skip
        assert sent == {"c": 3, "b": 2, OTHER: 1 + 4}, "the busiest have their own; not `other`"
        lag = {(s.labels["topic"], s.labels["group"]): s.value for s in samples(text)
               if s.name == "quiver_group_lag_messages"}  # fmt: skip
        assert lag == {("c", "two"): 3, ("c", OTHER): 3, ("b", OTHER): 4, (OTHER, OTHER): 10}
        with quiver.connect(scraped.path) as queue:
            queue.send_batch("a", [b"x"] * 100)
            queue.delete_topic(OTHER)
            queue.delete_topic("b")
        text = scraped.text()
        sent = {s.labels["topic"]: s.value for s in samples(text)
                if s.name == "quiver_messages_sent_total"}  # fmt: skip
        assert sent == {"c": 3, "a": 101}, "who is there stays, and a free place is taken"
        remembered = {labels[0] for _, labels in scraped.metrics._rest}
        assert remembered == {"c", "a", OTHER}, "nothing of topics that are gone"


def test_a_counter_of_the_rest_never_goes_back(scraped: Scraped, monkeypatch: pytest.MonkeyPatch):
    with limited(monkeypatch, METRIC_TOPICS_MAX=1):
        scraped.metrics = Metrics()
        with quiver.connect(scraped.path) as queue:
            for name in ("big", "b", "c"):
                queue.create_topic(name)
            queue.send_batch("big", [b"x"] * 9)
            queue.send_batch("b", [b"x"] * 5)
            queue.send_batch("c", [b"x"] * 3)
        name = "quiver_messages_sent_total"
        assert value(scraped.text(), name, topic=OTHER) == 8
        with quiver.connect(scraped.path) as queue:
            queue.delete_topic("b")
        assert value(scraped.text(), name, topic=OTHER) == 8
        with quiver.connect(scraped.path) as queue:
            queue.send("c", b"x")
        assert value(scraped.text(), name, topic=OTHER) == 9


def test_kinds_of_requests_are_bounded(scraped: Scraped):
    for at in range(limits.METRIC_REQUESTS_MAX * 3):
        scraped.metrics.request("sqs", f"Action{at}", "ok", 0.001)
    text = scraped.text()
    counts = [s for s in samples(text) if s.name == "quiver_requests_total"]
    assert len(counts) == limits.METRIC_REQUESTS_MAX + 1
    assert sum(s.value for s in counts) == limits.METRIC_REQUESTS_MAX * 3
    durations = [s for s in samples(text) if s.name == "quiver_request_duration_seconds_count"]
    assert len(durations) == limits.METRIC_REQUESTS_MAX + 1


def test_ages_are_a_histogram_of_seconds(scraped: Scraped):
    with quiver.connect(scraped.path) as queue:
        queue.create_topic("orders")
    scraped.metrics.age("orders", 0.3, count=4)
    scraped.metrics.age("orders", 100)
    scraped.metrics.age("orders", -5)
    text = scraped.text()
    name = "quiver_message_age_seconds"
    assert value(text, f"{name}_bucket", topic="orders", le="0.1") == 1
    assert value(text, f"{name}_bucket", topic="orders", le="0.5") == 5
    assert value(text, f"{name}_bucket", topic="orders", le="+Inf") == 6
    assert value(text, f"{name}_sum", topic="orders") == pytest.approx(101.2)


def test_names_follow_the_conventions():
    for family in FAMILIES:
        assert re.fullmatch(r"quiver_[a-z_]+", family.name)
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert family.meaning.endswith(".")
        if family.kind == "histogram":
            assert family.name.endswith("_seconds")
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


@pytest.mark.process
def test_a_node_is_scraped_in_both_formats(node: Node):
    text, kind = scrape(node.url)
    assert kind.startswith("text/plain; version=0.0.4")
    assert value(text, "quiver_build_info", version=quiver.__version__) == 1
    assert value(text, "process_resident_memory_bytes") > 0
    text, kind = scrape(
        node.url, "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    )
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    names = {family.name for family in open_metrics_families(text)}
    assert {family.name.removesuffix("_total") for family in FAMILIES} <= names
    for strange in ("application/openmetrics-text;version=💥", "text/plain;version=x.y", "*/*,,;"):
        request = Request(
            f"{node.url}/metrics",
            headers={"Accept": strange.encode("utf-8", "ignore").decode("latin-1")},
        )
        with urlopen(request, timeout=30) as answer:
            assert answer.status == 200


@pytest.mark.process
def test_bytes_are_counted_however_they_come_and_go(node: Node):
    def ask(method: str, path: str, body: Any = None, **headers: str) -> bytes:
        with closing(HTTPConnection("127.0.0.1", node.port, timeout=30)) as link:
            link.request(method, path, body, headers)
            return link.getresponse().read()

    def counted(door: str) -> tuple[float, float]:
        text, _ = scrape(node.url)
        names = "quiver_request_bytes_total", "quiver_response_bytes_total"
        return value(text, names[0], door=door), value(text, names[1], door=door)

    ask("PUT", "/v1/topics/t")
    before = counted("api")
    pieces = [b'{"body": "', b"x" * 100_000, b'"}']
    sent = ask("POST", "/v1/topics/t/messages", iter(pieces))  # chunked
    arrow = ask("GET", "/v1/ledger", Accept="application/vnd.apache.arrow.stream")
    received, answered = counted("api")
    assert received - before[0] == sum(map(len, pieces))
    assert answered - before[1] == len(sent) + len(arrow)
    body, target = b"{}", {"X-Amz-Target": "AmazonSQS.ListQueues"}
    answer = ask("POST", "/", body, **target)
    assert counted("sqs") == (len(body), len(answer))

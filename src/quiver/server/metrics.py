"""What the node counts, and the text that Prometheus reads.

Requests and ages are counted as they are answered, in the event loop, by plain additions. Figures of
topics, groups and files are not counted at all: they are asked for when somebody looks.

The number of series is bounded. So many topics and groups have figures of their own; those that are
there keep them, and free places go to the busiest. All others are summed up (ages: the oldest) as
`other`, which is also where a topic or group of that name is found.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import nlargest
from itertools import accumulate
from typing import Any, Final, Literal

from opentelemetry import context, trace
from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics

import quiver
from quiver import limits
from quiver.client.aio import AsyncQueue
from quiver.model.histogram import Histogram
from quiver.model.stats import SYNC_BOUNDS, GroupStats, Overview, StorageStats, TopicStats

PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN: Final = "application/openmetrics-text"
OTHER: Final = "other"

REQUEST_BOUNDS: Final = (
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30
)  # fmt: skip
AGE_BOUNDS: Final = (
    0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its name, kind, labels and meaning. `field` is what it is called in our own figures."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    field: str = ""


REQUESTS = Family(
    "quiver_requests_total", "counter",
    "Requests answered; the code is ok, or that of the error.", ("door", "operation", "code"),
)  # fmt: skip
DURATIONS = Family(
    "quiver_request_duration_seconds", "histogram",
    "From the head of a request to the end of its answer; a receive's has its wait in it.",
    ("door", "operation"),
)  # fmt: skip
RECEIVED = Family(
    "quiver_request_bytes_total", "counter", "Bytes of the bodies of requests.", ("door",)
)
ANSWERED = Family(
    "quiver_response_bytes_total", "counter", "Bytes of the bodies of answers.", ("door",)
)
AGES = Family(
    "quiver_message_age_seconds", "histogram",
    "From when a message was stored until it was delivered through this node.", ("topic",),
)  # fmt: skip
CONNECTIONS = Family("quiver_connections", "gauge", "Open connections of clients.")
WAITING = Family("quiver_receives_waiting", "gauge", "Receives that wait for messages.")
TOPICS = Family("quiver_topics", "gauge", "Topics there are.")
BUILD = Family(
    "quiver_build_info", "gauge", "Always 1; the label says which version.", ("version",)
)
LETTERS = Family(
    "quiver_dead_letter_messages", "gauge",
    "Unsettled messages of a topic that others send their dead letters to.", ("topic",),
)  # fmt: skip
REASONS = Family(
    "quiver_dead_letter_reasons_total", "counter",
    "Messages given up since the node started, by kind of reason.", ("reason",),
)  # fmt: skip
SYNCS = Family("quiver_log_sync_duration_seconds", "histogram", "How long syncs of the log took.")


def _of_topic(name: str, kind: Literal["counter", "gauge"], field: str, meaning: str) -> Family:
    return Family(name, kind, meaning, ("topic",), field)


def _of_group(name: str, kind: Literal["counter", "gauge"], field: str, meaning: str) -> Family:
    return Family(name, kind, meaning, ("topic", "group"), field)


OF_TOPIC: Final = (
    _of_topic("quiver_topic_depth_messages", "gauge", "depth",
              "Messages that the slowest group has not settled; all, without a group."),
    _of_topic("quiver_topic_in_flight_messages", "gauge", "in_flight", "Messages under a lease."),
    _of_topic("quiver_topic_delayed_messages", "gauge", "delayed",
              "Messages that wait for their time."),
    _of_topic("quiver_topic_stored_messages", "gauge", "stored",
              "Messages that can be read, settled or not."),
    _of_topic("quiver_topic_stored_bytes", "gauge", "stored_bytes",
              "Bytes of these messages, and of removed ones that still are in the same batch."),
    _of_topic("quiver_topic_staged_messages", "gauge", "staged",
              "Messages that wait to be published; no other figure counts them."),
    _of_topic("quiver_topic_oldest_age_seconds", "gauge", "oldest_age",
              "Age of the oldest unsettled message."),
    _of_topic("quiver_topic_partitions", "gauge", "partitions", "Partitions of the topic."),
    _of_topic("quiver_messages_sent_total", "counter", "sent", "Messages stored."),
    _of_topic("quiver_messages_duplicate_total", "counter", "duplicates",
              "Messages that had been sent before, known by dedup id or producer."),
    _of_topic("quiver_messages_dropped_total", "counter", "dropped",
              "Messages that retention let go for their age or the topic's size."),
    _of_topic("quiver_messages_compacted_total", "counter", "compacted",
              "Messages let go because a newer one has their key."),
)  # fmt: skip
OF_GROUP: Final = (
    _of_group("quiver_group_lag_messages", "gauge", "lag", "Messages the group has not settled."),
    _of_group("quiver_group_ready_messages", "gauge", "ready",
              "Of these, what the next receive may have."),
    _of_group("quiver_group_in_flight_messages", "gauge", "in_flight",
              "Of these, what is under a lease."),
    _of_group("quiver_group_reserved_messages", "gauge", "reserved",
              "Of what is under a lease, what has not begun."),
    _of_group("quiver_group_delayed_messages", "gauge", "delayed",
              "Of these, what waits for its time or its next attempt."),
    _of_group("quiver_group_oldest_age_seconds", "gauge", "oldest_age",
              "Age of the group's oldest unsettled message."),
    _of_group("quiver_group_members", "gauge", "members", "Consumers that own partitions."),
    _of_group("quiver_group_paused", "gauge", "paused", "1 if the group is paused."),
    _of_group("quiver_messages_delivered_total", "counter", "delivered",
              "Deliveries that have begun: first and later attempts."),
    _of_group("quiver_messages_redelivered_total", "counter", "redelivered",
              "Of these, second and later attempts."),
    _of_group("quiver_messages_acked_total", "counter", "acked", "Messages acknowledged."),
    _of_group("quiver_messages_nacked_total", "counter", "nacked",
              "Attempts that a consumer gave back as failed."),
    _of_group("quiver_messages_released_total", "counter", "released",
              "Messages given back, or taken over, without counting as an attempt."),
    _of_group("quiver_messages_timed_out_total", "counter", "timed_out",
              "Attempts whose lease ended unsettled."),
    _of_group("quiver_messages_dead_lettered_total", "counter", "dead_lettered",
              "Messages given up and moved to the dead letters."),
    _of_group("quiver_messages_redriven_total", "counter", "redriven",
              "Dead letters moved back."),
    _of_group("quiver_messages_expired_total", "counter", "expired",
              "Messages whose time to live ended first."),
    _of_group("quiver_messages_lost_total", "counter", "behind_retention",
              "Unsettled messages that retention let go."),
)  # fmt: skip
OF_FILES: Final = (
    Family("quiver_log_bytes", "gauge", "Size of the write-ahead log.", (), "log_bytes"),
    Family("quiver_log_files", "gauge", "Files of the log.", (), "log_files"),
    Family("quiver_segments", "gauge", "Parquet segments of messages that stay.", (), "segments"),
    Family("quiver_segment_bytes", "gauge", "Messages in segments, before compression.", (),
           "segment_bytes"),
    Family("quiver_disk_bytes", "gauge", "Size of the disk that the data is on.", (), "disk_bytes"),
    Family("quiver_disk_free_bytes", "gauge", "What is free of it.", (), "disk_free_bytes"),
)  # fmt: skip
FAMILIES: Final = (
    REQUESTS, DURATIONS, RECEIVED, ANSWERED, AGES, CONNECTIONS, WAITING, BUILD, TOPICS, *OF_TOPIC,
    *OF_GROUP, LETTERS, REASONS, *OF_FILES, SYNCS,
)  # fmt: skip


class Metrics:
    """The counters of one node. All but the text is made in the event loop."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, str], int] = {}
        self._durations: dict[tuple[str, str], Histogram] = {}
        self._received: dict[str, int] = {}
        self._answered: dict[str, int] = {}
        self._ages: dict[str, Histogram] = {}
        self._count_connections: Callable[[], int] = lambda: 0
        self._waiting = 0
        self._topics = _Places(limits.METRIC_TOPICS_MAX)
        self._groups = _Places(limits.METRIC_GROUPS_MAX)
        self._rest = _Rest()
        self._looking = asyncio.Lock()  # one at a time is enough

    def request(self, door: str, operation: str, code: str, seconds: float) -> None:
        """A request was answered: `code` is "ok" or an error's code."""
        if context.get_current():  # an empty one has no span
            span = trace.get_current_span()
            if span.is_recording():
                span.update_name(f"{door} {operation}")
                span.set_attribute("quiver.code", code)
        self.requests(door, operation, code, (seconds,))

    def requests(self, door: str, operation: str, code: str, seconds: Sequence[float]) -> None:
        """Several requests of one kind were answered, each after so many seconds."""
        key = door, operation, code
        if key not in self._requests and len(self._requests) >= limits.METRIC_REQUESTS_MAX:
            operation = OTHER
            key = door, OTHER, OTHER
        self._requests[key] = self._requests.get(key, 0) + len(seconds)
        duration = self._durations.get((door, operation))
        if duration is None:
            duration = self._durations[door, operation] = Histogram(REQUEST_BOUNDS)
        for each in seconds:
            duration.add(each)

    def received(self, door: str, nbytes: int) -> None:
        """So many bytes of a request's body came."""
        self._received[door] = self._received.get(door, 0) + nbytes

    def answered(self, door: str, nbytes: int) -> None:
        """So many bytes of an answer's body go."""
        self._answered[door] = self._answered.get(door, 0) + nbytes

    def age(self, topic: str, seconds: float, count: int = 1) -> None:
        """So many messages were delivered `seconds` after they were stored."""
        label = topic if self._topics.admit(topic) else OTHER
        age = self._ages.get(label)
        if age is None:
            age = self._ages[label] = Histogram(AGE_BOUNDS)
        age.add(max(seconds, 0.0), count)  # whoever says when a message was made may be wrong

    def watch_connections(self, count: Callable[[], int]) -> None:
        """Ask `count` how many connections are open, when somebody looks."""
        self._count_connections = count

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a receive that waits."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def expose(self, queue: AsyncQueue, accept: str = "") -> tuple[bytes, str]:
        """The body and content type of /metrics, as the Accept header asks for."""
        async with self._looking:
            page = self._look(await queue.overview())
            if OPEN in accept:
                text: bytes = await asyncio.to_thread(openmetrics.generate_latest, page)
                return text, openmetrics.CONTENT_TYPE_LATEST
            return await asyncio.to_thread(generate_latest, page), PLAIN

    def _look(self, overview: Overview) -> "_Page":
        """Everything as it is now; what is counted meanwhile is for the next one."""
        found = overview.topics.values()
        self._topics.keep(overview.topics)
        new = [s for s in found if s.topic != OTHER and s.topic not in self._topics]
        for stats in nlargest(self._topics.free, new, key=lambda stats: stats.sent):
            self._topics.admit(stats.topic)
        groups = {(s.topic, g.group): g for s in found if s.topic in self._topics
                  for g in s.groups.values()}  # fmt: skip
        self._groups.keep(groups)
        others = [pair for pair in groups if pair not in self._groups]
        for pair in nlargest(self._groups.free, others, key=lambda pair: groups[pair].delivered):
            self._groups.admit(pair)
        self._rest.keep(self._topics)
        self._ages = {topic: age for topic, age in self._ages.items()
                      if topic == OTHER or topic in self._topics}  # fmt: skip
        return _Page(
            overview=overview,
            topics=self._topics.copy(),
            groups=self._groups.copy(),
            rest=self._rest,
            requests=dict(self._requests),
            durations={key: found.copy() for key, found in self._durations.items()},
            received=dict(self._received),
            answered=dict(self._answered),
            ages={key: found.copy() for key, found in self._ages.items()},
            connections=self._count_connections(),
            waiting=self._waiting,
        )


class _Places(dict[Any, None]):
    """Who has figures of its own. `other` never has."""

    def __init__(self, places: int, taken: Iterable[Any] = ()) -> None:
        super().__init__(dict.fromkeys(taken))
        self._places = places

    @property
    def free(self) -> int:
        return self._places - len(self)

    def admit(self, name: Any) -> bool:
        """Whether it has a place; it gets one if there is one."""
        if name in self:
            return True
        if self.free <= 0 or name == OTHER:
            return False
        self[name] = None
        return True

    def keep(self, there: Iterable[Any]) -> None:
        """Only these are still there."""
        for name in self.keys() - dict.fromkeys(there).keys():
            del self[name]


class _Rest(dict[tuple[str, tuple[str, ...]], tuple[float, float]]):
    """Counters of `other`, which go on when one of those in it is gone: the last sum, and what is told."""

    def keep(self, topics: Container[str]) -> None:
        """Forget the other groups of topics that have no figures of their own any more."""
        for key in [key for key in self if key[1][0] != OTHER and key[1][0] not in topics]:
            del self[key]

    def told(self, name: str, labels: tuple[str, ...], total: float) -> float:
        before, told = self.get((name, labels), (total, total))
        told += max(total - before, 0)
        self[name, labels] = total, told
        return told


@dataclass(frozen=True, slots=True)
class _Page:
    """What one look found, as families of Prometheus."""

    overview: Overview
    topics: dict[str, None]
    groups: dict[tuple[str, str], None]
    rest: _Rest
    requests: dict[tuple[str, str, str], int]
    durations: dict[tuple[str, str], Histogram]
    received: dict[str, int]
    answered: dict[str, int]
    ages: dict[str, Histogram]
    connections: int
    waiting: int

    def collect(self) -> Iterator[Metric]:
        """What the encoders of prometheus_client ask for."""
        yield _values(REQUESTS, self.requests)
        yield _histograms(DURATIONS, self.durations)
        yield _values(RECEIVED, {(door,): count for door, count in self.received.items()})
        yield _values(ANSWERED, {(door,): count for door, count in self.answered.items()})
        yield _histograms(AGES, {(topic,): age for topic, age in self.ages.items()})
        yield _values(CONNECTIONS, {(): self.connections})
        yield _values(WAITING, {(): self.waiting})
        yield _values(BUILD, {(quiver.__version__,): 1})
        yield _values(TOPICS, {(): len(self.overview.topics)})
        yield from self._of_topics()
        yield from self._of_groups()
        reasons = self.overview.reasons.items()
        yield _values(REASONS, {(reason,): count for reason, count in reasons})
        assert self.overview.storage is not None, "an embedded queue has files"
        yield from _of_files(self.overview.storage)
        yield from ProcessCollector(registry=None).collect()

    def _of_topics(self) -> Iterator[Metric]:
        found: dict[tuple[str, ...], list[TopicStats]] = {}
        letters: dict[tuple[str, ...], int] = {}
        for topic, stats in self.overview.topics.items():
            labels = (topic if topic in self.topics else OTHER,)
            found.setdefault(labels, []).append(stats)
            if topic in self.overview.dead_letter_topics:
                letters[labels] = letters.get(labels, 0) + stats.depth
        for family in OF_TOPIC:
            yield self._summed(family, found)
        yield _values(LETTERS, letters)

    def _of_groups(self) -> Iterator[Metric]:
        found: dict[tuple[str, ...], list[GroupStats]] = {}
        for topic, stats in self.overview.topics.items():
            for group, figures in stats.groups.items():
                own = (topic, group) in self.groups
                labels = topic if topic in self.topics else OTHER, group if own else OTHER
                found.setdefault(labels, []).append(figures)
        for family in OF_GROUP:
            yield self._summed(family, found)

    def _summed(self, family: Family, found: dict[tuple[str, ...], Any]) -> Metric:
        fold = max if family.name.endswith("_age_seconds") else sum
        values: dict[tuple[str, ...], float] = {}
        for labels, parts in found.items():
            value = float(fold(getattr(part, family.field) for part in parts))
            if family.kind == "counter" and OTHER in labels:
                value = self.rest.told(family.name, labels, value)
            values[labels] = value
        return _values(family, values)


def _of_files(storage: StorageStats) -> Iterator[Metric]:
    for family in OF_FILES:
        yield _values(family, {(): getattr(storage, family.field)})
    syncs = Histogram(SYNC_BOUNDS)
    syncs.counts, syncs.total = list(storage.sync_counts), storage.sync_seconds
    yield _histograms(SYNCS, {(): syncs})


def _values(family: Family, values: Any) -> Metric:
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    made = kind(family.name, family.meaning, labels=family.labels)
    for labels, value in values.items():
        made.add_metric(labels, value)
    return made


def _histograms(family: Family, found: Any) -> Metric:
    made = HistogramMetricFamily(family.name, family.meaning, labels=family.labels)
    for labels, histogram in found.items():
        bounds = [*(str(float(bound)) for bound in histogram.bounds), "+Inf"]
        counts = accumulate(histogram.counts)
        made.add_metric(labels, list(zip(bounds, counts, strict=True)), histogram.total)
    return made

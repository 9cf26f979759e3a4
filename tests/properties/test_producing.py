"""A producer keeps what it is given: every field, the order, and what is handed back."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

import quiver
from quiver.testing import VirtualClock
from quiver.testing.virtual_clock import START_MS
from tests.contract.doors import SyncDoor

FIELDS = ("body", "key", "headers", "priority", "deliver_at", "expires_at", "dedup_id")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
messages = st.lists(
    st.builds(
        quiver.Message,
        st.binary(max_size=20),
        key=st.none() | texts.filter(bool),
        headers=st.dictionaries(texts, texts, max_size=2),
        priority=st.integers(0, 9),
        delay=st.none() | st.integers(1, 10**6).map(float),
        ttl=st.none() | st.integers(1, 10**6).map(float),
        dedup_id=st.none() | texts.filter(bool),
    )
    | st.builds(quiver.Message, st.binary(max_size=20)),
    min_size=1,
    max_size=12,
)
topics = (f"t{number}" for number in count())


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[quiver.Queue]:
    # Its clock stands still: a life of a second must not end before the message is read.
    with SyncDoor().open(tmp_path_factory.mktemp("data"), VirtualClock()) as opened:
        yield opened


def produce(queue: quiver.Queue, topic: str, sent: list[quiver.Message], size: int) -> None:
    with queue.producer(topic, linger=60, max_messages=size) as out:
        for m in sent:
            out.send(
                m.body, key=m.key, headers=m.headers or None, priority=m.priority, delay=m.delay,
                ttl=m.ttl, dedup_id=m.dedup_id,
            )  # fmt: skip


def stored(queue: quiver.Queue, topic: str) -> list[dict[str, object]]:
    rows = [row for table in queue.read_arrow(topic) for row in table.select(FIELDS).to_pylist()]
    return [row | {"headers": dict(row["headers"] or {})} for row in rows]


def expected(message: quiver.Message) -> dict[str, object]:
    m = message
    values = (m.body, m.key, m.headers, m.priority, at(m.delay), at(m.ttl), m.dedup_id)
    return dict(zip(FIELDS, values, strict=True))


def at(seconds: object) -> datetime | None:
    """So long after the start of the clock."""
    if seconds is None:
        return None
    assert isinstance(seconds, float)
    return datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(seconds=seconds)


@given(messages, st.integers(1, 12))
def test_a_producer_sends_what_send_batch_does(queue, sent, size):
    one, other = next(topics), next(topics)
    queue.create_topic(one, dedup_window=0)
    queue.create_topic(other, dedup_window=0)
    produce(queue, one, sent, size)
    queue.send_batch(other, sent)
    assert stored(queue, one) == stored(queue, other)
    assert stored(queue, one) == [*map(expected, sent)]
    queue.delete_topic(one)
    queue.delete_topic(other)


@given(messages)
def test_what_is_refused_is_handed_back_as_it_was_sent(queue, sent):
    topic = next(topics)
    queue.create_topic(topic, max_backlog=1)
    queue.send(topic, b"full")
    with pytest.raises(quiver.ProducerFailed) as failed:
        produce(queue, topic, sent, len(sent) + 1)
    assert list(failed.value.unsent) == sent
    queue.delete_topic(topic)

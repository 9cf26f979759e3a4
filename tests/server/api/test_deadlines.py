"""An ack whose first try was lost counts as done while its lease holds: by its newest deadline."""

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import quiver
from tests.server.api.conftest import Connect
from tests.server.api.proxies import Proxy
from tests.server.nodes import Node

pytestmark = pytest.mark.process

LONG = 600
SHORT = 0.3
OVER = 1  # a deadline of long ago: what a client knows of a lease that would have ended by now
SETTLE = "SETTLE"

Extend = Callable[[Any, Any, float], object]

as_delivery = pytest.mark.parametrize(
    "extend",
    [
        lambda queue, got, lease: got.extend(lease),
        lambda queue, got, lease: queue.extend([got], lease),
        lambda queue, got, lease: queue.extend(got.receipt, lease),
    ],
    ids=["delivery", "queue", "text"],
)


@pytest.fixture
def node(shared: Node) -> Node:
    return shared


@pytest.fixture
def queue(proxy: Proxy, other: quiver.Queue, connect: Connect) -> Any:
    """A client on the other side of the proxy, by each carrier."""
    clear(other)
    return connect(proxy.port)


def clear(other: quiver.Queue) -> None:
    for topic in other.topics():
        other.delete_topic(topic)
    for topic in ("t", "clock"):
        other.create_topic(topic)


def until_over(other: quiver.Queue, topic: str = "t") -> Callable[[], object]:
    """Waits until the lease of the topic's message has ended: then somebody else gets it."""

    def wait() -> None:
        (got,) = other.receive(topic, wait=60)
        assert got.attempt == 2

    return wait


def while_passes(other: quiver.Queue, seconds: float) -> Callable[[], object]:
    """Waits until so much of the node's time has passed."""
    other.send("clock", b"tick")
    other.receive("clock", lease=seconds)
    return until_over(other, "clock")


@as_delivery
def test_a_lease_that_was_made_shorter_and_has_ended_cannot_be_acked(
    queue: Any, other: quiver.Queue, proxy: Proxy, extend: Extend
):
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=LONG)
    extend(queue, got, SHORT)
    proxy.drop, proxy.after = {SETTLE: 1}, until_over(other)
    with pytest.raises(quiver.ReceiptExpired):
        got.ack()
    assert proxy.lost == 1


@as_delivery
def test_nor_if_the_answer_to_that_was_lost(
    connect: Connect, other: quiver.Queue, proxy: Proxy, extend: Extend
):
    """`extend` may have been done or not: then the sooner deadline counts."""
    clear(other)
    queue = connect(proxy.port, patience="0.3")
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=LONG)
    proxy.lose, proxy.after = {SETTLE: 1}, lambda: setattr(proxy, "down", True)
    with pytest.raises(quiver.QuiverError):
        extend(queue, got, SHORT)
    assert proxy.lost == 1
    until_over(other)()
    proxy.down, proxy.after = False, lambda: None
    proxy.drop = {SETTLE: 1}
    with pytest.raises(quiver.ReceiptExpired):
        got.ack()
    assert proxy.lost == 2


@as_delivery
def test_a_lease_that_was_made_longer_counts_until_its_new_end(
    queue: Any, other: quiver.Queue, proxy: Proxy, extend: Extend
):
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=LONG)
    got.lease = got.lease.until(OVER)
    extend(queue, got, LONG)
    proxy.lose = {SETTLE: 1}
    got.ack()
    assert (proxy.lost, other.stats("t").depth) == (1, 0)


def test_the_rest_of_a_receive_keeps_its_deadline(queue: Any, other: quiver.Queue, proxy: Proxy):
    queue.send_batch("t", [b"a", b"b"])
    short, long = queue.receive("t", max_messages=2, lease=LONG)
    short.extend(SHORT)
    proxy.lose, proxy.after = {SETTLE: 1}, until_over(other)
    long.ack()
    assert (proxy.lost, other.stats("t").depth) == (1, 1)


def test_a_receipt_that_was_extended_as_text_is_acked_as_text(
    queue: Any, other: quiver.Queue, proxy: Proxy
):
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=LONG)
    queue.extend(got.receipt, LONG)
    proxy.lose = {SETTLE: 1}
    queue.ack(got.receipt)
    assert (proxy.lost, other.stats("t").depth) == (1, 0)


@pytest.mark.parametrize("mask", [None, [True, False], pa.array([True, True])], ids=str)
def test_a_table_whose_lease_was_made_shorter_and_has_ended_cannot_be_acked(
    queue: Any, other: quiver.Queue, proxy: Proxy, mask: object
):
    queue.send_batch("t", [b"a", b"b"])
    got = queue.receive_arrow("t", lease=LONG)
    got.extend(SHORT, mask)
    proxy.drop, proxy.after = {SETTLE: 1}, until_over(other)
    with pytest.raises(quiver.ReceiptExpired):
        got.ack([True, False])


def test_a_table_whose_lease_was_made_longer_counts_until_its_new_end(
    queue: Any, other: quiver.Queue, proxy: Proxy
):
    queue.send_batch("t", [b"a", b"b"])
    got = queue.receive_arrow("t", lease=LONG)
    got.lease = got.lease.until(OVER)
    got.extend(LONG)
    proxy.lose = {SETTLE: 1}
    got.ack()
    assert (proxy.lost, other.stats("t").depth) == (1, 0)


@pytest.mark.check
def test_what_a_consumer_keeps_counts_until_its_new_end(
    wired: str, other: quiver.Queue, proxy: Proxy
):
    clear(other)
    with quiver.connect(f"quiver://127.0.0.1:{proxy.port}?wire={wired}") as queue:
        queue.send("t", b"a")
        with queue.consumer("t", lease=5, keep=True) as messages:
            got = next(iter(messages))
            while_passes(other, 5)()  # it would have ended, if it were not kept
            proxy.lose = {"ack": 1}
            got.ack()
    assert (proxy.lost, other.stats("t").depth) == (1, 0)


def test_the_node_says_what_time_it_is(
    queue: Any, other: quiver.Queue, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
):
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=SHORT)
    monkeypatch.setattr(time, "time", lambda: 0.0)  # of a client that is decades behind
    proxy.drop, proxy.after = {SETTLE: 1}, until_over(other)
    with pytest.raises(quiver.ReceiptExpired):
        got.ack()

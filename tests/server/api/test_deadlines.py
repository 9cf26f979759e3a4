"""An ack whose first try was lost counts as done while its lease holds: by its newest deadline."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import quiver
from quiver.client.remote.flows import RemoteFlows
from tests.server.api.proxies import Wire
from tests.server.nodes import Node, start_node

pytestmark = pytest.mark.process

LONG = 600
SHORT = 0.3
OVER = 1  # a deadline of long ago: what a client knows of a lease that would have ended by now
SETTLE = b"/v1/settle"

Extend = Callable[[quiver.Queue, quiver.Delivery, float], object]

as_delivery = pytest.mark.parametrize(
    "extend",
    [
        lambda queue, got, lease: got.extend(lease),
        lambda queue, got, lease: queue.extend([got], lease),
        lambda queue, got, lease: queue.extend(got.receipt, lease),
    ],
    ids=["delivery", "queue", "text"],
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with start_node(Path(tmp_path_factory.mktemp("node"))) as started:
        yield started


@pytest.fixture
def wire(shared: Node) -> Iterator[Wire]:
    with Wire(shared.port) as made:
        yield made


@pytest.fixture
def other(shared: Node) -> Iterator[quiver.Queue]:
    """Somebody else, whose wire loses nothing."""
    with quiver.connect(f"quiver://127.0.0.1:{shared.port}") as made:
        yield made


@pytest.fixture
def queue(wire: Wire, other: quiver.Queue) -> Iterator[quiver.Queue]:
    for topic in other.topics():
        other.delete_topic(topic)
    for topic in ("t", "clock"):
        other.create_topic(topic)
    with quiver.connect(f"quiver://127.0.0.1:{wire.port}") as made:
        yield made


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
    queue: quiver.Queue, other: quiver.Queue, wire: Wire, extend: Extend
):
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=LONG)
    extend(queue, got, SHORT)
    wire.drop, wire.after = {SETTLE: 1}, until_over(other)
    with pytest.raises(quiver.ReceiptExpired):
        got.ack()
    assert wire.lost == 1


@as_delivery
def test_nor_if_the_answer_to_that_was_lost(
    queue: quiver.Queue, other: quiver.Queue, wire: Wire, extend: Extend
):
    """`extend` may have been done or not: then the sooner deadline counts."""
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=LONG)
    wire.lose, wire.after = {SETTLE: 1}, lambda: setattr(wire, "down", True)
    assert isinstance(queue._flows, RemoteFlows)
    link = queue._flows.link
    address, link.address = link.address, replace(link.address, patience_seconds=0.1)
    with pytest.raises(quiver.QuiverError):
        extend(queue, got, SHORT)
    link.address, wire.down = address, False
    wire.drop, wire.after = {SETTLE: 1}, until_over(other)
    with pytest.raises(quiver.ReceiptExpired):
        got.ack()


@as_delivery
def test_a_lease_that_was_made_longer_counts_until_its_new_end(
    queue: quiver.Queue, other: quiver.Queue, wire: Wire, extend: Extend
):
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=LONG)
    got.lease = got.lease.until(OVER)
    extend(queue, got, LONG)
    wire.lose = {SETTLE: 1}
    got.ack()
    assert (wire.lost, other.stats("t").depth) == (1, 0)


def test_the_rest_of_a_receive_keeps_its_deadline(
    queue: quiver.Queue, other: quiver.Queue, wire: Wire
):
    queue.send_batch("t", [b"a", b"b"])
    short, long = queue.receive("t", max_messages=2, lease=LONG)
    short.extend(SHORT)
    wire.lose, wire.after = {SETTLE: 1}, until_over(other)
    long.ack()
    assert (wire.lost, other.stats("t").depth) == (1, 1)


def test_a_receipt_that_was_extended_as_text_is_acked_as_text(
    queue: quiver.Queue, other: quiver.Queue, wire: Wire
):
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=LONG)
    queue.extend(got.receipt, LONG)
    wire.lose = {SETTLE: 1}
    queue.ack(got.receipt)
    assert (wire.lost, other.stats("t").depth) == (1, 0)


@pytest.mark.parametrize("mask", [None, [True, False], pa.array([True, True])], ids=str)
def test_a_table_whose_lease_was_made_shorter_and_has_ended_cannot_be_acked(
    queue: quiver.Queue, other: quiver.Queue, wire: Wire, mask: object
):
    queue.send_batch("t", [b"a", b"b"])
    got = queue.receive_arrow("t", lease=LONG)
    got.extend(SHORT, mask)
    wire.drop, wire.after = {SETTLE: 1}, until_over(other)
    with pytest.raises(quiver.ReceiptExpired):
        got.ack([True, False])


def test_a_table_whose_lease_was_made_longer_counts_until_its_new_end(
    queue: quiver.Queue, other: quiver.Queue, wire: Wire
):
    queue.send_batch("t", [b"a", b"b"])
    got = queue.receive_arrow("t", lease=LONG)
    got.lease = got.lease.until(OVER)
    got.extend(LONG)
    wire.lose = {SETTLE: 1}
    got.ack()
    assert (wire.lost, other.stats("t").depth) == (1, 0)


@pytest.mark.check
def test_what_a_consumer_keeps_counts_until_its_new_end(
    queue: quiver.Queue, other: quiver.Queue, wire: Wire
):
    queue.send("t", b"a")
    with queue.consumer("t", lease=5, keep=True) as messages:
        got = next(iter(messages))
        while_passes(other, 5)()  # it would have ended, if it were not kept
        wire.lose = {b'"ack"': 1}
        got.ack()
    assert (wire.lost, other.stats("t").depth) == (1, 0)


def test_the_node_says_what_time_it_is(
    queue: quiver.Queue, other: quiver.Queue, wire: Wire, monkeypatch: pytest.MonkeyPatch
):
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=SHORT)
    monkeypatch.setattr(queue._flows, "now_ms", lambda: 0)  # of a client that is decades behind
    wire.drop, wire.after = {SETTLE: 1}, until_over(other)
    with pytest.raises(quiver.ReceiptExpired):
        got.ack()

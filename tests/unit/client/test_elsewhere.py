"""Flows over a broker that is elsewhere: errands, deadlines of leases, and a way of its own for a consumer.

There is no node here: what a node would do with an errand is done by flows on the other side.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quiver
from quiver.client import moving
from quiver.client.broker import Broker
from quiver.client.flows import Flows, Place
from quiver.client.local import LocalBroker, open_flows
from quiver.client.questions import ask
from quiver.client.results import receipt_of
from quiver.client.sql import Evaluator
from quiver.client.steps import Flow, Work
from quiver.client.threads import run
from quiver.model.commands import UNNAMED
from quiver.model.errands import (
    AskSql,
    Choose,
    Chosen,
    DemandOrigins,
    Errand,
    PublishStaged,
    StageBatch,
    Trace,
    Unstage,
)
from quiver.model.settlement import Settlement
from quiver.node.receipts import text
from quiver.node.shard import Shard


class Elsewhere(LocalBroker):
    """A broker as a client of a node has it."""

    abilities = LocalBroker.abilities - {"backup"} | {"errands"}
    remote = True

    def __init__(self, shard: Shard) -> None:
        super().__init__(shard, self._close)
        self.there = Flows(LocalBroker(shard), "disk")
        self.errands: list[str] = []
        self.settled: list[Settlement] = []
        self.made: list[Elsewhere] = []  # apart from this one
        self.closings = 0

    @property
    def secret(self) -> bytes:
        raise AssertionError("the secret stays on the node")

    def _close(self) -> None:
        self.closings += 1

    def apart(self) -> "Elsewhere":
        self.made.append(Elsewhere(self.shard))
        return self.made[-1]

    def settle(self, settlement: Settlement, *, sync: bool = True) -> Any:
        assert not self.closings, "closed is closed"
        self.settled.append(settlement)
        return super().settle(settlement, sync=sync)

    def run(self, errand: Errand[Any], batch: pa.RecordBatch | None = None) -> Work[Any]:
        self.errands.append(type(errand).__name__)
        return Work(lambda: run(self._done(errand, batch)))

    def _done(self, errand: Errand[Any], batch: Any) -> Flow[Any]:
        match errand:
            case StageBatch(topic):
                return self.there.stage_packed(topic, batch, "me")
            case PublishStaged(topic, parts, application, number, of_run):
                return self.there.publish(topic, parts, application, number, of_run, "me")
            case Unstage(topic, parts):
                return self.there.unstage(topic, parts, "me")
            case Choose(topic, number, positions, ends, condition):
                which = topic, number, positions, ends, condition
                return chosen(moving.choose(self.there, *which, Evaluator()))
            case DemandOrigins(topic, number, positions, ends):
                return self.there.demand_origins(topic, number, positions, ends, lambda _: None)
            case AskSql(query):
                return ask(self.there, query)
            case Trace(message):
                return self.there.trace(message)
        raise AssertionError(errand)


def chosen(flow: Flow[tuple[list[Place], dict[int, int]]]) -> Flow[Chosen]:
    places, ahead = yield from flow
    return Chosen(tuple((part, at, at + 1) for part, at in places), ahead)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Elsewhere]:
    flows, close = open_flows(tmp_path / "data", 1_000_000, "disk")
    assert isinstance(flows.broker, LocalBroker)
    made: Broker = Elsewhere(flows.broker.shard)
    assert isinstance(made, Elsewhere)
    yield made
    close()


@pytest.fixture
def queue(broker: Elsewhere) -> quiver.Queue:
    made = quiver.Queue(Flows(broker, "disk"), lambda: None)
    made.create_topic("t", max_attempts=1, dead_letter="t.dlq")
    return made


def test_staged_rows_are_stored_published_and_dropped_there(queue, broker):
    parts = queue.stage("t", [b"a"]), queue.stage("t", [b"b"]), queue.stage("t", [b"gone"])
    assert queue.unstage("t", parts[2:]) == 1
    assert queue.publish("t", parts[:2], application="app", batch=0, run="1").rows == 2
    assert [one.body for one in queue.read("t")] == [b"a", b"b"]
    assert broker.errands == ["StageBatch"] * 3 + ["Unstage", "PublishStaged"]
    with pytest.raises(quiver.InvalidRequest, match="named twice"):
        queue.publish("t", parts[:1] * 2, application="app", batch=1, run="1")
    with pytest.raises(quiver.InvalidRequest, match="topic"):
        queue.stage("no/name", [b"a"])
    assert len(broker.errands) == 5  # what is wrong here is said here


def test_conditions_are_asked_there(queue, broker):
    queue.send_batch("t", [b"a", b"b", b"a"])
    for one in queue.receive("t", max_messages=3):
        one.nack(reason=one.text)
    assert queue.redrive("t.dlq", where="reason = 'a'") == 2
    assert broker.errands == ["DemandOrigins", "Choose"]
    assert queue.discard("t.dlq", where="true") == 1
    assert broker.errands[2:] == ["Choose"]
    assert queue.stats("t.dlq").depth == 0


def test_questions_are_asked_there(queue, broker):
    sent = queue.send("t", b"a")
    assert queue.sql("select count(*) as n from t").to_pylist() == [{"n": 1}]
    assert queue.trace(sent.id).num_rows >= 1
    assert broker.errands == ["AskSql", "Trace"]
    with pytest.raises(quiver.InvalidRequest, match="must be a str"):
        queue.sql(5)
    with pytest.raises(quiver.InvalidRequest, match="beside the running node"):
        queue.backup("anywhere")


def test_a_producer_without_a_name_gets_one(queue):
    with queue.producer("t") as producer:
        producer.send(b"a")
        assert producer._outbox._name.startswith(UNNAMED)


def test_it_is_known_until_when_leases_hold(queue, broker):
    queue.send_batch("t", [b"a", b"b"])
    one, other = queue.receive("t", max_messages=2, lease=60)
    granted_ms = one.lease.deadline_ms
    one.extend(600)
    assert one.lease.deadline_ms > granted_ms + 500_000
    queue.extend(other.receipt, 30)
    queue.ack([one, other.receipt])
    assert broker.settled[-1].until_ms < granted_ms  # the sooner counts


def test_until_when_a_table_holds(queue, broker):
    queue.send_batch("t", [b"a", b"b"])
    got = queue.receive_arrow("t", lease=60)
    granted_ms = got.lease.deadline_ms
    got.extend(600, [True, False])
    assert got.lease.deadline_ms == granted_ms  # all have one: the earliest
    got.extend(600)
    assert got.lease.deadline_ms > granted_ms
    got.ack()
    assert broker.settled[-1].until_ms == got.lease.deadline_ms


def test_tags_decide(queue):
    queue.send_batch("t", [b"a", b"b"])
    one, other = queue.receive("t", max_messages=2)
    forged = text(receipt_of(one), bytes(16))
    for items in (forged, [one, forged], [other.receipt, forged]):
        with pytest.raises(quiver.ReceiptInvalid, match="not a receipt of this queue"):
            queue.ack(items)
    with pytest.raises(quiver.ReceiptInvalid):
        transacted(queue, one, forged)
    assert queue.stats("t").sent == 2
    queue.ack([one, other.receipt])


def test_a_topic_that_others_have_made_again_is_found_again(queue, broker):
    queue.send("t", b"a")  # now its number is known
    for again in (
        lambda: queue.send("t", b"b"),
        lambda: queue.send_batch("t", [b"b"]),
        lambda: transacted(queue),
        lambda: produced(queue),
        lambda: queue.send_batches("t", [[b"b"]], name="n"),
        lambda: queue.join("t", "g", "m"),
    ):
        run(broker.there.delete_topic("t"))
        run(broker.there.create_topic("t", quiver.TopicPolicy()))
        again()


def transacted(queue, *settled):
    with queue.transaction() as transaction:
        transaction.send("t", b"b")
        transaction.ack(settled)


def produced(queue):
    with queue.producer("t") as producer:
        producer.send(b"b")


def test_a_consumer_has_a_way_of_its_own_and_lets_go_of_it(queue, broker):
    queue.send_batch("t", [b"a", b"b"])
    with queue.consumer("t", prefetch=0) as consumer:
        consumer.get().ack()
        last = consumer.get()
    (own,) = broker.made
    assert (own.closings, len(own.settled), len(broker.settled)) == (1, 1, 0)
    last.ack()  # what was taken can be settled afterwards, too
    assert (own.closings, len(own.settled), len(broker.settled)) == (1, 1, 1)
    consumer.close()
    assert (own.closings, broker.closings) == (1, 0)


@pytest.mark.parametrize("end", ["closed", "cancelled", "not opened"])
def test_so_has_one_in_an_event_loop(queue, broker, end):
    queue.send("t", b"a")

    async def consumed() -> None:
        async with quiver.AsyncQueue(lambda _: (Flows(broker, "disk"), lambda: None)) as opened:
            consumer = opened.consumer("nowhere" if end == "not opened" else "t", prefetch=2)
            if end == "not opened":
                with pytest.raises(quiver.TopicNotFound):
                    await consumer.__aenter__()
                return
            await consumer.__aenter__()
            one: Any = await consumer.get()
            await one.ack()
            if end == "closed":
                await consumer.aclose()

    asyncio.run(consumed())
    assert [own.closings for own in broker.made] == ([] if end == "not opened" else [1])
    assert [len(own.settled) for own in broker.made] == ([] if end == "not opened" else [1])

"""`producer.send` in a loop, here and over a node, next to confluent-kafka's `produce`."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import quiver
from bench.brokers.compare import TURNS, UNIT, WARM_UP_SECONDS
from bench.brokers.kafka import ANSWER_SECONDS_MAX, TOPIC, kafka
from bench.brokers.node import node
from bench.brokers.process import Missing
from bench.content import BODY_BYTES, bodies
from bench.measure import Row, Run, Step, Target, rates, repeated

ROWS = 100_000  # sent one by one, then a flush: as many as librdkafka takes without being polled
POLL = (
    1_000  # messages, after which confluent-kafka is polled: regularly, as its documentation has it
)
HOW = f"{ROWS:,} single messages of {BODY_BYTES} B from one thread, then a flush, again and again"


def producing(run: Run) -> Iterator[Row]:
    """A loop of single sends that a producer collects, against Kafka with and without syncs."""
    content = bodies(ROWS)
    with ExitStack() as stack:
        embedded = stack.enter_context(quiver.connect(run.folder("quiver") / "data"))
        started = stack.enter_context(node(run.folder("node")))
        remote = stack.enter_context(quiver.connect(f"quiver://127.0.0.1:{started.port}"))
        ours = [stack.enter_context(_ours(queue, content)) for queue in (embedded, remote)]
        for synced in (False, True):
            name = "Kafka, synced" if synced else "Kafka"
            try:
                with kafka(run.folder("kafka"), synced=synced) as (peer, tools):
                    theirs = _theirs(tools.port, content)
                    how = (
                        f"{HOW}; each synced before it is confirmed. {peer.name}: {peer.settings}, "
                    )
                    how += f"produce for each message, poll(0) after {POLL:,}"
                    yield from _rows(run, [*ours, theirs], name, how)
            except Missing as missing:
                run.skipped[f"producing: {name}"] = str(missing)


@contextmanager
def _ours(queue: quiver.Queue, content: Sequence[bytes]) -> Iterator[Step]:
    queue.create_topic("t")
    with queue.producer("t") as producer:

        def send() -> int:
            for body in content:
                producer.send(body)
            producer.flush()
            return len(content)

        yield send


def _theirs(port: int, content: Sequence[bytes]) -> Step:
    from confluent_kafka import Producer  # `kafka` has said if it is missing

    producer: Any = Producer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "acks": "all", "log_level": 0}
    )

    def send() -> int:
        for at in range(0, len(content), POLL):
            for body in content[at : at + POLL]:
                producer.produce(TOPIC, body)
            producer.poll(0)
        assert producer.flush(ANSWER_SECONDS_MAX) == 0, "Kafka did not confirm in time"
        return len(content)

    return send


def _rows(run: Run, steps: list[Step], name: str, how: str) -> Iterator[Row]:
    sides = [repeated(step) for step in steps]
    for side in sides:
        side(WARM_UP_SECONDS)
    embedded, remote, theirs = rates(run, *sides, turns=TURNS)
    for what, ours in (("embedded", embedded), ("over a node", remote)):
        yield Row(
            f"producer.send, {what}", ours, f"{name}: produce", theirs, UNIT, f"{how}.",
            Target(">=", 1),
        )  # fmt: skip

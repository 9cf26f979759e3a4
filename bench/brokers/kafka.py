"""Apache Kafka: one node that is its own controller (KRaft), run from its jars."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.brokers.java import java, version_of
from bench.brokers.peer import Everyday, Peer
from bench.brokers.process import Missing, Server, free_port
from bench.content import BODY_BYTES, bodies
from bench.measure import Loop

BATCH = 10_000
TOPIC, TOOLS_TOPIC = "t", "tools"
ANSWER_SECONDS_MAX = 60.0
TOOL_SECONDS_MAX = 120.0
CLUSTER = "cXVpdmVyLWJlbmNoLTAwMA"  # any 16 bytes in base64
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={folder}/logs
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
"""
SYNCED = "log.flush.interval.messages=1\n"


@dataclass(frozen=True, slots=True)
class Tools:
    """Kafka's own programs to measure it; each says how many messages a second it did."""

    port: int

    def produce(self, count: int) -> float:
        said = self._say(
            "ProducerPerformance", "--topic", TOOLS_TOPIC, "--num-records", str(count),
            "--record-size", str(BODY_BYTES), "--throughput", "-1", "--warmup-records", "50000",
        )  # fmt: skip
        return float(re.findall(r"([0-9.]+) records/sec", said)[-1])

    def consume(self, count: int, group: str) -> float:
        """What its last column has: messages a second of fetching, without joining the group."""
        said = self._say(
            "ConsumerPerformance", "--topic", TOOLS_TOPIC, "--num-records", str(count),
            "--group", group, "--hide-header",
        )  # fmt: skip
        figures = [line for line in said.splitlines() if line.count(",") > 8][-1]
        return float(figures.split(",")[-1])

    def _say(self, tool: str, *words: str) -> str:
        main = f"org.apache.kafka.tools.{tool}"
        command = java("kafka", main, "--bootstrap-server", f"127.0.0.1:{self.port}", *words)
        done = subprocess.run(
            [str(word) for word in command],
            capture_output=True, text=True, check=False, timeout=TOOL_SECONDS_MAX,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@contextmanager
def kafka(folder: Path, *, synced: bool) -> Iterator[tuple[Peer, Tools]]:
    """A broker with its default settings, or one that syncs what it writes before it confirms."""
    try:
        from confluent_kafka import Consumer, Producer, libversion
        from confluent_kafka.admin import AdminClient, NewTopic
    except ImportError:
        raise Missing("confluent-kafka is not installed: make setup") from None
    port, controller = free_port(), free_port()
    config = folder / "server.properties"
    settings = PROPERTIES.format(port=port, controller=controller, folder=folder)
    config.write_text(settings + (SYNCED if synced else ""))
    format_ = java("kafka", "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", config)
    subprocess.run([str(word) for word in format_], check=True, capture_output=True, timeout=60)
    with Server(java("kafka", "kafka.Kafka", config), folder) as server:
        server.wait_for_port(port)
        at = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
        topics = [NewTopic(name, 1, 1) for name in (TOPIC, TOOLS_TOPIC)]
        admin = AdminClient(at)  # must live until its answers are there
        for made in admin.create_topics(topics).values():
            made.result(ANSWER_SECONDS_MAX)
        producer = Producer({**at, "acks": "all"})
        consumer = Consumer(
            {**at, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        consumer.subscribe([TOPIC])
        content = bodies(BATCH)

        def flush() -> None:
            assert producer.flush(ANSWER_SECONDS_MAX) == 0, "Kafka did not confirm in time"

        def send() -> int:
            for body in content:
                producer.produce(TOPIC, body)
            flush()
            return len(content)

        def take() -> int:
            found = consumer.consume(BATCH, ANSWER_SECONDS_MAX)
            assert all(message.error() is None for message in found)
            consumer.commit(asynchronous=False)
            return len(found)

        def send_one() -> int:
            producer.produce(TOPIC, content[0])
            flush()
            return 1

        try:
            yield (
                Peer(
                    "Kafka, synced" if synced else "Kafka",
                    f"{version_of('kafka', 'kafka-clients')}, one node, "
                    f"{SYNCED.strip() if synced else 'default settings, which do not sync'}, acks=all, "
                    f"confluent-kafka {version('confluent-kafka')}, librdkafka {libversion()[0]}",
                    send, take, send_one,
                    (f"produce {BATCH:,}, flush", f"consume {BATCH:,}, commit", "produce, flush"),
                    everyday=_everyday(at, admin, producer, content),
                ),
                Tools(port),
            )  # fmt: skip
        finally:
            consumer.close()


def _everyday(at: dict[str, Any], admin: Any, producer: Any, content: list[bytes]) -> Everyday:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import NewTopic

    def subscribed(name: str, **more: Any) -> tuple[Any, Callable[[int], None]]:
        """A consumer of a topic of its own, and what fills it."""
        for made in admin.create_topics([NewTopic(name, 1, 1)]).values():
            made.result(ANSWER_SECONDS_MAX)
        consumer = Consumer({**at, "group.id": name, "auto.offset.reset": "earliest", **more})
        consumer.subscribe([name])

        def fill(count: int) -> None:
            for start in range(0, count, BATCH):
                for body in content[: count - start]:
                    producer.produce(name, body)
                producer.flush(ANSWER_SECONDS_MAX)

        return consumer, fill

    def polled() -> Loop:
        consumer, fill = subscribed("one", **{"enable.auto.commit": False})

        def work(count: int) -> None:
            while count:
                message = consumer.poll(ANSWER_SECONDS_MAX)
                assert message is not None
                if message.error() is None:  # else a note, such as that the topic is very new
                    consumer.commit(message, asynchronous=False)
                    count -= 1

        return Loop("poll, commit of it", fill, work, 2_000)

    @contextmanager
    def loop(prefetch: int) -> Iterator[Loop]:
        consumer, fill = subscribed(f"loop-{prefetch}")

        def work(count: int) -> None:
            while count:
                message = consumer.poll(ANSWER_SECONDS_MAX)
                assert message is not None
                count -= message.error() is None

        try:
            yield Loop("poll loop, auto-commit", fill, work, 200_000)
        finally:
            consumer.close()

    def many() -> Loop:
        consumer, fill = subscribed("many")

        def work(count: int) -> None:
            while count:
                found = consumer.consume(count, ANSWER_SECONDS_MAX)
                count -= sum(message.error() is None and bool(message.value()) for message in found)

        return Loop(f"consume {BATCH:,}, auto-commit", fill, work, 200_000)

    return Everyday(polled(), loop, many())

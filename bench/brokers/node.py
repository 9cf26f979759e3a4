"""Quiver's own node, a process like the others, through its native client and through boto3."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import quiver
from bench.brokers.peer import Everyday, Peer
from bench.brokers.process import Server
from bench.brokers.sqs import sqs_peer
from bench.content import batch_of, bodies
from bench.measure import Loop, Side, concurrently
from quiver.model.replies import Durability

if TYPE_CHECKING:  # an earlier commit may not have it, and bench.versions runs one
    from quiver.client.acks import AckMode

BATCH = 20_000  # sent at a time
TAKEN = 50_000  # received at a time, at most
TOPIC, GROUP = "native", "g"
SETTINGS: dict[Durability, str] = {
    "disk": "quiver serve as it comes, everything synced before it is confirmed",
    "memory": "quiver serve with durability = memory, everything written before it is confirmed",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A running node, and the port that all its doors are on."""

    port: int
    durability: Durability

    @contextmanager
    def native(self) -> Iterator[Peer]:
        """Through `quiver.connect("quiver://…")`, batches as Arrow."""
        with quiver.connect(f"quiver://127.0.0.1:{self.port}") as queue:
            queue.create_topic(TOPIC)
            queue.create_group(TOPIC, GROUP)
            content = bodies(BATCH)
            batch = batch_of(content)

            def take() -> int:
                got = queue.receive_arrow(TOPIC, GROUP, max_messages=TAKEN)
                got.ack()
                return len(got)

            def send_one() -> int:
                queue.send(TOPIC, content[0])
                return 1

            yield Peer(
                "Quiver", SETTINGS[self.durability],
                lambda: queue.send_batch(TOPIC, batch).count, take, send_one,
                (f"send_batch of {BATCH:,}, Arrow", f"receive_arrow of {TAKEN:,} + ack", "send"),
                everyday=_everyday(queue, f"quiver://127.0.0.1:{self.port}"),
            )  # fmt: skip

    def sqs(self) -> Peer:
        return sqs_peer("Quiver", SETTINGS[self.durability], self.port)


def _everyday(queue: quiver.Queue, url: str) -> Everyday:
    (body,) = bodies(1)
    batch = batch_of(bodies(BATCH))

    def filled(topic: str) -> Callable[[int], None]:
        queue.create_topic(topic)
        queue.create_group(topic, GROUP)

        def fill(count: int) -> None:
            for start in range(0, count, BATCH):
                queue.send_batch(topic, batch.slice(0, count - start))

        return fill

    def one() -> Loop:
        fill = filled("one")

        def work(count: int) -> None:
            for _ in range(count):
                (delivery,) = queue.receive("one", GROUP)
                delivery.ack()

        return Loop("receive, ack", fill, work, 5_000)

    def many() -> Loop:
        fill = filled("many")

        def work(count: int) -> None:
            while count:
                found = queue.receive("many", GROUP, max_messages=count)
                assert all(delivery.body for delivery in found)
                queue.ack(found)
                count -= len(found)

        return Loop("receive of 10,000, ack(list)", fill, work, 200_000)

    @contextmanager
    def loop(prefetch: int, acks: "AckMode" = "wait") -> Iterator[Loop]:
        topic = f"loop-{prefetch}-{acks}"
        fill = filled(topic)
        with queue.consumer(topic, GROUP, prefetch=prefetch, acks=acks) as consumer:

            def work(count: int) -> None:
                for delivery in islice(consumer, count):
                    delivery.ack()

            kind = ", in the background" if acks == "background" else ""
            yield Loop(f"consumer, prefetch {prefetch:,}, ack each{kind}", fill, work, 200_000)

    @contextmanager
    def tasks(count: int) -> Iterator[Side]:
        with concurrently(count) as crowd:
            lone = crowd.run(quiver.connect_async(url).__aenter__())
            try:
                yield crowd.side(lambda: lone.send(TOPIC, body))
            finally:
                crowd.run(lone.aclose())

    collected = partial(loop, acks="background")
    return Everyday(one(), loop, many(), tasks, "send, connect_async", collected)


@contextmanager
def node(folder: Path, durability: Durability = "disk") -> Iterator[Node]:
    """`quiver serve` on a port that it chooses itself."""
    program = Path(sys.executable).with_name("quiver")
    with Server(
        [program, "serve", "--data", folder / "data", "--listen", "127.0.0.1:0"], folder,
        env={"QUIVER_DURABILITY": durability},
    ) as server:  # fmt: skip
        server.wait_for(lambda: '"listening"' in server.log, "address")
        for line in server.log.splitlines():
            if (said := json.loads(line)).get("event") == "listening":
                yield Node(int(said["address"].rpartition(":")[2]), durability)
                break

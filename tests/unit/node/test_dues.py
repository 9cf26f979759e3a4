"""What a shard remembers of dues is what it would find if it asked of every topic again."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from secrets import token_bytes

import pytest

from quiver import Queue, QuiverError
from quiver.client.flows import Flows
from quiver.client.local import LocalBroker
from quiver.model.commands import Receive
from quiver.node.engine import Engine
from quiver.node.peer import Peer
from quiver.node.shard import Shard
from quiver.storage.files import DiskFiles
from quiver.testing import VirtualClock
from tests.inside import Inside

TOPICS = ["a", "b", "c", "a.dlq"]
STEPS = 150


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def shard(tmp_path: Path, clock: VirtualClock) -> Iterator[Shard]:
    tmp_path.mkdir(exist_ok=True)
    peer = Peer.open(
        DiskFiles(tmp_path), now_ms=clock.now_ms(), secret=token_bytes(32), ledger_ms=10**9
    )
    made = Shard(peer, clock)
    clock.when_advanced(lambda: made.ask(Inside(lambda engine: None)).wait())
    yield made
    made.close()


def remembered(shard: Shard) -> tuple[dict[int, int], dict[int, int]]:
    """What it remembers, and what is so, of topics that somebody waits for."""

    def look(_: Engine) -> tuple[dict[int, int], dict[int, int]]:
        waited_for = shard._front.waiters.topics()
        known = shard._front.dues.by_topic(shard._front.waiters.topics)
        found = {topic: shard._front.due_ms(topic) for topic in waited_for}
        return (
            {topic: due for topic, due in known.items() if topic in waited_for},
            {topic: due for topic, due in found.items() if due is not None},
        )

    return shard.ask(Inside(look)).wait()


@pytest.mark.parametrize("seed", range(8))
def test_it_remembers_what_it_would_find(shard: Shard, clock: VirtualClock, seed: int):
    chance = Random(seed)
    queue = Queue(Flows(LocalBroker(shard), "memory"), lambda: None)
    queue.create_topic("a.dlq")
    queue.create_topic("a", max_attempts=2, dead_letter="a.dlq", retry="5s")
    queue.create_topic("b", order="key", retry="3s")
    queue.create_topic("c", retention="60s")
    held = []
    for step in range(STEPS):
        topic, group = chance.choice(TOPICS), chance.choice("xy")
        with suppress(QuiverError):
            match chance.randrange(12):
                case 0 | 1 | 2:
                    delay = chance.choice([None, None, 1, 5, 30])
                    ttl = chance.choice([None, None, 4])
                    queue.send(topic, b"x", key=chance.choice("kl"), delay=delay, ttl=ttl)
                case 3 | 4:
                    held += queue.receive(topic, group, max_messages=3, lease=chance.choice([2, 9]))
                case 5 | 6 if held:
                    queue.nack(held.pop(), delay=chance.choice([None, 0, 4]))
                case 7 if held:
                    queue.ack(held.pop())
                case 8:
                    number = shard.ask(Inside(lambda engine: dict(engine.core.names))).wait()[topic]
                    shard.receive(Receive(number, group, 1, 5_000), chance.choice([500, 60_000]))
                case 9:
                    chance.choice([queue.pause, queue.resume])(topic, group)
                case 10:
                    match chance.randrange(4):
                        case 0:
                            queue.seek(topic, group, "earliest")
                        case 1:
                            queue.redrive("a.dlq")
                        case 2:
                            queue.purge(topic)
                        case 3:
                            with queue.transaction() as tx:
                                tx.send("b", b"y", delay=2)
                case 11:
                    clock.advance(chance.choice([0.1, 1, 3, 10]))
        known, found = remembered(shard)
        assert known == found, f"after step {step}"

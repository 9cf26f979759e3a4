"""NATS JetStream."""

import asyncio
import json
import re
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.brokers.peer import Everyday, Peer
from bench.brokers.process import FETCHED, Missing, Server, free_port, program, says
from bench.content import bodies
from bench.measure import Loop, Side, concurrently

BATCH = 1_000
STREAM, SUBJECT = "S", "t"
SYNCS_SINCE = (
    2,
    10,
)  # the first that knows `sync_interval: always`; before it syncs every 2 minutes
ANSWER_SECONDS_MAX = 30.0


@contextmanager
def nats(folder: Path) -> Iterator[Peer]:
    """A NATS server whose streams are synced before they confirm, through nats-py."""
    binary, number = _binary()
    try:
        import nats as client
        from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
    except ImportError:
        raise Missing("nats-py is not installed: make setup") from None
    port = free_port()
    config = folder / "nats.conf"
    config.write_text(
        f"listen: 127.0.0.1:{port}\n"
        f"jetstream {{ store_dir: {json.dumps(str(folder))}, sync_interval: always }}\n"
    )
    with Server([binary, "-c", config], folder) as server, asyncio.Runner() as runner:
        server.wait_for_port(port)

        def run(work: Coroutine[Any, Any, int]) -> int:
            return runner.run(asyncio.wait_for(work, ANSWER_SECONDS_MAX))

        content = bodies(BATCH)

        async def send() -> int:
            for body in content:
                await stream.publish_async(SUBJECT, body)
            await stream.publish_async_completed()
            return len(content)

        async def take() -> int:
            found = await consumer.fetch(BATCH)
            await found[-1].ack_sync()
            return len(found)

        async def send_one() -> int:
            await stream.publish(SUBJECT, content[0])
            return 1

        async def connect() -> tuple[Any, Any, Any]:
            connection = await client.connect(f"nats://127.0.0.1:{port}")
            stream = connection.jetstream()
            await stream.add_stream(StreamConfig(name=STREAM, subjects=[SUBJECT]))
            policy = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=10 * BATCH)
            consumer = await stream.pull_subscribe(SUBJECT, durable="d", config=policy)
            return connection, stream, consumer

        connection, stream, consumer = runner.run(connect())
        try:
            yield Peer(
                "NATS JetStream",
                f"{number}, file storage, sync_interval always, nats-py {version('nats-py')}",
                lambda: run(send()), lambda: run(take()), lambda: run(send_one()),
                (
                    f"{BATCH:,} publish_async, then their acks",
                    f"fetch {BATCH:,} + ack_sync of the last (AckAll)",
                    "publish",
                ),
                everyday=_everyday(runner, f"nats://127.0.0.1:{port}", stream),
            )  # fmt: skip
        finally:
            runner.run(connection.close())


def _everyday(runner: asyncio.Runner, url: str, stream: Any) -> Everyday:
    import nats as client
    from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig

    (body,) = bodies(1)

    async def declare(name: str, pending: int) -> Any:
        await stream.add_stream(StreamConfig(name=name, subjects=[name]))
        policy = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=pending)
        return await stream.pull_subscribe(name, durable="d", config=policy)

    def pulled(name: str, prefetch: int) -> Loop:
        consumer = runner.run(declare(name, max(1_000, 10 * prefetch)))

        async def fill(count: int) -> None:
            for start in range(0, count, BATCH):
                for _ in range(min(BATCH, count - start)):
                    await stream.publish_async(name, body)
                await stream.publish_async_completed()

        fetched: deque[Any] = deque()

        async def work(count: int) -> None:
            for _ in range(count):
                if not fetched:
                    fetched.extend(await consumer.fetch(prefetch, timeout=ANSWER_SECONDS_MAX))
                message = fetched.popleft()
                await (message.ack_sync() if prefetch == 1 else message.ack())

        ack = "ack_sync" if prefetch == 1 else "ack"
        return Loop(
            f"fetch {prefetch:,}, {ack} each",
            lambda count: runner.run(fill(count)),
            lambda count: runner.run(work(count)),
            1_000 if prefetch == 1 else 10_000,
        )

    @contextmanager
    def tasks(count: int) -> Iterator[Side]:
        with concurrently(count) as crowd:
            connection = crowd.run(client.connect(url))
            lone = connection.jetstream()
            crowd.run(lone.add_stream(StreamConfig(name="tasks", subjects=["tasks"])))
            try:
                yield crowd.side(lambda: lone.publish("tasks", body))
            finally:
                crowd.run(connection.close())

    return Everyday(
        pulled("one", 1),
        lambda prefetch: nullcontext(pulled(f"loop-{prefetch}", prefetch)),
        tasks=tasks, tasks_what="publish, one connection",
    )  # fmt: skip


def _binary() -> tuple[Path, str]:
    """A server that can sync always, and its version."""
    found = FETCHED / "nats" / "nats-server"
    if not found.exists():
        found = program("nats-server", advice="make brokers, or apt-get install nats-server")
    number = re.sub(r".*v", "", says(found, "--version"))
    if tuple(map(int, number.split(".")[:2])) < SYNCS_SINCE:
        raise Missing(
            f"{found} is {number}, which cannot sync before it confirms (sync_interval: always came "
            "with 2.10): make brokers fetches Debian 13's"
        )
    return found, number

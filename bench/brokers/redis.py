"""Redis Streams."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from bench.brokers.peer import Everyday, Peer
from bench.brokers.process import Missing, Server, free_port, program, says
from bench.content import bodies
from bench.measure import Loop, Side, concurrently

BATCH = 1_000
STREAM, GROUP = "t", "g"


@contextmanager
def redis(folder: Path) -> Iterator[Peer]:
    """Redis that syncs its append-only file before it answers, through redis-py."""
    binary = program("redis-server", advice="apt-get install redis-server")
    try:
        from redis import Redis
    except ImportError:
        raise Missing("redis-py is not installed: make setup") from None
    port = free_port()
    options = {
        "port": port, "bind": "127.0.0.1", "dir": folder, "save": "",
        "appendonly": "yes", "appendfsync": "always",
    }  # fmt: skip
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with Server([binary, *words], folder) as server:
        server.wait_for_port(port)
        with Redis(port=port) as client:
            client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
            content = bodies(BATCH)

            def send() -> int:
                with client.pipeline(transaction=True) as pipeline:
                    for body in content:
                        pipeline.xadd(STREAM, {"b": body})
                    return len(pipeline.execute())

            def take() -> int:
                found = client.xreadgroup(GROUP, "c", {STREAM: ">"}, count=BATCH)
                ids = [id_ for id_, _ in found[0][1]]
                return int(client.xack(STREAM, GROUP, *ids))

            def send_one() -> int:
                client.xadd(STREAM, {"b": content[0]})
                return 1

            yield Peer(
                "Redis Streams",
                f"{re.findall('v=([0-9.]+)', says(binary, '--version'))[0]}, appendfsync always, "
                f"redis-py {version('redis')}",
                send, take, send_one,
                (f"{BATCH:,} XADD in a pipeline", "XREADGROUP + XACK", "XADD"),
                everyday=_everyday(client, port),
            )  # fmt: skip


def _everyday(client: Any, port: int) -> Everyday:
    (body,) = bodies(1)

    def stream(name: str, prefetch: int) -> Loop:
        client.xgroup_create(name, GROUP, id="0", mkstream=True)

        def fill(count: int) -> None:
            with client.pipeline(transaction=False) as pipeline:
                for _ in range(count):
                    pipeline.xadd(name, {"b": body})
                pipeline.execute()

        def entries() -> Iterator[bytes]:
            while True:
                ((_, found),) = client.xreadgroup(
                    GROUP, "c", {name: ">"}, count=prefetch, block=1000
                )
                yield from (id_ for id_, _ in found)

        read = entries()

        def work(count: int) -> None:
            for id_ in islice(read, count):
                client.xack(name, GROUP, id_)

        most = 2_000 if prefetch == 1 else 10_000
        return Loop(f"XREADGROUP COUNT {prefetch:,}, XACK each", fill, work, most)

    @contextmanager
    def tasks(count: int) -> Iterator[Side]:
        from redis.asyncio import BlockingConnectionPool
        from redis.asyncio import Redis as AsyncRedis

        with concurrently(count) as crowd:
            pool = BlockingConnectionPool(port=port, max_connections=count)
            lone = AsyncRedis(connection_pool=pool)
            try:
                yield crowd.side(lambda: lone.xadd("tasks", {"b": body}))
            finally:
                crowd.run(lone.aclose(close_connection_pool=True))

    return Everyday(
        stream("one", 1),
        lambda prefetch: nullcontext(stream(f"loop-{prefetch}", prefetch)),
        tasks=tasks, tasks_what="XADD, redis.asyncio, a connection each",
    )  # fmt: skip

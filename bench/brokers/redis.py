"""Redis Streams."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from bench.brokers.peer import Peer
from bench.brokers.process import Missing, Server, free_port, program, says
from bench.content import bodies

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
            )  # fmt: skip

"""What answers have taken of memory comes back, whether they were read or not, without another request."""

import json
import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import quiver
from quiver import limits
from quiver.wire import shapes
from tests.server.nodes import Node, start_node

pytestmark = [pytest.mark.process, pytest.mark.check]

MIB = limits.MIB
BODIES = 15  # of a MiB: a page
ASKED = 20  # at a time: what they keep is several times what a quiet node may keep
PATIENCE_SECONDS = 60
PAGE = {"limit": BODIES}


def resident(node: Node) -> int:
    status = Path(f"/proc/{node.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def ask(node: Node) -> socket.socket:
    """A client that asks for a page and reads nothing of it but that it is there."""
    data = json.dumps(PAGE).encode()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.settimeout(PATIENCE_SECONDS)
    client.connect(("127.0.0.1", node.port))
    head = (
        "POST /v1/topics/t/read HTTP/1.1\r\nhost: localhost\r\n"
        f"accept: {shapes.ARROW}\r\ncontent-type: {shapes.JSON}\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    client.sendall(head.encode() + data)
    assert client.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
    return client


@pytest.mark.parametrize("accept", [shapes.ARROW, shapes.JSON])
@pytest.mark.parametrize("end", ["gone", "silent"])
def test_the_memory_of_answers_that_nobody_reads_comes_back(tmp_path: Path, accept: str, end: str):
    env = {"QUIVER_BOUNDS_ANSWER_PAUSE_SECONDS": "2"}
    with start_node(tmp_path, env=env) as node, ExitStack() as clients:
        with quiver.connect(f"quiver://127.0.0.1:{node.port}") as queue:
            queue.create_topic("t", retention="forever")
            queue.send_batch("t", [os.urandom(MIB) for _ in range(BODIES)])
            assert len(list(queue.read("t"))) == BODIES  # what is cached is counted as before
        before = resident(node)
        asked = [clients.enter_context(ask(node)) for _ in range(ASKED)]
        peak = resident(node)
        assert peak - before > 2 * limits.ALLOCATOR_KEEP_BYTES // 1024
        if end == "gone":
            for client in asked:
                client.close()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while resident(node) - before > limits.ALLOCATOR_KEEP_BYTES // 1024:
            assert time.monotonic() < deadline, f"{before} KiB, {peak} KiB, {resident(node)} KiB"
            time.sleep(0.1)

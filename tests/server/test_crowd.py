"""Ten thousand connections that do nothing and a thousand that wait, while eight clients work."""

import http.client
import json
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.server.nodes import Node, start_node
from tests.server.raw import Raw

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

IDLE = 10_000
POLLS = 1_000
WORKERS = 8
WORK_SECONDS = 10
DESCRIPTORS = IDLE + POLLS + 500
MEMORY_BYTES_MAX = 400_000_000  # of the node at its fullest: about 20 KiB a connection, and Python
GROWTH_BYTES_MAX = 60_000_000  # between the first and the second time of the same


@pytest.fixture
def descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        pytest.skip(f"needs {DESCRIPTORS} descriptors, and the hard limit here is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, DESCRIPTORS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_crowd_is_held_while_others_work(tmp_path: Path, descriptors: None):
    env = {"QUIVER_BOUNDS_IDLE_SECONDS": "600"}
    with start_node(tmp_path, env=env) as node:
        for topic in ("work", "nothing"):
            call(node, "PUT", f"/v1/topics/{topic}", {})
        before = memory(node)
        sizes = [crowd(node) for _ in range(2)]
        print(f"node: {before / 1e6:.0f} MB empty, {[round(size / 1e6) for size in sizes]} MB full")
        assert max(sizes) < MEMORY_BYTES_MAX
        assert sizes[1] - sizes[0] < GROWTH_BYTES_MAX
        assert node.stop() == 0


def crowd(node: Node) -> int:
    """Hold them all for a while; how much memory the node has then."""
    with ExitStack() as stack:
        idle = [stack.enter_context(Raw(node.port)) for _ in range(IDLE)]
        assert idle[0].ask("GET", "/health/live").status == 200
        polls = [stack.enter_context(Raw(node.port)) for _ in range(POLLS)]
        body = json.dumps({"wait": 300}).encode()
        for raw in polls:
            raw.request(
                "POST", "/v1/topics/nothing/groups/g/receive", body, content_type="application/json"
            )
        until = time.monotonic() + WORK_SECONDS
        done = [0] * WORKERS
        workers = [
            threading.Thread(target=work, args=(node, until, done, number))
            for number in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        print(f"sent, received and acknowledged meanwhile: {sum(done)} ({done})")
        assert min(done) > 0
        size = memory(node)
        assert open_connections(node) >= IDLE + POLLS
        for raw in (idle[0], idle[-1]):
            assert raw.ask("GET", "/health/ready").status == 200
        call(node, "POST", "/v1/topics/nothing/batches", {"messages": [{"body": "x"}] * POLLS})
        assert all(raw.answer().status == 200 for raw in polls)
        return size


def work(node: Node, until: float, done: list[int], number: int) -> None:
    """Send, receive and acknowledge one message at a time."""
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=60)
    while time.monotonic() < until:
        call(node, "POST", "/v1/topics/work/messages", {"body": "x"}, connection)
        got = call(node, "POST", "/v1/topics/work/groups/g/receive", {"wait": 10}, connection)
        receipts = [one["receipt"] for one in got["messages"]]
        call(node, "POST", "/v1/settle", {"action": "ack", "receipts": receipts}, connection)
        done[number] += len(receipts)
    connection.close()


def call(
    node: Node,
    method: str,
    path: str,
    body: dict,
    connection: http.client.HTTPConnection | None = None,
) -> dict:
    used = connection or http.client.HTTPConnection("127.0.0.1", node.port, timeout=60)
    used.request(method, path, json.dumps(body), {"content-type": "application/json"})
    answer = used.getresponse()
    text = answer.read()
    if connection is None:
        used.close()
    assert answer.status < 300, text
    return json.loads(text) if text else {}


def open_connections(node: Node) -> int:
    with Raw(node.port) as raw:
        text = raw.ask("GET", "/metrics").body.decode()
    line = next(line for line in text.splitlines() if line.startswith("quiver_connections "))
    return int(float(line.split()[1]))


def memory(node: Node) -> int:
    """Bytes of the node that are in memory."""
    pages = Path(f"/proc/{node.pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()

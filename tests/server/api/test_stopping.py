"""A consumer that stops, however it stops, uses up no attempt of what it has not handed out."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import quiver
from tests.server.api.conftest import PLACES, url_of
from tests.server.nodes import Node
from tests.server.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.process
COUNT = 10


@pytest.fixture(scope="module", autouse=True)
def _started(shared: Node) -> None:
    """The node is there before a test looks for threads of its own."""


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request, tmp_path)


@pytest.fixture
def queue(url: str) -> Iterator[quiver.Queue]:
    with quiver.connect(url) as made:
        fill(made)
        yield made
        made.delete_topic("t")
        made.delete_topic("t.dlq")


def fill(queue: quiver.Queue) -> None:
    queue.create_topic("t", max_attempts=1)
    queue.create_group("t", "g")
    queue.send_batch("t", [str(at) for at in range(COUNT)])


def nothing_was_used_up(queue: quiver.Queue) -> None:
    """All but the first are there as if nobody had ever had them."""
    assert queue.stats("t.dlq").depth == 0
    got = queue.receive("t", "g", max_messages=2 * COUNT)
    assert [(one.text, one.attempt) for one in got] == [(str(at), 1) for at in range(1, COUNT)]


def test_closed(queue):
    with queue.consumer("t", "g", prefetch=COUNT) as inbox:
        inbox.get(wait=PATIENCE_SECONDS).ack()
        until(lambda: queue.groups("t")["g"].reserved)
    nothing_was_used_up(queue)


def test_closed_when_it_had_begun_many_at_once(queue):
    with queue.consumer("t", "g", prefetch=COUNT) as inbox:
        for _ in range(6):  # the faster they are taken, the more are begun at a time
            inbox.get(wait=PATIENCE_SECONDS).ack()
    assert queue.groups("t")["g"].dead_lettered == 0
    got = queue.receive("t", "g", max_messages=2 * COUNT)
    assert [(one.text, one.attempt) for one in got] == [(str(at), 1) for at in range(6, COUNT)]


def test_closed_in_an_event_loop(url: str):
    async def scenario() -> None:
        async with quiver.connect_async(url) as queue:
            async with queue.consumer("t", "g", prefetch=COUNT) as inbox:
                first = await inbox.get(wait=PATIENCE_SECONDS)
                assert first is not None
                await first.ack()
            assert (await queue.stats("t.dlq")).depth == 0
            got = await queue.receive("t", "g", max_messages=2 * COUNT)
            texts = [(one.text, one.attempt) for one in got]
            assert texts == [(str(at), 1) for at in range(1, COUNT)]
            await queue.delete_topic("t")
            await queue.delete_topic("t.dlq")

    with quiver.connect(url) as before:
        fill(before)
    asyncio.run(scenario())


def test_an_event_loop_that_ends_without_closing_it(shared: Node, wired: str):
    async def scenario() -> None:
        queue = await quiver.connect_async(url).__aenter__()
        inbox = await queue.consumer("t", "g", prefetch=COUNT).__aenter__()
        first = await inbox.get(wait=PATIENCE_SECONDS)
        assert first is not None
        await first.ack()
        closed.append(queue)

    url = f"quiver://127.0.0.1:{shared.port}?wire={wired}"
    closed: list[quiver.AsyncQueue] = []
    with quiver.connect(url) as other:
        fill(other)
        asyncio.run(scenario())
        try:
            nothing_was_used_up(other)
        finally:
            closed[0]._close()
            other.delete_topic("t")
            other.delete_topic("t.dlq")


PROGRAM = """
import signal, sys, quiver
how, url = sys.argv[1:]

def stop(*_):
    raise SystemExit(0)

signal.signal(signal.SIGTERM, stop)
queue = quiver.connect(url)
inbox = queue.consumer("t", "g", prefetch=10, lease=2 if how == "killed" else 600)
inbox.get().ack()
print("taken", flush=True)
if how == "ended":
    sys.exit()
if how == "stopped":
    with inbox:
        signal.pause()
signal.pause()
"""


@pytest.mark.parametrize("how", ["ended", "stopped", "stopped without a with", "killed"])
def test_a_process(shared: Node, how: str, wired: str):
    url = f"quiver://127.0.0.1:{shared.port}?wire={wired}"
    with quiver.connect(url) as queue:
        fill(queue)
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, how, url], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "taken\n"
            if how.startswith("stopped"):
                process.send_signal(signal.SIGTERM)
            elif how == "killed":
                until(lambda: queue.groups("t")["g"].reserved == COUNT - 1)
                process.kill()
            code = process.wait(PATIENCE_SECONDS)
            assert code == (-signal.SIGKILL if how == "killed" else 0)
            if how == "killed":
                until(lambda: queue.groups("t")["g"].in_flight == 0)
            nothing_was_used_up(queue)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
            queue.delete_topic("t")
            queue.delete_topic("t.dlq")

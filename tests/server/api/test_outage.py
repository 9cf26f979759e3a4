"""A consumer waits for a node that is away, says so once, and goes on."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quiver
from quiver import limits
from tests.server.nodes import Node, start_node
from tests.server.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.process
SHORT = "?patience=0.2"  # after which every single call fails


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(limits, "BACKOFF_SECONDS_MAX", 0.1)
    with start_node(tmp_path) as made:
        yield made


@pytest.fixture
def url(node: Node, wired: str) -> str:
    return f"quiver://127.0.0.1:{node.port}{SHORT}&wire={wired}"


@pytest.fixture
def queue(url: str) -> Iterator[quiver.Queue]:
    with quiver.connect(url) as made:
        made.create_topic("t", max_attempts=1)
        made.create_group("t", "g")
        yield made


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged, shortened to what it is about."""
    told = [record.getMessage() for record in caplog.records if record.name == "quiver"]
    assert all("topic 't' (group 'g')" in line for line in told)
    return ["lost" if "has lost its node" in line else "back" for line in told]


@pytest.mark.parametrize("prefetch", [0, 10])
def test_it_goes_on_when_its_node_is_back(node, queue, caplog, prefetch):
    caplog.set_level(logging.INFO, "quiver")
    queue.send("t", "before")
    with queue.consumer("t", "g", prefetch=prefetch, lease=600) as inbox:
        inbox.get(wait=PATIENCE_SECONDS).ack()
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.append(inbox.get(wait=PATIENCE_SECONDS)))
        waiting.start()
        node.kill()
        until(lambda: inbox._outage._failures > 3)  # each of them ended consumers before
        node.restart()
        queue.send("t", "after", dedup_id="once")
        waiting.join(PATIENCE_SECONDS)
        assert [one.text for one in found] == ["after"]
        found[0].ack()
        assert lines(caplog) == ["lost", "back"]
    assert queue.groups("t")["g"].lag == 0


def test_it_goes_on_in_an_event_loop(node, queue, caplog, url):
    caplog.set_level(logging.INFO, "quiver")

    async def scenario() -> None:
        async with quiver.connect_async(url) as other, other.consumer("t", "g") as inbox:
            waiting = asyncio.create_task(inbox.get(wait=PATIENCE_SECONDS))
            await asyncio.sleep(0)
            await asyncio.to_thread(node.kill)
            await asyncio.to_thread(until, lambda: inbox._outage._failures > 3)
            await asyncio.to_thread(node.restart)
            await other.send("t", "after", dedup_id="once")
            got = await waiting
            assert got is not None
            assert got.text == "after"
            await got.ack()

    asyncio.run(scenario())
    assert lines(caplog) == ["lost", "back"]


def test_it_gives_up_if_it_is_told_to(node, queue):
    with queue.consumer("t", "g", give_up_after=0.5) as inbox:
        node.kill()
        with pytest.raises((quiver.Unreachable, quiver.OutcomeUnknown)):
            inbox.get(wait=PATIENCE_SECONDS)


@pytest.mark.parametrize("prefetch", [0, 10])
def test_closing_does_not_wait_for_the_node(node, monkeypatch, prefetch, wired):
    """Neither for its calls, however long they may be tried again, nor to give anything back."""
    monkeypatch.setattr(limits, "CONSUMER_PATIENCE_SECONDS", 3_600.0)
    monkeypatch.setattr(limits, "CONSUMER_CLOSE_SECONDS", 0.1)
    with quiver.connect(f"quiver://127.0.0.1:{node.port}?patience=3600&wire={wired}") as queue:
        queue.create_topic("t")
        queue.send_batch("t", ["0", "1", "2"])
        inbox = queue.consumer("t", "g", prefetch=prefetch, lease=600)
        assert inbox.get(wait=PATIENCE_SECONDS)
        node.kill()
        waiting = threading.Thread(target=list, args=(inbox,))
        waiting.start()
        inbox.close()
        waiting.join(PATIENCE_SECONDS)
        assert not waiting.is_alive()


def test_what_is_not_about_the_node_is_told_at_once(node, queue):
    with queue.consumer("t", "g") as inbox:
        queue.delete_topic("t")
        with pytest.raises(quiver.TopicNotFound):
            inbox.get(wait=PATIENCE_SECONDS)

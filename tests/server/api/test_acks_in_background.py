"""Acks that a consumer collects, and what happens to them when a process or a node ends."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import quiver
from quiver import limits
from tests.server.nodes import Node, start_node
from tests.server.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.process
COUNT = 2_000


@pytest.fixture(scope="module", autouse=True)  # before a test looks for threads of its own
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with start_node(tmp_path_factory.mktemp("acked")) as made:
        yield made


@pytest.fixture(params=["directory", "node"])
def url(request: pytest.FixtureRequest, tmp_path: Path, node: Node) -> str:
    if request.param == "directory":
        return str(tmp_path / "data")
    return f"quiver://127.0.0.1:{node.port}"


@contextmanager
def filled(url: str, messages: int = COUNT) -> Iterator[quiver.Queue]:
    with quiver.connect(url) as queue:
        queue.create_topic("t")
        queue.create_group("t", "g")
        queue.send_batch("t", [str(at) for at in range(messages)])
        yield queue


def rest_of(url: str) -> list[quiver.Delivery]:
    """All that was not acked; the topic is deleted."""
    with quiver.connect(url) as queue:
        until(lambda: queue.groups("t")["g"].in_flight == 0)
        found = queue.receive("t", "g", max_messages=COUNT)
        queue.delete_topic("t")
    return found


# -- a process that ends ---------------------------------------------------------------------------

PROGRAM = """
import os, signal, sys, quiver
how, url = sys.argv[1:]
# What an interrupt takes from the middle of a turn comes again when its lease ends.
limit = {"killed": 2, "stopped": 10, "closed by a handler": 10}.get(how, 600)

def stop(*_):
    if how == "closed by a handler":
        inbox.close()
    elif how == "stopped":
        raise SystemExit(0)

signal.signal(signal.SIGTERM, stop)
queue = quiver.connect(url)
inbox = queue.consumer("t", "g", prefetch=20, lease=limit, acks="background")
acked = 0
for delivery in inbox:
    delivery.ack()
    acked += 1
    os.write(1, f"{delivery.text}\\n".encode())
    if how == "ended" and acked == 333:
        sys.exit()
    if how == "failed" and acked == 333:
        with inbox:
            1 / 0
"""


@pytest.mark.parametrize("how", ["ended", "failed", "stopped", "closed by a handler"])
def test_a_program_that_ends_has_stored_its_acks(url: str, how: str):
    with filled(url):
        pass
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, how, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        acked = [process.stdout.readline().strip() for _ in range(100)]
        process.send_signal(signal.SIGTERM)
        acked += process.stdout.read().split()
        assert process.wait(PATIENCE_SECONDS) == (how == "failed")
    rest = rest_of(url)
    assert len(acked) + len(rest) - COUNT in (0, 1)  # the last one was perhaps acked, and not told
    assert not set(acked) & {one.text for one in rest}
    assert {one.attempt for one in rest} <= {1, 2}


def test_a_consumer_of_a_queue_that_is_closed_is_closed_with_it(url: str):
    with filled(url, 10) as queue:
        inbox = queue.consumer("t", "g", lease=600, acks="background")
        for _ in range(10):
            one = inbox.get(wait=PATIENCE_SECONDS)
            assert one is not None
            one.ack()
    assert not rest_of(url)


def test_so_does_one_of_an_event_loop(url: str):
    async def scenario() -> None:
        async with quiver.connect_async(url) as queue:
            inbox = await queue.consumer("t", "g", lease=600, acks="background").__aenter__()
            for _ in range(10):
                one = await inbox.get(wait=PATIENCE_SECONDS)
                assert one is not None
                await one.ack()

    with filled(url, 10):
        pass
    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_SECONDS))
    assert not rest_of(url)


def test_a_producer_that_nobody_closes_sends_what_it_has_when_the_program_ends(url: str):
    with filled(url, 1):
        pass
    program = """
import sys, quiver
queue = quiver.connect(sys.argv[1])
out = queue.producer("t", linger=60)
for at in range(10):
    out.send(str(at))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, url],
        capture_output=True, timeout=PATIENCE_SECONDS, check=False, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert len(rest_of(url)) == 11


@pytest.mark.check
def test_a_producer_that_a_handler_closes_sends_what_it_has(url: str):
    with filled(url, 1):
        pass
    program = """
import signal, sys, quiver
queue = quiver.connect(sys.argv[1])
out = queue.producer("t", linger=0.0005)
sent = 0

def stop(*_):
    out.close()

signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    while sent < 1_000_000:
        out.send("x", key="k")
        sent += 1
except quiver.QueueClosed:
    pass
out.close()
print(sent, queue.stats("t").depth - 1)
"""
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", program, url],
            capture_output=True, timeout=PATIENCE_SECONDS, check=False, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        sent, stored = map(int, done.stdout.split())
        assert stored in (sent, sent + 1)  # the one that was interrupted
        with quiver.connect(url) as queue:
            queue.purge("t")
            queue.send("t", "0")
    rest_of(url)


def test_a_handler_may_send_with_a_producer_of_its_own(url: str):
    with filled(url, 1):
        pass
    program = """
import signal, sys, quiver
queue = quiver.connect(sys.argv[1])
out, other = queue.producer("t"), queue.producer("t", max_messages=1)
handled = 0

def more(*_):
    global handled
    other.send("h")
    handled += 1

more()
signal.signal(signal.SIGALRM, more)
sent = 0
while handled < 300:
    signal.setitimer(signal.ITIMER_REAL, 0.0001 + handled * 0.000002)
    out.send("x")
    out.flush()
    sent += 1
signal.setitimer(signal.ITIMER_REAL, 0)
out.close()
other.close()
print(sent + handled, queue.stats("t").depth - 1)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, url],
        capture_output=True, timeout=PATIENCE_SECONDS, check=False, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    sent, stored = done.stdout.split()
    assert sent == stored
    rest_of(url)


@pytest.mark.check
def test_a_program_that_is_killed_loses_nothing(url: str):
    """What it acked last comes again, and no more than it may have collected and sent."""
    with filled(url):
        pass
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "killed", url], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        acked = [process.stdout.readline().strip() for _ in range(500)]
        process.kill()
        acked += process.stdout.read().split()
        process.wait(PATIENCE_SECONDS)
    left = {one.text for one in rest_of(url)}
    assert {*acked, *left} == {str(at) for at in range(COUNT)}
    assert len(left.intersection(acked)) <= 2 * max(20, limits.CONSUMER_ACKS_MIN)


def test_a_forked_process_leaves_them_to_the_one_that_has_collected_them(url: str, monkeypatch):
    monkeypatch.setattr(limits, "CONSUMER_ACK_LINGER_SECONDS", 3_600)
    with filled(url, 2) as queue:
        with queue.consumer("t", "g", lease=600, acks="background") as inbox:
            first, second = inbox.get(wait=PATIENCE_SECONDS), inbox.get(wait=PATIENCE_SECONDS)
            assert first is not None
            assert second is not None
            first.ack()
            child = os.fork()
            if not child:
                signal.alarm(PATIENCE_SECONDS)
                try:
                    inbox.close()
                    inbox.flush()
                except quiver.QueueClosed:
                    os._exit(0)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert queue.groups("t")["g"].lag == 2
            second.ack()
        assert queue.groups("t")["g"].lag == 0
        queue.delete_topic("t")


INTERRUPTED = """
import signal, sys, quiver

class Interrupt(BaseException):
    pass

def interrupt(*_):
    global armed
    if armed:
        armed = False
        raise Interrupt

armed, interrupts, found = False, 0, set()
signal.signal(signal.SIGALRM, interrupt)
with quiver.connect(sys.argv[1]) as queue:
    with queue.consumer("t", "g", prefetch=20, lease=2, acks="background") as inbox:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
        while interrupts < 200 or queue.groups("t")["g"].lag:
            try:
                armed = True
                for _ in range(100):
                    delivery = inbox.get(wait=0.1)
                    if delivery is None:
                        break
                    found.add(delivery.text)
                    delivery.ack()
                inbox.flush()
                armed = False
            except Interrupt:
                interrupts += 1
            except quiver.ReceiptExpired:  # it came again, and was acked before
                pass
            armed = False
            if interrupts < 200 and not queue.groups("t")["g"].lag:
                queue.send("t", "more")
        signal.setitimer(signal.ITIMER_REAL, 0)
print(*sorted(found - {"more"}, key=int))
"""


@pytest.mark.check
def test_interrupts_again_and_again_lose_nothing(url: str):
    """Each message is handed out and acked, however often `get`, `ack` and `flush` are interrupted."""
    with filled(url):
        pass
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, url],
        capture_output=True, timeout=PATIENCE_SECONDS, check=False, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(at) for at in range(COUNT)]
    assert not rest_of(url)


# -- a node that is away ---------------------------------------------------------------------------


def test_what_was_acked_while_the_node_was_away_is_stored_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "BACKOFF_SECONDS_MAX", 0.1)
    monkeypatch.setattr(limits, "CONSUMER_PATIENCE_SECONDS", 0.2)
    with start_node(tmp_path) as node:
        url = f"quiver://127.0.0.1:{node.port}"
        with filled(url, 10) as queue, queue.consumer(
            "t", "g", lease=600, acks="background"
        ) as inbox:  # fmt: skip
            got = [inbox.get(wait=PATIENCE_SECONDS) for _ in range(10)]
            node.kill()
            for one in got:
                assert one is not None
                one.ack()
            until(lambda: inbox._outage._failures > 3)
            with pytest.raises((quiver.Unreachable, quiver.OutcomeUnknown)):
                inbox.flush()
            node.restart()
            until(lambda: queue.groups("t")["g"].lag == 0)
            inbox.flush()


def test_acks_that_failed_one_by_one_go_together_when_the_node_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """No flush tells errors of attempts before it."""
    monkeypatch.setattr(limits, "BACKOFF_SECONDS_MAX", 0.1)
    monkeypatch.setattr(limits, "CONSUMER_PATIENCE_SECONDS", 0.2)
    with start_node(tmp_path) as node:
        url = f"quiver://127.0.0.1:{node.port}"
        with filled(url, 10) as queue, queue.consumer(
            "t", "g", lease=600, acks="background"
        ) as inbox:  # fmt: skip
            got = [inbox.get(wait=PATIENCE_SECONDS) for _ in range(10)]
            node.kill()
            for at, one in enumerate(got):
                assert one is not None
                one.ack()
                until(lambda at=at: inbox._outage._failures > at)  # type: ignore[misc]
            node.restart()
            inbox.flush()
            assert queue.groups("t")["g"].lag == 0
            assert len(inbox._stock.acks.sent) == 0


def test_so_it_is_in_an_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "BACKOFF_SECONDS_MAX", 0.1)
    monkeypatch.setattr(limits, "CONSUMER_PATIENCE_SECONDS", 0.2)

    async def scenario(node: Node, url: str) -> None:
        async with (
            quiver.connect_async(url) as queue,
            queue.consumer("t", "g", lease=600, acks="background") as inbox,
        ):
            got = [await inbox.get(wait=PATIENCE_SECONDS) for _ in range(10)]
            await asyncio.to_thread(node.kill)
            for one in got:
                assert one is not None
                await one.ack()
            await asyncio.to_thread(until, lambda: inbox._outage._failures > 3)
            await asyncio.to_thread(node.restart)
            while (await queue.groups("t"))["g"].lag:  # noqa: ASYNC110  # the node tells nobody
                await asyncio.sleep(0.01)
            await inbox.flush()

    with start_node(tmp_path) as node:
        url = f"quiver://127.0.0.1:{node.port}"
        with filled(url, 10):
            pass
        asyncio.run(asyncio.wait_for(scenario(node, url), PATIENCE_SECONDS))


def test_closing_tells_that_the_node_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "CONSUMER_PATIENCE_SECONDS", 0.2)
    with start_node(tmp_path) as node:
        url = f"quiver://127.0.0.1:{node.port}"
        with filled(url, 1) as queue:
            inbox = queue.consumer("t", "g", lease=600, acks="background")
            one = inbox.get(wait=PATIENCE_SECONDS)
            assert one is not None
            node.kill()
            one.ack()
            with pytest.raises((quiver.Unreachable, quiver.OutcomeUnknown)):
                inbox.close()


def test_who_has_given_up_is_told_by_each_ack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nobody would send them any more."""
    monkeypatch.setattr(limits, "BACKOFF_SECONDS_MAX", 0.1)
    with start_node(tmp_path) as node:
        url = f"quiver://127.0.0.1:{node.port}?patience=0.2"
        with (
            filled(url, 1) as queue,
            queue.consumer("t", "g", give_up_after=0.3, acks="background") as inbox,
        ):
            one = inbox.get(wait=PATIENCE_SECONDS)
            assert one is not None
            node.kill()
            with pytest.raises((quiver.Unreachable, quiver.OutcomeUnknown)):
                inbox.get(wait=PATIENCE_SECONDS)
            with pytest.raises((quiver.Unreachable, quiver.OutcomeUnknown)):
                one.ack()

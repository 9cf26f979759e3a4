"""The client when the network or the node fails: what is tried again, what is told, what is let go of."""

import asyncio
import json
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Event
from types import FrameType
from typing import Any

import pytest

import quiver
from quiver import cli, limits
from quiver.client.remote.address import parse
from quiver.errors import StorageFailed
from quiver.server.problems import InternalError
from quiver.wire.frames import Verb
from quiver.wire.problems import UNSURE, Trouble
from quiver.wire.values import ReceiveHead, head_of
from tests.server.api.conftest import Connect
from tests.server.api.proxies import Proxy, answer
from tests.server.nodes import Node, start_node, until_waiting

pytestmark = pytest.mark.process


@pytest.fixture
def node(shared: Node) -> Iterator[Node]:
    """A node without topics."""
    yield shared
    with quiver.connect(f"quiver://127.0.0.1:{shared.port}") as queue:
        for topic in queue.topics():
            queue.delete_topic(topic)


@pytest.fixture
def queue(proxy: Proxy, connect: Connect) -> Any:
    """A client on the other side of the proxy, by each carrier."""
    made = connect(proxy.port)
    made.create_topic("t")
    return made


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def opened(producer: Any) -> Any:
    """For an event loop that is more than to make it."""
    return producer.__enter__()


def pass_on(queue: Any, delivery: Any, topic: str) -> None:
    with queue.transaction() as tx:
        tx.ack(delivery)
        tx.send(topic, b"b")


# -- answers that are lost -------------------------------------------------------------------------


def test_a_send_whose_answer_is_lost_has_an_unknown_outcome(queue, proxy):
    proxy.lose = {"SEND": 1}
    with pytest.raises(quiver.OutcomeUnknown, match="dedup_id"):
        queue.send("t", b"x")
    assert queue.stats("t").depth == 1  # this time it was done


def test_a_batch_whose_answer_is_lost_has_an_unknown_outcome(queue, proxy):
    proxy.lose = {"BATCH": 1}
    with pytest.raises(quiver.OutcomeUnknown):
        queue.send_batch("t", [b"x", quiver.Message(b"y", dedup_id="y")])


def test_a_send_with_a_dedup_id_is_repeated_and_stored_once(queue, proxy):
    proxy.lose = {"SEND": 2, "BATCH": 1}
    assert queue.send("t", b"x", dedup_id="one").duplicate
    assert queue.send_batch("t", [quiver.Message(b"y", dedup_id="two")]).duplicates == 1
    assert (proxy.lost, queue.stats("t").depth) == (3, 2)


def test_a_producers_batches_are_repeated_and_stored_once(queue, proxy):
    proxy.lose = {"BATCH": 3}
    with queue.producer("t", max_messages=10) as out:
        for at in range(100):
            out.send(str(at))
    assert proxy.lost == 3
    got = queue.receive("t", max_messages=1_000)
    assert [delivery.text for delivery in got] == [str(at) for at in range(100)]


def test_an_ack_whose_answer_is_lost_is_repeated_and_counts_as_done(queue, proxy):
    queue.send_batch("t", [b"a", b"b"])
    got = queue.receive("t", max_messages=2, lease=100)
    proxy.lose = {"SETTLE": 1}
    queue.ack(got)
    assert (proxy.lost, queue.stats("t").depth) == (1, 0)
    with pytest.raises(quiver.ReceiptExpired):  # and not for ever
        queue.ack(got)


def test_an_ack_that_is_refused_at_last_may_have_been_done(queue, proxy):
    """With receipts alone the client cannot know when the lease ends."""
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=100)
    proxy.lose = {"SETTLE": 1}
    with pytest.raises(quiver.ReceiptExpired, match="settled already"):
        queue.ack(got.receipt)
    assert queue.stats("t").depth == 0


def test_a_nack_whose_answer_is_lost_has_an_unknown_outcome(queue, proxy):
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=100)
    proxy.lose = {"SETTLE": 1}
    with pytest.raises(quiver.OutcomeUnknown):
        queue.nack(got)
    assert queue.receive("t", wait=10)[0].attempt == 2


def test_a_lease_is_extended_again(queue, proxy):
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=100)
    proxy.lose = {"SETTLE": 1}
    got.extend(200)
    got.ack()
    proxy.lose = {"SETTLE": 1}
    with pytest.raises(quiver.ReceiptExpired):
        got.extend(200)


def test_a_transaction_whose_answer_is_lost_is_done_once(queue, proxy):
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=100)
    proxy.lose = {"TRANSACT": 1}
    with pytest.raises(quiver.OutcomeUnknown):
        pass_on(queue, got, "t")
    assert proxy.lost == 1
    assert [record.text for record in queue.receive("t", max_messages=9)] == ["b"]


def test_a_transaction_that_did_nothing_is_not_called_done(queue, proxy):
    """The lease has ended by a seek, so both attempts are refused; the client sees the second only."""
    queue.create_topic("out")
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=100)
    queue.seek("t", "default", "earliest")
    proxy.lose = {"TRANSACT": 1}
    with pytest.raises(quiver.OutcomeUnknown):
        pass_on(queue, got, "out")
    assert queue.stats("out").depth == 0


# -- answers that are not a node's -----------------------------------------------------------------

BAD_GATEWAY = answer("502 Bad Gateway", b"<html><h1>502 Bad Gateway</h1></html>")


def test_what_a_proxy_says_it_could_not_do_may_have_been_done(queue, proxy):
    """A connection of frames it can only garble; then it is broken."""
    proxy.lose, proxy.instead = {"SEND": 1, "Purge": 1}, BAD_GATEWAY
    told = r"somebody else answered .*(502|not the protocol of a queue)"
    with pytest.raises(quiver.OutcomeUnknown, match=told):
        queue.send("t", b"x")
    assert queue.stats("t").depth == 1
    with pytest.raises(quiver.OutcomeUnknown, match=told):
        queue.purge("t")
    assert queue.stats("t").depth == 0


def test_what_a_proxy_loses_is_repeated_where_that_is_safe(queue, proxy):
    proxy.lose, proxy.instead = {"SEND": 1, "ListTopics": 1, "BATCH": 2}, BAD_GATEWAY
    assert queue.send("t", b"zero", dedup_id="one").duplicate
    assert queue.topics() == ["t"]
    with queue.producer("t", name="p") as out:
        for body in (b"one", b"two"):
            out.send(body)
            out.flush()
    assert (proxy.lost, out.confirmed) == (4, 2)
    assert [record.text for record in queue.read("t")] == ["zero", "one", "two"]


@pytest.mark.parametrize("part", [0.3, 0.99])
def test_an_answer_that_ends_in_its_middle_is_lost(queue, proxy, part):
    proxy.lose, proxy.part = {"SEND": 1, "RECEIVE": 1}, part
    with pytest.raises(quiver.OutcomeUnknown):
        queue.send("t", b"x" * 1_000_000)
    assert queue.receive("t", lease=600) == []  # the first attempt has it, until its lease ends
    assert (proxy.lost, queue.groups("t")["default"].in_flight) == (2, 1)


def test_a_proxy_whose_node_is_away_is_no_wrong_address(proxy, connect, carrier):
    first = "Ping" if carrier == "posts" else "GET /v1/wire"
    proxy.lose, proxy.instead = {first: 2}, BAD_GATEWAY
    assert connect(proxy.port).topics() == []
    assert proxy.lost == 2
    proxy.lose = {first: 1_000}
    with pytest.raises(quiver.Unreachable, match="status 502"):
        connect(proxy.port, patience="0.2")


@pytest.mark.parametrize("kind", [InternalError, StorageFailed])
def test_a_node_that_fails_may_have_stored_what_was_sent(queue, proxy, kind):
    assert kind.code in UNSURE
    proxy.instead = Trouble(kind.code, "it broke")
    proxy.lose = {"SEND": 1, "BATCH": 1}
    with pytest.raises(quiver.OutcomeUnknown, match="it broke"):
        queue.send("t", b"x")
    out = opened(queue.producer("t", name="p"))
    out.send(b"y")
    with pytest.raises(quiver.ProducerFailed, match="1 messages may be stored or not"):
        out.close()
    assert queue.stats("t").depth == 2


def test_a_limit_holds_when_the_answer_to_a_step_is_lost(queue, proxy):
    queue.create_topic("kept")
    queue.send_batch("t", [str(at) for at in range(100)])
    proxy.lose = {"Discard": 1}
    assert queue.discard("t", limit=10) == 10
    assert queue.stats("t").depth == 90
    proxy.lose = {"Redrive": 1}
    assert queue.redrive("t", to="kept", limit=20) == 20
    assert (proxy.lost, queue.stats("t").depth, queue.stats("kept").depth) == (2, 70, 20)


def test_a_leave_whose_answer_is_lost_is_done(queue, proxy):
    member = queue.join("t", "g", "me")
    proxy.lose = {"Leave": 1}
    member.leave()
    assert proxy.lost == 1
    with pytest.raises(quiver.MemberFenced):
        member.leave()


# -- what must not be done twice -------------------------------------------------------------------


def test_a_purge_whose_answer_is_lost_takes_nothing_that_is_sent_later(queue, other, proxy):
    queue.send("t", b"old")
    proxy.lose, proxy.after = {"Purge": 1}, lambda: other.send("t", b"new")
    with pytest.raises(quiver.OutcomeUnknown):
        queue.purge("t")
    assert [record.text for record in other.receive("t", max_messages=9)] == ["new"]


def test_a_delete_whose_answer_is_lost_takes_no_topic_that_is_made_later(queue, other, proxy):
    """It says which topic by a number that is given once: so it is repeated, and finds that it is done."""
    proxy.lose, proxy.after = {"DeleteTopic": 1}, lambda: other.create_topic("t")
    queue.delete_topic("t")
    assert proxy.lost == 1
    assert other.topics() == ["t"]


def test_groups_are_deleted_and_moved_once(queue, proxy):
    queue.create_group("t", "g")
    proxy.lose = {"Seek": 1, "DeleteGroup": 1}
    with pytest.raises(quiver.OutcomeUnknown):
        queue.seek("t", "g", "earliest")
    with pytest.raises(quiver.OutcomeUnknown):
        queue.delete_group("t", "g")
    assert proxy.lost == 2
    asked = [name for one in proxy.seen for name in one & {"Seek", "DeleteGroup"}]
    assert asked == ["Seek", "DeleteGroup"]


# -- producers that do not know --------------------------------------------------------------------


def cut_off(proxy: Proxy) -> Callable[[], None]:
    """From now on nobody gets through."""

    def cut() -> None:
        proxy.down = True

    return cut


def test_a_producer_that_does_not_know_what_is_stored_sends_no_more(proxy, connect):
    queue = connect(proxy.port, patience="0.5")
    queue.create_topic("t")
    out = opened(queue.producer("t", name="p"))
    out.send(b"zero")
    out.flush()
    proxy.lose, proxy.after = {"BATCH": 1}, cut_off(proxy)
    out.send(b"A")
    with pytest.raises(quiver.ProducerFailed, match="1 messages may be stored or not") as failed:
        out.flush()
    assert [message.body for message in failed.value.unsent] == [b"A"]
    assert isinstance(failed.value.__cause__, quiver.OutcomeUnknown)
    proxy.down = False
    with pytest.raises(quiver.ProducerFailed, match="does not know") as failed:
        out.send(b"B")  # under the number of A it would pass for A
    assert [message.body for message in failed.value.unsent] == [b"B"]
    out.close()
    with queue.producer("t", name="p") as again:
        assert again.sequence == 2
        again.send(b"B")
    assert [record.text for record in queue.read("t")] == ["zero", "A", "B"]


def test_the_same_in_an_event_loop(proxy, wired):
    async def scenario() -> None:
        url = f"quiver://127.0.0.1:{proxy.port}?patience=0.5&wire={wired}"
        async with quiver.connect_async(url) as queue:
            await queue.create_topic("t")
            async with queue.producer("t") as out:
                proxy.lose, proxy.after = {"BATCH": 1}, cut_off(proxy)
                await out.send(b"A")
                with pytest.raises(quiver.ProducerFailed, match="may be stored or not"):
                    await out.flush()
                proxy.down = False
                with pytest.raises(quiver.ProducerFailed, match="does not know"):
                    await out.send(b"B")

    asyncio.run(scenario())


@pytest.mark.check
def test_batches_in_flight_are_all_reported_or_stored(proxy, connect):
    queue = connect(proxy.port, patience="0.5")
    queue.create_topic("t")
    out = opened(queue.producer("t", max_messages=1))
    proxy.lose, proxy.after = {"BATCH": 1}, cut_off(proxy)
    reported = set()
    for at in range(20):
        try:
            out.send(str(at))
        except quiver.ProducerFailed as failed:
            reported |= {message.body for message in failed.unsent}
    with pytest.raises(quiver.ProducerFailed) as last:
        out.close()
    reported |= {message.body for message in last.value.unsent}
    proxy.down = False
    stored = [record.body for record in queue.read("t")]
    assert len(stored) == len(set(stored))
    assert reported | set(stored) == {str(at).encode() for at in range(20)}
    assert reported == {str(at).encode() for at in range(20)}  # none was confirmed
    assert out.confirmed == 0


def test_a_batch_under_way_when_the_queue_is_closed_may_be_stored(proxy, other, connect):
    asked, ended = Event(), Event()

    def hold() -> None:
        asked.set()
        ended.wait(60)

    queue = connect(proxy.port)
    queue.create_topic("t")
    out = opened(queue.producer("t"))
    proxy.lose, proxy.after = {"BATCH": 1}, hold
    out.send(b"A")
    assert asked.wait(60)
    queue.close()
    with pytest.raises(quiver.ProducerFailed, match="1 messages may be stored or not") as failed:
        out.close()
    ended.set()
    assert isinstance(failed.value.__cause__, quiver.OutcomeUnknown)
    assert [record.text for record in other.read("t")] == ["A"]


def test_a_batch_that_is_refused_at_last_may_be_stored(queue, other, proxy):
    """Somebody took the name over after the first attempt."""
    out = opened(queue.producer("t", name="p"))
    proxy.lose, proxy.after = {"BATCH": 1}, lambda: other.producer("t", name="p").close()
    out.send(b"A")
    with pytest.raises(quiver.ProducerFailed, match="may be stored or not") as failed:
        out.close()
    lost = failed.value.__cause__
    assert lost is not None
    assert isinstance(lost.__cause__, quiver.ProducerFenced)
    assert queue.stats("t").depth == 1


def test_asking_is_repeated(queue, proxy):
    proxy.lose = {"ListTopics": 3}
    assert queue.topics() == ["t"]
    assert proxy.lost == 3


def test_a_dry_run_counts_in_a_topic_that_somebody_made_again(queue, other):
    queue.send("t", b"old")
    assert queue.discard("t", dry_run=True) == 1
    other.delete_topic("t")
    other.create_topic("t")
    other.send_batch("t", [b"a", b"b"])
    assert queue.discard("t", dry_run=True) == 2


# -- nodes that are not there ----------------------------------------------------------------------


def test_a_node_that_is_not_there_is_unreachable(connect):
    told = r"Connection refused; tried (once|\d+ times) in \d+\.\d s\. Is `quiver serve` running there\?"
    with pytest.raises(quiver.Unreachable, match=told):
        connect(free_port(), patience="0.2")


def hosts(*ports: int) -> Any:
    """In place of a port: the first host, and those after it."""
    return ",127.0.0.1:".join(map(str, ports))


def test_another_node_is_asked_if_one_is_not_there(node, connect):
    assert connect(hosts(free_port(), node.port)).topics() == []


def test_what_never_got_to_a_node_is_sent_to_another(proxy, node, connect):
    """The first accepts connections and ends them; after the first of them it was not asked anything."""
    queue = connect(hosts(proxy.port, node.port))
    queue.create_topic("t")
    proxy.down = True
    proxy.cut()
    queue.topics()  # it has noticed
    queue.send("t", b"x")
    assert queue.stats("t").depth == 1


def test_a_connection_that_takes_too_long_was_not_made(proxy, connect, monkeypatch):
    """So nothing can have arrived, and another node may be asked, whatever it is."""
    monkeypatch.setattr(limits, "CONNECT_SECONDS_MAX", 0.2)
    with Deaf() as port:
        queue = connect(hosts(port, proxy.port))
        queue.create_topic("t")
        proxy.cut()  # the next host is the first again
        queue.send("t", b"x")
        assert queue.stats("t").depth == 1
        with pytest.raises(quiver.Unreachable):
            connect(port, patience="0.5")


def test_another_node_is_asked_if_one_makes_no_connection(node, connect):
    with Deaf() as port:
        assert connect(hosts(port, node.port), patience="4").topics() == []


def test_another_node_is_asked_if_one_is_silent(node, connect):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert connect(hosts(port, node.port), patience="0.1").topics() == []


@pytest.mark.parametrize("status", [b"404 Not Found", b"200 OK"])
def test_something_else_that_speaks_http_is_noticed(status):
    page = b"HTTP/1.1 " + status + b"\r\ncontent-length: 5\r\n\r\nhello"
    for wired, told in (
        ("auto", "not of a Quiver node"),
        ("never", "not of a Quiver node"),
        ("always", "does not upgrade to the protocol of a queue"),
    ):
        with pytest.raises(quiver.InvalidRequest, match=told), Other(page) as port:
            quiver.connect(f"quiver://127.0.0.1:{port}?patience=1&wire={wired}")


def test_something_else_that_does_not_is_noticed_at_once(connect):
    with (
        pytest.raises(quiver.InvalidRequest, match="does not speak HTTP"),
        Other(b"SSH-2.0-Sample\r\n") as port,
    ):
        connect(port, patience="1h")


def test_a_client_outlives_its_node(tmp_path, connect):
    with start_node(tmp_path) as node:
        queue = connect(node.port)
        queue.create_topic("t")
        queue.send("t", b"x")
        node.kill()
        node.restart()
        assert queue.receive("t")[0].body == b"x"


def test_what_is_sent_after_a_quiet_time_goes_to_a_node_that_was_restarted_meanwhile(
    tmp_path, connect
):
    """The connection is dead, and nothing was under way on it: that is no reason for doubts."""
    with start_node(tmp_path) as node:
        queue = connect(node.port)
        queue.create_topic("t")
        for end in (node.kill, node.stop):
            end()
            node.restart()
            assert queue.send("t", b"x").partition == 0
        assert queue.stats("t").depth == 2


def test_a_consumer_that_cannot_give_back_does_not_hide_an_error(tmp_path, wired):
    def fail(queue: quiver.Queue) -> None:
        with queue.consumer("t") as inbox:
            assert inbox.get(wait=30)
            mortal.kill()
            raise ZeroDivisionError

    async def fail_too(url: str) -> None:
        async with quiver.connect_async(url) as queue, queue.consumer("t", "other") as inbox:
            assert await inbox.get(wait=30)
            await asyncio.to_thread(mortal.kill)
            raise ZeroDivisionError

    with start_node(tmp_path) as mortal:
        url = f"quiver://127.0.0.1:{mortal.port}?patience=0.2&wire={wired}"
        with quiver.connect(url) as queue:
            queue.create_topic("t")
            queue.create_group("t", "other")
            queue.send_batch("t", [b"a", b"b"])
            with pytest.raises(ZeroDivisionError):
                fail(queue)
        mortal.restart()
        with pytest.raises(ZeroDivisionError):
            asyncio.run(fail_too(url))


# -- interrupts ------------------------------------------------------------------------------------


def interrupted(call: Callable[[], object], at: int) -> bool:
    """Whether Ctrl-C came: when a function of ours or of `threading` is called, after `at` others."""
    calls = 0

    def trace(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        path = frame.f_code.co_filename
        calls += path == threading.__file__ or "/quiver/client/" in path
        if calls == at + 1:
            sys.settrace(None)
            raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    except RuntimeError as error:  # what `threading` makes of it while a thread starts
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        return True
    finally:
        sys.settrace(before)
    return False


def ends(close: Callable[[], object]) -> bool:
    def quietly() -> None:
        with suppress(quiver.ProducerFailed):
            close()

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    thread.join(30)
    return not thread.is_alive()


@pytest.fixture
def threads(node: Node, wired: str) -> Iterator[quiver.Queue]:
    """A queue for threads, by frames or by what is posted."""
    with quiver.connect(f"quiver://127.0.0.1:{node.port}?wire={wired}") as made:
        made.create_topic("t")
        yield made


# What is let go of by an interrupt is a warning for Python: a socket, a generator that was to be closed.
@pytest.mark.check
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("what", ["ask", "send", "receive", "settle"])
def test_a_queue_goes_on_wherever_a_call_was_interrupted(threads, what):
    def settle() -> None:
        for delivery in threads.receive("t", "g", max_messages=1, lease=600):
            delivery.ack()

    calls: dict[str, Callable[[], object]] = {
        "ask": threads.topics,
        "send": lambda: threads.send("t", b"x"),
        "receive": lambda: threads.receive("t", wait=0.001),
        "settle": settle,
    }
    threads.create_group("t", "g")
    threads.send_batch("t", [b"x"] * 1_000)
    for at in range(1_000):
        came = interrupted(calls[what], at)
        assert ends(threads.topics), f"interrupted at call {at}"
        if not came:
            return
    raise AssertionError("it never came to an end")


def test_a_producer_can_be_closed_wherever_it_was_interrupted(threads):
    queue = threads
    for at in range(1_000):
        out = queue.producer("t", max_messages=1)
        came = interrupted(partial(out.send, b"x"), at)
        assert ends(out.close), f"interrupted at call {at}"
        if not came:
            return
    raise AssertionError("it never came to an end")


@pytest.mark.check
def test_a_consumer_can_be_closed_wherever_it_was_interrupted(threads):
    queue = threads
    queue.send_batch("t", [b"x"] * 1_000)
    for at in range(1_000):
        inbox = queue.consumer("t", prefetch=1)
        came = interrupted(partial(inbox.get, wait=30), at)
        assert ends(inbox.close), f"interrupted at call {at}"
        if not came:
            return
    raise AssertionError("it never came to an end")


# -- waiting ---------------------------------------------------------------------------------------


def test_a_receive_that_is_cancelled_takes_no_message(node, wired):
    async def scenario() -> None:
        async with quiver.connect_async(f"quiver://127.0.0.1:{node.port}?wire={wired}") as queue:
            await queue.create_topic("t")
            for _ in range(5):
                task = asyncio.create_task(queue.receive("t", wait=60))
                await asyncio.to_thread(until_waiting, node, 1)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await asyncio.to_thread(until_waiting, node, 0)
            await queue.send("t", b"x")
            (got,) = await queue.receive("t", wait=10)
            assert got.attempt == 1

    asyncio.run(scenario())


def test_a_wait_longer_than_the_patience_survives_a_lost_connection(node, proxy, connect, other):
    """The patience begins when the connection is lost, not with the call; then the rest is waited for."""
    queue = connect(proxy.port, patience="0.1")
    queue.create_topic("t")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(queue.receive, "t", wait=60)
        until_waiting(node, 1)
        assert waits(proxy)[0] == 60_000
        time.sleep(0.2)
        proxy.cut()
        proxy.await_request("RECEIVE", 2)
        assert waits(proxy)[1] <= 59_800
        other.send("t", b"x")
        assert [delivery.text for delivery in waiting.result(60)] == ["x"]


def waits(proxy: Proxy) -> list[int]:
    """How long each receive was to wait."""
    asked = [head_of(frame) for frame in proxy.frames if frame.verb == Verb.RECEIVE]
    return [head.wait_ms for head in asked if isinstance(head, ReceiveHead)]


def test_a_queue_that_is_closed_ends_what_waits_for_messages(node, wired):
    with ThreadPoolExecutor(2) as pool:
        queue = quiver.connect(f"quiver://127.0.0.1:{node.port}?wire={wired}")
        queue.create_topic("t")
        waiting = [pool.submit(queue.receive, "t", wait=60) for _ in range(2)]
        until_waiting(node, 2)
        queue.close()
        for one in waiting:
            with pytest.raises(quiver.QueueClosed):
                one.result(30)
        until_waiting(node, 0)
        with pytest.raises(quiver.QueueClosed):
            queue.topics()


def test_threads_share_a_queue(queue):
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda at: queue.send("t", str(at), dedup_id=str(at)), range(200)))
    assert queue.stats("t").depth == 200


HANDLED = """
import signal, sys, threading, time, quiver
queue = quiver.connect(sys.argv[1])
for topic in "abc":
    queue.create_topic(topic)

def sleeps(call):
    return call in [frame.f_code.co_name for frame in frames()]

def frames():
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame:
        yield frame
        frame = frame.f_back

def interrupt():
    while not sleeps("sleep"):
        time.sleep(0.01)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

signal.signal(signal.SIGUSR1, lambda *_: queue.receive("c", wait=0.5))
reader = threading.Thread(target=lambda: queue.receive("b", wait=1))
reader.start()
time.sleep(0.2)  # so that it is likely to read; it does not matter if it does not
threading.Thread(target=interrupt, daemon=True).start()
queue.receive("a", wait=1)
reader.join()
print("ended")
"""


def test_a_handler_that_waits_where_its_thread_sleeps_does_not_hold_up_the_reading(node, wired):
    """Who reads wakes the one that waits longest, and that one is under the handler."""
    done = subprocess.run(
        [sys.executable, "-c", HANDLED, f"quiver://127.0.0.1:{node.port}"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "ended\n", done.stderr


def test_a_thread_that_reads_or_waits_holds_up_no_other(node, wired, monkeypatch):
    """Neither does one whose answer takes its time."""
    with (
        quiver.connect(f"quiver://127.0.0.1:{node.port}?wire={wired}") as queue,
        ThreadPoolExecutor(2) as pool,
    ):
        queue.create_topic("t")
        queue.create_topic("empty")
        waiting = pool.submit(queue.receive, "empty", wait=60)
        until_waiting(node, 1)
        for at in range(20):
            queue.send("t", str(at))
        assert queue.stats("t").depth == 20
        assert not waiting.done()
        queue.send("empty", b"x")
        assert len(waiting.result(30)) == 1


FORKED = """
    import os, sys, quiver
    queue = quiver.connect(sys.argv[1])
    queue.create_topic("t")
    queue.send("t", b"parent")
    child = os.fork()
    if child == 0:
        queue.send("t", b"child")
        queue.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    queue.send("t", b"parent again")
    print(*[record.text for record in queue.read("t")], sep=",")
    queue.close()
"""


def ran(program: str, node: Node, wired: str) -> "subprocess.CompletedProcess[str]":
    """What a program of its own says, which is told where the node is and where its figures are."""
    url = f"quiver://127.0.0.1:{node.port}?wire={wired}"
    command = [sys.executable, "-c", textwrap.dedent(program), url, f"{node.url}/metrics"]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, text=True)


def test_a_forked_process_makes_connections_of_its_own(node, wired):
    done = ran(FORKED, node, wired)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "parent,child,parent again\n"


FORKED_IDLE = """
    import os, sys, threading, time, quiver
    from urllib.request import urlopen
    queue = quiver.connect(sys.argv[1])
    queue.create_topic("t")
    receiving = threading.Thread(target=lambda: print(queue.receive("t", wait=60)[0].text))
    receiving.start()
    while b"quiver_receives_waiting 1.0" not in urlopen(sys.argv[2]).read():
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        sys.exit()  # it has done nothing, and lets go of everything
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    queue.send("t", b"parent")
    receiving.join()
    queue.close()
"""


def test_a_forked_process_that_ends_leaves_the_connections_of_its_parent_alone(node, wired):
    done = ran(FORKED_IDLE, node, wired)
    assert (done.returncode, done.stdout, done.stderr) == (0, "parent\n", "")


FORKED_LOOP = """
    import asyncio, os, sys, quiver
    async def main():
        async with quiver.connect_async(sys.argv[1]) as queue:
            await queue.create_topic("t")
            waiting = asyncio.create_task(queue.receive("t", wait=60))
            await queue.topics()
            child = os.fork()
            if child == 0:
                with quiver.connect(sys.argv[1]) as mine:
                    mine.topics()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            await queue.send("t", b"parent")
            print((await waiting)[0].text)
    asyncio.run(main())
"""


def test_a_process_that_was_forked_from_an_event_loop_leaves_it_its_connections(node, wired):
    done = ran(FORKED_LOOP, node, wired)
    assert (done.returncode, done.stdout, done.stderr) == (0, "parent\n", "")


FORKED_OPEN = """
    import os, sys, threading, quiver
    queue = quiver.connect(sys.argv[1])
    queue.create_topic("t")
    out = queue.producer("t", name="p")
    out.send(b"0")
    out.flush()
    consumer = queue.consumer("t", "g")
    consumer.get().ack()
    queue._flows.broker.lanes._lock.acquire()  # as if another thread were sending just now
    out._lock.acquire()
    consumer._changed.acquire()
    child = os.fork()
    if child == 0:
        for call in (lambda: out.send(b"child"), out.flush, consumer.get):
            try:
                call()
            except quiver.QueueClosed as error:
                assert "forked" in str(error)
            else:
                os._exit(1)
        out.close()
        consumer.close()
        with queue.producer("t", name="child") as mine:
            mine.send(b"child")
        os._exit(0)
    queue._flows.broker.lanes._lock.release()
    out._lock.release()
    consumer._changed.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    out.send(b"parent")
    out.close()
    assert [consumer.get(wait=30).text for _ in range(2)] == ["child", "parent"]
    consumer.close()
    print(*[record.text for record in queue.read("t")], sep=",")
    queue.close()
"""


def test_producers_and_consumers_belong_to_the_process_that_opened_them(node, wired):
    done = ran(FORKED_OPEN, node, wired)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "child,parent\n"  # what is settled is let go


UNCLOSED = """
    import gc, sys, threading, time, quiver
    from urllib.request import urlopen
    def use():
        queue = quiver.connect(sys.argv[1])
        queue.send("t", b"x")
        return queue
    use()
    gc.collect()
    kept = use()
    threading.Thread(target=lambda: kept.receive("empty", wait=60), daemon=True).start()
    while b"quiver_receives_waiting 1.0" not in urlopen(sys.argv[2]).read():
        time.sleep(0.01)
    print("ends")
"""


def test_a_program_that_closes_nothing_ends_quietly(node, other, wired):
    other.create_topic("t")
    other.create_topic("empty")
    done = ran(UNCLOSED, node, wired)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")
    assert other.stats("t").depth == 2


def test_those_who_wait_leave_room_for_those_who_send(node, wired):
    async def scenario() -> None:
        async with quiver.connect_async(f"quiver://127.0.0.1:{node.port}?wire={wired}") as queue:
            await queue.create_topic("t")
            await queue.create_topic("other")
            waiting = [asyncio.create_task(queue.receive("t", wait=60)) for _ in range(150)]
            await asyncio.to_thread(until_waiting, node, len(waiting))
            sent = await asyncio.wait_for(queue.send("other", b"x"), 30)
            assert sent.offset == 0
            (got,) = await asyncio.wait_for(queue.receive("other", wait=30), 20)
            assert got.body == b"x"
            assert not any(task.done() for task in waiting)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(scenario())


def test_only_so_many_may_wait(node, wired, monkeypatch):
    monkeypatch.setattr(limits, "WIRE_WAITING_MAX", 3)

    async def scenario() -> None:
        async with quiver.connect_async(f"quiver://127.0.0.1:{node.port}?wire={wired}") as queue:
            await queue.create_topic("t")
            waiting = [asyncio.create_task(queue.receive("t", wait=60)) for _ in range(3)]
            await asyncio.to_thread(until_waiting, node, 3)
            with pytest.raises(quiver.Overloaded, match="3 receives"):
                await queue.receive("t", wait=60)
            assert await queue.receive("t") == []
            for _ in range(4):  # whoever has a message makes room for another
                await queue.send("t", b"x")
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                waiting = [task for task in waiting if not task.done()]
                waiting.append(asyncio.create_task(queue.receive("t", wait=60)))
                await asyncio.to_thread(until_waiting, node, 3)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(scenario())


# -- addresses -------------------------------------------------------------------------------------


def test_an_address_names_hosts_and_secrets():
    found = parse("quivers://secret@a,b:1,[::1]:2?ca=x.pem&patience=5s", {})
    assert (found.secure, found.hosts) == (True, ("a:7070", "b:1", "[::1]:2"))
    assert (found.token, found.ca, found.patience_seconds) == ("secret", "x.pem", 5)
    assert "secret" not in repr(found)
    assert parse("quiver://a", {"QUIVER_TOKEN": "t"}).token == "t"
    assert parse("quiver://user:pass@a", {}).token == "pass"


@pytest.mark.parametrize(
    "url",
    ["quiver://", "quiver://a:b", "quiver://a/path", "quiver://a?colour=red", "quiver://a,,b",
     "quiver://a:99999", "quiver://a b", "quiver://[::1", "quiver://a?patience=soon",
     "quiver://a?wire=perhaps"],
)  # fmt: skip
def test_a_wrong_address_is_refused_without_repeating_a_secret(url):
    with pytest.raises(quiver.InvalidRequest) as refused:
        parse(url.replace("//", "//hush@", 1), {})
    assert "hush" not in str(refused.value)


# -- the command line ------------------------------------------------------------------------------


def test_commands_work_on_a_node(node, monkeypatch, capfd):
    def run(*args: str) -> str:
        at = f"quiver://127.0.0.1:{node.port}"
        monkeypatch.setattr(sys, "argv", ["quiver", *args, "--data", at])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, error = capfd.readouterr()
        return error if ended.value.code else out

    run("topics", "create", "orders", "--max-attempts", "2")
    run("send", "orders", "a book")
    assert json.loads(run("topics", "--json"))[0]["topic"] == "orders"
    assert run("read", "orders") == "a book\n"
    assert run("receive", "orders", "--group", "g") == "a book\n"
    assert "count" in run("sql", "select count(*) as count from orders")
    assert "looks at files" in run("doctor")


class Other:
    """A server that answers everything with the same."""

    def __init__(self, answer: bytes) -> None:
        self._text = answer

    def __enter__(self) -> int:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()
        return int(self._listener.getsockname()[1])

    def _answer(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with near, suppress(OSError):
                near.recv(10_000)
                near.sendall(self._text)

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


class Deaf:
    """A port where connections are asked for and never made."""

    def __enter__(self) -> int:
        self._sockets = [socket.socket() for _ in range(6)]
        self._sockets[0].bind(("127.0.0.1", 0))
        self._sockets[0].listen(0)
        for one in self._sockets[1:]:
            one.setblocking(False)
            one.connect_ex(self._sockets[0].getsockname())
        return int(self._sockets[0].getsockname()[1])

    def __exit__(self, *_: object) -> None:
        for one in self._sockets:
            one.close()

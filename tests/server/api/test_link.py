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

import pytest

import quiver
from quiver import cli, limits
from quiver.client.remote.address import parse
from quiver.client.remote.flows import _many
from quiver.client.remote.link import UNSURE, Reply, Request
from quiver.errors import StorageFailed
from quiver.server.problems import InternalError, body_of
from tests.server.api.proxies import Wire
from tests.server.nodes import Node, start_node, until_waiting

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with start_node(tmp_path_factory.mktemp("linked")) as started:
        yield started


@pytest.fixture
def node(shared: Node) -> Iterator[Node]:
    """A node without topics."""
    yield shared
    with quiver.connect(f"quiver://127.0.0.1:{shared.port}") as queue:
        for topic in queue.topics():
            queue.delete_topic(topic)


@pytest.fixture
def wire(node: Node) -> Iterator[Wire]:
    with Wire(node.port) as made:
        yield made


@pytest.fixture
def queue(node: Node, wire: Wire) -> Iterator[quiver.Queue]:
    with quiver.connect(f"quiver://127.0.0.1:{wire.port}") as made:
        made.create_topic("t")
        yield made


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def pass_on(queue: quiver.Queue, delivery: quiver.Delivery, topic: str) -> None:
    with queue.transaction() as tx:
        tx.ack(delivery)
        tx.send(topic, b"b")


# -- answers that are lost -------------------------------------------------------------------------


def test_a_send_whose_answer_is_lost_has_an_unknown_outcome(queue, wire):
    wire.lose = {b"/t/messages": 1}
    with pytest.raises(quiver.OutcomeUnknown, match="dedup_id"):
        queue.send("t", b"x")
    assert queue.stats("t").depth == 1  # this time it was done


def test_a_batch_whose_answer_is_lost_has_an_unknown_outcome(queue, wire):
    wire.lose = {b"/t/batches": 1}
    with pytest.raises(quiver.OutcomeUnknown):
        queue.send_batch("t", [b"x", quiver.Message(b"y", dedup_id="y")])


def test_a_send_with_a_dedup_id_is_repeated_and_stored_once(queue, wire):
    wire.lose = {b"/t/messages": 2, b"/t/batches": 1}
    assert queue.send("t", b"x", dedup_id="one").duplicate
    assert queue.send_batch("t", [quiver.Message(b"y", dedup_id="two")]).duplicates == 1
    assert (wire.lost, queue.stats("t").depth) == (3, 2)


def test_a_producers_batches_are_repeated_and_stored_once(queue, wire):
    wire.lose = {b"/t/batches": 3}
    with queue.producer("t", max_messages=10) as out:
        for at in range(100):
            out.send(str(at))
    assert wire.lost == 3
    got = queue.receive("t", max_messages=1_000)
    assert [delivery.text for delivery in got] == [str(at) for at in range(100)]


def test_an_ack_whose_answer_is_lost_is_repeated_and_counts_as_done(queue, wire):
    queue.send_batch("t", [b"a", b"b"])
    got = queue.receive("t", max_messages=2, lease=100)
    wire.lose = {b"/v1/settle": 1}
    queue.ack(got)
    assert (wire.lost, queue.stats("t").depth) == (1, 0)
    with pytest.raises(quiver.ReceiptExpired):  # and not for ever
        queue.ack(got)


def test_an_ack_that_is_refused_at_last_may_have_been_done(queue, wire):
    """With receipts alone the client cannot know when the lease ends."""
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=100)
    wire.lose = {b"/v1/settle": 1}
    with pytest.raises(quiver.ReceiptExpired, match="settled already"):
        queue.ack(got.receipt)
    assert queue.stats("t").depth == 0


def test_a_nack_whose_answer_is_lost_has_an_unknown_outcome(queue, wire):
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=100)
    wire.lose = {b"/v1/settle": 1}
    with pytest.raises(quiver.OutcomeUnknown):
        queue.nack(got)
    assert queue.receive("t", wait=10)[0].attempt == 2


def test_a_lease_is_extended_again(queue, wire):
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=100)
    wire.lose = {b"/v1/settle": 1}
    got.extend(200)
    got.ack()
    wire.lose = {b"/v1/settle": 1}
    with pytest.raises(quiver.ReceiptExpired):
        got.extend(200)


def test_a_transaction_whose_answer_is_lost_is_done_once(queue, wire):
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=100)
    wire.lose = {b"/v1/transactions": 1}
    with pytest.raises(quiver.OutcomeUnknown):
        pass_on(queue, got, "t")
    assert wire.lost == 1
    assert [record.text for record in queue.receive("t", max_messages=9)] == ["b"]


def test_a_transaction_that_did_nothing_is_not_called_done(queue, wire):
    """The lease has ended by a seek, so both attempts are refused; the client sees the second only."""
    queue.create_topic("out")
    queue.send("t", b"a")
    (got,) = queue.receive("t", lease=100)
    queue.seek("t", "default", "earliest")
    wire.lose = {b"/v1/transactions": 1}
    with pytest.raises(quiver.OutcomeUnknown):
        pass_on(queue, got, "out")
    assert queue.stats("out").depth == 0


# -- answers that are not a node's -----------------------------------------------------------------


def answer(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return head.encode() + body


BAD_GATEWAY = answer("502 Bad Gateway", b"<html><h1>502 Bad Gateway</h1></html>")


def test_what_a_proxy_says_it_could_not_do_may_have_been_done(queue, wire):
    wire.lose, wire.instead = {b"/t/messages": 1, b"/purge": 1}, BAD_GATEWAY
    with pytest.raises(quiver.OutcomeUnknown, match="502"):
        queue.send("t", b"x")
    assert queue.stats("t").depth == 1
    with pytest.raises(quiver.OutcomeUnknown):
        queue.purge("t")
    assert queue.stats("t").depth == 0


def test_what_a_proxy_loses_is_repeated_where_that_is_safe(queue, wire):
    wire.lose, wire.instead = {b"/t/messages": 1, b"GET": 1, b"/batches": 2}, BAD_GATEWAY
    assert queue.send("t", b"zero", dedup_id="one").duplicate
    assert queue.topics() == ["t"]
    with queue.producer("t", name="p") as out:
        for body in (b"one", b"two"):
            out.send(body)
            out.flush()
    assert (wire.lost, out.confirmed) == (4, 2)
    assert [record.text for record in queue.read("t")] == ["zero", "one", "two"]


def test_a_proxy_whose_node_is_away_is_no_wrong_address(node, wire):
    wire.lose, wire.instead = {b"GET /v1 ": 2}, BAD_GATEWAY
    with quiver.connect(f"quiver://127.0.0.1:{wire.port}") as queue:
        assert queue.topics() == []
    wire.lose = {b"GET /v1 ": 1_000}
    with pytest.raises(quiver.Unreachable, match="status 502"):
        quiver.connect(f"quiver://127.0.0.1:{wire.port}?patience=0.2")


@pytest.mark.parametrize("kind", [InternalError, StorageFailed])
def test_a_node_that_fails_may_have_stored_what_was_sent(queue, wire, kind):
    assert kind.code in UNSURE
    wire.instead = answer("500 Internal Server Error", body_of(kind("it broke"), 500))
    wire.lose = {b"/t/messages": 1, b"/batches": 1}
    with pytest.raises(quiver.OutcomeUnknown, match="it broke"):
        queue.send("t", b"x")
    out = queue.producer("t", name="p")
    out.send(b"y")
    with pytest.raises(quiver.ProducerFailed, match="1 messages may be stored or not"):
        out.close()
    assert queue.stats("t").depth == 2


def test_a_limit_holds_when_the_answer_to_a_step_is_lost(queue, wire):
    queue.create_topic("kept")
    queue.send_batch("t", [str(at) for at in range(100)])
    wire.lose = {b"/t/move": 1}
    assert queue.discard("t", limit=10) == 10
    assert queue.stats("t").depth == 90
    wire.lose = {b"/t/move": 1}
    assert queue.redrive("t", to="kept", limit=20) == 20
    assert (wire.lost, queue.stats("t").depth, queue.stats("kept").depth) == (2, 70, 20)


def test_a_leave_whose_answer_is_lost_is_done(queue, wire):
    member = queue.join("t", "g", "me")
    wire.lose = {b"DELETE": 1}
    member.leave()
    assert wire.lost == 1
    with pytest.raises(quiver.MemberFenced):
        member.leave()


# -- what must not be done twice -------------------------------------------------------------------


def test_a_purge_whose_answer_is_lost_takes_nothing_that_is_sent_later(queue, node, wire):
    queue.send("t", b"old")
    with quiver.connect(f"quiver://127.0.0.1:{node.port}") as other:
        wire.lose, wire.after = {b"/purge": 1}, lambda: other.send("t", b"new")
        with pytest.raises(quiver.OutcomeUnknown):
            queue.purge("t")
        assert [record.text for record in other.receive("t", max_messages=9)] == ["new"]


def test_a_delete_whose_answer_is_lost_takes_no_topic_that_is_made_later(queue, node, wire):
    with quiver.connect(f"quiver://127.0.0.1:{node.port}") as other:
        wire.lose, wire.after = {b"DELETE": 1}, lambda: other.create_topic("t")
        with pytest.raises(quiver.OutcomeUnknown):
            queue.delete_topic("t")
        assert other.topics() == ["t"]


def test_groups_are_deleted_and_moved_once(queue, wire):
    queue.create_group("t", "g")
    wire.lose = {b"/seek": 1, b"DELETE": 1}
    with pytest.raises(quiver.OutcomeUnknown):
        queue.seek("t", "g", "earliest")
    with pytest.raises(quiver.OutcomeUnknown):
        queue.delete_group("t", "g")
    assert wire.lost == 2


# -- producers that do not know --------------------------------------------------------------------


def test_a_producer_that_does_not_know_what_is_stored_sends_no_more(node, wire):
    def cut() -> None:
        wire.down = True

    with quiver.connect(f"quiver://127.0.0.1:{wire.port}?patience=0.5") as queue:
        queue.create_topic("t")
        out = queue.producer("t", name="p")
        out.send(b"zero")
        out.flush()
        wire.lose, wire.after = {b"/batches": 1}, cut
        out.send(b"A")
        with pytest.raises(
            quiver.ProducerFailed, match="1 messages may be stored or not"
        ) as failed:
            out.flush()
        assert [message.body for message in failed.value.unsent] == [b"A"]
        assert isinstance(failed.value.__cause__, quiver.OutcomeUnknown)
        wire.down = False
        with pytest.raises(quiver.ProducerFailed, match="does not know") as failed:
            out.send(b"B")  # under the number of A it would pass for A
        assert [message.body for message in failed.value.unsent] == [b"B"]
        out.close()
        with queue.producer("t", name="p") as again:
            assert again.sequence == 2
            again.send(b"B")
        assert [record.text for record in queue.read("t")] == ["zero", "A", "B"]


def test_the_same_in_an_event_loop(node, wire):
    def cut() -> None:
        wire.down = True

    async def scenario() -> None:
        url = f"quiver://127.0.0.1:{wire.port}?patience=0.5"
        async with quiver.connect_async(url) as queue:
            await queue.create_topic("t")
            async with queue.producer("t") as out:
                wire.lose, wire.after = {b"/batches": 1}, cut
                await out.send(b"A")
                with pytest.raises(quiver.ProducerFailed, match="may be stored or not"):
                    await out.flush()
                wire.down = False
                with pytest.raises(quiver.ProducerFailed, match="does not know"):
                    await out.send(b"B")

    asyncio.run(scenario())


def test_batches_in_flight_are_all_reported_or_stored(node, wire):
    def cut() -> None:
        wire.down = True

    with quiver.connect(f"quiver://127.0.0.1:{wire.port}?patience=0.5") as queue:
        queue.create_topic("t")
        out = queue.producer("t", max_messages=1)
        wire.lose, wire.after = {b"/batches": 1}, cut
        reported = set()
        for at in range(20):
            try:
                out.send(str(at))
            except quiver.ProducerFailed as failed:
                reported |= {message.body for message in failed.unsent}
        with pytest.raises(quiver.ProducerFailed) as last:
            out.close()
        reported |= {message.body for message in last.value.unsent}
        wire.down = False
        stored = [record.body for record in queue.read("t")]
        assert len(stored) == len(set(stored))
        assert reported | set(stored) == {str(at).encode() for at in range(20)}
        assert reported == {str(at).encode() for at in range(20)}  # none was confirmed
        assert out.confirmed == 0


def test_a_batch_under_way_when_the_queue_is_closed_may_be_stored(node, wire):
    asked, ended = Event(), Event()

    def hold() -> None:
        asked.set()
        ended.wait(60)

    with quiver.connect(f"quiver://127.0.0.1:{wire.port}") as queue:
        queue.create_topic("t")
        out = queue.producer("t")
        wire.lose, wire.after = {b"/batches": 1}, hold
        out.send(b"A")
        assert asked.wait(60)
    with pytest.raises(quiver.ProducerFailed, match="1 messages may be stored or not") as failed:
        out.close()
    ended.set()
    assert isinstance(failed.value.__cause__, quiver.OutcomeUnknown)
    with quiver.connect(f"quiver://127.0.0.1:{node.port}") as queue:
        assert [record.text for record in queue.read("t")] == ["A"]


def test_a_batch_that_is_refused_at_last_may_be_stored(queue, node, wire):
    """Somebody took the name over after the first attempt."""
    out = queue.producer("t", name="p")
    with quiver.connect(f"quiver://127.0.0.1:{node.port}") as other:
        wire.lose, wire.after = {b"/batches": 1}, lambda: other.producer("t", name="p").close()
        out.send(b"A")
        with pytest.raises(quiver.ProducerFailed, match="may be stored or not") as failed:
            out.close()
    lost = failed.value.__cause__
    assert lost is not None
    assert isinstance(lost.__cause__, quiver.ProducerFenced)
    assert queue.stats("t").depth == 1


def test_asking_is_repeated(queue, wire):
    wire.lose = {b"GET /v1/topics": 3}
    assert queue.topics() == ["t"]
    assert wire.lost == 3


def test_a_dry_run_counts_in_a_topic_that_somebody_made_again(queue, node):
    queue.send("t", b"old")
    assert queue.discard("t", dry_run=True) == 1
    with quiver.connect(f"quiver://127.0.0.1:{node.port}") as other:
        other.delete_topic("t")
        other.create_topic("t")
        other.send_batch("t", [b"a", b"b"])
    assert queue.discard("t", dry_run=True) == 2


# -- nodes that are not there ----------------------------------------------------------------------


def test_a_node_that_is_not_there_is_unreachable():
    told = r"Connection refused; tried (once|\d+ times) in \d+\.\d s\. Is `quiver serve` running there\?"
    with pytest.raises(quiver.Unreachable, match=told):
        quiver.connect(f"quiver://127.0.0.1:{free_port()}?patience=0.2")


def test_another_node_is_asked_if_one_is_not_there(node):
    url = f"quiver://127.0.0.1:{free_port()},127.0.0.1:{node.port}"
    with quiver.connect(url) as queue:
        assert queue.topics() == []


def test_a_connection_that_takes_too_long_was_not_made(node, monkeypatch):
    """So nothing can have arrived, and another node may be asked, whatever it is."""
    monkeypatch.setattr(limits, "CONNECT_SECONDS_MAX", 0.2)
    with Deaf() as port:
        with quiver.connect(f"quiver://127.0.0.1:{port},127.0.0.1:{node.port}") as queue:
            queue.create_topic("t")
            queue._flows.link._at = 0  # type: ignore[attr-defined]  # of a node
            queue.send("t", b"x")
            assert queue.stats("t").depth == 1
        with pytest.raises(quiver.Unreachable):
            quiver.connect(f"quiver://127.0.0.1:{port}?patience=0.5")


def test_another_node_is_asked_if_one_makes_no_connection(node):
    with Deaf() as port:
        url = f"quiver://127.0.0.1:{port},127.0.0.1:{node.port}?patience=4"
        with quiver.connect(url) as queue:
            assert queue.topics() == []


def test_another_node_is_asked_if_one_is_silent(node):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{node.port}"
        with quiver.connect(f"quiver://{hosts}?patience=0.1") as queue:
            assert queue.topics() == []


@pytest.mark.parametrize("status", [b"404 Not Found", b"200 OK"])
def test_something_else_that_speaks_http_is_noticed(status):
    page = b"HTTP/1.1 " + status + b"\r\ncontent-length: 5\r\n\r\nhello"
    with pytest.raises(quiver.InvalidRequest, match="not of a Quiver node"), Other(page) as port:
        quiver.connect(f"quiver://127.0.0.1:{port}?patience=1")


def test_something_else_that_does_not_is_noticed_at_once():
    with (
        pytest.raises(quiver.InvalidRequest, match="does not speak HTTP"),
        Other(b"SSH-2.0-Sample\r\n") as port,
    ):
        quiver.connect(f"quiver://127.0.0.1:{port}?patience=1h")


def test_what_was_sent_and_answered_with_nonsense_may_be_stored():
    with pytest.raises(quiver.OutcomeUnknown):
        _many(Reply(200, {}, b"\xff<html>"))


def test_a_client_outlives_its_node(tmp_path):
    with start_node(tmp_path) as node, quiver.connect(f"quiver://127.0.0.1:{node.port}") as queue:
        queue.create_topic("t")
        queue.send("t", b"x")
        node.kill()
        node.restart()
        assert queue.receive("t")[0].body == b"x"


def test_a_consumer_that_cannot_give_back_does_not_hide_an_error(tmp_path):
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
        url = f"quiver://127.0.0.1:{mortal.port}?patience=0.2"
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


def test_a_producer_can_be_closed_wherever_it_was_interrupted(queue):
    for at in range(1_000):
        out = queue.producer("t", max_messages=1)
        came = interrupted(partial(out.send, b"x"), at)
        assert ends(out.close), f"interrupted at call {at}"
        if not came:
            return
    raise AssertionError("it never came to an end")


def test_a_consumer_can_be_closed_wherever_it_was_interrupted(queue):
    queue.send_batch("t", [b"x"] * 1_000)
    for at in range(1_000):
        inbox = queue.consumer("t", prefetch=1)
        came = interrupted(partial(inbox.get, wait=30), at)
        assert ends(inbox.close), f"interrupted at call {at}"
        if not came:
            return
    raise AssertionError("it never came to an end")


# -- waiting ---------------------------------------------------------------------------------------


def test_a_receive_that_is_cancelled_takes_no_message(node):
    async def scenario() -> None:
        async with quiver.connect_async(f"quiver://127.0.0.1:{node.port}") as queue:
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


def test_a_wait_longer_than_the_patience_survives_a_lost_connection(node, wire):
    """The patience begins when the connection is lost, not with the call."""
    url = f"quiver://127.0.0.1:{wire.port}?patience=0.1"
    with quiver.connect(url) as queue, ThreadPoolExecutor(1) as pool:
        queue.create_topic("t")
        waiting = pool.submit(queue.receive, "t", wait=60)
        until_waiting(node, 1)
        time.sleep(0.2)
        wire.cut()
        with quiver.connect(f"quiver://127.0.0.1:{node.port}") as other:
            other.send("t", b"x")
        assert [delivery.text for delivery in waiting.result(60)] == ["x"]


def test_a_wait_that_is_repeated_is_only_the_rest_of_it():
    request = Request("POST", "/", b'{"wait":8,"lease":30}', repeat=True, wait_seconds=8)
    rest = request.after(3)
    assert (json.loads(rest.body), rest.wait_seconds) == ({"wait": 5, "lease": 30}, 5)
    assert request.after(9).wait_seconds == 0


def test_threads_share_a_queue(queue):
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda at: queue.send("t", str(at), dedup_id=str(at)), range(200)))
    assert queue.stats("t").depth == 200


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


def test_a_forked_process_makes_connections_of_its_own(node):
    command = [sys.executable, "-c", textwrap.dedent(FORKED), f"quiver://127.0.0.1:{node.port}"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True, text=True)
    assert done.stdout == "parent,child,parent again\n"
    assert done.stderr == ""


FORKED_IDLE = """
    import os, sys, threading, time, quiver
    queue = quiver.connect(sys.argv[1])
    queue.create_topic("t")
    receiving = threading.Thread(target=lambda: print(queue.receive("t", wait=60)[0].text))
    receiving.start()
    while not queue._flows.link._tasks:
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        sys.exit()  # it has done nothing, and lets go of everything
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    queue.send("t", b"parent")
    receiving.join()
    queue.close()
"""


def test_a_forked_process_that_ends_leaves_the_connections_of_its_parent_alone(node):
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(FORKED_IDLE),
        f"quiver://127.0.0.1:{node.port}",
    ]
    done = subprocess.run(command, capture_output=True, timeout=50, check=True, text=True)
    assert (done.stdout, done.stderr) == ("parent\n", "")


FORKED_OPEN = """
    import os, sys, threading, quiver
    queue = quiver.connect(sys.argv[1])
    queue.create_topic("t")
    out = queue.producer("t", name="p")
    out.send(b"0")
    out.flush()
    consumer = queue.consumer("t", "g")
    consumer.get().ack()
    queue._flows.link.lanes._lock.acquire()  # as if another thread were sending just now
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
    queue._flows.link.lanes._lock.release()
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


def test_producers_and_consumers_belong_to_the_process_that_opened_them(node):
    command = [sys.executable, "-c", textwrap.dedent(FORKED_OPEN)]
    command.append(f"quiver://127.0.0.1:{node.port}")
    done = subprocess.run(command, capture_output=True, timeout=60, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "child,parent\n"  # what is settled is let go


UNCLOSED = """
    import gc, sys, threading, time, quiver
    def use():
        queue = quiver.connect(sys.argv[1])
        queue.send("t", b"x")
        return queue
    use()
    gc.collect()
    kept = use()
    threading.Thread(target=lambda: kept.receive("empty", wait=60), daemon=True).start()
    while not kept._flows.link._tasks:
        time.sleep(0.01)
    print("ends")
"""


def test_a_program_that_closes_nothing_ends_quietly(node, queue):
    queue.create_topic("empty")
    command = [sys.executable, "-c", textwrap.dedent(UNCLOSED)]
    command.append(f"quiver://127.0.0.1:{node.port}")
    done = subprocess.run(command, capture_output=True, timeout=60, check=False, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")
    assert queue.stats("t").depth == 2


def test_those_who_wait_leave_room_for_those_who_send(node):
    async def scenario() -> None:
        async with quiver.connect_async(f"quiver://127.0.0.1:{node.port}") as queue:
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


def test_only_so_many_may_wait(node, monkeypatch):
    monkeypatch.setattr(limits, "POOL_WAITING_MAX", 3)

    async def scenario() -> None:
        async with quiver.connect_async(f"quiver://127.0.0.1:{node.port}") as queue:
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
    assert found.urls == ("https://a:7070", "https://b:1", "https://[::1]:2")
    assert (found.token, found.ca, found.patience_seconds) == ("secret", "x.pem", 5)
    assert "secret" not in repr(found)
    assert parse("quiver://a", {"QUIVER_TOKEN": "t"}).token == "t"
    assert parse("quiver://user:pass@a", {}).token == "pass"


@pytest.mark.parametrize(
    "url",
    ["quiver://", "quiver://a:b", "quiver://a/path", "quiver://a?colour=red", "quiver://a,,b",
     "quiver://a:99999", "quiver://a b", "quiver://[::1", "quiver://a?patience=soon"],
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
        self._pool = ThreadPoolExecutor(1)
        self._done = self._pool.submit(self._answer)
        return int(self._listener.getsockname()[1])

    def _answer(self) -> None:
        near, _ = self._listener.accept()
        with near:
            near.recv(10_000)
            near.sendall(self._text)

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._pool.shutdown()


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

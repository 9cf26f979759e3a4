"""Calls over the channels of threads and of event loops, to a node that a test scripts."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, cast
from unittest.mock import Mock

import msgspec
import pytest

from quiver import limits
from quiver.batches.codec import encode_one
from quiver.batches.rows import make_row
from quiver.client.remote import looping, sockets
from quiver.client.remote.address import parse
from quiver.client.remote.broker import RemoteBroker, connected
from quiver.client.remote.channels import ThreadChannels
from quiver.client.remote.handshake import Handshake
from quiver.client.tasks import finished
from quiver.errors import (
    InvalidRequest,
    OutcomeUnknown,
    Overloaded,
    ProtocolError,
    QueueClosed,
    ReadOnly,
    TopicNotFound,
    Unauthenticated,
    Unreachable,
)
from quiver.model import commands, queries
from quiver.model.replies import SentReply, Settled
from quiver.model.topic import TopicPolicy
from quiver.node.placing import TopicHandle
from quiver.node.tickets import Ticket
from quiver.wire.frames import Verb, pack
from quiver.wire.problems import Trouble
from quiver.wire.values import AnswerHead, ErrorHead, PlacedOut, ReceivedOut, SliceOut, encode
from tests.unit.client.remote.scripted import NOW_MS, Peer, scripted, without_names

TOPIC = TopicHandle("t", 1, TopicPolicy())
PLACED = PlacedOut(0, 5, 1, 7, 0)
SECONDS = 20


@contextmanager
def broker_of(hosts: str, **options: Any) -> Iterator[RemoteBroker]:
    broker = connected(parse(f"quiver://{hosts}"), None, **options)
    try:
        yield broker
    finally:
        broker.close()


def pong(peer: Peer, frame: Any) -> None:
    """Answers every question with the number of its frame."""
    peer.answer(frame.id, frame.id)


def after(event: threading.Event, do: Callable[[], Any]) -> None:
    """Do something in a thread, once the event is set."""

    def work() -> None:
        assert event.wait(SECONDS)
        do()

    threading.Thread(target=work).start()


def asked(broker: RemoteBroker) -> Ticket[int]:
    return broker.ask(queries.Ping())


def send(broker: RemoteBroker, **options: Any) -> Ticket[Any]:
    return broker.send_row(TOPIC, make_row(b"body", **options))


def test_answers_go_to_those_who_asked_whatever_their_order():
    kept: list[int] = []

    def together(peer: Peer, frame: Any) -> None:
        kept.append(frame.id)
        if len(peer.seen) == 1 or len(kept) == 3:
            for number in reversed(kept):
                peer.answer(number, number)
            kept.clear()

    with scripted(together) as node, broker_of(node.host) as broker:
        tickets = [asked(broker) for _ in range(3)]
        assert [ticket.wait() for ticket in tickets] == [2, 3, 4]


def test_many_threads_share_one_connection_and_each_gets_its_own_answer():
    with scripted(pong) as node, broker_of(node.host) as broker:
        seen: Counter[int] = Counter()
        lock = threading.Lock()

        def work() -> None:
            mine = [asked(broker).wait() for _ in range(200)]
            with lock:
                seen.update(mine)

        threads = [threading.Thread(target=work) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert not any(thread.is_alive() for thread in threads)
        assert len(seen) == 2_400
        assert len(node.peers) == 1


def test_who_reads_hands_over_when_it_has_its_own_answer():
    late = threading.Event()

    def serve(peer: Peer, frame: Any) -> None:
        if frame.id == 3:  # the second of two: answered after its reader has gone
            after(late, partial(peer.answer, 3, 3))
        else:
            peer.answer(frame.id, frame.id)

    with scripted(serve) as node, broker_of(node.host) as broker:
        second: list[int] = []
        first = asked(broker)
        ticket = asked(broker)
        other = threading.Thread(target=lambda: second.append(ticket.wait()))
        assert first.wait() == 2
        other.start()
        late.set()
        other.join(SECONDS)
        assert second == [3]


def test_a_callback_is_called_though_no_thread_waits():
    with scripted(pong) as node, broker_of(node.host) as broker:
        done = threading.Event()
        ticket = asked(broker)
        ticket.when_done(done.set)
        assert done.wait(SECONDS)
        assert ticket.get() == 2


def test_what_may_be_repeated_is_asked_again_in_order_after_a_break():
    cut: list[int] = []

    def serve(peer: Peer, frame: Any) -> None:
        if frame.id == 1 or cut:
            peer.answer(frame.id, frame.id)
        elif len(peer.seen) == 4:
            cut.append(1)
            node.cut()

    with scripted(serve) as node, broker_of(node.host) as broker:
        tickets = [asked(broker) for _ in range(3)]
        assert [ticket.wait() for ticket in tickets] == [5, 6, 7]
        assert [number for _, number in node.peers[1].seen] == [5, 6, 7]


@pytest.mark.parametrize("dedup_id", [None, "a"])
def test_a_send_whose_answer_is_lost_is_unknown_unless_it_has_an_id(dedup_id: str | None):
    def serve(peer: Peer, frame: Any) -> None:
        if frame.verb == Verb.SEND and len(node.peers) == 1:
            node.cut()
        else:
            peer.answer(frame.id, PLACED if frame.verb == Verb.SEND else 0)

    with scripted(serve) as node, broker_of(node.host) as broker:
        if dedup_id is None:
            with pytest.raises(OutcomeUnknown, match="may have been done or not"):
                send(broker).wait()
        else:
            assert send(broker, dedup_id=dedup_id).wait()[0].offset == 5
        assert asked(broker).wait() == 0


def test_a_refusal_after_a_lost_answer_is_unknown():
    def serve(peer: Peer, frame: Any) -> None:
        if frame.verb != Verb.SEND:
            peer.answer(frame.id, 0)
        elif len(node.peers) == 1:
            node.cut()
        else:
            peer.refuse(frame.id, "queue_full")

    with (
        scripted(serve) as node,
        broker_of(node.host) as broker,
        pytest.raises(OutcomeUnknown, match="Then came"),
    ):
        send(broker, dedup_id="a").wait()


def test_a_topic_deleted_by_an_attempt_whose_answer_was_lost_is_deleted():
    def serve(peer: Peer, frame: Any) -> None:
        if frame.verb != Verb.PROPOSE:
            peer.answer(frame.id, 0)
        elif len(node.peers) == 1:
            node.cut()
        else:
            peer.refuse(frame.id, TopicNotFound.code)

    with scripted(serve) as node, broker_of(node.host) as broker:
        broker.propose(commands.DeleteTopic(1)).wait()


def test_what_the_node_was_too_busy_for_is_tried_again():
    def serve(peer: Peer, frame: Any) -> None:
        if len(peer.seen) in (2, 3):
            peer.refuse(frame.id, Overloaded.code)
        else:
            peer.answer(frame.id, PLACED if frame.verb == Verb.SEND else 0)

    with scripted(serve) as node, broker_of(node.host) as broker:
        assert send(broker).wait()[0].offset == 5
        assert [verb for verb, _ in node.peers[0].seen[1:]] == [Verb.SEND] * 3


def test_patience_ends():
    with scripted(pong) as node, broker_of(f"{node.host}?patience=0.3") as broker:
        node.close()
        with pytest.raises(Unreachable, match=r"tried .* times"):
            asked(broker).wait()
        with pytest.raises(Unreachable):
            send(broker).wait()


def test_the_other_host_is_asked_when_one_is_gone():
    with (
        scripted(pong) as one,
        scripted(pong) as two,
        broker_of(f"{one.host},{two.host}") as broker,
    ):
        asked(broker).wait()
        one.close()
        assert asked(broker).wait() > 0
        assert len(two.peers) == 1


def test_patience_ends_with_hosts_that_take_connections_and_break_them():
    """To be welcomed is no success: only an answer is."""

    def serve(peer: Peer, frame: Any) -> None:
        if frame.id == 1:
            peer.answer(frame.id, 0)
        else:
            peer.sock.shutdown(socket.SHUT_RDWR)

    with scripted(serve) as one, scripted(serve) as two:
        hosts = f"{one.host},{two.host}?patience=0.3"
        with broker_of(hosts) as broker, pytest.raises(Unreachable):
            asked(broker).wait()


def test_a_node_that_said_goodbye_in_a_quiet_time_is_not_asked_again():
    said = threading.Event()

    def first(peer: Peer, frame: Any) -> None:
        peer.answer(frame.id, 0)
        if frame.id == 2:
            peer.say(Verb.GOAWAY, 0, ())
            said.set()

    def second(peer: Peer, frame: Any) -> None:
        peer.answer(frame.id, PLACED)

    with (
        scripted(first) as one,
        scripted(second) as two,
        broker_of(f"{one.host},{two.host}") as broker,
    ):
        asked(broker).wait()
        assert said.wait(SECONDS)
        assert send(broker).wait()
        assert [verb for verb, _ in one.peers[0].seen] == [Verb.ASK, Verb.ASK]
        assert [verb for verb, _ in two.peers[0].seen] == [Verb.SEND]


def test_a_connection_that_ended_in_a_quiet_time_leaves_no_doubts():
    with scripted(pong) as node, broker_of(node.host) as broker:
        asked(broker).wait()
        ended = node.peers[0].sock
        node.cut()
        ended.close()
        node.serve = lambda peer, frame: peer.answer(frame.id, PLACED)
        assert send(broker).wait()
        assert len(node.peers) == 2


def test_a_node_that_is_about_to_end_is_left_when_it_has_answered():
    def first(peer: Peer, frame: Any) -> None:
        if frame.id == 2:
            peer.say(Verb.GOAWAY, 0, ())
        peer.answer(frame.id, 100)

    def second(peer: Peer, frame: Any) -> None:
        peer.answer(frame.id, 200)

    with (
        scripted(first) as one,
        scripted(second) as two,
        broker_of(f"{one.host},{two.host}") as broker,
    ):
        assert asked(broker).wait() == 100
        assert asked(broker).wait() == 200


def test_closing_ends_what_is_under_way():
    def serve(peer: Peer, frame: Any) -> None:
        if frame.id == 1:
            peer.answer(1, 0)

    with scripted(serve) as node, broker_of(node.host) as broker:
        found: list[BaseException | None] = []
        ticket, write = asked(broker), send(broker)

        def work(ticket: Ticket[Any]) -> None:
            ticket.wait_done()
            found.append(ticket.error)

        threads = [threading.Thread(target=work, args=(one,)) for one in (ticket, write)]
        for thread in threads:
            thread.start()
        broker.close()
        for thread in threads:
            thread.join(SECONDS)
        assert {type(error) for error in found} == {QueueClosed, OutcomeUnknown}
        with pytest.raises(QueueClosed):
            asked(broker)
        assert broker.closed


def test_closing_ends_a_wait_for_a_node_that_is_away():
    with scripted(pong) as node, broker_of(node.host) as broker:
        node.close()
        ticket = asked(broker)
        waiting = threading.Thread(target=ticket.wait_done)
        waiting.start()
        broker.close()
        waiting.join(SECONDS)
        assert isinstance(ticket.error, QueueClosed | Unreachable)


def test_an_interrupt_gives_the_call_up_and_leaves_the_connection_whole():
    def serve(peer: Peer, frame: Any) -> None:
        if frame.verb == Verb.CANCEL:
            return
        if frame.id == 2:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            peer.answer(frame.id, frame.id)

    with scripted(serve) as node, broker_of(node.host) as broker:
        with pytest.raises(KeyboardInterrupt):
            asked(broker).wait()
        assert asked(broker).wait() == 3
        assert (Verb.CANCEL, 2) in node.peers[0].seen
        assert len(node.peers) == 1


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # in the midst of create_connection
def test_interrupts_at_any_moment_lose_no_answer():
    """A signal comes again and again, into reads, writes and waits; every call ends as it should."""

    class Interrupt(Exception):
        pass

    armed = False

    def handler(*_: Any) -> None:
        nonlocal armed
        if armed:
            armed = False  # or the next one would come into what counts this one
            raise Interrupt

    before = signal.signal(signal.SIGUSR1, handler)
    interrupts = 0
    over, main = threading.Event(), threading.get_ident()

    def disturb() -> None:
        for at in count():
            if over.wait(0.0002 + at % 7 * 0.0001):
                return
            signal.pthread_kill(main, signal.SIGUSR1)

    disturbing = threading.Thread(target=disturb)
    try:
        with scripted(pong) as node, broker_of(node.host) as broker:
            disturbing.start()
            done = 0
            while done < 300 or interrupts < 50:
                try:
                    armed = True
                    asked(broker).wait()
                    done += 1
                except Interrupt:
                    interrupts += 1
                armed = False
            assert asked(broker).wait() > 300
    finally:
        armed = False
        over.set()
        disturbing.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_forked_process_has_a_connection_of_its_own():
    with scripted(pong) as node, broker_of(node.host) as broker:
        asked(broker).wait()
        child = os.fork()
        if not child:
            ok = False
            try:
                ok = asked(broker).wait() == 1
            finally:
                os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert asked(broker).wait() == 3
        assert len(node.peers) == 2


def test_a_silent_node_is_asked_for_a_sign_of_life(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "WIRE_PING_SECONDS", 0.05)
    monkeypatch.setattr(limits, "WIRE_PONG_SECONDS", 5.0)
    pinged = threading.Event()

    def serve(peer: Peer, frame: Any) -> None:
        if frame.id == 1:
            peer.answer(1, 0)
        else:
            after(pinged, partial(peer.answer, 2, 2))

    with scripted(serve) as node, broker_of(node.host) as broker:
        ticket = asked(broker)
        waiting = threading.Thread(target=ticket.wait_done)
        waiting.start()
        while Verb.PING not in dict(node.peers[0].seen):
            time.sleep(0.01)
        pinged.set()
        waiting.join(SECONDS)
        assert ticket.get() == 2


def test_a_dead_connection_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "WIRE_PING_SECONDS", 0.05)
    monkeypatch.setattr(limits, "WIRE_PONG_SECONDS", 0.05)
    stuck = threading.Event()

    def serve(peer: Peer, frame: Any) -> None:
        if frame.id == 2:
            stuck.wait(SECONDS)  # nothing more is read of this connection
        else:
            peer.answer(frame.id, frame.id)

    with scripted(serve) as node, broker_of(node.host) as broker:
        assert asked(broker).wait() == 3
        stuck.set()
        assert len(node.peers) == 2


def test_a_node_that_reads_nothing_before_its_answers_are_read_gets_both():
    """Both sides write: whoever writes must read, or neither goes on."""
    batch = RemoteBroker.pack.__get__(object())([make_row(bytes(200_000))] * 20)

    def serve(peer: Peer, frame: Any) -> None:
        if frame.verb == Verb.BATCH:
            peer.answer(frame.id, [PLACED], b"x" * 8_000_000)  # more than sockets hold
        else:
            peer.answer(frame.id, 0)

    with scripted(serve) as node, broker_of(node.host) as broker:
        tickets = [broker.send_batch(TOPIC, batch) for _ in range(6)]
        for ticket in tickets:
            (answer,) = ticket.wait().answers
            assert isinstance(answer, SentReply)
            assert answer.placed[0].offset == 5


def test_only_reading_is_allowed_if_that_was_asked_for():
    with scripted(pong) as node, broker_of(node.host, read_only=True) as broker:
        asked(broker).wait()
        with pytest.raises(ReadOnly):
            send(broker)


def test_garbage_from_a_node_breaks_the_connection_and_not_the_client():
    def serve(peer: Peer, frame: Any) -> None:
        if len(node.peers) == 1 and frame.id == 2:
            peer.sock.sendall(b"\xff" * 64)
        else:
            peer.answer(frame.id, frame.id)

    with scripted(serve) as node, broker_of(node.host) as broker:
        assert asked(broker).wait() == 3
        assert len(node.peers) == 2


def test_an_answer_that_cannot_be_read_is_an_error_of_its_call():
    def serve(peer: Peer, frame: Any) -> None:
        peer.answer(frame.id, "no number" if frame.id == 2 else 0)

    with scripted(serve) as node, broker_of(node.host) as broker:
        with pytest.raises(OutcomeUnknown, match="cannot be read"):
            asked(broker).wait()
        assert asked(broker).wait() == 0


def test_too_many_receives_that_wait_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "WIRE_WAITING_MAX", 2)

    def serve(peer: Peer, frame: Any) -> None:
        if frame.verb == Verb.ASK:
            peer.answer(frame.id, 0)

    with scripted(serve) as node, broker_of(node.host) as broker:
        command = commands.Receive(1, "g", 1, 1_000)
        waiting = [broker.receive(command, 60_000) for _ in range(2)]
        with pytest.raises(Overloaded, match="wait for messages already"):
            broker.receive(command, 60_000)
        waiting[0].abandoned = True
        broker.receive(command, 60_000)
        assert asked(broker).wait() == 0


# -- event loops -----------------------------------------------------------------------------------


def in_loop(host: str, work: Callable[[RemoteBroker], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        address, loop = parse(f"quiver://{host}"), asyncio.get_running_loop()
        broker = await asyncio.to_thread(connected, address, loop)
        try:
            async with asyncio.timeout(SECONDS):
                return await work(broker)
        finally:
            await asyncio.to_thread(broker.close)

    return asyncio.run(main())


async def answer_to(ticket: Ticket[Any]) -> Any:
    await finished(ticket)
    return ticket.get()


def test_tasks_of_a_loop_share_its_connection():
    async def work(broker: RemoteBroker) -> Any:
        return await asyncio.gather(*(answer_to(asked(broker)) for _ in range(300)))

    with scripted(pong) as node:
        assert in_loop(node.host, work) == list(range(2, 302))
        assert len(node.peers) == 1


def test_a_loop_asks_again_after_a_break():
    def serve(peer: Peer, frame: Any) -> None:
        if len(node.peers) == 1 and frame.id == 3:
            node.cut()
        elif frame.id != 2 or len(node.peers) > 1:
            peer.answer(frame.id, frame.id)

    async def work(broker: RemoteBroker) -> Any:
        tickets = [asked(broker), asked(broker)]
        return [await answer_to(ticket) for ticket in tickets]

    with scripted(serve) as node:
        assert in_loop(node.host, work) == [4, 5]


def test_a_cancelled_task_gives_its_call_up():
    def serve(peer: Peer, frame: Any) -> None:
        if frame.id != 2 and frame.verb != Verb.CANCEL:
            peer.answer(frame.id, frame.id)

    async def work(broker: RemoteBroker) -> Any:
        task = asyncio.ensure_future(answer_to(asked(broker)))
        await answer_to(asked(broker))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await answer_to(asked(broker))
        return (Verb.CANCEL, 2) in node.peers[0].seen

    with scripted(serve) as node:
        assert in_loop(node.host, work)


def test_another_thread_may_ask_over_a_loop():
    async def work(broker: RemoteBroker) -> Any:
        return await asyncio.to_thread(lambda: asked(broker).wait())

    with scripted(pong) as node:
        assert in_loop(node.host, work) == 2


def test_another_loop_has_a_connection_of_its_own():
    async def work(broker: RemoteBroker) -> Any:
        async def there() -> Any:
            return await answer_to(asked(broker))

        return await asyncio.to_thread(asyncio.run, there())

    with scripted(pong) as node:
        assert in_loop(node.host, work) == 1
        assert len(node.peers) == 2


def test_a_loops_patience_ends():
    async def work(broker: RemoteBroker) -> Any:
        node.close()
        with pytest.raises(Unreachable):
            await answer_to(asked(broker))
        return True

    with scripted(pong) as node:
        assert in_loop(f"{node.host}?patience=0.3", work)


def test_a_loop_has_the_answers_that_came_before_what_broke_its_connection():
    kept: list[int] = []

    def serve(peer: Peer, frame: Any) -> None:
        if frame.verb != Verb.SEND:
            peer.answer(frame.id, 0)
            return
        kept.append(frame.id)
        if len(kept) == 2:
            answer = AnswerHead(NOW_MS, msgspec.Raw(encode(PLACED)))
            error = ErrorHead(NOW_MS, Trouble(Overloaded.code, "no memory"))
            peer.sock.sendall(
                pack(Verb.ANSWER, kept[0], encode(answer))[0]
                + pack(Verb.ERROR, 0, encode(error))[0]
            )

    async def work(broker: RemoteBroker) -> Any:
        first, second = send(broker), send(broker)
        with pytest.raises(OutcomeUnknown, match="no memory"):
            await answer_to(second)
        return await answer_to(first)

    with scripted(serve) as node:
        assert in_loop(node.host, work)[0].offset == 5


def test_a_loop_goes_on_whatever_goes_wrong_while_it_connects(monkeypatch: pytest.MonkeyPatch):
    def fail(handshake: Any, data: bytes) -> bool:
        raise ValueError("that is no number")

    async def work(broker: RemoteBroker) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(Handshake, "feed", fail)
            node.cut()
            with pytest.raises(Unreachable, match="that is no number"):
                await answer_to(asked(broker))
        return await answer_to(asked(broker))

    with scripted(pong) as node:
        assert in_loop(f"{node.host}?patience=0.3", work) > 1


def test_what_comes_with_a_handshake_is_read_until_it_breaks_the_connection():
    lost: list[looping.LoopConnection] = []

    class Strict:
        def take(self, frames: Any) -> None:
            raise ProtocolError("that is no frame")

        def lost(self, connection: looping.LoopConnection, error: BaseException) -> None:
            lost.append(connection)
            connection.leave()

    async def begun() -> None:
        handshake = Handshake(parse("quiver://a"), "a:7070")
        handshake.rest = bytes(2 * limits.FRAME_BUFFER_BYTES)
        connection = looping.LoopConnection(handshake)
        connection.transport = Mock()
        connection.begin(cast("Any", Strict()))
        assert lost == [connection]

    asyncio.run(begun())


# -- the first contact -----------------------------------------------------------------------------


def test_what_is_no_node_is_told_apart():
    with pytest.raises(Unreachable, match="quiver serve"), broker_of("127.0.0.1:1?patience=0.1"):
        pass
    with pytest.raises(InvalidRequest, match="wire must be"), broker_of("h:1?wire=x"):
        pass


def test_a_refused_token_is_told_at_once():
    def serve(peer: Peer, frame: Any) -> None:
        peer.refuse(frame.id, Unauthenticated.code, "no such token")

    with (
        scripted(serve) as node,
        pytest.raises(Unauthenticated, match="QUIVER_TOKEN"),
        broker_of(node.host),
    ):
        pass


def test_an_answer_that_crosses_its_cancel_is_given_back():
    seen: list[int] = []

    def serve(peer: Peer, frame: Any) -> None:
        seen.append(frame.verb)
        if frame.verb == Verb.CANCEL:  # too late: it is leased already
            part = SliceOut(0, 5, 1, 7, 0, NOW_MS)
            got = ReceivedOut(1, 1, 1, NOW_MS + 30_000, (part,), tag=b"tag")
            peer.answer(frame.id, got, bytes(encode_one(b"body")))
        elif frame.verb == Verb.SETTLE:
            peer.answer(frame.id, Settled(1))
        elif frame.verb == Verb.ASK:
            peer.answer(frame.id, frame.id)

    with scripted(serve) as node, broker_of(node.host) as broker:
        broker.receive(commands.Receive(1, "g", 1, 30_000), 20_000).abandoned = True
        asked(broker).wait()
        asked(broker).wait()
        assert Verb.SETTLE in seen


def test_a_connection_that_another_thread_has_just_closed_is_broken():
    with scripted(pong) as node, broker_of(node.host) as broker:
        channels = broker._channels
        assert isinstance(channels, ThreadChannels)
        wire = channels.channel._wire
        wait = wire.wait

        def closed(*given: Any, **options: Any) -> tuple[bool, bool]:
            wire.close()
            found: tuple[bool, bool] = wait(*given, **options)
            return found

        ticket = asked(broker)
        wire.wait = closed
        assert ticket.wait() > 0
        assert len(node.peers) == 2


def test_a_producer_is_told_of_an_answer_that_cannot_be_read():
    def serve(peer: Peer, frame: Any) -> None:
        peer.answer(frame.id, frame.id if frame.verb == Verb.ASK else "nonsense")

    with scripted(serve) as node, broker_of(node.host) as broker:
        batch = broker.pack([make_row(b"body")])
        ticket = broker.send_batch(TOPIC, batch, producer=commands.ProducerStamp("p", 1, 0))
        until = time.monotonic() + SECONDS
        while not ticket.done and time.monotonic() < until:
            time.sleep(0.01)
        assert isinstance(ticket.error, OutcomeUnknown)


@contextmanager
def narrow(host: str) -> Iterator[str]:
    """A way to a node on which 2 MB need some seconds."""
    ends: list[socket.socket] = []

    def carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(10_000):
                time.sleep(0.01)
                target.sendall(data)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                node = socket.create_connection(host.split(":"))  # type: ignore[arg-type]
                for end in (client, node):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_192)
                    ends.append(end)
                for pair in ((client, node), (node, client)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    for end in ends:
        end.close()


@pytest.mark.check
@pytest.mark.parametrize("in_a_loop", [False, True], ids=["thread", "loop"])
@pytest.mark.parametrize("there", [True, False], ids=["request", "answer"])
def test_a_large_frame_may_take_its_time(
    there: bool, in_a_loop: bool, monkeypatch: pytest.MonkeyPatch
):
    for name in ("WIRE_PING_SECONDS", "WIRE_PONG_SECONDS", "ANSWER_SECONDS_MAX"):
        monkeypatch.setattr(limits, name, 0.5)
    for module in (sockets, looping):  # the system would keep all of it on the way
        monkeypatch.setattr(
            module, "notice_the_dead",
            lambda sock: sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_192),
        )  # fmt: skip
    much = bytes(2_000_000)

    def serve(peer: Peer, frame: Any) -> None:
        if frame.verb == Verb.ASK:
            peer.answer(frame.id, frame.id)
        else:
            peer.answer(frame.id, PLACED, b"" if there else much)

    def ask(broker: RemoteBroker) -> Ticket[Any]:
        return broker.send_row(TOPIC, make_row(much if there else b"body"))

    async def work(broker: RemoteBroker) -> Any:
        return await answer_to(ask(broker))

    with scripted(serve) as node, narrow(node.host) as host:
        if in_a_loop:
            placed, _ = in_loop(host, work)
        else:
            with broker_of(host) as broker:
                placed, _ = ask(broker).wait()
        assert placed.offset == 5
        assert len(node.peers) == 1


def test_a_signal_handler_may_ask_while_its_thread_reads():
    told: list[int] = []

    def serve(peer: Peer, frame: Any) -> None:
        if frame.id != 2 or len(node.peers) > 1:
            peer.answer(frame.id, frame.id)
        else:
            after_a_while = threading.Timer(0.5, peer.answer, (2, 2))
            after_a_while.start()
            signal.setitimer(signal.ITIMER_REAL, 0.1)

    with scripted(serve) as node, broker_of(node.host) as broker:
        before = signal.signal(signal.SIGALRM, lambda *_: told.append(asked(broker).wait()))
        try:
            assert asked(broker).wait() == 2
        finally:
            signal.signal(signal.SIGALRM, before)
        assert told == [1]


def test_a_call_that_the_node_forgot_is_asked_again_though_others_are_answered(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(limits, "ANSWER_SECONDS_MAX", 0.05)
    over = threading.Event()

    def chat(peer: Peer) -> None:
        with suppress(OSError):
            while not over.wait(0.01):
                peer.say(Verb.PONG, 0, ())

    def serve(peer: Peer, frame: Any) -> None:
        if frame.id == 1 or len(node.peers) > 1:
            peer.answer(frame.id, frame.id)
        else:
            threading.Thread(target=chat, args=(peer,)).start()

    with scripted(serve) as node, broker_of(node.host) as broker:
        ticket = asked(broker)
        waiting = threading.Thread(target=ticket.wait_done)
        waiting.start()
        waiting.join(SECONDS)
        over.set()
        assert ticket.done
        assert len(node.peers) == 2


@pytest.mark.parametrize("watched", [False, True])
def test_a_host_that_is_no_name_is_passed_over(monkeypatch: pytest.MonkeyPatch, watched: bool):
    without_names(monkeypatch)
    with scripted(pong) as node, broker_of(f"{node.host},bad.host:7070?patience=0.3") as broker:
        node.close()
        ticket, told = asked(broker), threading.Event()
        if watched:
            ticket.when_done(told.set)
            assert told.wait(SECONDS)
        with pytest.raises(Unreachable, match=r"bad\.host"):
            ticket.wait()


def test_what_goes_wrong_in_the_thread_for_callbacks_ends_one_call(monkeypatch: pytest.MonkeyPatch):
    with scripted(pong) as node, broker_of(node.host) as broker:
        channel = broker._channels.channel  # type: ignore[attr-defined]
        waits = count()

        def step(*_: Any) -> None:
            next(waits)
            raise RuntimeError("a bug")

        monkeypatch.setattr(channel, "_step", step)
        tickets = [asked(broker) for _ in range(2)]
        told = [threading.Event() for _ in tickets]
        for ticket, event in zip(tickets, told, strict=True):
            ticket.when_done(event.set)
        for ticket, event in zip(tickets, told, strict=True):
            assert event.wait(SECONDS)
            assert isinstance(ticket.error, OutcomeUnknown)
        assert next(waits) == 2


def test_who_leads_looks_whether_its_answer_was_read_by_another_thread():
    with scripted(pong) as node, broker_of(node.host) as broker:
        channel = broker._channels.channel  # type: ignore[attr-defined]
        ticket = asked(broker)
        leads = channel._leads

        def leads_late(*given: Any) -> bool:
            channel._leads = leads
            other = threading.Thread(target=asked(broker).wait)
            other.start()
            other.join(SECONDS)  # it has read both answers
            found: bool = leads(*given)
            return found

        channel._leads = leads_late
        assert ticket.wait() == 2
        assert Verb.PING not in dict(node.peers[0].seen)


def test_a_closed_queue_stays_closed_in_another_loop():
    async def ask(broker: RemoteBroker) -> Any:
        return await answer_to(asked(broker))

    async def closed(broker: RemoteBroker) -> RemoteBroker:
        await ask(broker)
        await asyncio.to_thread(broker.close)
        return broker

    with scripted(pong) as node:
        broker = in_loop(node.host, closed)
        with pytest.raises(QueueClosed):
            asyncio.run(ask(broker))
        with pytest.raises(QueueClosed):
            asyncio.run(ask(broker.apart()))


def test_what_is_made_of_a_closed_queue_is_closed():
    with scripted(pong) as node, broker_of(node.host) as broker:
        broker.close()
        with pytest.raises(QueueClosed):
            asked(broker.apart())

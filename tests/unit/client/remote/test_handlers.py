"""A signal handler may come between any two steps of a call, and call, give up or close there."""

import faulthandler
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

from quiver.batches.rows import make_row
from quiver.client.remote import sockets
from quiver.client.remote.address import parse
from quiver.client.remote.broker import RemoteBroker, connected
from quiver.errors import OutcomeUnknown, QueueClosed, UnavailableError, Unreachable
from quiver.model import commands, queries
from quiver.model.commands import Held, Settle
from quiver.model.replies import Settled
from quiver.model.settlement import Settlement
from quiver.model.topic import TopicPolicy
from quiver.node.placing import TopicHandle
from quiver.node.tickets import Ticket
from quiver.wire.frames import MEDIA_TYPE, FrameReader, Verb, pack
from quiver.wire.values import AnswerHead, PlacedOut, encode
from tests.unit.client.remote.scripted import NOW_MS, Peer, scripted, without_names

TOPIC = TopicHandle("t", 1, TopicPolicy())
SECONDS = 20
OURS = (
    "blocking.py",
    "posting.py",
    "session.py",
    "calls.py",
    "deferred.py",
    "channels.py",
    "broker.py",
    "sockets.py",
)
VALUES = {Verb.SEND: PlacedOut(0, 5, 1, 7, 0), Verb.ASK: 0, Verb.SETTLE: Settled(1)}


@contextmanager
def over_frames() -> Iterator[tuple[str, list[int]]]:
    """A node that answers all but receives, and the verbs that it got."""
    seen: list[int] = []

    def serve(peer: Peer, frame: Any) -> None:
        seen.append(frame.verb)
        if frame.verb in VALUES:
            peer.answer(frame.id, VALUES[frame.verb])

    with scripted(serve) as node:
        yield node.host, seen


@contextmanager
def over_posts(behind: bytes = b"") -> Iterator[tuple[str, list[int]]]:
    """The same where no upgrade gets through; something comes `behind` the answer to a send."""
    seen: list[int] = []
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            reader = FrameReader()
            (frame,) = reader.received(
                self.rfile.readinto(reader.buffer()[: int(self.headers["content-length"])])
            )
            seen.append(frame.verb)
            if frame.verb not in VALUES:
                over.wait(SECONDS)
                return
            head = AnswerHead(NOW_MS, msgspec.Raw(encode(VALUES[Verb(frame.verb)])))
            body = pack(Verb.ANSWER, frame.id, encode(head))[0]
            body += behind if frame.verb == Verb.SEND else b""
            with suppress(OSError):  # nobody waits for it any more
                self.send_response(200)
                self.send_header("content-type", MEDIA_TYPE)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        block_on_close = False
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}?wire=never", seen
        finally:
            over.set()
            server.shutdown()


WAYS = {"frames": over_frames, "posts": over_posts}


@pytest.fixture(params=WAYS, scope="module")
def node(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[int]]]:
    with WAYS[request.param]() as found:
        yield found


@pytest.fixture(scope="module")
def frames() -> Iterator[tuple[str, list[int]]]:
    with over_frames() as found:
        yield found


@contextmanager
def broker_of(node: tuple[str, list[int]]) -> Iterator[RemoteBroker]:
    broker = connected(parse(f"quiver://{node[0]}"), None)
    node[1].clear()
    try:
        yield broker
    finally:
        broker.close()


def asked(broker: RemoteBroker) -> int:
    return broker.ask(queries.Ping()).wait()


def send(broker: RemoteBroker) -> Any:
    return broker.send_row(TOPIC, make_row(b"body")).wait()


def settle(broker: RemoteBroker) -> Any:
    command = Settle(1, 1, "ack", (Held(0, 1, ((0, 1),)),))
    return broker.settle(Settlement(command, (b"tag",))).wait()


def receive(broker: RemoteBroker) -> Ticket[Any]:
    return broker.receive(commands.Receive(1, "g", 1, 1_000), 60_000)


CALLS = {"send": send, "settle": settle}


def at_step(step: int, do: Callable[[], Any], then: Callable[[], Any]) -> bool:
    """Do something, and something else in the middle of it, after so many steps; whether there were.

    A step is where Python lets signal handlers run: a function of ours begins, or one in C has returned.
    """
    steps = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal steps
        if event in ("call", "c_return") and frame.f_code.co_filename.endswith(OURS):
            steps += 1
            if steps == step:
                sys.setprofile(None)
                then()

    sys.setprofile(profile)
    try:
        do()
    finally:
        sys.setprofile(None)
    return steps >= step


def every_step(do: Callable[[int], bool], every: int, least: int = 50) -> None:
    """Do it for one step after the other, until it is over before the step comes. It may not hang."""
    found: list[Any] = []

    def run() -> None:
        step = 1
        try:
            while do(step):
                step += every
                found.append(step)
        except BaseException as error:  # noqa: BLE001  # raised below
            error.add_note(f"at step {step}")
            found.append(error)
        found.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    before = -1
    while thread.is_alive():
        thread.join(SECONDS)
        hangs = thread.is_alive() and len(found) == before
        if hangs:
            faulthandler.dump_traceback()
        assert not hangs, f"it hangs at step {found[-1:]}"
        before = len(found)
    if isinstance(found[-2], BaseException):
        raise found[-2]
    assert found[-2] > least


steps = pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])


@steps
@pytest.mark.parametrize("call", CALLS)
def test_a_handler_may_call_at_any_step_of_a_call(node, call, every):
    """Both calls are made, once."""

    def called(step: int) -> bool:
        with broker_of(node) as broker:
            reached = at_step(step, lambda: CALLS[call](broker), lambda: send(broker))
            assert asked(broker) == 0
            assert node[1].count(Verb.SEND) == (call == "send") + reached
            assert node[1].count(Verb.SETTLE) == (call == "settle")
            return reached

    every_step(called, every)


@steps
@pytest.mark.parametrize("call", CALLS)
def test_a_handler_may_close_at_any_step_of_a_call(node, call, every):
    """The call that it interrupts ends as any other that is under way, and nothing is begun any more."""

    def closed(step: int) -> bool:
        with broker_of(node) as broker:

            def close() -> None:
                broker.close()
                with pytest.raises(QueueClosed):
                    asked(broker)

            def work() -> None:
                with suppress(QueueClosed, OutcomeUnknown):
                    CALLS[call](broker)

            reached = at_step(step, work, close)
            if reached:
                with pytest.raises(QueueClosed):
                    asked(broker)
            return reached

    every_step(closed, every)


@steps
@pytest.mark.parametrize("call", CALLS)
def test_a_handler_may_give_up_another_call_at_any_step_of_a_call(frames, call, every):
    """The node is told that once, and the call that it interrupts goes on."""

    def cancelled(step: int) -> bool:
        with broker_of(frames) as broker:
            waiting = receive(broker)

            def give_up() -> None:
                waiting.abandoned = True

            reached = at_step(step, lambda: CALLS[call](broker), give_up)
            if reached:
                assert isinstance(waiting.error, QueueClosed)
            assert asked(broker) == 0
            assert frames[1].count(Verb.CANCEL) == reached
            return reached

    every_step(cancelled, every)


@steps
def test_a_handler_may_let_go_of_a_receive_at_any_step(frames, every, monkeypatch):
    """It waits for ever if it does not look up."""
    came = True
    wait = sockets.Wire.wait

    class Idle(Exception):
        """It waits, and the step has not come."""

    def waits(wire: sockets.Wire, seconds: float, *, write: bool = False) -> tuple[bool, bool]:
        if seconds > 1 and not came:
            raise Idle
        return wait(wire, seconds, write=write)

    monkeypatch.setattr(sockets.Wire, "wait", waits)

    def nudged(step: int) -> bool:
        nonlocal came
        with broker_of(frames) as broker:
            waiting = receive(broker)
            came = False

            def nudge() -> None:
                nonlocal came
                came = True
                waiting.nudge()

            try:
                at_step(step, lambda: waiting.wait_for(None), nudge)
            except Idle:
                came = True
                return False
            assert not waiting.done
            return True

    every_step(nudged, every, 20)


def test_a_handler_that_would_wait_for_its_own_thread_is_told_so(node):
    """It can only hang there; the call of the thread goes on."""
    told: list[int] = []

    def waited(step: int) -> bool:
        with broker_of(node) as broker:
            first = broker.ask(queries.Ping())

            def wait() -> None:
                try:
                    assert first.wait_for(None)
                except UnavailableError:
                    told.append(step)

            reached = at_step(step, lambda: settle(broker), wait)
            assert asked(broker) == 0
            return reached

    every_step(waited, 3)
    assert told


def test_a_handler_of_a_closed_queue_finds_it_closed(frames):
    """Also that which comes while its thread is in the middle of a call."""
    with broker_of(frames) as broker:
        channel = broker._channels.channel  # type: ignore[attr-defined]
        broker.close()
        with channel._lock, pytest.raises(QueueClosed):
            asked(broker)


class Interrupted(BaseException):
    """As Ctrl-C is one."""


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # in the midst of create_connection
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_an_interrupt_at_any_step_loses_no_settle(every):
    """It is made before whatever is asked for later, also if nobody waits for it."""
    with over_posts() as node:

        def interrupted(step: int) -> bool:
            def interrupt() -> None:
                raise Interrupted

            with broker_of(node) as broker:
                command = Settle(1, 1, "ack", (Held(0, 1, ((0, 1),)),))
                ticket = broker.settle(Settlement(command, (b"tag",)))
                query = broker.ask(queries.Ping())
                reached = True
                with suppress(Interrupted):
                    reached = at_step(step, query.wait, interrupt)
                asked(broker)
                assert ticket.done
                assert node[1].count(Verb.SETTLE) >= 1
                return reached

        every_step(interrupted, every)


def test_a_host_that_is_no_name_is_passed_over_by_posts(monkeypatch: pytest.MonkeyPatch):
    without_names(monkeypatch)
    with ExitStack() as node:
        host, seen = node.enter_context(over_posts())
        hosts = host.replace("?", ",bad.host:7070?patience=0.3&")
        with broker_of((hosts, seen)) as broker:
            node.close()
            apart, told = broker.apart(), threading.Event()
            ticket = apart.ask(queries.Ping())
            ticket.when_done(told.set)
            assert told.wait(SECONDS)
            with pytest.raises(Unreachable, match=r"bad\.host"):
                ticket.wait()


def test_an_answer_counts_whatever_comes_behind_it():
    not_for_a_client = pack(Verb.SEND, 77, b"")[0]
    with over_posts(not_for_a_client) as node, broker_of(node) as broker:
        assert send(broker) is not None
        assert node[1].count(Verb.SEND) == 1


def test_what_is_called_back_may_wait_for_another_answer(frames):
    with broker_of(frames) as broker:
        first, second = broker.ask(queries.Ping()), broker.ask(queries.Ping())
        channel = broker._channels.channel  # type: ignore[attr-defined]
        found: list[int] = []
        first._callback = lambda: found.append(second.wait())  # and this thread calls it back
        assert first.wait() == 0
        assert set(found) == {0}
        assert channel._leader is None

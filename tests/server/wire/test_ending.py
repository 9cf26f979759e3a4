"""A node that ends, and credentials that do: what was asked is answered, and nothing new is begun."""

import asyncio
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

import quiver
from quiver.errors import QuotaExceeded, Unauthenticated, UnavailableError
from quiver.model import errands, queries
from quiver.server.auth import access
from quiver.server.auth.access import Access, AccessEntry
from quiver.wire import values
from quiver.wire.frames import Verb
from quiver.wire.values import encode, named
from tests.server.auth.callers import TOPIC, Guarded
from tests.server.nodes import Node, start_node, until_waiting
from tests.server.raw import Raw
from tests.server.wire.frames_client import Wire

pytestmark = pytest.mark.process

SLOW = "select sum(a.range * b.range) from range(25000) a, range(25000) b"


def test_who_waits_is_answered_and_who_asks_is_refused(tmp_path: Path):
    with start_node(tmp_path) as node, Wire(node.port) as wire:
        topic = wire.topic("t")
        waiting = [wire.submit_receive(topic, wait_ms=60_000) for _ in range(3)]
        busy = wire.send_frame(Verb.ERRAND, named(errands.AskSql(SLOW)))
        until_waiting(node, 3)
        node.signal(signal.SIGTERM)
        frame = wire.answer(0)
        assert frame.verb == Verb.GOAWAY
        for number in waiting:
            assert wire.received(number)[1] == []
        with pytest.raises(UnavailableError):
            wire.send(topic, b"x")
        wire.ping()
        wire.value(busy, msgspec.Raw)
        assert wire.is_closed()
        assert node.wait() == 0
        assert not [line for line in node.lines if line["level"] == "error"]


def test_an_idle_connection_does_not_hold_up_the_end(tmp_path: Path):
    with start_node(tmp_path) as node, Wire(node.port) as wire:
        begun = time.monotonic()
        assert node.stop() == 0
        assert time.monotonic() - begun < 5
        assert wire.answer(0).verb == Verb.GOAWAY
        assert wire.is_closed()


PATIENT = {
    "TEST_LIMITS": '{"LEAVE_SECONDS_MAX": 3600}', "QUIVER_BOUNDS_DRAIN_SECONDS": "3600",
}  # fmt: skip


def test_what_was_sent_before_its_client_knew_of_the_end_is_refused(tmp_path: Path):
    with (
        start_node(tmp_path, env=PATIENT, module="tests.server.testing_node") as node,
        Wire(node.port) as wire,
        Wire(node.port) as other,
    ):
        topic = wire.topic("t")
        node.signal(signal.SIGTERM)
        assert wire.answer(0).verb == other.answer(0).verb == Verb.GOAWAY
        for one in (wire, other):  # as if this had been under way
            with pytest.raises(UnavailableError):
                one.send(topic, b"x")
            one.close()
        assert node.wait() == 0
    with quiver.connect(node.data) as queue:
        assert list(queue.read("t")) == []


def test_a_node_ends_as_soon_as_its_clients_have_left(tmp_path: Path):
    async def leave(node: Node) -> int:
        async with quiver.connect_async(f"quiver://127.0.0.1:{node.port}") as queue:
            await queue.topics()
            return await asyncio.to_thread(node.stop)

    with start_node(tmp_path, env=PATIENT, module="tests.server.testing_node") as node:
        assert asyncio.run(leave(node)) == 0


def test_what_takes_too_long_is_cut(tmp_path: Path):
    env = {"QUIVER_BOUNDS_DRAIN_SECONDS": "0.5"}
    with start_node(tmp_path, env=env) as node, Wire(node.port) as wire:
        slow = "select count(*) from range(1000000) a, range(1000000) b where a.range = b.range + 1"
        wire.send_frame(Verb.ERRAND, named(errands.AskSql(slow.replace("=", "<>"))))
        time.sleep(0.5)
        assert node.stop() == 0
        assert wire.is_closed()
        node.logged("cut", requests=1)


def test_a_disk_that_fails_is_told_and_ends_the_node(tmp_path: Path):
    with start_node(tmp_path, module="tests.server.testing_node") as node, Wire(node.port) as wire:
        topic = wire.topic("t")
        with Raw(node.port) as raw:
            assert raw.ask("POST", "/test/break-disk").status == 200
        with pytest.raises(Exception, match=r"stopped|Input/output|disk"):
            wire.send(topic, b"x")
        assert node.wait() == 1


# -- credentials -----------------------------------------------------------------------------------


@pytest.mark.check
def test_a_token_that_expires_ends_no_connection(tmp_path: Path):
    entries = {"admin": AccessEntry(allow=("*:*",)), "brief": AccessEntry(allow=("*:*",))}
    guarded = Guarded(tmp_path, entries)
    try:
        found = access.load(guarded.path)
        ends = datetime.now(UTC) + timedelta(seconds=3)
        text, token = access.new_token(ends)
        brief = msgspec.structs.replace(found.principals["brief"], tokens=(token,))
        access.save(guarded.path, Access({**found.principals, "brief": brief}))
        guarded.node.logged("access read")
        with Wire(guarded.node.port, text) as wire:
            topic = wire.topic(TOPIC)
            wire.send(topic, b"x")
            while datetime.now(UTC) < ends + timedelta(seconds=0.2):
                time.sleep(0.1)
            with pytest.raises(Unauthenticated, match="expired"):
                wire.send(topic, b"x")
            wire.ping()
            admin = encode(values.AuthenticateHead(guarded.callers["admin"].token))
            wire.value(wire.send_frame(Verb.AUTHENTICATE, admin), msgspec.Raw)
            assert wire.send(topic, b"x").offset == 1
    finally:
        guarded.close()


def test_rules_and_tokens_that_change_count_at_once(tmp_path: Path):
    guarded = Guarded(
        tmp_path, {"admin": AccessEntry(allow=("*:*",)), "other": AccessEntry(allow=("*:*",))}
    )
    try:
        with Wire(guarded.node.port, guarded.callers["other"].token) as wire:
            topic = wire.topic(TOPIC)
            wire.send(topic, b"x")
            found = access.load(guarded.path)
            fewer = msgspec.structs.replace(found.principals["other"], allow=(f"receive:{TOPIC}",))
            access.save(guarded.path, Access({**found.principals, "other": fewer}))
            guarded.node.logged("access read")
            with pytest.raises(Exception, match="may not send"):
                wire.send(topic, b"x")
            assert wire.receive(topic)[1] == [b"x"]
            gone = msgspec.structs.replace(found.principals["other"], tokens=())
            access.save(guarded.path, Access({**found.principals, "other": gone}))
            guarded.node.logged("access read")
            with pytest.raises(Unauthenticated):
                wire.receive(topic)
    finally:
        guarded.close()


def test_a_connection_of_an_open_node_needs_a_token_when_it_is_guarded(tmp_path: Path):
    with start_node(tmp_path) as node, Wire(node.port) as wire:
        topic = wire.topic("t")
        _, token = access.new_token()
        access.save(
            node.data / "access.toml", Access({"admin": AccessEntry(("*:*",), (), (token,))})
        )
        node.logged("access read")
        with pytest.raises(Unauthenticated):
            wire.send(topic, b"x")


# -- quotas ----------------------------------------------------------------------------------------


def test_quotas_are_of_frames(tmp_path: Path):
    guarded = Guarded(
        tmp_path,
        {
            "admin": AccessEntry(allow=("*:*",)),
            "few": AccessEntry(allow=("*:*",), requests_per_second=4),
            "small": AccessEntry(allow=("*:*",), bytes_per_second=1_000),
            "patient": AccessEntry(allow=("*:*",), long_polls=2),
        },
    )
    try:
        tokens = {who: caller.token for who, caller in guarded.callers.items()}
        port = guarded.node.port
        with Wire(port, tokens["admin"]) as wire:
            topic = wire.topic(TOPIC)
        with Wire(port, tokens["few"]) as wire:
            numbers = [wire.send_frame(Verb.ASK, named(queries.Ping())) for _ in range(10)]
            with pytest.raises(QuotaExceeded) as refused:
                all(wire.value(number, int) for number in numbers)
            assert refused.value.retry_after >= 1
            wire.ping()
            time.sleep(1.1)
            wire.ask(queries.Ping())
        with Wire(port, tokens["small"]) as wire:
            wire.send(topic, b"x" * 20_000)
            with pytest.raises(QuotaExceeded):
                wire.ask(queries.Ping())
        with Wire(port, tokens["patient"]) as wire:
            empty = wire.topic("empty")
            waiting = [wire.submit_receive(empty, wait_ms=60_000) for _ in range(2)]
            until_waiting_as(guarded, 2)
            with pytest.raises(QuotaExceeded, match="wait already"):
                wire.receive(empty, wait_ms=1_000)
            assert wire.receive(empty)[1] == []
            wire.cancel(waiting[0])
            wire.receive(empty, wait_ms=10)
    finally:
        guarded.close()


def until_waiting_as(guarded: Guarded, count: int) -> None:
    for _ in range(200):
        answer = guarded("GET", "/metrics", who="admin")
        if f"\nquiver_receives_waiting {count}.0\n".encode() in answer.body:
            return
        time.sleep(0.05)
    raise AssertionError(f"there were never {count} receives that wait")

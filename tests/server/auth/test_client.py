"""`quiver://` with a token: who it is counts, errors are typed, and TLS is checked."""

import asyncio
import socket
import ssl
import sys
from contextlib import ExitStack, suppress

import pytest
import trustme

import quiver
from quiver.cli.run import run
from quiver.errors import Forbidden, QuotaExceeded, Unauthenticated, Unreachable
from quiver.server.auth.access import AccessEntry
from tests.contract.doors import AsyncDoor, Blocking
from tests.server.auth.callers import TOPIC, Guarded
from tests.server.nodes import start_node

RARE = AccessEntry(allow=("*:*",), requests_per_second=0.001)


@pytest.fixture(scope="module")
def ca():
    return trustme.CA()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, ca):
    """A node with TLS and an access file."""
    folder = tmp_path_factory.mktemp("node")
    made = ca.issue_cert("127.0.0.1", "localhost")
    made.private_key_and_cert_chain_pem.write_to_path(folder / "node.pem")
    (folder / "node.pem").chmod(0o600)
    ca.cert_pem.write_to_path(folder / "ca.pem")
    (folder / "node.toml").write_text(
        f"[tls]\ncert = '{folder}/node.pem'\nkey = '{folder}/node.pem'\n"
    )
    entries = {
        "admin": AccessEntry(allow=("*:*",)),
        "sender": AccessEntry(allow=(f"send:{TOPIC}",)),
        **{f"rare-{way}": RARE for way in ("threads", "loop", "posts")},
    }
    started = Guarded(folder, entries, "--config", str(folder / "node.toml"))
    with quiver.connect(address(started, "admin")) as queue:
        queue.create_topic(TOPIC)
        queue.create_topic("other")
    yield started
    started.close()


def address(guarded, who, *, patience="10s", host="localhost"):
    folder = guarded.path.parent.parent
    name = f"{guarded.callers[who].token}@" if who else ""
    return f"quivers://{name}{host}:{guarded.node.port}?ca={folder}/ca.pem&patience={patience}"


@pytest.fixture(params=["threads", "loop", "posts"])
def connect(request):
    """Connects to an address, by frames in threads or in an event loop, or by what is posted."""
    with ExitStack() as stack:

        def made(url):
            url += f"&wire={'never' if request.param == 'posts' else 'always'}"
            if request.param != "loop":
                return stack.enter_context(quiver.connect(url))
            door = AsyncDoor()
            stack.callback(door.end)
            return stack.enter_context(Blocking(door._loop, quiver.connect_async(url)))

        yield made


def test_a_token_says_who_one_is(guarded, connect):
    queue = connect(address(guarded, "sender"))
    assert queue.topics() == [TOPIC]
    queue.send(TOPIC, b"hello")
    with pytest.raises(Forbidden, match="sender may not receive on topic 'orders'"):
        queue.receive(TOPIC, group="g")
    with pytest.raises(Forbidden, match="sender may do nothing on topic 'other'"):
        queue.send("other", b"hello")
    (got,) = connect(address(guarded, "admin")).receive(TOPIC, group="g", wait=10)
    got.ack()


def test_it_is_the_same_on_an_event_loop(guarded):
    async def go():
        async with quiver.connect_async(address(guarded, "sender")) as queue:
            await queue.send(TOPIC, b"hello")
            with pytest.raises(Forbidden):
                await queue.read(TOPIC).__anext__()

    asyncio.run(go())


def test_the_token_may_be_in_the_environment(guarded, monkeypatch):
    monkeypatch.setenv("QUIVER_TOKEN", guarded.callers["sender"].token)
    with quiver.connect(address(guarded, "")) as queue:
        assert queue.topics() == [TOPIC]


def test_topics_that_one_may_not_observe_are_named(guarded, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["quiver", "topics", "--data", address(guarded, "sender")])
    assert run(as_json=False) == 0
    assert f"You may not observe {TOPIC}: ask for a rule with the verb observe." in (
        " ".join(capsys.readouterr().err.split())
    )


@pytest.mark.parametrize("who", ["", "unknown"])
def test_strangers_are_told_so_at_once(guarded, who, connect):
    with pytest.raises(Unauthenticated) as refused:
        connect(address(guarded, who, patience="1h"))
    assert guarded.callers["unknown"].token not in str(refused.value)


def test_a_quota_is_waited_for_as_long_as_there_is_patience(guarded, connect, request):
    who = f"rare-{request.node.callspec.id}"
    queue = connect(address(guarded, who, patience="100ms"))  # which is a request
    with pytest.raises(QuotaExceeded, match=f"{who} has used up") as refused:
        queue.topics()
    assert refused.value.retry_after > 900


def test_a_node_of_another_ca_is_not_trusted(guarded, tmp_path, connect):
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    where = address(guarded, "admin").replace(str(guarded.path.parent.parent), str(tmp_path))
    with pytest.raises(Unreachable, match="not whom we trust"):
        connect(where)


def test_who_forgets_tls_is_told_so(guarded, connect):
    plain = address(guarded, "admin", patience="1h").replace("quivers://", "quiver://")
    with pytest.raises(Unreachable, match=r"localhost:\d+ speaks TLS: call it quivers://"):
        connect(plain)


def test_handshakes_that_nobody_finishes_are_counted(guarded, tmp_path):
    folder = guarded.path.parent.parent
    config, env = str(folder / "node.toml"), {"QUIVER_BOUNDS_CONNECTIONS": "3"}
    ca = ssl.create_default_context(cafile=folder / "ca.pem")
    with start_node(tmp_path, "--config", config, env=env) as node:

        def live() -> bytes:
            with called(node) as plain, ca.wrap_socket(plain, server_hostname="localhost") as safe:
                safe.sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
                return safe.recv(15)

        assert live() == b"HTTP/1.1 200 OK"
        silent = [called(node) for _ in range(3)]
        with called(node) as one_too_many:
            assert one_too_many.recv(1) == b"", "it is closed at once"
        silent.pop().close()
        for _ in range(200):
            with suppress(OSError):
                if live() == b"HTTP/1.1 200 OK":
                    break
        else:
            pytest.fail("there is room for one, and nobody is let in")
        for one in silent:
            one.close()
        assert node.stop() == 0


def called(node):
    return socket.create_connection(("127.0.0.1", node.port), timeout=30)


def test_who_expects_tls_where_there_is_none_is_told_so(tmp_path, connect):
    with start_node(tmp_path) as node, pytest.raises(Unreachable, match=r"call .* quiver://"):
        connect(f"quivers://127.0.0.1:{node.port}?patience=1h")

"""How a connection becomes one of frames, and who is not let in."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from quiver import __version__, limits
from quiver.wire.frames import PATH, Verb, pack
from tests.server.auth.callers import Guarded
from tests.server.nodes import Node, start_node
from tests.server.raw import Raw
from tests.server.wire.frames_client import Refused, Wire

pytestmark = pytest.mark.process


def test_the_first_frame_says_who_answers_and_when(wire):
    assert wire.welcome.version == __version__
    assert wire.welcome.time_ms > 0
    assert b"upgrade: quiver/1\r\n" in wire.head + b"\r\n"
    assert b"connection: upgrade" in wire.head


def test_several_versions_may_be_offered(connect):
    assert connect(protocol="quiver/2, Quiver/1").welcome.version


def test_what_comes_behind_the_head_are_frames(connect):
    pings = pack(Verb.PING, 7)[0] + pack(Verb.PING, 8)[0]
    wire = connect(ahead=pings + pack(Verb.PING, 9)[0][:5])
    assert wire.answer(7).verb == wire.answer(8).verb == Verb.PONG
    wire.socket.sendall(pack(Verb.PING, 9)[0][5:])
    assert wire.answer(9).verb == Verb.PONG


def test_much_may_come_behind_the_head_at_once(connect):
    numbers = range(1, 3 * limits.HEAD_BYTES_MAX // 16)
    wire = connect(ahead=b"".join(pack(Verb.PING, number)[0] for number in numbers))
    assert {wire.answer(number).verb for number in numbers} == {Verb.PONG}


def test_a_version_that_is_not_known_is_refused_with_ours(connect):
    with pytest.raises(Refused) as refused:
        connect(protocol="quiver/9", ahead=pack(Verb.PING, 1)[0])
    assert refused.value.status == 426
    assert b"\r\nupgrade: quiver/1\r\n" in refused.value.head
    assert "quiver/1" in json.loads(refused.value.body)["detail"]


@pytest.mark.parametrize(
    "headers",
    [{}, {"connection": "Upgrade", "upgrade": "h2c"}, {"upgrade": "quiver/1"}],
    ids=["none", "another protocol", "no Connection"],
)
def test_who_asks_for_no_upgrade_is_told_of_it(node: Node, headers):
    with Raw(node.port) as raw:
        answer = raw.ask("GET", PATH, **headers)
        assert (answer.status, answer.headers["upgrade"]) == (426, "quiver/1")
        assert raw.ask("GET", "/health/live").status == 200  # it is HTTP, as before


def test_an_offer_with_a_body_is_none(node: Node):
    with Raw(node.port) as raw:
        raw.request("GET", PATH, b"{}", connection="Upgrade", upgrade="quiver/1")
        assert raw.answer().status == 426


def test_elsewhere_an_offer_of_frames_is_passed_over(node: Node):
    with Raw(node.port) as raw:
        asked = raw.ask("GET", "/health/live", connection="Upgrade", upgrade="quiver/1")
        assert asked.status == 200
        assert raw.ask("GET", "/health/live").status == 200


def test_a_page_of_another_site_gets_no_connection(connect):
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"},
                    {"sec_fetch_site": "cross-site"}):  # fmt: skip
        with pytest.raises(Refused) as refused:
            connect(**headers)
        assert refused.value.status == 403


def test_requests_before_it_are_answered_first(node: Node):
    with Raw(node.port) as raw:
        raw.send(
            b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
            b"GET /v1/wire HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\n"
            b"upgrade: quiver/1\r\n\r\n"
        )
        assert raw.answer().status == 200
        assert raw.answer().status == 101


def test_connections_of_frames_are_counted_until_they_end(node: Node, connect):
    def counted() -> int:
        with Raw(node.port) as raw:
            text = raw.ask("GET", "/metrics").body.decode()
        (line,) = [one for one in text.splitlines() if one.startswith("quiver_connections ")]
        return int(float(line.split()[1]))

    before = counted()
    made = [connect() for _ in range(3)]
    for one in made:
        one.ping()
    assert counted() == before + 3
    for one in made:
        one.close()
    for _ in range(100):
        if counted() == before:
            return
    raise AssertionError(f"{counted()} and not {before}")


def test_garbage_is_answered_once_and_cut(connect):
    wire = connect()
    wire.socket.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
    frame = wire.frame()
    assert (frame.verb, frame.id) == (Verb.ERROR, 0)
    assert wire.is_closed()


# -- tokens ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    started = Guarded(tmp_path_factory.mktemp("guarded"))
    yield started
    started.close()


@pytest.mark.parametrize("who", ["", "unknown", "expired"])
def test_a_stranger_is_answered_as_anywhere(guarded: Guarded, who: str):
    token = guarded.callers[who].token if who else ""
    with pytest.raises(Refused) as refused:
        Wire(guarded.node.port, token)
    assert refused.value.status == 401
    assert json.loads(refused.value.body)["code"] == "unauthenticated"
    assert b"www-authenticate: bearer" in refused.value.head


def test_a_known_token_is_let_in(guarded: Guarded):
    with Wire(guarded.node.port, guarded.callers["admin"].token) as wire:
        assert wire.send(wire.topic("t"), b"x").offset == 0


# -- TLS -------------------------------------------------------------------------------------------


def test_frames_go_over_tls(tmp_path: Path):
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1", "localhost")
    made.private_key_and_cert_chain_pem.write_to_path(tmp_path / "node.pem")
    (tmp_path / "node.pem").chmod(0o600)
    (tmp_path / "node.toml").write_text(
        f"[tls]\ncert = '{tmp_path}/node.pem'\nkey = '{tmp_path}/node.pem'\n"
    )
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with (
        start_node(tmp_path, "--config", str(tmp_path / "node.toml")) as node,
        Wire(node.port, tls=context, ahead=pack(Verb.PING, 500)[0]) as wire,
    ):
        assert wire.answer(500).verb == Verb.PONG
        topic = wire.topic("t")
        bodies = [b"small", b"x" * 3_000_000, b"y" * 100_000]
        for body in bodies:
            wire.send(topic, body)
        got, found = wire.receive(topic)
        assert found == bodies
        assert wire.settle(got).count == 3
        wire.socket.sendall(b"\xff" * 64)
        assert wire.frame().verb == Verb.ERROR

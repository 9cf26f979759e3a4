"""A running node takes on a new access file and a new certificate, and keeps the old ones if need be."""

import asyncio
import http.client
import itertools
import signal
import socket
import ssl
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import trustme

import quiver
from quiver.server.auth import ACCESS_FILE, access
from quiver.server.auth.access import Access, AccessEntry
from quiver.server.config import load
from quiver.server.ready import why_not
from tests.server.auth.callers import Guarded, introduce
from tests.server.nodes import start_node
from tests.server.waiting import PATIENCE_SECONDS


@pytest.fixture
def guarded(tmp_path):
    started = Guarded(tmp_path, {"ann": AccessEntry(allow=("*:*",))})
    yield started
    started.close()


def test_a_new_access_file_counts_from_the_next_look_or_signal(guarded):
    assert guarded("GET", "/v1/topics", who="ann").status == 200
    before = guarded.callers["ann"].token
    text, token = access.new_token()
    access.save(guarded.path, Access({"bob": AccessEntry(allow=("*:*",), tokens=(token,))}))
    assert guarded.node.logged("access read")["principals"] == 1
    assert guarded("GET", "/v1", Authorization=f"Bearer {before}").status == 401
    assert guarded("GET", "/v1", Authorization=f"Bearer {text}").status == 200
    guarded.node.signal(signal.SIGHUP)
    guarded.node.logged("access read")


def test_a_broken_access_file_keeps_the_old_one_and_stops_a_new_start(guarded):
    with guarded.path.open("a") as file:  # one write: the node never sees half of it
        file.write("\n[principals.bob]\nallow = ['nonsense']\n")
    why = guarded.node.logged("kept what was read before")["why"]
    assert "a rule is verbs" in why
    assert guarded("GET", "/v1", who="ann").status == 200
    assert guarded("GET", "/v1", who="unknown").status == 401
    with pytest.raises(AssertionError, match="a rule is verbs"):
        guarded.node.restart()


def test_a_file_that_no_parser_can_take_does_not_end_the_watch(guarded):
    guarded.path.write_text("a = " + "9" * 5_000)
    assert "digits" in guarded.node.logged("kept what was read before")["why"]
    text, token = access.new_token()
    access.save(guarded.path, Access({"bob": AccessEntry(allow=("*:*",), tokens=(token,))}))
    guarded.node.logged("access read")
    assert guarded("GET", "/v1", Authorization=f"Bearer {text}").status == 200


def test_a_node_closes_its_door_when_an_access_file_appears(tmp_path):
    with start_node(tmp_path) as node:
        assert status(node) == 200
        access.save(node.data / "access.toml", Access({"bob": AccessEntry()}))
        node.logged("access read")
        assert status(node) == 401


def status(node):
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=30)
    connection.request("GET", "/v1/topics")
    with connection.getresponse() as answer:
        connection.close()
        return answer.status


def test_other_addresses_want_credentials_or_to_be_told(tmp_path):
    with pytest.raises(AssertionError, match="no credentials are configured"):
        start_node(tmp_path, "--listen", "0.0.0.0:0")
    introduce(tmp_path / "data" / ACCESS_FILE, {"bob": AccessEntry()})
    with start_node(tmp_path, "--listen", "0.0.0.0:0"):
        pass


# -- TLS -------------------------------------------------------------------------------------------


class Secure:
    """A node with TLS."""

    def __init__(self, tmp_path):
        self.ca = trustme.CA()
        self.folder = tmp_path
        self.put()
        config = tmp_path / "node.toml"
        config.write_text(
            f"bounds.head_seconds = 3\ntls.cert = '{tmp_path}/node.crt'\ntls.key = '{tmp_path}/node.key'\n"
        )
        self.node = start_node(tmp_path, "--config", str(config))

    def put(self, *names):
        made = self.ca.issue_cert(*(names or ("127.0.0.1", "localhost")))
        made.private_key_pem.write_to_path(self.folder / "node.key")
        (self.folder / "node.key").chmod(0o600)
        for at, pem in enumerate(made.cert_chain_pems):
            pem.write_to_path(self.folder / "node.crt", append=at > 0)

    def connect(self, ca=None, name="localhost"):
        context = ssl.create_default_context()
        (ca or self.ca).configure_trust(context)
        raw = socket.create_connection(("127.0.0.1", self.node.port), timeout=30)
        try:
            return context.wrap_socket(raw, server_hostname=name)
        except BaseException:
            raw.close()
            raise

    def serial(self):
        with self.connect() as sock:
            return (sock.getpeercert() or {})["serialNumber"]


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    started = Secure(tmp_path_factory.mktemp("secure"))
    yield started
    started.node.__exit__(None, None, None)


@pytest.fixture
def own(tmp_path):
    """One that a test may kill."""
    started = Secure(tmp_path)
    yield started
    started.node.__exit__(None, None, None)


def ask(sock):
    sock.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with http.client.HTTPResponse(sock) as answer:
        answer.begin()
        return answer.status, answer.read()


def test_a_node_with_tls_is_trusted_by_who_knows_its_ca_and_name(secure):
    with secure.connect() as sock:
        assert ask(sock) == (200, b"ok\n")
        assert sock.version() in ("TLSv1.2", "TLSv1.3")
    with pytest.raises(ssl.SSLCertVerificationError):
        secure.connect(ca=trustme.CA())
    with pytest.raises(ssl.SSLCertVerificationError):
        secure.connect(name="queue.example")


def test_a_doctor_asks_a_node_with_tls_whether_it_is_ready(secure):
    listen = f"127.0.0.1:{secure.node.port}"
    config = load(secure.folder / "node.toml", {}, {"listen": listen})
    assert why_not(config) == ""
    plain = load(None, {}, {"listen": listen})
    assert "no answer" in why_not(plain)


def test_plain_http_on_a_tls_port_gets_nothing(secure):
    with (
        socket.create_connection(("127.0.0.1", secure.node.port), timeout=30) as sock,
        pytest.raises((ConnectionError, http.client.BadStatusLine)),
    ):
        ask(sock)
    assert secure.serial()


def test_who_does_not_shake_hands_is_cut_off(secure):
    with socket.create_connection(("127.0.0.1", secure.node.port), timeout=30) as sock:
        sock.sendall(b"\x16\x03\x01")  # the first bytes of a handshake, and no more
        assert sock.recv(100) == b""


def test_a_new_certificate_is_shown_to_new_connections_and_old_ones_go_on(secure):
    before = secure.serial()
    with secure.connect() as old:
        assert ask(old) == (200, b"ok\n")
        secure.put()
        secure.node.signal(signal.SIGHUP)
        secure.node.logged("certificate read")
        assert secure.serial() != before
        assert ask(old) == (200, b"ok\n")


@pytest.mark.check
def test_clients_lose_and_double_nothing_while_certificates_change(own):
    own.ca.cert_pem.write_to_path(own.folder / "ca.pem")
    url = f"quivers://localhost:{own.node.port}?ca={own.folder}/ca.pem&patience=60s"
    enough, sent, got = threading.Event(), Counter[str](), set[str]()

    def send(name, wired):
        with quiver.connect(f"{url}&wire={wired}") as queue:
            for number in itertools.count():
                queue.send("t", f"{name}{number}", dedup_id=f"{name}{number}")
                sent[f"{name}{number}"] += 1
                if enough.is_set():
                    return

    async def send_in_a_loop():
        async with quiver.connect_async(url) as queue, queue.producer("t") as out:
            for number in itertools.count():
                await out.send(f"loop{number}")
                await out.flush()
                sent[f"loop{number}"] += 1
                if enough.is_set():
                    return

    with quiver.connect(url) as queue, ThreadPoolExecutor(3) as pool:
        queue.create_topic("t", retention="forever", dedup_window="1d")
        queue.create_group("t", "g")
        senders = [
            pool.submit(send, "wire", "always"), pool.submit(send, "post", "never"),
            pool.submit(lambda: asyncio.run(send_in_a_loop())),
        ]  # fmt: skip
        try:
            with queue.consumer("t", "g", lease=600, acks="background") as inbox:
                for turn in range(4):
                    before = own.serial()
                    own.put()
                    own.node.signal(signal.SIGHUP)
                    own.node.logged("certificate read")
                    assert own.serial() != before
                    if turn % 2:  # now all of them must trust what is new
                        own.node.kill()
                        own.node.restart()
                    for _ in range(50):
                        delivery: Any = inbox.get(wait=PATIENCE_SECONDS)
                        got.add(delivery.text)
                        delivery.ack()
                enough.set()
                for sender in senders:
                    sender.result(PATIENCE_SECONDS)
                while got != set(sent):
                    delivery = inbox.get(wait=PATIENCE_SECONDS)
                    got.add(delivery.text)
                    delivery.ack()
        finally:
            enough.set()
        assert all(name in sent for name in ("wire0", "post0", "loop0"))
        assert Counter(record.text for record in queue.read("t")) == sent
        assert queue.groups("t")["g"].lag == 0


def test_a_broken_certificate_keeps_the_old_one(secure):
    before = secure.serial()
    (secure.folder / "node.crt").write_text("nonsense")
    assert "node.crt" in secure.node.logged("kept what was read before")["why"]
    assert secure.serial() == before
    secure.put()
    secure.node.logged("certificate read")
    assert secure.serial() != before

"""What a node does not put up with: in time, in bytes, in connections."""

import gzip
import json
import random
import socket
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quiver import limits
from tests.server.nodes import Node, start_node, until_waiting
from tests.server.raw import PATIENCE_SECONDS, Answer, Raw
from tests.server.testing_node import LIMIT, PIECE

HASTY = {
    "QUIVER_BOUNDS_HEAD_SECONDS": "2",
    "QUIVER_BOUNDS_BODY_PAUSE_SECONDS": "3",
    "QUIVER_BOUNDS_ANSWER_PAUSE_SECONDS": "0.4",
    "QUIVER_BOUNDS_IDLE_SECONDS": "3",
}
SMALL = {"QUIVER_BOUNDS_CONNECTIONS": "4", "QUIVER_BOUNDS_IN_FLIGHT_BYTES": str(limits.MIB)}
CHUNKED = b"POST /test/count HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
Connect = Callable[[Node], Raw]


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with start_node(
        tmp_path_factory.mktemp("hasty"), env=HASTY, module="tests.server.testing_node"
    ) as node:
        yield node


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    path = tmp_path_factory.mktemp("patient")
    with start_node(path, module="tests.server.testing_node") as node:
        yield node


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    path = tmp_path_factory.mktemp("small")
    with start_node(path, env=SMALL, module="tests.server.testing_node") as node:
        yield node


@pytest.fixture
def connect() -> Iterator[Connect]:
    opened: list[Raw] = []

    def made(node: Node) -> Raw:
        opened.append(Raw(node.port))
        return opened[-1]

    yield made
    for raw in opened:
        raw.close()


# -- time ------------------------------------------------------------------------------------------


def test_a_connection_that_says_nothing_is_closed(hasty: Node, connect: Connect):
    assert connect(hasty).is_closed()


def test_a_connection_that_is_idle_after_a_request_is_closed(hasty: Node, connect: Connect):
    raw = connect(hasty)
    assert raw.ask("GET", "/health/live").status == 200
    assert raw.is_closed()


def test_a_head_that_never_ends_is_cut_however_lively_it_is(hasty: Node, connect: Connect):
    raw = connect(hasty)
    raw.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
    raw.trickle(b"x: y\r\n", pause=0.05)
    answer = raw.answer()
    assert (answer.status, answer.problem["code"]) == (408, "invalid_request")
    assert answer.headers["x-request-id"]
    assert raw.is_closed()


def test_empty_lines_before_a_head_do_not_help(hasty: Node, connect: Connect):
    raw = connect(hasty)
    raw.trickle(b"\r\n", pause=0.05)
    assert raw.is_closed()


def test_a_body_that_stops_is_cut(hasty: Node, connect: Connect):
    raw = connect(hasty)
    raw.send(b"POST /test/count HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nabc")
    assert raw.answer().status == 408
    assert raw.is_closed()


def test_a_body_that_only_trickles_is_cut(hasty: Node, connect: Connect):
    raw = connect(hasty)
    raw.send(b"POST /test/count HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n")
    raw.trickle(b"x", pause=0.05)
    assert raw.answer().status == 408


def test_a_body_that_never_ends_is_cut_however_lively_it_is(tmp_path: Path, connect: Connect):
    env = {"QUIVER_BOUNDS_BODY_SECONDS": "1"}
    with start_node(tmp_path, env=env, module="tests.server.testing_node") as node:
        raw = connect(node)
        raw.send(b"POST /test/count HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900000\r\n\r\n")
        raw.trickle(bytes(2_000), pause=0.05)
        assert raw.answer().status == 408


def test_a_body_that_comes_in_pieces_is_taken(hasty: Node, connect: Connect):
    raw = connect(hasty)
    raw.send(b"POST /test/count HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n")
    for _ in range(100):
        raw.send(bytes(1_000))
    assert raw.answer().body == b"100000"


def test_an_answer_that_nobody_reads_is_cut(hasty: Node, connect: Connect):
    raw = connect(hasty)
    raw.request("GET", "/test/large?bytes=50000000")
    assert connect(hasty).is_closed()  # when it was idle for longer than an answer may pause
    with pytest.raises((AssertionError, ConnectionError)):
        raw.answer()


# -- bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"GET /%s HTTP/1.1\r\nhost: localhost\r\n\r\n" % (b"a" * 100_000),
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: %s\r\n\r\n" % (b"a" * 100_000),
        b"GET / HTTP/1.1\r\nhost: localhost\r\n%s\r\n" % (b"x: y\r\n" * 20_000),
    ],
    ids=["address", "header", "headers"],
)
def test_a_head_that_is_too_large_is_refused(patient: Node, connect: Connect, head: bytes):
    raw = connect(patient)
    try:
        raw.send(head)
        assert raw.answer().status == 431
    except ConnectionError:
        pass  # it was cut while we were still talking


def test_a_head_does_not_begin_in_the_body_before_it(patient: Node, connect: Connect):
    raw = connect(patient)
    raw.send(
        b"POST /test/count HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000\r\n\r\n",
        bytes(60_000) + b"GET /health/live HTTP/1.1\r\n",
    )
    assert raw.answer().body == b"60000"
    raw.send(b"host: localhost\r\nx: %b\r\n\r\n" % (b"a" * 10_000))
    assert raw.answer().status == 200


@pytest.mark.parametrize(
    ("begin", "more"),
    [(b"0\r\n", b"a: b\r\n" * 1_000), (b"0\r\na: ", b"b" * 5_000), (b"1;", b"x" * 5_000)],
    ids=["trailers", "trailer", "extension"],
)
def test_nor_does_a_body_hide_endless_bytes(
    patient: Node, connect: Connect, begin: bytes, more: bytes
):
    raw = connect(patient)
    raw.send(CHUNKED, begin)
    raw.trickle(more, pause=0.01)
    assert raw.answer().status == 431
    assert raw.is_closed()


def test_trailers_are_passed_over(patient: Node, connect: Connect):
    raw = connect(patient)
    for _ in range(2):
        raw.send(CHUNKED, b"3\r\nabc\r\n0\r\nx-request-id: trailer\r\n\r\n")
        answer = raw.answer()
        assert answer.body == b"3"
        assert answer.headers["x-request-id"] != "trailer"


def test_a_body_may_come_in_chunks_of_a_byte(patient: Node, connect: Connect):
    raw = connect(patient)
    raw.send(CHUNKED, b"1\r\nx\r\n" * 50_000, b"0\r\n\r\n")
    assert raw.answer().body == b"50000"


def test_a_large_body_is_refused_before_it_is_sent(patient: Node, connect: Connect):
    raw = connect(patient)
    raw.send(
        b"POST /test/count HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
        b"content-length: 1000000000\r\n\r\n"
    )
    answer = raw.answer()
    assert (answer.status, answer.problem["code"]) == (413, "message_too_large")
    assert answer.headers["connection"] == "close", "or a next request would be taken for the body"
    assert raw.is_closed()


@pytest.mark.parametrize("path", ["/", "/v1/topics"])
def test_a_length_may_begin_with_zeros(patient: Node, connect: Connect, path: str):
    for door in ("GET", "POST"):
        answer = connect(patient).ask(door, path, content_length="0" * 5_000)
        assert answer.status < 500, answer.body


def test_a_body_that_is_wanted_is_asked_for(patient: Node, connect: Connect):
    raw = connect(patient)
    raw.send(
        b"POST /test/count HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
        b"content-length: 3\r\n\r\n"
    )
    assert raw.answer().status == 100
    raw.send(b"abc")
    assert raw.answer().body == b"3"


def test_a_body_that_never_ends_is_refused_and_cut(patient: Node, connect: Connect):
    raw = connect(patient)
    raw.send(b"POST /test/count HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
    raw.trickle(b"8000\r\n" + bytes(0x8000) + b"\r\n", pause=0.01)
    answer = raw.answer()
    assert answer.status == 413
    raw.trickle(b"8000\r\n" + bytes(0x8000) + b"\r\n", pause=0.01)
    assert raw.is_closed()


def test_after_a_refusal_the_connection_goes_on_if_the_body_ends(patient: Node, connect: Connect):
    raw = connect(patient)
    assert raw.ask("POST", "/test/count", bytes(LIMIT + 1)).status == 413
    assert raw.ask("POST", "/test/count", bytes(LIMIT)).body == str(LIMIT).encode()


def test_requests_may_come_before_answers(patient: Node, connect: Connect):
    raw = connect(patient)
    for size in range(8):
        raw.request("POST", "/test/count", bytes(size))
    assert [raw.answer().body for _ in range(8)] == [str(size).encode() for size in range(8)]


def test_but_not_without_end(patient: Node, connect: Connect):
    raw = connect(patient)
    raw.send(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n" * 500)
    for _ in range(1 + limits.PIPELINED_REQUESTS_MAX):
        assert raw.answer().status == 200
    while (answer := raw.answer()).status == 200:
        pass
    assert (answer.status, answer.problem["code"]) == (429, "overloaded")
    assert raw.is_closed()


@pytest.mark.parametrize(
    ("topic", "behind", "status"),
    [
        ("no-request", b"\x00\r\n\r\n", 400),
        ("slow-body", CHUNKED, 408),
        pytest.param("no-chunk", CHUNKED + b"no number\r\n", 400, marks=pytest.mark.check),
        pytest.param(
            "large-head",
            b"GET / HTTP/1.1\r\nx: %s" % (b"a" * 2 * limits.HEAD_BYTES_MAX),
            431,
            marks=pytest.mark.check,
        ),
        pytest.param(
            "large-trailer",
            CHUNKED + b"0\r\na: %s" % (b"b" * 2 * limits.HEAD_BYTES_MAX),
            431,
            marks=pytest.mark.check,
        ),
        pytest.param("slow-head", b"GET / HTTP/1.1\r\n", 408, marks=pytest.mark.check),
    ],
)
def test_a_refusal_waits_for_the_answers_before_it(
    hasty: Node, connect: Connect, topic: str, behind: bytes, status: int
):
    raw, path, told = connect(hasty), f"/v1/topics/{topic}", {"content_type": "application/json"}
    assert raw.ask("PUT", path, b"{}", **told).status == 200
    raw.request("POST", f"{path}/groups/g/receive", b'{"wait": 20}', **told)
    until_waiting(hasty, 1)
    raw.send(behind)
    for _ in range(2 if status == 408 else 0):  # idle for longer than a head or body may take
        assert connect(hasty).is_closed()
    assert connect(hasty).ask("POST", f"{path}/messages", b'{"body": "one"}', **told).status < 300
    first, second = raw.answer(), raw.answer()
    assert (first.status, len(json.loads(first.body)["messages"])) == (200, 1)
    assert (second.status, second.problem["code"]) == (status, "invalid_request")
    assert raw.is_closed()


def test_a_refusal_is_not_written_into_an_answer(patient: Node, connect: Connect):
    raw = connect(patient)
    raw.request("GET", "/test/streamed?pieces=200")
    raw.socket.recv(1, socket.MSG_PEEK)  # it has begun, and cannot end before it is read
    raw.send(b"\x00\r\n\r\n")
    assert connect(patient).ask("GET", "/health/live").status == 200
    assert raw.answer().body == bytes(200 * PIECE)
    assert raw.answer().status == 400
    assert raw.is_closed()


def test_a_request_has_one_answer(patient: Node, connect: Connect):
    raw = connect(patient)
    raw.send(CHUNKED.replace(b"/test/count", b"/nowhere"))
    assert raw.answer().status == 404
    raw.send(b"no number\r\n")
    assert raw.rest() == b""


def test_what_is_not_http_is_told_so(patient: Node, connect: Connect):
    raw = connect(patient)
    raw.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
    assert raw.answer().status == 400
    assert raw.is_closed()


def test_an_offer_of_another_protocol_is_passed_over(patient: Node, connect: Connect):
    raw = connect(patient)
    told = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMAAABk"}
    for _ in range(2):
        answer = raw.ask("POST", "/test/count", b"abc", **told)
        assert (answer.status, answer.body) == (200, b"3")
    assert raw.ask("GET", "/health/live", b"", **told).status == 200
    assert raw.ask("POST", "/test/count", b"abcd").body == b"4"


def test_a_node_is_no_proxy(patient: Node, connect: Connect):
    raw = connect(patient)
    raw.send(b"CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\n\r\n")
    assert raw.answer().status == 400


# -- compression -----------------------------------------------------------------------------------


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("zstd", zstd)])
def test_compressed_bodies_are_taken_up_to_the_limit(
    patient: Node, connect: Connect, name: str, pack: Callable[[bytes], bytes]
):
    raw = connect(patient)
    for size in (0, 1, 1_000_000, LIMIT):
        answer = raw.ask("POST", "/test/count", pack(bytes(size)), content_encoding=name)
        assert (answer.status, answer.body) == (200, str(size).encode())
    for size in (LIMIT + 1, 100 * LIMIT):
        answer = raw.ask("POST", "/test/count", pack(bytes(size)), content_encoding=name)
        assert (answer.status, answer.problem["code"]) == (413, "message_too_large")


def test_gzip_may_have_several_members(patient: Node, connect: Connect):
    body = gzip.compress(b"abc") + gzip.compress(b"de")
    answer = connect(patient).ask("POST", "/test/count", body, content_encoding="gzip")
    assert answer.body == b"5"


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("zstd", zstd)])
def test_compressed_bodies_may_have_many_parts(
    patient: Node, connect: Connect, name: str, pack: Callable[[bytes], bytes]
):
    parts = [b"", b"abc", random.Random(1).randbytes(100_000), bytes(900_000), b"", b"de"]
    body = b"".join(map(pack, parts)) + pack(b"x") * 1_000 + pack(b"") * 1_000
    answer = connect(patient).ask("POST", "/test/count", body, content_encoding=name)
    assert answer.body == b"1001005"


def test_gzip_may_not_have_any_number_of_members(patient: Node, connect: Connect):
    raw, empty = connect(patient), gzip.compress(b"")
    body = empty * limits.GZIP_MEMBERS_MAX
    assert raw.ask("POST", "/test/count", body, content_encoding="gzip").body == b"0"
    answer = raw.ask("POST", "/test/count", body + empty, content_encoding="gzip")
    assert (answer.status, answer.problem["code"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("gzip", b"not gzip"),
        ("gzip", gzip.compress(bytes(1000))[:-9]),
        ("gzip", gzip.compress(b"abc") + b"rubbish"),
        ("zstd", b"not zstd"),
        ("zstd", zstd(bytes(range(256)) * 99)[:-9]),
        ("deflate", zlib.compress(b"abc")),
        ("gzip, gzip", gzip.compress(gzip.compress(b"abc"))),
    ],
    ids=["no gzip", "no end", "rubbish after", "no zstd", "no end of zstd", "deflate", "twice"],
)
def test_bodies_that_cannot_be_unpacked_are_refused(
    patient: Node, connect: Connect, name: str, body: bytes
):
    answer = connect(patient).ask("POST", "/test/count", body, content_encoding=name)
    assert (answer.status, answer.problem["code"]) == (400, "invalid_request")


# -- connections and memory ------------------------------------------------------------------------


def test_too_many_connections_are_told_to_come_back(tmp_path: Path, connect: Connect):
    with start_node(tmp_path, env=SMALL) as node:
        inside = [connect(node) for _ in range(4)]
        assert [raw.ask("GET", "/health/live").status for raw in inside] == [200] * 4
        outside = connect(node)
        answer = outside.answer()
        assert (answer.status, answer.problem["retryable"]) == (503, True)
        assert outside.is_closed()
        inside[0].close()
        assert until_admitted(node, connect)


def until_admitted(node: Node, connect: Connect) -> bool:
    for _ in range(200):
        raw = connect(node)
        try:
            if raw.ask("GET", "/health/live").status == 200:
                return True
        except ConnectionError:
            pass
        raw.close()
    return False


def test_one_address_may_have_only_its_share(tmp_path: Path, connect: Connect):
    with start_node(tmp_path, env={"QUIVER_BOUNDS_CONNECTIONS_PER_PEER": "2"}) as node:
        inside = [connect(node) for _ in range(2)]
        assert [raw.ask("GET", "/health/live").status for raw in inside] == [200] * 2
        assert connect(node).answer().status == 503
        with socket.socket() as other:
            other.bind(("127.0.0.2", 0))
            other.connect(("127.0.0.1", node.port))
            other.sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert other.recv(15) == b"HTTP/1.1 200 OK"


def test_bodies_share_a_bound(small: Node, connect: Connect):
    first, second = connect(small), connect(small)
    first.send(b"POST /test/count HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900000\r\n\r\n")
    assert second.ask("POST", "/test/count", bytes(200_000)).body == b"200000", "only announced"
    first.send(bytes(899_999))
    while (answer := second.ask("POST", "/test/count", bytes(200_000))).status == 200:
        pass
    assert (answer.status, answer.problem["code"]) == (429, "overloaded")
    assert answer.headers["retry-after"] == "1"
    free = bytes(limits.BODY_FREE_BYTES)
    assert second.ask("POST", "/test/count", free).status == 200, "acks get through"
    first.send(b"x")
    assert first.answer().body == b"900000"
    assert second.ask("POST", "/test/count", bytes(200_000)).body == b"200000"


def test_answers_that_nobody_reads_count_too(small: Node, connect: Connect):
    reader, sender = connect(small), connect(small)
    reader.request("GET", "/test/large?bytes=20000000")
    while (answer := sender.ask("POST", "/test/count", bytes(100_000))).status == 200:
        pass
    assert (answer.status, answer.problem["code"]) == (429, "overloaded")
    assert len(reader.answer().body) == 20_000_000
    while sender.ask("POST", "/test/count", bytes(100_000)).status == 429:
        pass


LARGE = [
    ("POST", "/v1/topics/t/read", {}),
    ("POST", "/v1/topics/t/groups/g/receive", {"wait": 20}),
    ("POST", "/v1/topics/t/groups/g/members/m/fetch", {"positions": {}}),
    ("POST", "/v1/sql", {"query": "select 1"}),
    ("GET", "/v1/ledger", None),
    ("GET", "/v1/messages/x/trace", None),
    ("GET", "/v1/overview", None),
    ("GET", "/v1/topics", None),
    ("GET", "/v1/topics/t/segments", None),
]
SMALL_ANSWERS = [
    ("POST", "/v1/topics/t/messages", {"body": "x"}, 200),
    ("POST", "/v1/settle", {"action": "ack", "receipts": ["x"]}, 409),
    ("GET", "/v1/topics/t", None, 200),
    ("GET", "/health/ready", None, 200),
    ("GET", "/metrics", None, 200),
]


def ask_json(raw: Raw, method: str, path: str, body: Any, **headers: str) -> Answer:
    data = b"" if body is None else json.dumps(body).encode()
    return raw.ask(method, path, data, content_type="application/json", **headers)


def test_no_large_answer_is_begun_while_memory_is_full(small: Node, connect: Connect):
    reader, asker = connect(small), connect(small)
    assert ask_json(asker, "PUT", "/v1/topics/t", {}).status == 200
    reader.request("GET", "/test/large?bytes=20000000")
    while asker.ask("POST", "/test/count", bytes(100_000)).status == 200:
        pass
    for method, path, body in LARGE:
        answer = ask_json(asker, method, path, body)
        assert (path, answer.status) == (path, 429)
        assert answer.problem["code"] == "overloaded"
    for method, path, body, status in SMALL_ANSWERS:
        assert (path, ask_json(asker, method, path, body).status) == (path, status)
    target = {"x_amz_target": "AmazonSQS.ReceiveMessage"}
    receive = "/", {"QueueUrl": "http://localhost/000000000000/t"}
    answer = ask_json(asker, "POST", *receive, **target)
    assert (answer.status, b"ServiceUnavailable" in answer.body) == (503, True)
    assert len(reader.answer().body) == 20_000_000
    while ask_json(asker, "POST", "/v1/topics/t/read", {}).status == 429:
        pass
    assert ask_json(asker, "POST", *receive, **target).status == 200


def silent(node: Node, path: str, body: Any) -> socket.socket:
    """A client that asks, and reads nothing of the answer so far."""
    data = json.dumps(body).encode()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.settimeout(PATIENCE_SECONDS)
    client.connect(("127.0.0.1", node.port))
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n"
    client.sendall(head.encode() + data)
    return client


@pytest.mark.parametrize("verb", ["read", "receive"])
def test_large_answers_that_are_asked_for_at_once_share_the_bound(
    tmp_path: Path, connect: Connect, verb: str
):
    env = {"QUIVER_BOUNDS_IN_FLIGHT_BYTES": str(limits.MIB)}
    with start_node(tmp_path, env=env) as node, ExitStack() as clients:
        raw = connect(node)
        ask_json(raw, "PUT", "/v1/topics/t", {"retention": "7d"})
        for _ in range(8):  # together more than sockets have room for
            assert (
                ask_json(raw, "POST", "/v1/topics/t/messages", {"body": "x" * 900_000}).status
                == 200
            )
        asks = [("/v1/topics/t/read", {"limit": 8})] * 40
        if verb == "receive":
            # After a refusal they wait: what it had is given back, and that is not waited for.
            body = {"max_messages": 8, "wait": PATIENCE_SECONDS}
            asks = [(f"/v1/topics/t/groups/g{n}/receive", body) for n in range(40)]
        asked = [clients.enter_context(silent(node, *ask)) for ask in asks]
        told = [client.recv(12, socket.MSG_WAITALL)[-3:] for client in asked]
        assert set(told) == {b"200", b"429"}
        assert told.count(b"200") <= limits.ANSWERS_MADE_MAX
        for client in asked:
            client.close()
        refused = asks[told.index(b"429")]  # what it had was given back
        while (answer := ask_json(raw, "POST", *refused)).status == 429:
            pass
        assert len(json.loads(answer.body)["messages"]) == 8


def test_bombs_do_not_fill_the_memory(tmp_path: Path, connect: Connect):
    bombs = [("zstd", zstd(bytes(1_000_000_000))), ("gzip", gzip.compress(bytes(200_000_000), 1))]
    with start_node(tmp_path, module="tests.server.testing_node") as node:
        clients = [connect(node) for _ in range(16)]
        for client in clients:
            for name, bomb in bombs:
                client.request("POST", "/test/count", bomb, content_encoding=name)
        for client in clients:
            assert [client.answer().status for _ in bombs] == [413, 413]
        status = Path(f"/proc/{node.pid}/status").read_text()
        peak_kib = next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
        assert int(peak_kib) < 400_000

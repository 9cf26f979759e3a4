"""The Host header, as RFC 9112, section 3.2, has it: one, and a valid one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.nodes import Node, start_node
from tests.server.raw import Answer, Raw

PATHS = ["/health/live", "/v1/topics", "/?Action=ListQueues", "/metrics"]  # one of each door


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with start_node(Path(tmp_path_factory.mktemp("node"))) as started:
        yield started


def told(node: Node, *lines: str, version: str = "1.1", path: str = "/health/live") -> Answer:
    head = "\r\n".join([f"GET {path} HTTP/{version}", *lines, "", ""])
    with Raw(node.port) as raw:
        raw.send(head.encode("latin-1"))
        return raw.answer()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Host: localhost", "Host: localhost"),
        ("Host: localhost", "X: y", "host: 127.0.0.1"),
        ("Host: localhost", "Upgrade: h2c", "Connection: Upgrade", "Host: localhost"),
    ],
    ids=["none", "twice", "two", "two, and an offer"],
)
def test_a_request_that_does_not_have_one_host_is_refused(
    node: Node, path: str, lines: tuple[str, ...]
):
    answer = told(node, *lines, path=path)
    assert (answer.status, answer.problem["code"]) == (400, "invalid_request")
    assert "Host header" in answer.problem["title"]


@pytest.mark.parametrize(
    "host",
    ["localhost, localhost", "local host", "u@localhost", "localhost/x", "localhost:x", "[::1", "a:1:2",
     "::1", "%zz", "http://localhost", "caf\xe9", "localhost#"],
)  # fmt: skip
def test_what_is_no_host_is_refused(node: Node, host: str):
    answer = told(node, f"Host: {host}")
    assert (answer.status, answer.problem["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("host", ["localhost", "localhost:", "127.0.0.1:80", "[::1]:7070"])
def test_a_valid_one_is_served(node: Node, host: str):
    assert told(node, f"Host: {host}").status == 200


def test_http_1_0_may_leave_it_out(node: Node):
    assert told(node, version="1.0").status == 200
    assert told(node, "Host: localhost", version="1.0").status == 200
    assert told(node, "Host: localhost", "Host: localhost", version="1.0").status == 400


def test_the_next_request_of_the_connection_is_served(node: Node):
    with Raw(node.port) as raw:
        raw.send(b"GET /health/live HTTP/1.1\r\n\r\n")
        assert raw.answer().status == 400
        assert raw.ask("GET", "/health/live").status == 200

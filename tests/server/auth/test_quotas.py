"""Quotas of a real node: who asks too often is told when to come again; others are not affected."""

import json
import select
import socket

import pytest

from quiver.server.auth.access import AccessEntry
from tests.server.auth.callers import TOPIC, Guarded


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    started = Guarded(
        tmp_path_factory.mktemp("node"),
        {
            "admin": AccessEntry(allow=("*:*",)),
            "few": AccessEntry(allow=("*:*",), requests_per_second=0.02),
            "small": AccessEntry(allow=("*:*",), bytes_per_second=1_000),
            "patient": AccessEntry(allow=("*:*",), long_polls=2),
        },
    )
    assert started("PUT", f"/v1/topics/{TOPIC}", {}, who="admin").status == 200
    yield started
    started.close()


def test_requests(guarded):
    assert guarded("GET", "/v1", who="few").status == 200
    answer = guarded("GET", "/v1", who="few")
    assert (answer.status, answer.json["code"], answer.json["retryable"]) == (
        429,
        "quota_exceeded",
        True,
    )
    assert 40 <= int(answer.headers["retry-after"]) <= 50
    assert guarded("GET", "/v1", who="admin").status == 200


def test_bytes_both_ways(guarded):
    path = f"/v1/topics/{TOPIC}/messages"
    assert guarded("POST", path, {"body": "x" * 100_000}, who="small").status == 200
    answer = guarded("GET", "/v1", who="small")
    assert (answer.status, answer.json["code"]) == (429, "quota_exceeded")
    assert 90 <= int(answer.headers["retry-after"]) <= 100


def test_receives_that_wait(guarded):
    empty = "/v1/topics/empty/groups/g/receive"
    assert guarded("PUT", "/v1/topics/empty", {}, who="admin").status == 200
    asking = [ask(guarded, empty, {"wait": 60}) for _ in range(3)]
    try:
        (refused,), _, _ = select.select(asking, [], [], 30)  # one of them: the others wait
        assert refused.recv(10_000).startswith(b"HTTP/1.1 429 ")
        assert guarded("POST", empty, {"wait": 0}, who="patient").status == 200
        assert guarded("POST", empty, {"wait": 0.01}, who="patient").status == 429
        assert guarded("POST", empty, {"wait": 0.01}, who="admin").status == 200
    finally:
        for sock in asking:
            sock.close()
    for _ in range(1_000):  # until the node has noticed that they have gone
        if guarded("POST", empty, {"wait": 0.01}, who="patient").status == 200:
            return
    pytest.fail("who has gone still waits")


def ask(guarded, path, body):
    """Send a request and do not wait for its answer."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {guarded.callers['patient'].token}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    sock = socket.create_connection(("127.0.0.1", guarded.node.port), timeout=30)
    sock.sendall(head.encode() + data)
    return sock

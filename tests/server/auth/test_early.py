"""Strangers are sent away before their body is read, and cost next to nothing."""

import gzip
import socket

from tests.server.auth.callers import TOPIC, Answer, Guarded
from tests.server.auth.test_sqs_matrix import code_of, message_of
from tests.unit.server.auth.requests import changed, signed


def answer_to_head(guarded: Guarded, head: str) -> bytes:
    """What comes back when a body was announced and never sent."""
    with socket.create_connection(("127.0.0.1", guarded.node.port), timeout=30) as sock:
        sock.sendall(f"{head}\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n".encode())
        return sock.recv(100_000)


def test_nobody_waits_for_the_body_of_a_stranger(guarded):
    path = f"/v1/topics/{TOPIC}/batches"
    unknown = f"Authorization: Bearer {guarded.callers['unknown'].token}"
    nobody = f"Authorization: Bearer {guarded.callers['nobody'].token}"
    signed = (
        "Authorization: AWS4-HMAC-SHA256 Credential=NOBODY/20260101/us-east-1/sqs/aws4_request, "
        f"SignedHeaders=host, Signature={'0' * 64}"
    )
    for head, status in (
        (f"POST {path} HTTP/1.1", 401),
        (f"POST {path} HTTP/1.1\r\n{unknown}", 401),
        (f"POST {path} HTTP/1.1\r\n{nobody}", 403),
        (f"POST /v1/transactions HTTP/1.1\r\n{nobody}", 403),
        ("POST / HTTP/1.1\r\nX-Amz-Target: AmazonSQS.SendMessage", 403),
        (f"POST / HTTP/1.1\r\n{signed}", 403),
    ):
        assert answer_to_head(guarded, head).startswith(f"HTTP/1.1 {status} ".encode())


def ask_packed(guarded: Guarded, body: bytes, signature: bytes = b"") -> Answer:
    """A request to SQS whose body is said to be gzip, signed as it is sent."""
    headers, _ = message_of("json", "ListQueues", {})
    headers["Content-Encoding"] = "gzip"
    url = f"http://127.0.0.1:{guarded.node.port}/"
    scope = signed(guarded.callers["admin"].key, body, url=url, headers=headers)
    if signature:
        scope = changed(scope, "authorization", lambda value: value[: -len(signature)] + signature)
    given = {name.decode(): value.decode() for name, value in scope["headers"]}
    return guarded.send("POST", "/", body, given)


def test_nothing_is_unpacked_before_its_signature_is_right(guarded):
    wrong = ask_packed(guarded, b"not gzip", b"0" * 64)
    assert (wrong.status, code_of(wrong)) == (403, "SignatureDoesNotMatch")
    rubbish = ask_packed(guarded, b"not gzip")
    assert (rubbish.status, code_of(rubbish)) == (400, "InvalidParameterValue")
    assert ask_packed(guarded, gzip.compress(b"{}")).status == 200

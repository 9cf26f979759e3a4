"""Strangers are sent away before their body is read, and cost next to nothing."""

import socket

from tests.server.auth.callers import TOPIC, Guarded


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
        ("POST / HTTP/1.1\r\nX-Amz-Target: AmazonSQS.SendMessage", 403),
        (f"POST / HTTP/1.1\r\n{signed}", 403),
    ):
        assert answer_to_head(guarded, head).startswith(f"HTTP/1.1 {status} ".encode())

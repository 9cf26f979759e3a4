"""Secrets go in by every way there is, and come out nowhere: not in logs, metrics or refusals."""

import base64
import json
import signal
import socket

import pytest

from tests.server.auth.callers import TOPIC, Guarded, rules
from tests.server.auth.test_sqs_matrix import ON_QUEUE, ask, message_of
from tests.unit.server.auth.requests import changed

BIRD = "canary5ecret"  # part of everything that nobody must see


@pytest.fixture
def guarded(tmp_path):
    (tmp_path / "node.toml").write_text("[log]\nlevel = 'debug'\n")
    started = Guarded(tmp_path, rules(), "--config", str(tmp_path / "node.toml"))
    assert started("PUT", f"/v1/topics/{TOPIC}", {}, who="admin").status == 200
    yield started
    started.close()


def refused_credentials(guarded):
    """Requests whose credentials are refused, with something secret in each."""
    bird64 = base64.b64encode(f"admin:{BIRD}".encode()).decode()
    tried = [
        {"Authorization": BIRD},
        {"Authorization": f"Basic {bird64}"},
        {"Authorization": f"Bearer {BIRD}"},
        {"Authorization": f"Bearer qvt_0123456789abcdef_{BIRD:x<43}"},
        {"Authorization": f"AWS4-HMAC-SHA256 Credential={BIRD}/20260101/a/sqs/aws4_request, "
                          f"SignedHeaders=host, Signature={BIRD}"},
        {"Cookie": f"session={BIRD}"},
        {"X-Api-Key": BIRD, "Proxy-Authorization": BIRD},
    ]  # fmt: skip
    for headers in tried:
        for method, path in (("GET", f"/v1/topics?token={BIRD}"), ("GET", f"/metrics?password={BIRD}"),
                             ("POST", f"/?Action=ListQueues&Secret={BIRD}"),
                             ("POST", f"/v1/topics/{TOPIC}/messages?api_key={BIRD}")):  # fmt: skip
            yield guarded.send(method, path, json.dumps({"body": BIRD}).encode(), headers)


def refused_signatures(guarded):
    parameters = {**ON_QUEUE, "MessageBody": BIRD}
    for protocol in ("json", "query"):
        for name, value in (
            ("authorization", lambda was: was[:-4] + b"0000"),
            (
                "authorization",
                lambda was: was.replace(b"Signature=", b"Signature=" + BIRD.encode()),
            ),
            ("x-amz-date", lambda was: BIRD.encode()),
        ):
            yield ask(
                guarded, guarded.callers["admin"], protocol, "SendMessage", parameters,
                lambda scope, name=name, value=value: changed(scope, name, value),
            )  # fmt: skip
        headers, body = message_of(protocol, "SendMessage", parameters)
        yield guarded.send("POST", "/", body, {**headers, "X-Amz-Security-Token": BIRD})


def show_credentials(guarded):
    """Nothing of what is refused is repeated."""
    answers = [*refused_credentials(guarded), *refused_signatures(guarded)]
    assert {answer.status for answer in answers} <= {401, 403, 404}
    for answer in answers:
        assert BIRD.encode() not in answer.body
        assert BIRD not in str(answer.headers)


def send_things(guarded):
    """Messages, and bodies that are no messages, of those who may send."""
    message = {"body": BIRD, "key": BIRD, "headers": {"x": BIRD}, "dedup_id": BIRD}
    path = f"/v1/topics/{TOPIC}/messages"
    assert guarded("POST", path, message, who="admin").status == 200
    for wrong in ({"body": BIRD, BIRD: 1}, {"body": BIRD, "priority": BIRD}, [BIRD], BIRD):
        assert guarded("POST", path, wrong, who="admin").status == 400
    bearer = {"Authorization": f"Bearer {guarded.callers['admin'].token}"}
    for kind in ("application/json", "application/vnd.apache.arrow.stream", "text/plain"):
        headers = {**bearer, "Content-Type": kind}
        for data in (BIRD.encode(), b"\xff" + BIRD.encode(), b"{" + BIRD.encode() * 10_000):
            assert guarded.send("POST", f"/v1/topics/{TOPIC}/batches", data, headers).status == 400
    headers = {**bearer, "Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert guarded.send("POST", path, BIRD.encode(), headers).status == 400
    admin = guarded.callers["admin"]
    sent = {**ON_QUEUE, "MessageBody": BIRD}
    attribute = {"MessageAttributes": {"x": {"DataType": "String", "StringValue": BIRD}}}
    assert ask(guarded, admin, "json", "SendMessage", {**sent, **attribute}).status == 200
    assert ask(guarded, admin, "query", "SendMessage", sent).status == 200
    delete = {**ON_QUEUE, "ReceiptHandle": BIRD}
    assert ask(guarded, admin, "json", "DeleteMessage", delete).status == 404
    reason = {"action": "nack", "receipts": [BIRD], "reason": BIRD}
    assert guarded("POST", "/v1/settle", reason, who="admin").status == 409
    question = {"query": f"select '{BIRD}' from nowhere"}
    assert guarded("POST", "/v1/sql", question, who="admin").status == 404


def send_what_is_no_http(guarded):
    for data in (BIRD.encode() * 10, f"GET /{' '}{BIRD} HTTP/9\r\nX: {BIRD}\r\n\r\n".encode()):
        with socket.create_connection(("127.0.0.1", guarded.node.port), timeout=30) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            assert BIRD.encode() not in sock.recv(100_000)


def break_the_access_file(guarded):
    good = guarded.path.read_text()
    for wrong in (f"secret = '{BIRD}'", f"[principals.ann]\nkeys = [{{id = '{BIRD}', secret = '{BIRD}'}}]",
                  f"[principals.ann]\nallow = ['send:x']\n{BIRD}", f"principals = '{BIRD}"):  # fmt: skip
        guarded.path.write_text(wrong)
        guarded.node.signal(signal.SIGHUP)
        guarded.node.logged("kept what was read before")
    guarded.path.write_text(good)
    guarded.node.signal(signal.SIGHUP)
    guarded.node.logged("access read")


def test_secrets_go_in_by_every_way_and_come_out_nowhere(guarded):
    show_credentials(guarded)
    send_things(guarded)
    send_what_is_no_http(guarded)
    break_the_access_file(guarded)
    metrics = guarded("GET", "/metrics", who="admin")
    assert metrics.status == 200
    guarded.node.stop()
    told = guarded.log()
    assert "credentials refused" in told
    assert "'path': '/v1/topics'" in told, "every request is logged here"
    secrets = [BIRD, *(each.token.split("_", 2)[2] for each in guarded.callers.values())]
    secrets += [each.key.secret for each in guarded.callers.values()]
    for secret in secrets:
        assert secret not in told
        assert secret.encode() not in metrics.body

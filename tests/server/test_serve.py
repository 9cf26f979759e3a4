"""A node starts, says so, serves, and ends: in order, at once, or because its disk failed."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import quiver
from quiver.server import logs, systemd
from tests.server.nodes import ROOT, Node, start_node
from tests.server.raw import Raw

pytestmark = pytest.mark.process
TESTING = "tests.server.testing_node"
COMMAND = [sys.executable, "-m", "quiver.cli", "serve"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node for all who only ask."""
    path = tmp_path_factory.mktemp("shared")
    with start_node(path, env={"QUIVER_LOG_LEVEL": "debug"}, module=TESTING) as started:
        yield started


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["forked", "fresh"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    """A node with the routes of `testing_node` and a topic "t"."""
    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("t")
    env = {"QUIVER_LOG_LEVEL": "debug", "QUIVER_BOUNDS_DRAIN_SECONDS": "20"}
    with start_node(tmp_path, env=env, module=TESTING, fresh=request.param) as started:
        yield started


def serve(*options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A node that does not get far."""
    return subprocess.run(
        [*COMMAND, *options], env={**os.environ, **env}, cwd=ROOT, timeout=60, check=False,
        capture_output=True, text=True,
    )  # fmt: skip


def test_who_asks_for_a_head_gets_it(shared: Node):
    with Raw(shared.port) as raw:
        raw.request("HEAD", "/health/live")
        assert raw.socket.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert raw.ask("GET", "/health/live").body == b"ok\n"


# -- starting --------------------------------------------------------------------------------------


def test_a_node_says_where_it_listens_and_ends_in_order(tmp_path: Path):
    with start_node(tmp_path, fresh=True) as node:
        assert node.lines[0]["event"] == "listening"
        assert node.lines[0]["url"] == node.url
        assert node.lines[0]["pid"] == node.pid
        with Raw(node.port) as raw:
            assert raw.ask("GET", "/health/live").body == b"ok\n"
            assert raw.ask("GET", "/health/ready").body == b"ok\n"
        assert node.stop() == 0
        assert [line["event"] for line in node.lines] == ["listening", "stopping", "stopped"]


def test_what_was_sent_is_there_after_a_restart(node: Node):
    with Raw(node.port) as raw:
        assert raw.ask("POST", "/test/send", b"one").body == b"sent"
    node.stop()
    node.restart()
    with Raw(node.port) as raw:
        assert raw.ask("POST", "/test/send", b"two").body == b"sent"
        node.kill()
    node.restart()
    with Raw(node.port) as raw:
        assert raw.ask("GET", "/test/receive").body == b"one:1"
        assert raw.ask("GET", "/test/receive").body == b"two:1"


def test_an_address_in_use_is_a_sentence(shared: Node, tmp_path: Path):
    done = serve("--data", str(tmp_path / "other"), "--listen", f"127.0.0.1:{shared.port}")
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"quiver: cannot listen on 127.0.0.1:{shared.port}: address already"
    )
    assert len(done.stderr.splitlines()) == 1


def test_a_directory_in_use_is_a_sentence(shared: Node):
    done = serve("--data", str(shared.data), "--listen", "127.0.0.1:0")
    assert done.returncode == 4
    assert "is in use" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_other_machines_are_refused_without_credentials(tmp_path: Path):
    done = serve("--data", str(tmp_path / "data"), "--listen", "0.0.0.0:0")
    assert done.returncode == 2
    assert "--insecure" in done.stderr
    assert not (tmp_path / "data").exists()


def test_insecure_is_everybodys_own_decision(tmp_path: Path):
    with start_node(tmp_path, "--listen", "0.0.0.0:0", "--insecure") as node:
        assert node.lines[0]["open"] is True
        with Raw(node.port) as raw:
            assert raw.ask("GET", "/health/ready").status == 200


def test_a_wrong_configuration_is_a_sentence_with_its_file_and_key(tmp_path: Path):
    path = tmp_path / "node.toml"
    path.write_text("[bounds]\nidle_second = 3\n")
    done = serve("--config", str(path))
    assert done.returncode == 2
    assert done.stderr == (
        f"quiver: {path}: there is no key 'idle_second' in [bounds]; did you mean 'idle_seconds'?\n"
    )


def test_a_doctor_says_what_a_node_would_be_started_with(tmp_path: Path):
    path = tmp_path / "node.toml"
    path.write_text(f'data = "{tmp_path}/data"\nlisten = "127.0.0.1:7171"\nhosts = ["queue.lan"]\n')
    done = subprocess.run(
        [*COMMAND[:-1], "doctor", "--config", path, "--json"], cwd=ROOT, timeout=60, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == {
        "status": "healthy", "config": str(path), "listen": "127.0.0.1:7171",
        "data": f"{tmp_path}/data", "hosts": "localhost, queue.lan",
        "credentials": "everybody may do everything", "tls": "off", "durability": "disk",
    }  # fmt: skip
    assert not (tmp_path / "data").exists()


# -- ending ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_receives_that_wait_are_answered_empty_when_a_node_ends(node: Node, number: int):
    waiting = [Raw(node.port) for _ in range(20)]
    for raw in waiting:
        raw.request("GET", "/test/receive?wait=600")
    until_waiting(node, 20)
    node.signal(number)
    for raw in waiting:
        answer = raw.answer()
        assert (answer.status, answer.body) == (200, b"")
        assert answer.headers["connection"] == "close"
        assert raw.is_closed()
        raw.close()
    assert node.wait() == 0


def test_so_it_is_at_every_door(node: Node):
    with Raw(node.port) as native, Raw(node.port) as sqs:
        told = {"content_type": "application/json"}
        native.request("POST", "/v1/topics/t/groups/g/receive", b'{"wait": 300}', **told)
        target = {"x_amz_target": "AmazonSQS.ReceiveMessage"}
        url = f"{node.url}/000000000000/t"
        asked = json.dumps({"QueueUrl": url, "WaitTimeSeconds": 20}).encode()
        sqs.request("POST", "/", asked, **target)
        until_waiting(node, 2)
        node.signal(signal.SIGTERM)
        assert json.loads(native.answer().body)["messages"] == []
        assert json.loads(sqs.answer().body).get("Messages", []) == []
    assert node.wait() == 0
    assert "cut" not in [line["event"] for line in node.lines]


def until_waiting(node: Node, count: int) -> None:
    """Until so many connections are open, and their requests have been taken up."""
    with Raw(node.port) as raw:
        for _ in range(2_000):
            text = raw.ask("GET", "/metrics").body.decode()
            if f"quiver_connections {count + 1}.0" in text:
                return
    raise AssertionError("they did not come")


def test_what_never_finishes_is_cut_when_a_node_ends(tmp_path: Path):
    env = {"QUIVER_LOG_LEVEL": "debug", "QUIVER_BOUNDS_DRAIN_SECONDS": "1"}
    with (
        start_node(tmp_path, env=env, module=TESTING) as node,
        Raw(node.port) as raw,
        Raw(node.port) as idle,
    ):
        idle.ask("GET", "/health/live")
        raw.send(b"POST /test/count HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n")
        raw.send(b"expect: 100-continue\r\n\r\n")
        assert raw.answer().status == 100
        node.signal(signal.SIGTERM)
        assert idle.is_closed()
        assert node.wait() == 0
        assert raw.is_closed()
    assert [line["event"] for line in node.lines[-3:]] == ["cut", "request", "stopped"]
    assert node.lines[-3]["requests"] == 1


def test_a_node_that_ends_is_not_ready(node: Node):
    with Raw(node.port) as raw, Raw(node.port) as upload:
        upload.send(b"POST /test/count HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n")
        upload.send(b"expect: 100-continue\r\n\r\n")
        assert upload.answer().status == 100
        # Two requests at once: while the first waits, the connection stays, and so does its second.
        raw.send(
            b"GET /test/receive?wait=600 HTTP/1.1\r\nhost: localhost\r\n\r\n"
            b"GET /health/ready HTTP/1.1\r\nhost: localhost\r\n\r\n"
        )
        until_waiting(node, 2)
        node.signal(signal.SIGTERM)
        assert raw.answer().status == 200
        answer = raw.answer()
        assert (answer.status, answer.problem["detail"]) == (503, "the node is about to end")


def test_a_request_behind_another_is_finished_too_when_a_node_ends(node: Node):
    with Raw(node.port) as raw:
        raw.send(
            b"GET /test/receive?wait=600 HTTP/1.1\r\nhost: localhost\r\n\r\n"
            b"POST /test/count HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n"
            b"expect: 100-continue\r\n\r\n"
        )
        until_waiting(node, 1)
        node.signal(signal.SIGTERM)
        assert raw.answer().status == 200
        assert raw.answer().status == 100
        raw.send(b"abc")
        assert raw.answer().body == b"3"
    assert node.wait() == 0
    assert "cut" not in [line["event"] for line in node.lines]


def test_a_second_signal_ends_at_once(tmp_path: Path):
    env = {"QUIVER_BOUNDS_DRAIN_SECONDS": "600"}
    with start_node(tmp_path, env=env, module=TESTING) as node, Raw(node.port) as raw:
        raw.send(b"POST /test/count HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n")
        raw.send(b"expect: 100-continue\r\n\r\n")
        assert raw.answer().status == 100
        node.signal(signal.SIGTERM)
        node.logged("stopping")
        node.signal(signal.SIGTERM)
        assert node.wait() == 128 + signal.SIGTERM
        assert node.lines[-1]["event"] == "ended at once"


def test_a_failed_disk_ends_the_node_with_an_error(node: Node):
    with Raw(node.port) as raw:
        assert raw.ask("POST", "/test/break-disk").status == 200
        # Both at once: the connection may be closed as soon as there is nothing to answer.
        raw.send(
            b"POST /test/send HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\nlost"
            b"GET /health/ready HTTP/1.1\r\nhost: localhost\r\n\r\n"
        )
        answer, ready = raw.answer(), raw.answer()
        assert (answer.status, answer.problem["code"]) == (500, "storage_failed")
        assert (ready.status, ready.problem["code"]) == (503, "storage_failed")
    assert node.wait() == 1
    failed = next(line for line in node.lines if line["event"] == "queue failed")
    assert failed["level"] == "error"
    assert "Input/output error" in failed["reason"]


# -- clients that go away --------------------------------------------------------------------------


def test_nothing_is_leased_to_a_client_that_has_gone(node: Node):
    gone = [Raw(node.port) for _ in range(5)]
    for raw in gone:
        raw.request("GET", "/test/receive?wait=600")
    until_waiting(node, 5)
    for raw in gone:
        raw.close()
    until_waiting(node, 0)
    with Raw(node.port) as raw:
        assert raw.ask("POST", "/test/send", b"one").body == b"sent"
        assert raw.ask("GET", "/test/receive").body == b"one:1"


def test_nor_to_one_that_sent_another_request_behind(node: Node):
    with Raw(node.port) as raw:
        raw.send(
            b"GET /test/receive?wait=600 HTTP/1.1\r\nhost: localhost\r\n\r\n"
            b"GET /health/ready HTTP/1.1\r\nhost: localhost\r\n\r\n"
        )
        until_waiting(node, 1)
    until_waiting(node, 0)
    with Raw(node.port) as raw:
        assert raw.ask("POST", "/test/send", b"one").body == b"sent"
        assert raw.ask("GET", "/test/receive").body == b"one:1"


# -- requests in general ---------------------------------------------------------------------------


def test_every_answer_has_its_id_and_tells_browsers_to_be_careful(shared: Node):
    with Raw(shared.port) as raw:
        for path, status in (("/health/live", 200), ("/nowhere", 404), ("/test/broken", 500)):
            answer = raw.ask("GET", path)
            assert answer.status == status
            assert answer.headers["x-request-id"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert "server" not in answer.headers
        given = raw.ask("GET", "/health/live", x_request_id="mine-1")
        assert given.headers["x-request-id"] == "mine-1"
        strange = raw.ask("GET", "/health/live", x_request_id='"><script>')
        assert "script" not in strange.headers["x-request-id"]


def test_an_sdk_is_told_what_an_sdk_reads(shared: Node):
    with Raw(shared.port) as raw:
        answer = raw.ask("POST", "/", b"{}", x_amz_target="AmazonSQS.ListQueues")
        assert set(answer.headers) == {
            "date", "content-type", "content-length", "x-amzn-requestid", "x-content-type-options"
        }  # fmt: skip
        given = raw.ask(
            "POST", "/", b"{}", x_amz_target="AmazonSQS.ListQueues", x_request_id="mine"
        )
        assert given.headers["x-request-id"] == "mine"
        query = raw.ask("GET", "/?Action=ListQueues", x_amz_target="AmazonSQS.ListQueues")
        assert query.headers["x-frame-options"] == "deny"
        assert query.headers["x-amzn-requestid"] == query.headers["x-request-id"]


def test_a_bug_is_told_with_the_id_under_which_the_log_has_it(shared: Node):
    with Raw(shared.port) as raw:
        answer = raw.ask("GET", "/test/broken", x_request_id="find-me")
    assert (answer.status, answer.problem["code"]) == (500, "internal_error")
    assert "find-me" in answer.problem["detail"]
    assert "RuntimeError" not in answer.body.decode()
    line = shared.logged("bug", request="find-me")
    assert "RuntimeError: a bug" in line["trace"]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:7070", "[::1]:7070", "10.0.0.1"]
)
def test_a_node_may_be_called_by_address_or_localhost(shared: Node, host: str):
    with Raw(shared.port) as raw:
        assert raw.ask("GET", "/health/live", host=host).status == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", ""])
def test_but_not_by_a_name_that_it_does_not_know(shared: Node, host: str):
    with Raw(shared.port) as raw:
        answer = raw.ask("GET", "/health/live", host=host)
        assert (answer.status, answer.problem["code"]) == (403, "forbidden")
        assert "Host header" in answer.problem["title"]


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nowhere", 404), ("DELETE", "/health/live", 405)]
)
def test_what_is_not_there_is_named_so(shared: Node, method: str, path: str, status: int):
    with Raw(shared.port) as raw:
        answer = raw.ask(method, path)
    assert (answer.status, answer.problem["code"]) == (status, "invalid_request")
    assert answer.problem["title"] == "There is nothing at this path, or not with this method."


def test_names_can_be_added(tmp_path: Path):
    env = {"QUIVER_HOSTS": "queue.example,other"}
    with start_node(tmp_path, env=env) as node, Raw(node.port) as raw:
        assert raw.ask("GET", "/health/live", host="queue.example:7070").status == 200
        assert raw.ask("GET", "/health/live", host="Other").status == 200
        assert raw.ask("GET", "/health/live", host="third").status == 403


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://evil.example", 403), ("null", 403), ("http://203.0.113.5", 403),
     ("http://localhost:3000", 403), ("http://localhost:7070", 200), ("https://localhost:7070", 200)],
)  # fmt: skip
def test_pages_of_others_may_not_use_a_node(shared: Node, origin: str, status: int):
    with Raw(shared.port) as raw:
        answer = raw.ask("GET", "/health/live", host="localhost:7070", origin=origin)
        assert answer.status == status


@pytest.mark.parametrize(
    ("site", "status"),
    [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)],
)
def test_pictures_on_pages_of_others_neither(shared: Node, site: str, status: int):
    with Raw(shared.port) as raw:
        assert raw.ask("GET", "/health/live", sec_fetch_site=site).status == status


@pytest.mark.parametrize(
    "told",
    [
        {"sec_fetch_site": "none"},
        {"referer": "http://evil.example/"},
        {"user_agent": "Mozilla/5.0"},
    ],
    ids=lambda told: next(iter(told)),
)
def test_a_browser_changes_nothing_by_get(shared: Node, told: dict[str, str]):
    with Raw(shared.port) as raw:
        answer = raw.ask("GET", "/?Action=CreateQueue&QueueName=q", b"", **told)
        assert answer.status == 403
        assert b"AccessDenied" in answer.body
        assert raw.ask("GET", "/?Action=ListQueues", b"", **told).status == 200


def test_sqs_is_get_and_post(shared: Node):
    with Raw(shared.port) as raw:
        assert raw.ask("GET", "/?Action=CreateQueue&QueueName=by-get").status == 200
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
            assert raw.ask(method, "/?Action=CreateQueue&QueueName=q2").status == 405


def test_logs_have_no_secrets(node: Node):
    with Raw(node.port) as raw:
        raw.ask("POST", "/test/send", b"s3cret-body", authorization="Bearer s3cret-token")
        raw.ask("GET", "/test/receive?X-Amz-Signature=s3cret-signature", cookie="s3cret-cookie")
        raw.ask("GET", "/test/broken?token=s3cret-query", authorization="Basic s3cret-basic")
    node.stop()
    requests = [line for line in node.lines if line["event"] == "request"]
    assert [line["path"] for line in requests] == ["/test/send", "/test/receive", "/test/broken"]
    assert requests[0].keys() >= {"request", "method", "status", "client", "seconds", "level"}
    assert "s3cret" not in json.dumps(node.lines)


def test_logs_may_be_for_people(tmp_path: Path):
    done = subprocess.Popen(
        [*COMMAND, "--data", tmp_path / "data", "--listen", "127.0.0.1:0", "--log-format", "text"],
        cwd=ROOT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with done:
        assert done.stderr is not None
        line = done.stderr.readline()
        done.terminate()
    assert "listening  address=127.0.0.1:" in line


def test_headers_of_strangers_are_not_in_the_log(shared: Node):
    with Raw(shared.port) as raw:
        traced = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01", "tracestate": "CANARY=x"}
        assert raw.ask("GET", "/v1/topics", b"", **traced).status == 200
        assert raw.ask("GET", "/health/live").status == 200
    shared.logged("request", path="/health/live")
    assert "CANARY" not in str(shared.lines)


def test_a_path_makes_up_no_lines(caplog: pytest.LogCaptureFixture):
    logs.event("request", level=logging.WARNING, path="/a\n12:00:00 error   \x1b[31mfire")
    (record,) = caplog.records
    assert logs.Text().format(record).endswith(r"path=/a\n12:00:00 error   \x1b[31mfire")


def test_an_answer_that_is_being_read_is_sent_to_its_end(tmp_path: Path):
    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("t")
        queue.send_batch("t", [b"x" * 1_000_000] * 16)
    with start_node(tmp_path) as node, Raw(node.port) as raw:
        raw.request("POST", "/v1/topics/t/read", b'{"limit": 16}', content_type="application/json")
        assert raw.socket.recv(1, socket.MSG_PEEK) == b"H"
        node.signal(signal.SIGTERM)
        node.logged("stopping")
        assert len(json.loads(raw.answer().body)["messages"]) == 16
        assert node.wait() == 0


# -- systemd ---------------------------------------------------------------------------------------


def test_after_one_look_that_fails_two_are_left_before_systemd_acts():
    assert systemd.watchdog_seconds({"WATCHDOG_USEC": "60000000"}) == 15


def test_systemd_is_told_how_it_goes(tmp_path: Path):
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(30)
        env = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"}
        with start_node(tmp_path, env=env, fresh=True) as node:
            assert manager.recv(1000) == b"READY=1\nSTATUS=listening on 127.0.0.1:%d" % node.port
            assert manager.recv(1000) == b"WATCHDOG=1"
            assert manager.recv(1000) == b"WATCHDOG=1"
            node.signal(signal.SIGTERM)
            while (told := manager.recv(1000)) == b"WATCHDOG=1":
                pass
            assert told == b"STOPPING=1"
            assert node.wait() == 0

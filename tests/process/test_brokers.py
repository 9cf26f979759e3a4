"""The bench's own machinery: brokers start, end with all they started, or are said to be missing."""

import signal
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from bench.brokers import compare, process
from bench.brokers.lean import send_message
from bench.brokers.peer import Peer
from bench.brokers.process import Missing, Server
from bench.brokers.sqs import elasticmq, nothing
from bench.measure import Loop, Run, Target, taken

pytestmark = pytest.mark.process


def test_a_server_ends_with_all_that_it_started(tmp_path: Path) -> None:
    with Server(["sh", "-c", "sleep 60 & echo ready; wait"], tmp_path) as server:
        server.wait_for(lambda: "ready" in server.log, "sign of life")
        group = server._process.pid
        assert running(group) == 2
    until = time.monotonic() + 10
    while running(group) and time.monotonic() < until:
        time.sleep(0.01)  # a signal is sent, and acts when its process is scheduled
    assert running(group) == 0


def running(group: int) -> int:
    """How many processes of a group run; dead ones that nobody has looked after do not."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            state, _, of_group = path.read_text().rpartition(")")[2].split()[:3]
            count += int(of_group) == group and state != "Z"
    return count


def test_a_server_that_does_not_listen_to_sigterm_is_killed(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(process, "STOP_SECONDS_MAX", 0.2)
    with Server(["sh", "-c", "trap '' TERM; echo ready; sleep 60"], tmp_path) as server:
        server.wait_for(lambda: "ready" in server.log, "sign of life")
    assert server._process.returncode == -signal.SIGKILL


def test_a_server_that_ends_at_once_is_missing_with_what_it_said(tmp_path: Path) -> None:
    with (
        Server(["sh", "-c", "echo no such option; exit 3"], tmp_path) as server,
        pytest.raises(Missing, match="ended with 3: no such option"),
    ):
        server.wait_for_port(process.free_port())


def test_a_broker_that_is_not_there_is_skipped_with_the_reason(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("bench.brokers.java.FETCHED", tmp_path / "nothing")
    run = Run(tmp_path, quick=True)
    ours = Peer("ours", "", int, int, int, ("", "", ""))
    rows = list(compare._against(run, ours, "elasticmq", elasticmq, Target(">=", 2)))
    assert rows == []
    assert run.skipped == {
        "elasticmq": "its jars were not fetched: make brokers (needs mvn and Maven Central)"
    }


def test_what_is_sent_in_a_turn_is_taken_in_it() -> None:
    waiting = 0

    def send() -> int:
        nonlocal waiting
        waiting += 10
        return 10

    def take() -> int:
        nonlocal waiting
        taken = min(waiting, 7)
        waiting -= taken
        return taken

    sends, takes = compare._both_ways(Peer("", "", send, take, send, ("", "", "")))
    for _ in range(3):
        sent, _ = sends(0.001)
        taken, _ = takes(0.001)
        assert sent == taken
        assert waiting == 0


def test_what_a_loop_takes_was_sent_before_and_is_counted_once() -> None:
    there, taken_ = 0, 0

    def fill(count: int) -> None:
        nonlocal there
        there += count

    def work(count: int) -> None:
        nonlocal there, taken_
        assert count <= there
        there -= count
        taken_ += count

    side = taken(Loop("", fill, work, 100), 30)
    assert sum(side(60)[0] for _ in range(3)) == taken_ == 270  # it ends when too few are left


class Closing(BaseHTTPRequestHandler):
    """Closes after each answer, as moto does."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("Connection", "close")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


def test_the_lean_client_uses_a_connection_again_or_connects_anew(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Closing) as closing:
        Thread(target=closing.serve_forever, daemon=True).start()
        with nothing(tmp_path) as peer, send_message(closing.server_port, 3) as anew:
            assert peer.kept is not None
            with peer.kept(3) as again:
                for side in (again, anew):
                    assert min(side(0)[0], side(0.01)[0]) >= 3
        closing.shutdown()

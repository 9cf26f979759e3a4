"""`quiver serve` and `quiver doctor` on a directory whose last entry is of years to come."""

import pytest

from quiver.client.local import open_flows
from quiver.client.sync import Queue
from quiver.node.clock import SystemClock
from quiver.testing import VirtualClock
from tests.cli.program import Cli
from tests.server.nodes import start_node

TEN_YEARS_MS = 10 * 365 * 86_400_000


@pytest.fixture
def spoiled(cli: Cli) -> Cli:
    """A queue that was made while the clock was ten years ahead."""
    clock = VirtualClock(SystemClock().now_ms() + TEN_YEARS_MS)
    with Queue(*open_flows(cli.data, TEN_YEARS_MS, "disk", clock=clock)) as queue:
        queue.create_topic("t")
        queue.send("t", b"ahead")
    return cli


def test_serve_refuses_with_both_times_and_what_to_do(spoiled):
    ended = spoiled.run("serve", "--data", "data", "--listen", "127.0.0.1:0")
    assert ended.code == 4
    assert "the last entry of data is of " in ended.error
    assert "10.0 years earlier" in ended.error
    assert "quiver doctor data --accept-clock" in ended.error


def test_the_doctor_reports_it_and_sets_it_right(spoiled):
    found = spoiled.json("doctor", "data")
    assert found["status"] == "warnings"
    (problem,) = found["problems"]
    assert "10.0 years earlier" in problem["what"]
    assert "--accept-clock" in problem["todo"]
    assert b"years earlier" in spoiled("doctor", "data")
    ended = spoiled.run("doctor", "data", "--accept-clock", "--json")
    assert (ended.code, b'"healthy"' in ended.out) == (0, True)
    assert "follows this machine's clock" in ended.error
    assert spoiled.lines("receive", "t", "--group", "g")[0]["body"] == "ahead"
    assert spoiled.json("doctor", "data")["status"] == "healthy"


def test_a_node_that_is_told_to_sets_it_right_and_says_so(spoiled, tmp_path):
    with start_node(tmp_path, "--accept-clock") as node:
        (told,) = [line for line in node.lines if line["event"] == "clock jumped"]
        assert told["level"] == "warning"
        assert told["days"] < -3_600
    with start_node(tmp_path) as node:
        assert [line["event"] for line in node.lines] == ["listening"]

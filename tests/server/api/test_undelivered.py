"""Messages in an answer that nobody reads: they are given back, and no attempt is counted."""

import json
from pathlib import Path

import pytest

import quiver
from tests.server.nodes import start_node
from tests.server.raw import Raw
from tests.server.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.check]
COUNT, BODY_BYTES = 24, 1_000_000  # more than the system takes for a client that does not read


@pytest.mark.parametrize("begin", [None, 1])
def test_who_goes_before_all_of_an_answer_is_written_has_had_nothing(tmp_path: Path, begin):
    with start_node(tmp_path) as node, quiver.connect(f"quiver://127.0.0.1:{node.port}") as queue:
        queue.create_topic("t", max_attempts=1)
        queue.create_group("t", "g")
        for _ in range(COUNT):
            queue.send("t", b"x" * BODY_BYTES, durability="memory")
        wish = {"max_messages": COUNT, "lease": 600, "begin": begin}
        with Raw(node.port) as client:
            client.request("POST", "/v1/topics/t/groups/g/receive", json.dumps(wish).encode(),
                           content_type="application/json")  # fmt: skip
            assert client.socket.recv(1) == b"H"  # the answer is on its way
        until(lambda: queue.groups("t")["g"].in_flight == 0)
        assert queue.groups("t")["g"].released == COUNT
        got = queue.receive("t", "g", max_messages=COUNT)
        assert [one.attempt for one in got] == [1] * COUNT
        assert queue.stats("t.dlq").depth == 0

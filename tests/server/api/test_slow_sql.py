"""SQL that takes for ever holds up nobody, and ends with its client or its time."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import quiver
from quiver.client.moving import move
from quiver.client.questions import ask
from quiver.errors import LimitExceeded
from quiver.model.commands import Discard
from quiver.server.sql.questions import Questions
from tests.server.nodes import Node, start_node
from tests.server.raw import Raw

pytest.importorskip("duckdb")
FOR_EVER = "select count(*) from range(10000000) a, range(10000000) b where a.range <> b.range"
SLOW = "levenshtein(repeat('ab', 400), repeat(md5(\"offset\"::varchar), 25)) > 1"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("t")
        queue.create_group("t", "g")
        queue.send("t", "x")
    with start_node(tmp_path) as started:
        yield started


def ask_sql(node: Node, query: str) -> Raw:
    raw = Raw(node.port)
    body = json.dumps({"query": query}).encode()
    raw.request("POST", "/v1/sql", body, content_type="application/json")
    return raw


def test_slow_questions_hold_up_nobody_and_end_with_their_clients(node: Node):
    asking = [ask_sql(node, FOR_EVER) for _ in range(8)]
    with Raw(node.port) as raw:
        kind = {"content_type": "application/json"}
        got = raw.ask("POST", "/v1/topics/t/groups/g/receive", b"{}", **kind)
        assert len(json.loads(got.body)["messages"]) == 1
        assert raw.ask("GET", "/metrics").status == 200
    for one in asking:
        one.close()
    with ask_sql(node, "select 1 as one") as raw:  # they would have waited for each other
        assert json.loads(raw.answer().body) == {"rows": [{"one": 1}]}
    assert node.stop() == 0


def test_questions_and_conditions_are_ended_when_their_time_is_up(tmp_path: Path):
    async def tried() -> None:
        async with quiver.connect_async(tmp_path) as queue:
            await queue.create_topic("t")
            await queue.send_batch("t", ["x"] * 5_000)
            with pytest.raises(LimitExceeded, match="was ended"):
                await questions.answer(lambda sql: ask(queue._flows, FOR_EVER, sql=sql))
            with pytest.raises(LimitExceeded, match="was ended"):
                await questions.choose(lambda sql: move(queue._flows, "t", Discard, SLOW, sql=sql))
            few = '"offset" >= 4990'
            fine = patient.choose(lambda sql: move(queue._flows, "t", Discard, few, sql=sql))
            assert await fine == 10

    questions, patient = Questions(seconds=0.5), Questions()
    asyncio.run(tried())
    questions.close()
    patient.close()

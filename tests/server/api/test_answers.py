"""Answers that are large: how large they may be, and that they are counted while they are made."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import quiver
from quiver import limits
from quiver.server.app import make_app
from quiver.server.auth import Guard
from quiver.server.config import NodeBounds, NodeConfig
from quiver.server.context import Context
from quiver.server.metrics import Metrics
from quiver.server.traffic import Traffic

SQL = "/v1/sql"


def ask(path: Path, requests: list[tuple[str, Any]]) -> list[tuple[int, Any, int]]:
    """Status, JSON and the bytes in flight while it is sent, for each request; a topic `t` has 2 MB."""

    async def go() -> list[tuple[int, Any, int]]:
        traffic = Traffic(NodeBounds())
        async with quiver.connect_async(path) as queue:
            await queue.create_topic("t")
            await queue.send_batch("t", ["x" * 1_000_000] * 2)
            context = Context(queue, NodeConfig(), Guard(), Metrics())
            app = make_app(context, traffic)
            found = [await answer(app, traffic, *request) for request in requests]
            await asyncio.to_thread(context.questions.close)
        assert traffic.bytes == 0, "all is let go of in the end"
        return found

    return asyncio.run(go())


async def answer(app: Any, traffic: Traffic, path: str, body: Any) -> tuple[int, Any, int]:
    said: dict[str, Any] = {"body": b"", "held": 0}
    arriving = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Any:
        return arriving.pop() if arriving else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        said.update({"status": message["status"]} if "status" in message else {})
        said["body"] += message.get("body", b"")
        said["held"] = max(said["held"], traffic.bytes)

    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
             "root_path": "", "scheme": "http", "query_string": b"", "client": ("127.0.0.1", 1),
             "server": ("127.0.0.1", 7070), "http_version": "1.1", "extensions": {},
             "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
             }  # fmt: skip
    await app(scope, receive, send)
    return said["status"], json.loads(said["body"]), said["held"]


def test_an_answer_is_counted_until_it_is_given(tmp_path: Path):
    body = {"max_messages": 2}
    ((status, got, held),) = ask(tmp_path, [("/v1/topics/t/groups/g/receive", body)])
    assert (status, len(got["messages"])) == (200, 2)
    assert held > 2_000_000


def test_questions_have_answers_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "SQL_ANSWER_BYTES_MAX", 1_500_000)
    monkeypatch.setattr(limits, "API_ROWS_BYTES_MAX", 500_000)
    rows = (SQL, {"query": "select text from t"})
    row = (SQL, {"query": "select text from t limit 1"})
    few = (SQL, {"query": "select length(text) as n from t"})
    too_long, no_json, fine = ask(tmp_path, [rows, row, few])
    assert (too_long[0], too_long[1]["code"]) == (429, "limit_exceeded")
    assert "more than 1,500,000 bytes" in too_long[1]["detail"]
    assert "or for Arrow" in no_json[1]["detail"]
    assert fine[1] == {"rows": [{"n": 1_000_000}] * 2}


def test_duckdb_leaves_cores_and_memory_to_others(tmp_path: Path):
    names = "'threads', 'memory_limit', 'max_temp_directory_size'"
    query = f"select name, value from duckdb_settings() where name in ({names})"
    ((_, got, _),) = ask(tmp_path, [(SQL, {"query": query})])
    told = {row["name"]: row["value"] for row in got["rows"]}
    assert 1 <= int(told["threads"]) <= limits.SQL_THREADS_MAX
    assert told["memory_limit"] == "512.0 MiB"


def test_a_time_that_python_does_not_have_is_a_text_or_refused(tmp_path: Path):
    asked = [
        ("timestamp_ns '2020-01-01'", 200, "2020-01-01 00:00:00.000000000"),
        ("date '12345-01-01'", 200, "12345-01-01"),
        ("date '2020-01-01'", 200, "2020-01-01"),
        ("[timestamp_ns '2020-01-01 00:00:00.000000001']", 400, "cast it to VARCHAR"),
        ("{'a': date '12345-01-01'}", 400, "cast it to VARCHAR"),
    ]
    answers = ask(tmp_path, [(SQL, {"query": f"SELECT {value} AS v"}) for value, *_ in asked])
    for (_, status, expected), (got, body, _) in zip(asked, answers, strict=True):
        assert got == status
        assert expected in (body["rows"][0]["v"] if status == 200 else body["detail"])

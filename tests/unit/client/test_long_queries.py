"""A query that would take for ever ends when whoever waits for it has gone."""

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import perf_counter

import pyarrow as pa
import pytest

import quiver
from quiver.client.sql import Question, SqlSession

FOR_EVER = "select count(*) from range(1000000000000000) as r(i) where i % 7 = 3"


async def cancel_a_query(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with quiver.connect_async(path) as queue:
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        answer = Question.answer

        def answering(question: Question, bytes_max: int) -> pa.Table:
            loop.call_soon_threadsafe(asked.set)
            return answer(question, bytes_max)

        monkeypatch.setattr(Question, "answer", answering)
        asking = asyncio.create_task(queue.sql(FOR_EVER))
        await asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await queue.sql("select 1 as one")).to_pylist() == [{"one": 1}]


def test_a_cancelled_query_ends_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asyncio.run(cancel_a_query(tmp_path / "data", monkeypatch))
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def ask(session: SqlSession) -> None:
    with suppress(quiver.InvalidRequest, session.duckdb.Error):
        session.answer(FOR_EVER, 1_000)


@pytest.mark.parametrize("tries", [20, pytest.param(200, marks=pytest.mark.check)])
def test_a_query_that_just_begins_ends_with_its_session(tries):
    """DuckDB lets a query go on whose connection is closed while it begins: one of fifty did."""
    for at in range(tries):
        session = SqlSession()
        asking = Thread(target=ask, args=(session,))
        asking.start()
        until = perf_counter() + at / tries * 5e-3
        while perf_counter() < until:
            pass
        session.close()
        asking.join(30)
        assert not asking.is_alive()

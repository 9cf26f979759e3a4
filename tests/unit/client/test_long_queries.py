"""A query that would take for ever ends when whoever waits for it has gone."""

import asyncio
import tempfile
import threading
from pathlib import Path

import pytest

import quiver

FOR_EVER = "select count(*) from range(1000000000000000) as r(i) where i % 7 = 3"


async def until_asked() -> None:
    def asked() -> bool:
        return any(thread.name.startswith("quiver-sql") for thread in threading.enumerate())

    while not asked():  # noqa: ASYNC110  # there is no event for it
        await asyncio.sleep(0.01)


async def cancel_a_query(path: Path) -> None:
    async with quiver.connect_async(path) as queue:
        asking = asyncio.create_task(queue.sql(FOR_EVER))
        await until_asked()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await queue.sql("select 1 as one")).to_pylist() == [{"one": 1}]


def test_a_cancelled_query_ends_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asyncio.run(cancel_a_query(tmp_path / "data"))
    assert [path.name for path in tmp_path.iterdir()] == ["data"]

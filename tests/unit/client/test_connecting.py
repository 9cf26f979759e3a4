"""Queues that are opened, awaited or handed on in a way that cannot work."""

import asyncio
import copy
import pickle
from pathlib import Path

import pytest

import quiver


@pytest.mark.parametrize("make", [str, Path])
@pytest.mark.parametrize(
    "place", ["localhost:7070", "127.0.0.1:7070", "node-1.example.org:80", "[::1]:7070", "a:1,b:2"]
)
def test_an_address_without_its_scheme_makes_no_directory(tmp_path, monkeypatch, make, place):
    monkeypatch.chdir(tmp_path)
    for connect in (quiver.connect, quiver.connect_async):
        with pytest.raises(quiver.InvalidRequest) as error:
            connect(make(place))
        assert f"did you mean quiver://{place}?" in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_token_before_the_host_is_not_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(quiver.InvalidRequest) as error:
        quiver.connect("hunter2@localhost:7070")
    assert "hunter2" not in str(error.value)


def test_a_directory_that_is_there_may_be_called_like_a_host(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("localhost:7070").mkdir()
    with quiver.connect("localhost:7070") as queue:
        assert queue.topics() == []


def test_a_queue_that_is_awaited_says_how_it_is_opened(tmp_path):
    async def wrong() -> None:
        await quiver.connect_async(tmp_path)  # type: ignore[misc]  # the mistake

    with pytest.raises(TypeError, match=r"async with quiver\.connect_async"):
        asyncio.run(wrong())


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy])
def test_a_queue_for_another_process_says_that_each_connects(tmp_path, take):
    with (
        quiver.connect(tmp_path) as queue,
        pytest.raises(TypeError, match="connect in each process"),
    ):
        take(queue)
    with pytest.raises(TypeError, match="connect in each process"):
        take(quiver.connect_async(tmp_path))

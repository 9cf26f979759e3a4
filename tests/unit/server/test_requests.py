"""What holds for every request: who goes away in the moment in which work is done, and Host headers."""

import asyncio
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from quiver import limits
from quiver.server.config import NodeBounds
from quiver.server.metrics import Metrics
from quiver.server.requests import RequestMiddleware, until_gone
from quiver.server.traffic import Traffic


def wait(*, gone: bool, done: bool) -> tuple[str | None, list[str]]:
    """The result, and what was given back."""
    given: list[str] = []

    async def main() -> str | None:
        now = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, now.set)

        async def receive() -> dict[str, str]:
            await (now if gone else asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def work() -> str:
            await (now if done else asyncio.Event()).wait()
            return "a lease"

        request = Request({"type": "http"}, receive)
        try:
            return await until_gone(request, work(), given.append)
        except ClientDisconnect:
            return None

    return asyncio.run(main()), given


@pytest.mark.parametrize(("gone", "done", "expected"), [
    (False, True, ("a lease", [])),
    (True, False, (None, [])),
    (True, True, (None, ["a lease"])),
])  # fmt: skip
def test_what_nobody_waits_for_is_given_back(gone: bool, done: bool, expected: object):
    assert wait(gone=gone, done=done) == expected


def test_it_is_also_given_back_if_the_wait_itself_is_ended():
    given: list[str] = []

    async def main() -> None:
        now = asyncio.Event()

        async def receive() -> dict[str, str]:
            await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def work() -> str:
            await now.wait()
            return "a lease"

        waiting = asyncio.create_task(
            until_gone(Request({"type": "http"}, receive), work(), given.append)
        )
        await asyncio.sleep(0.01)
        now.set()
        await asyncio.sleep(0)  # the work is done, and nobody has been told
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert given == ["a lease"]


def asked_at(hosts: list[str]) -> tuple[list[int], RequestMiddleware]:
    """The status of a request to each of these hosts, and who has answered them."""
    answered: list[int] = []

    async def doors(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answered.append(message["status"])

    async def receive() -> Any:
        raise AssertionError("nobody looks at a body")

    async def main(app: RequestMiddleware) -> None:
        for host in hosts:
            scope = {
                "type": "http", "method": "GET", "path": "/", "http_version": "1.1", "client": None,
                "headers": [(b"host", host.encode())],
            }  # fmt: skip
            await app(scope, receive, send)

    app = RequestMiddleware(doors, ("shop",), Traffic(NodeBounds()), Metrics())
    asyncio.run(main(app))
    return answered, app


def test_only_names_of_the_node_are_remembered_and_not_too_many():
    ours = [f"shop:{port}" for port in range(limits.HOSTS_REMEMBERED_MAX + 1)]
    answered, app = asked_at([*ours, "elsewhere", "elsewhere", "a b", "a b", *ours])
    refused = {at: status for at, status in enumerate(answered) if status != 200}
    first = len(ours)
    assert refused == {first: 403, first + 1: 403, first + 2: 400, first + 3: 400}
    assert 0 < len(app._known) <= limits.HOSTS_REMEMBERED_MAX

"""A client that goes away in the very moment in which its work is done."""

import asyncio

import pytest
from starlette.requests import ClientDisconnect, Request

from quiver.server.requests import until_gone


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

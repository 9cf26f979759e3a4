"""How a client's calls get to a node: frames on a connection of threads or of an event loop, or posted."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import pytest

import quiver
from tests.contract.doors import AsyncDoor, Blocking

CARRIERS = {"threads": "always", "loop": "always", "posts": "never"}
Connect: TypeAlias = Callable[..., Any]


@pytest.fixture(params=CARRIERS)
def carrier(request: pytest.FixtureRequest) -> str:
    """Each of them."""
    found: str = request.param
    return found


@pytest.fixture(params=["always", "never"])
def wired(request: pytest.FixtureRequest) -> str:
    """With frames of their own, and posted."""
    found: str = request.param
    return found


@pytest.fixture
def connect(carrier: str) -> Iterator[Connect]:
    """Connects to a port; what it makes has the verbs of `quiver.Queue` and is closed in the end."""
    with ExitStack() as stack:

        def made(port: int, **options: str) -> Any:
            rest = "".join(f"&{name}={value}" for name, value in options.items())
            url = f"quiver://127.0.0.1:{port}?wire={CARRIERS[carrier]}{rest}"
            if carrier != "loop":
                return stack.enter_context(quiver.connect(url))
            door = AsyncDoor()
            stack.callback(door.end)
            return stack.enter_context(Blocking(door._loop, quiver.connect_async(url)))

        yield made

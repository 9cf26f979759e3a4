"""How a client's calls get to a node: frames on a connection of threads or of an event loop, or posted."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import quiver
from tests.contract.doors import AsyncDoor, Blocking
from tests.server.api.proxies import Proxy
from tests.server.nodes import Node, start_node

PLACES = ["directory", "node", pytest.param("posts", marks=pytest.mark.check)]
CARRIERS = {"threads": "always", "loop": "always", "posts": "never"}
Connect: TypeAlias = Callable[..., Any]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node for all tests of a module."""
    with start_node(tmp_path_factory.mktemp("shared")) as started:
        yield started


@pytest.fixture(scope="module", params=PLACES)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A queue for all tests of a module: in a directory, of a node, and of one by posts."""
    return url_of(request, tmp_path_factory.mktemp("queue"))


def url_of(request: pytest.FixtureRequest, path: Path) -> str:
    """The queue that a parameter names; of the node `shared`, or in a directory below `path`."""
    if request.param == "directory":
        return str(path / "data")
    wired = "never" if request.param == "posts" else "always"
    return f"quiver://127.0.0.1:{request.getfixturevalue('shared').port}?wire={wired}"


@pytest.fixture
def proxy(node: Node) -> Iterator[Proxy]:
    """Between the clients of a test and its node."""
    with Proxy(node.port) as made:
        yield made


@pytest.fixture
def other(node: Node) -> Iterator[quiver.Queue]:
    """Somebody else, of whom nothing is lost."""
    with quiver.connect(f"quiver://127.0.0.1:{node.port}") as made:
        yield made


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

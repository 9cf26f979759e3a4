"""Nodes for frames: one for a module, and connections that end with their test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.server.nodes import Node, start_node
from tests.server.wire.frames_client import Wire

Connect = Callable[..., Wire]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with start_node(tmp_path_factory.mktemp("wire"), module="tests.server.testing_node") as started:
        yield started
        assert not [line for line in started.lines if line["level"] == "error"], started.lines


@pytest.fixture
def connect(node: Node) -> Iterator[Connect]:
    opened: list[Wire] = []

    def made(port: int | None = None, *given: Any, **options: Any) -> Wire:
        opened.append(Wire(node.port if port is None else port, *given, **options))
        return opened[-1]

    yield made
    for one in opened:
        one.close()


@pytest.fixture
def wire(connect: Connect) -> Wire:
    return connect()


@pytest.fixture
def topic(wire: Wire, request: pytest.FixtureRequest) -> int:
    """The number of a topic of this test's own."""
    name = "".join(char if char.isalnum() else "." for char in request.node.name)
    return wire.topic(name[:200])

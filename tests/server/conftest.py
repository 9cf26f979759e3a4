"""A real `quiver serve` in a process of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.nodes import Node, start_node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with start_node(tmp_path) as started:
        yield started

"""One guarded node for a module: its tests only differ in who asks."""

from collections.abc import Iterator

import pytest

from tests.server.auth.callers import Guarded


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    started = Guarded(tmp_path_factory.mktemp("node"))
    yield started
    started.close()

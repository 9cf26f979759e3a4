"""Reading beside an owner: between any two of its steps, in the middle of a question, after any crash."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from random import Random
from typing import Any

import pytest

from quiver.node.engine import Engine
from quiver.node.peer import Peer
from quiver.node.replica import Replica
from quiver.storage.files import File
from quiver.testing import MemoryFiles, SimulatedCrash
from tests.inside import Inside
from tests.properties.conftest import shrink
from tests.properties.test_sealing import SIZES, Script, bodies, pending, sources
from tests.properties.workload import SECRET, START_MS

often = pytest.mark.parametrize(
    "step", [53, pytest.param(17, marks=pytest.mark.check), pytest.param(1, marks=pytest.mark.slow)]
)


@pytest.fixture(scope="module")
def states() -> Iterator[list[Any]]:
    """What is pending after each commit of the script."""
    patch = pytest.MonkeyPatch()
    shrink(patch)
    script = Script(MemoryFiles())
    script.run()
    yield [{}, *script.states]
    patch.undo()


def replica(files: Any, *, owned: bool) -> Replica:
    return Replica(files, lambda: nullcontext(not owned))


def seen(reader: Replica) -> dict[int, list[bytes]]:
    """What is pending. It is read after the question was answered, as the verbs do it."""
    return {number: bodies(source) for number, source in reader.ask(Inside(sources)).items()}


class Watched(MemoryFiles):
    """Somebody looks after each operation."""

    def __init__(self) -> None:
        super().__init__()
        self.look: Callable[[], None] | None = None

    @contextmanager
    def _operation(self, *args: Any, **options: Any) -> Iterator[None]:
        with super()._operation(*args, **options):
            yield
        if self.look is not None:
            self.look()


@often
def test_between_any_two_operations_of_the_owner_what_is_confirmed_is_seen(states, step):
    files = Watched()
    script = Script(files)
    reader = replica(files, owned=True)
    looks = 0

    def look() -> None:
        nonlocal looks
        if files.operations % step == 0:
            assert seen(reader) in states[script.done : script.done + 2]
            looks += 1

    files.look = look
    script.run()
    files.look = None
    assert looks > 300 // step
    assert seen(reader) == states[-1]


class Meddled:
    """Files of which somebody changes some just before the `at`th time that they are asked for."""

    def __init__(self, files: MemoryFiles, at: int, meddle: Callable[[], None]) -> None:
        self._files = files
        self._meddle = meddle
        self.left = at

    def names(self) -> list[str]:
        self._asked()
        return self._files.names()

    def open(self, name: str) -> File:
        self._asked()
        return self._files.open(name)

    def _asked(self) -> None:
        self.left -= 1
        if self.left == 0:
            self._meddle()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


@often
@pytest.mark.parametrize("fresh", [True, False], ids=["just opened", "open for long"])
def test_an_owner_that_replaces_files_in_the_middle_of_a_question_does_not_matter(fresh, step):
    at = 1
    while True:
        script = Script(MemoryFiles())
        script.run_until(3)
        told: list[Any] = []

        def meddle(script: Script = script, told: list[Any] = told) -> None:
            script.settle("ack", 3)
            script.settle("dead_letter", 1)
            script.snapshot(2)
            script.send(9)
            script.snapshot(2)
            told.append(pending(script.engine))

        files = Meddled(script.files, 0, meddle)
        reader = replica(files, owned=True)
        if not fresh:
            assert seen(reader) == pending(script.engine)
            script.send(8)
        before = pending(script.engine)
        files.left = at
        assert seen(reader) in [before, *told]
        assert seen(reader) == pending(script.engine)
        assert reader.ask(Inside(Engine.digest_state)) == script.engine.digest_state()
        rows = [part.num_rows for part in reader.ask(Inside(Engine.read_ledger)).tables()]
        assert sum(rows) == sum(part.num_rows for part in script.engine.read_ledger().tables())
        if not told:
            break
        at += (step + 4) // 5
    assert at > 5


@often
@pytest.mark.parametrize("late", [False, True], ids=["before its effect", "after its effect"])
def test_after_a_crash_it_sees_what_the_next_owner_sees_and_changes_nothing(late, step):
    script = Script(MemoryFiles())
    script.run()
    for crash_at in range(5 + late, script.files.operations + 1, step):
        files = MemoryFiles(crash_at=crash_at, crash_late=late)
        with pytest.raises(SimulatedCrash):
            Script(files).run()
        after, same = (files.crash(Random(crash_at)) for _ in range(2))
        reader = replica(after, owned=False)
        if not any(name.startswith("wal-") for name in after.names()):
            continue  # there is no queue yet
        found = (reader.ask(Inside(Engine.digest_state)), seen(reader))
        peer = Peer.open(same, now_ms=START_MS, secret=SECRET, **SIZES)
        engine = peer.engine
        if engine.core.index > 1:  # else it was made just now
            assert found == (engine.digest_state(), pending(engine)), f"operation {crash_at}"
        assert contents(after) == contents(files.crash(Random(crash_at)))


def contents(files: MemoryFiles) -> dict[str, bytes]:
    opened = {name: files.open(name) for name in files.names()}
    return {name: file.read(0, file.size()) for name, file in opened.items()}

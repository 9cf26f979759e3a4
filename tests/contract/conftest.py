"""A queue behind each door, on a clock that stands still until a test advances it."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from quiver.node.engine import Engine
from quiver.testing import VirtualClock
from tests.contract.doors import DOORS, NODE, PATIENCE_SECONDS, Door
from tests.inside import Inside


class World:
    """An open queue and what a test does to its surroundings."""

    def __init__(self, door: Door, path: Path, pool: ThreadPoolExecutor) -> None:
        self.door = door
        self.path = path
        self.clock = VirtualClock()
        self.queue: Any = door.open(path, self.clock)
        self._pool = pool

    def reopen(self, durability: str = "disk") -> Any:
        """Close the queue and open what it left on disk."""
        self.queue.close()
        self.queue = self.door.open(self.path, self.clock, durability)
        return self.queue

    def snapshot_and_reopen(self) -> Any:
        """As `reopen`, from a snapshot instead of the log."""

        def save(engine: Engine) -> None:
            made = self.door.shard._peer.begin_snapshot(self.clock.now_ms())
            made.save()
            engine.snapshots.finish(made)

        self.door.shard.ask(Inside(save)).wait()
        return self.reopen()

    def in_background(self, call: Callable[..., Any], *args: Any, **options: Any) -> "Waiting":
        """Call from another thread; return when the call is parked in the queue, waiting."""
        before = self._waiters()
        waiting = Waiting(self._pool.submit(call, *args, **options))
        while self._waiters() <= before:
            assert not waiting.future.done(), f"it did not wait: {waiting.future.result()}"
        return waiting

    def _waiters(self) -> int:
        shard = self.door.shard
        return shard.ask(
            Inside(lambda _: sum(not waiter.ticket.abandoned for waiter in shard._front.waiters))
        ).wait()

    def check(self) -> None:
        """Every invariant of the core holds."""
        self.door.shard.ask(Inside(lambda engine: engine.core.check())).wait()


class Waiting:
    """A call that waits."""

    def __init__(self, future: Future[Any]) -> None:
        self.future = future

    def result(self) -> Any:
        return self.future.result(PATIENCE_SECONDS)


@pytest.fixture(scope="session", autouse=True)
def node_thread() -> None:
    """The node behind the client's doors, one for all tests."""
    NODE.start()


# Doors that differ from the others by little: the promises themselves are run through them anyway.
LATER = {
    "async": pytest.mark.check, "json": pytest.mark.check,
    "async-client": pytest.mark.slow, "posting-client": pytest.mark.slow,
}  # fmt: skip
# All doors refuse by the same functions, before anything is asked of a node.
REFUSED = {"test_bad_input"}
# What is more than Python: behaviours that are also checked through plain HTTP and JSON.
PLAIN = {
    "test_dead_letters", "test_delivery", "test_groups", "test_idempotence", "test_order",
    "test_reserved", "test_time", "test_transactions", "test_waiting",
}  # fmt: skip


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each behaviour through each door that can express it."""
    if "world" not in metafunc.fixturenames:
        return
    module = metafunc.module.__name__.rpartition(".")[2]
    python = metafunc.definition.get_closest_marker("python") is not None
    promises = module == "test_promises"
    left_out = set() if promises else {"boto3"}
    if (module not in PLAIN and not promises) or python:
        left_out.add("json")
    later = {**LATER, "client": pytest.mark.check} if module in REFUSED else LATER
    metafunc.parametrize(
        "world",
        [
            pytest.param(door, marks=() if promises else later.get(door, ()))
            for door in DOORS
            if door not in left_out
        ],
        indirect=True,
    )


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    door = DOORS[request.param]()
    with ThreadPoolExecutor(4, thread_name_prefix="contract-call") as pool:
        made = World(door, tmp_path / "data", pool)
        try:
            yield made
            if not made.door.shard._closing:
                made.check()
        finally:
            made.queue.close()
            door.end()


@pytest.fixture
def queue(world: World) -> Any:
    """The queue; its topic "t" has the default policy."""
    world.queue.create_topic("t")
    return world.queue


@pytest.fixture
def clock(world: World) -> VirtualClock:
    return world.clock

"""Setting the time back after a clock that was years ahead: nothing changes its place, whatever it was."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from quiver.core.delivery import DeliveryCore
from quiver.model.commands import Command, Receive, SetTime, Tick
from quiver.model.replies import Outcome
from quiver.node.peer import Peer
from quiver.testing import MemoryFiles
from tests.bounds import set_bounds
from tests.lengths import quickly
from tests.properties.workload import START_MS, Workload, digest

YEARS_MS = 10 * 365 * 86_400_000
STEPS = 120


@pytest.fixture(params=[False, True], ids=["usual", "small"])
def bounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones leave what is due at once for later entries."""
    if request.param:
        set_bounds(monkeypatch, expire_max=2, mature_max=2)


class Reserving(Workload):
    """Some of what is leased is only reserved."""

    def do(self, command: Command, batch: Any = None, encoded: bytes = b"") -> Outcome:
        if isinstance(command, Receive):
            command = replace(command, begin=self.rng.choice([None, 0, 1]))
        return super().do(command, batch, encoded)


def places(core: DeliveryCore, now_ms: int) -> list[Any]:
    """Where every message is for every group, and what may go now."""
    found: list[Any] = []
    for topic in core.topics.values():
        found.append(
            (topic.name, topic.unsettled(), [part.messages() for part in topic.partitions])
        )
        for group in topic.groups.values():
            for view in group.views:
                leased = [
                    (epoch, *piece[:3], piece.steal_ms and piece.steal_ms <= now_ms)
                    for epoch, lease in view.leases.items()
                    for piece in lease.held
                ]
                waiting = sorted(x[1:] for x in view.due if x[0] > now_ms)
                found.append((group.name, view.settled.dump(), leased, waiting, view.next))
    return found


def after_a_bad_boot(files: MemoryFiles, seed: int) -> Workload:
    work = Reserving(files, seed)
    for ahead_ms in (0, YEARS_MS):
        work.now_ms += ahead_ms
        for _ in range(STEPS):
            work.step()
    return work


@pytest.mark.usefixtures("bounds")
@pytest.mark.parametrize("seed", quickly(2, range(12)))
def test_what_was_over_stays_over_and_what_was_to_come_is_to_come(seed):
    files = MemoryFiles()
    work = after_a_bad_boot(files, seed)
    core = work.engine.core
    wrong_ms, right_ms = core.now_ms, work.now_ms - YEARS_MS + 3_600_000
    before, next_ms = places(core, wrong_ms), core.next_tick_ms()
    work.do(SetTime(right_ms))
    core.check()
    assert core.now_ms == right_ms
    assert places(core, right_ms) == before
    if next_ms is not None:
        assert core.next_tick_ms() == max(next_ms - wrong_ms, 0) + right_ms
    for topic in core.topics.values():
        for partition in topic.partitions:
            times = [extent.time_ms for extent in partition.live()]
            assert all(first <= second for first, second in pairwise([*times, right_ms]))
    restored = DeliveryCore.load(core.dump())
    restored.check()
    assert restored.dump() == core.dump()
    work.now_ms = right_ms
    for _ in range(STEPS):
        work.step()
        core.check()
    assert core.now_ms <= work.now_ms
    replayed = Peer.open(files.crash("none"), now_ms=START_MS, secret=b"of no use").engine
    assert digest(replayed) == digest(work.engine)
    work.now_ms += 60_000
    work.do(Tick())
    assert not any(view.leases for topic in core.topics.values()
                   for group in topic.groups.values() for view in group.views)  # fmt: skip


def test_it_is_never_set_forth():
    work = Workload(MemoryFiles(), 1)
    state = work.engine.core.dump()[1:]
    work.do(SetTime(START_MS + 5))
    assert work.engine.core.dump()[1:] == state

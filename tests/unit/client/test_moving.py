"""The pace of a redrive, on a clock that only its own pauses move."""

import pytest

import quiver
from quiver.client.flows import Flows
from quiver.client.local import LocalBroker
from quiver.client.moving import move
from quiver.client.steps import Pause, Work
from quiver.model.commands import Discard
from quiver.testing import VirtualClock
from tests.contract.doors import SyncDoor


class Run:
    """A move that is driven by hand; `lost` seconds pass with every step."""

    def __init__(self, path, messages):
        self.clock = VirtualClock()
        self.door = SyncDoor()
        self.queue = self.door.open(path, self.clock)
        self.queue.create_topic("t")
        self.queue.send_batch("t", [b"%d" % n for n in range(messages)])
        self.pauses = []

    def move(self, *, lost=0.0, **options):
        flow = move(Flows(LocalBroker(self.door.shard), "disk"), "t", Discard, "true", **options)
        answer = None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as end:
                return end.value
            answer = None
            if isinstance(step, Pause):
                self.pauses.append(step.seconds)
                self.clock.advance(step.seconds)
            elif isinstance(step, Work):
                answer = step.do()
            else:
                answer = step.wait()
                self.clock.advance(lost)


@pytest.fixture
def run(tmp_path):
    made = Run(tmp_path / "data", 1_000)
    yield made
    made.queue.close()


def test_a_rate_is_kept_over_steps_and_the_last_one_is_not_waited_for(run):
    assert run.move(rate=100) == 1_000
    assert run.pauses == [pytest.approx(0.25)] * 39


def test_time_that_the_work_takes_is_not_waited_for_again(run):
    started = run.clock.now_ms()
    assert run.move(rate=100, lost=0.1) == 1_000
    took = (run.clock.now_ms() - started) / 1000
    assert took == pytest.approx(1_000 / 100, abs=0.5)
    assert sum(run.pauses) < 6.5


def test_a_queue_that_is_slower_than_the_rate_is_not_paused(run):
    assert run.move(rate=100, lost=1.0) == 1_000
    assert run.pauses == []


def test_a_stall_is_not_followed_by_a_burst(run):
    started = run.clock.now_ms()
    stalled = []

    def stall(moved):
        if moved == 500:
            run.clock.advance(60)
            stalled.append(len(run.pauses))

    assert run.move(rate=100, progress=stall) == 1_000
    after = run.pauses[stalled[0] :]
    assert len(after) >= 18, "at most two steps without a pause"
    assert run.clock.now_ms() - started >= 60_000 + 4_000


def test_less_than_one_a_second_goes_one_by_one(run):
    assert run.move(rate=0.5, limit=3) == 3
    assert run.pauses == [2.0, 2.0]


def test_a_dry_run_does_not_wait(run):
    assert run.move(rate=1, dry_run=True) == 1_000
    assert run.pauses == []


def test_without_a_rate_nothing_waits(run):
    assert run.move() == 1_000
    assert run.pauses == []


@pytest.mark.parametrize("rate", [0, -1, True, "fast", 1e10])
def test_a_rate_is_a_number_above_zero(run, rate):
    with pytest.raises(quiver.InvalidRequest, match="rate"):
        run.move(rate=rate)

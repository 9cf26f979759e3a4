"""The real engine beside the model, for every policy, with crashes and full disks between steps.

Two ways to look, at the same machine. Hypothesis tries short lives and explains what it finds with
the smallest example it knows: put the `@reproduce_failure` that it prints above the test to see it
again, and `HYPOTHESIS_PROFILE=hunt` looks for new ones. Storms are long lives, each made from a
number; one that fails says its number and the few steps that matter, as calls that can be pasted
into a test. With `HYPOTHESIS_PROFILE=hunt` the numbers are new ones, too.
"""

from random import SystemRandom
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from quiver.core.delivery import chains, delivery, extents, offsets
from quiver.model.topic import TopicPolicy
from tests.bounds import set_bounds
from tests.lengths import examples
from tests.properties.machine import DeliveryMachine, UnsnappedMachine
from tests.properties.storm import WORK, storm
from tests.properties.world import Ask

pytestmark = pytest.mark.timeout(1_200)  # a failure takes a while to explain

KINDS = {
    "plain": {"order": "none", "fair": False},
    "fair": {"order": "none", "fair": True},
    "key": {"order": "key", "fair": False},
    "key-fair": {"order": "key", "fair": True},
    "partition": {"order": "partition", "fair": False},
}
EXPLAINED = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)


def machine(kind: str, base: type[DeliveryMachine] = DeliveryMachine, **more: Any):
    return type(base.__name__, (base,), {**KINDS[kind], **more})


def seeds(count: int) -> range:
    """The same every time, or new ones if that is what the profile wants."""
    first = 0 if settings().derandomize else SystemRandom().randrange(10**9)
    return range(first, first + examples(count))


def run(made, count: int) -> None:
    wanted = settings(max_examples=examples(count), stateful_step_count=40, phases=EXPLAINED)
    run_state_machine_as_test(made, settings=wanted)


@pytest.fixture
def few_bytes(monkeypatch):
    """A receive carries a message or two."""
    set_bounds(monkeypatch, receive_bytes_max=60)


@pytest.fixture
def small_parts(monkeypatch):
    """The core's structures are split, joined and cleared all the time."""
    monkeypatch.setattr(offsets, "BITS", 3)
    monkeypatch.setattr(offsets, "SIZE", 8)
    monkeypatch.setattr(offsets, "FULL", 255)
    monkeypatch.setattr(chains, "COMPACT_AT", 2)
    monkeypatch.setattr(extents, "COMPACT_AT", 2)
    monkeypatch.setattr(delivery, "TIMERS_MIN", 2)


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_is_what_the_model_says(kind):
    run(machine(kind), 15)


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_of_a_long_life_is_what_the_model_says(kind):
    for seed in seeds(8):
        storm(machine(kind), seed, 120)


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_not_matter_how_the_core_stores_its_sets(kind, small_parts):
    for seed in seeds(4):
        storm(machine(kind), seed + 10_000, 150)


@pytest.mark.check
@pytest.mark.parametrize("kind", KINDS)
def test_a_receive_that_carries_few_bytes_keeps_every_promise(kind, few_bytes):
    for seed in seeds(2):
        storm(machine(kind, bounded=True), seed + 20_000, 100)


@pytest.mark.parametrize("kind", KINDS)
def test_a_receive_that_can_be_told_little_keeps_every_promise(kind):
    for seed in seeds(2):
        storm(machine(kind, bounded=True, told_bytes=200), seed + 20_000, 100)


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_replays_from_zero_to_the_same_state(kind):
    for seed in seeds(3):
        storm(machine(kind, UnsnappedMachine), seed + 30_000, 100)


def test_a_log_of_any_few_steps_replays_from_zero_to_the_same_state():
    run(machine("key-fair", UnsnappedMachine), 20)


@pytest.mark.parametrize("kind", ["fair", "key", "key-fair"])
def test_every_turn_of_a_group_at_work_is_what_the_model_says(kind):
    for seed in seeds(30):
        storm(machine(kind), seed, 60, WORK)


def test_a_key_whose_urgent_message_came_back_and_is_gone_begins_to_wait_anew():
    state = machine("fair")()
    state.found(TopicPolicy(), TopicPolicy(), {"keys", "priorities"}, [])
    urgent, usual, other = (("b", 9), ("b", 0), ("t", 0))
    rows = [(*spec, 0, 0, None) for spec in (urgent, usual, other, other)]
    state.produce("a", [rows], late=False, sync=True)
    state.consume("a", "one", 2, [])  # the urgent one, and after it one of "t"
    taken = state.world.leases[-1]
    for action in ("release", "dismiss"):  # of the urgent one, with nothing received between
        state.do(Ask(state.world.settle(taken, action, taken.offsets[:1], delay_ms=0)))
    state.consume("a", "one", 1, [])
    state.teardown()

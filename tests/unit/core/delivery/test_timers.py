"""Timers: compared by time and kind, and stored as six numbers each."""

import pytest

from quiver.core.delivery import timers
from quiver.core.delivery.timers import LEASE, LIFE, SESSION, LeaseEnd, LifeEnd, SessionEnd, Timer

STORED: list[tuple[Timer, list[int]]] = [
    (LeaseEnd(7, LEASE, 3, 4, 0, 99), [7, 0, 3, 4, 0, 99]),
    (LifeEnd(7, LIFE, 3, 1, 12), [7, 1, 3, 1, 12, 0]),
    (SessionEnd(7, SESSION, 3, 4, 5), [7, 2, 3, 4, 5, 0]),
]


@pytest.mark.parametrize(("timer", "stored"), STORED)
def test_a_timer_is_stored_as_it_always_was(timer, stored):
    assert timers.dump(timer) == stored
    assert timers.load(stored) == timer
    assert type(timers.load(stored)) is type(timer)


def test_what_ends_at_one_moment_ends_by_kind():
    assert sorted(timer for timer, _ in reversed(STORED)) == [timer for timer, _ in STORED]
    assert LeaseEnd(8, LEASE, 1, 1, 0, 1) > SessionEnd(7, SESSION, 3, 4, 5)

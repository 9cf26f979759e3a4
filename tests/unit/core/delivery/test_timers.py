"""Timers: compared by time and kind, and stored as six numbers each."""

import gc

from quiver.core.delivery import timers

MADE = [timers.of_lease(7, 3, 4, 0, 99), timers.of_life(7, 3, 1, 12), timers.of_session(7, 3, 4, 5)]


def test_a_timer_is_stored_as_it_always_was():
    assert MADE == [(7, 0, 3, 4, 0, 99), (7, 1, 3, 1, 12, 0), (7, 2, 3, 4, 5, 0)]


def test_what_ends_at_one_moment_ends_by_kind():
    lease, life, session = MADE
    assert sorted([session, life, lease]) == MADE
    assert timers.of_lease(8, 1, 1, 0, 1) > timers.of_session(7, 3, 4, 5)


def test_the_garbage_collector_lets_go_of_them():
    gc.collect()
    assert not any(gc.is_tracked(timer) for timer in MADE)

"""Shares of a principal, on a clock that is told the time."""

import pytest

from quiver.errors import QuotaExceeded
from quiver.server.auth.principal import Principal
from quiver.server.auth.quotas import Meter, Quota


class Time:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Time()


def admitted(meter, tries=1_000):
    for done in range(tries):
        try:
            meter.admit("ann")
        except QuotaExceeded:
            return done
    return tries


def test_without_a_quota_everything_is_admitted(clock):
    meter = Meter(clock=clock)
    meter.spend(10**12)
    assert admitted(meter) == 1_000
    for _ in range(1_000):
        meter.start_waiting()


def test_requests_come_at_their_rate_with_a_second_in_reserve(clock):
    meter = Meter(Quota(requests_per_second=10), clock)
    assert admitted(meter) == 10
    clock.now += 0.5
    assert admitted(meter) == 5
    clock.now += 3_600
    assert admitted(meter) == 10, "no more than a second is saved up"


def test_a_rate_below_one_lets_one_request_through_now_and_then(clock):
    meter = Meter(Quota(requests_per_second=0.1), clock)
    assert admitted(meter) == 1
    with pytest.raises(QuotaExceeded) as refused:
        meter.admit("ann")
    assert refused.value.retry_after == 10
    clock.now += refused.value.retry_after
    assert admitted(meter) == 1


def test_bytes_are_paid_afterwards_and_the_next_request_waits_for_it(clock):
    meter = Meter(Quota(bytes_per_second=100), clock)
    meter.admit("ann")
    meter.spend(350)
    with pytest.raises(QuotaExceeded, match="ann has used up its bytes a second") as refused:
        meter.admit("ann")
    assert refused.value.retry_after == 3
    clock.now += refused.value.retry_after
    meter.admit("ann")


def test_a_refused_request_costs_nothing(clock):
    meter = Meter(Quota(requests_per_second=1), clock)
    assert admitted(meter) == 1
    for _ in range(100):
        with pytest.raises(QuotaExceeded):
            meter.admit("ann")
    clock.now += 1
    meter.admit("ann")


def test_only_so_many_receives_wait_at_a_time(clock):
    principal = Principal("ann", (), meter=Meter(Quota(long_polls=2), clock))
    with (
        principal.waiting(),
        principal.waiting(),
        pytest.raises(QuotaExceeded, match="2 receives wait already"),
        principal.waiting(),
    ):
        pass
    with principal.waiting(), principal.waiting():
        pass

"""Durations, sizes and times, as people write them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from quiver.errors import InvalidRequest
from quiver.model.units import milliseconds, size_bytes, timestamp_ms


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (30, 30_000),
        (0.25, 250),
        (1.1, 1_100),
        (1e-9, 1),
        ("250ms", 250),
        ("30s", 30_000),
        ("30", 30_000),
        (" 5 m ", 300_000),
        ("2h", 7_200_000),
        ("1.5H", 5_400_000),
        ("7d", 604_800_000),
        (timedelta(seconds=1, milliseconds=5), 1_005),
    ],
)
def test_a_duration_becomes_milliseconds(value, expected):
    assert milliseconds(value, "delay") == expected


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (True, "delay must be seconds or a string .* not bool"),
        (None, "not NoneType"),
        ([5], "not list"),
        ("soon", "not 'soon'"),
        ("-5s", "not '-5s'"),
        ("5 weeks", "not '5 weeks'"),
        ("", "not ''"),
        ("٣s", "delay must be seconds"),
        pytest.param("9" * 1_000_000, "not '9{40}…'", id="long"),
        (-1, "delay must be between 0 and 3,162,240,000 seconds, not -1"),
        (float("nan"), "must be between 0 and"),
        (float("inf"), "must be between 0 and"),
        pytest.param(10**5_000, "must be between 0 and .*, not 0x[0-9a-f]{38}…", id="huge"),
        ("999999999d", "must be between 0 and .*, not '999999999d'"),
        (timedelta(days=-1), "must be between 0 and"),
    ],
)
def test_what_is_not_a_duration_is_refused(value, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        milliseconds(value, "delay")


def test_a_duration_has_the_longest_that_is_asked_for():
    assert milliseconds(60, "wait", max_seconds=60) == 60_000
    with pytest.raises(InvalidRequest, match="wait must be between 0 and 60 seconds"):
        milliseconds(61, "wait", max_seconds=60)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (12, 12),
        ("12", 12),
        ("12B", 12),
        ("10GB", 10_000_000_000),
        ("10 gb", 10_000_000_000),
        ("1KiB", 1024),
        ("1.5 MiB", 1_572_864),
        ("2TiB", 2 * 1024**4),
        ("9007199254740993", 9_007_199_254_740_993),
    ],
)
def test_a_size_becomes_bytes(value, expected):
    assert size_bytes(value, "retention") == expected


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (True, "retention must be bytes or a string .* not bool"),
        (1.5, "not float"),
        ("big", "not 'big'"),
        ("10 XB", "not '10 XB'"),
        (-1, "retention must be between 0 and .* bytes, not -1"),
        ("99999999999TB", "retention must be between 0 and"),
    ],
)
def test_what_is_not_a_size_is_refused(value, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        size_bytes(value, "retention")


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-01T00:00:00Z",
        "2026-11-01T02:00:00+02:00",
        "2026-11-01",
        "2026-11-01T00:00:00",
        datetime(2026, 11, 1, tzinfo=UTC),
        datetime(2026, 11, 1, 2, tzinfo=timezone(timedelta(hours=2))),
        datetime.fromisoformat("2026-11-01"),
        1_793_491_200,
        1_793_491_200.0,
    ],
)
def test_a_time_becomes_milliseconds_and_without_a_zone_it_is_utc(value):
    assert timestamp_ms(value, "start") == 1_793_491_200_000


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (True, "start must be ISO 8601 .* not bool"),
        (None, "not NoneType"),
        ("yesterday", "not 'yesterday'"),
        ("1793491200", "not '1793491200'"),
        (1_793_491_200_000, "between the years 1970 and 9999, not 1793491200000; numbers are"),
        (-1, "between the years 1970 and 9999"),
        (float("nan"), "between the years 1970 and 9999"),
        ("1969-12-31T23:59:59Z", "between the years 1970 and 9999"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))), "1970 and 9999"),
        ("0001-01-01", "1970 and 9999"),
    ],
)
def test_what_is_not_a_time_is_refused(value, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        timestamp_ms(value, "start")

"""Quantities as people read them, and text that cannot hurt a terminal."""

import pytest

from quiver.cli.output import age, count, duration, size, visible


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.0004, "1ms"), (0.02, "20ms"), (0.31, "0.3s"), (9.95, "9.9s"), (12, "12s"),
     (59.6, "1m"), (252, "4m 12s"), (3_600, "1h"), (3_659, "1h"), (90_000, "1d 1h")],
)  # fmt: skip
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1_234, "1.2 kB"), (999_960, "1.0 MB"), (5e9, "5.0 GB"),
     (2e15, "2000.0 TB")],
)  # fmt: skip
def test_sizes(nbytes, text):
    assert size(nbytes) == text


def test_counts_and_ages():
    assert (count(1, "message"), count(1_200, "message")) == ("1 message", "1,200 messages")
    assert count(2, "message is", "messages are") == "2 messages are"
    assert (age(0), age(61)) == ("-", "1m 1s")


def test_nothing_moves_the_cursor():
    assert visible("\x1b[31mred\r\n\x9b") == r"\x1b[31mred\r\n\x9b"
    assert visible("two\nlines\t\x00", keep="\n\t") == "two\nlines\t\\x00"
    assert visible("grüße 🏹") == "grüße 🏹"
    assert visible("abcdef", 4) == "abc…"

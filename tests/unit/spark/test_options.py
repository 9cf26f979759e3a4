"""Options of the Spark source: checked once, and refused in words."""

from pathlib import Path

import pytest

from quiver import InvalidRequest
from quiver.spark.options import Options

pytestmark = pytest.mark.spark

GOOD = {"url": "quiver://127.0.0.1:7070", "topic": "t"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": "t"}, "say which queue"),
        ({"url": "data"}, "say which topic"),
        ({**GOOD, "sart": "1"}, "no option 'sart'; there are url, topic"),
        ({**GOOD, "topic": "a b"}, "topic"),
        ({**GOOD, "start": "yesterday"}, "earliest"),
        ({**GOOD, "start": "9" * 5_000}, "earliest"),
        ({**GOOD, "start": '{"0": -1}'}, "JSON map of offsets"),
        ({**GOOD, "end": '{"a": 1}'}, "JSON map of offsets"),
        ({**GOOD, "end": "{"}, "JSON map of offsets"),
        ({**GOOD, "table": "x"}, "'messages', 'ledger'"),
        ({**GOOD, "maxRowsPerTrigger": "0"}, "maxRowsPerTrigger must be between"),
        ({**GOOD, "maxRowsPerTrigger": "many"}, "maxRowsPerTrigger is a whole number"),
        ({**GOOD, "maxBytesPerTrigger": "many"}, "maxBytesPerTrigger"),
        ({**GOOD, "lease": "for ever"}, "lease"),
    ],
)
def test_what_is_wrong_is_said(options, words):
    with pytest.raises(InvalidRequest, match=words):
        Options.of(options)


def test_names_may_have_lost_their_capitals():
    found = Options.of({**GOOD, "maxrowspertrigger": "7", "MAXBYTESPERTRIGGER": "2MiB"})
    assert (found.max_rows, found.max_bytes) == (7, 2 * 1024 * 1024)


def test_places_are_words_times_offsets_or_maps():
    for said, meant in {
        "latest": "latest",
        "12": 12,
        '{"0": 5, "3": 7}': {0: 5, 3: 7},
        "2026-01-02T03:04:05Z": "2026-01-02T03:04:05Z",
    }.items():
        assert Options.of({**GOOD, "start": said}).start == meant


def test_tasks_find_a_directory_from_wherever_they_run():
    assert Options.of({"url": "data", "topic": "t"}).url == str(Path("data").absolute())

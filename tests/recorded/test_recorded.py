"""What a level has been stays as it is: its bounds, its commands, and what a log of it leads to."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import quiver
from quiver.model import levels
from tests.recorded.recording import (
    bounds_of,
    entries_of,
    log_of,
    recorded,
    replayed,
    text_of,
    vocabulary,
)

SOURCE = Path(quiver.__file__).parent
NUMBERS = sorted(levels.LEVELS)
NEW_LEVEL = (
    "Nodes of a cluster that run other versions would come to another state. So nothing of a level may "
    "change: take it back, or add a level to `model/levels.py` that has the change (levels below it keep "
    "what they have), and record it with `python -m tests.recorded.recording`. See decision 32."
)
# Limits that are read where entries are applied, and decide nothing there.
ALLOWED = {
    "PAGE_BYTES": "of a question: how much of a topic is browsed at a time",
    "BROWSED_SLICES_MAX": "of a question, too",
    "LEDGER_ROWS_MAX": "when a snapshot is due: the ledger is an output, no state",
    "LEDGER_CHARS_MAX": "the same",
    "REASON_KINDS_MAX": "of figures, which are no state",
    "REASON_KIND_CHARS_MAX": "the same",
    "STAGED_SECONDS_MAX": "of the policy in a CreateTopic, made by whoever proposes it",
    "TIME_MS_MAX": "of arguments, and of what a client remembers",
    "DURATION_SECONDS_MAX": "of arguments",
    "SIZE_BYTES_MAX": "of arguments",
}


def limits_read(path: Path) -> set[str]:
    """The names of the limits that a module reads."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(value=ast.Name(id="limits")):
                found.add(node.attr)
            case ast.ImportFrom(module="quiver.limits"):
                found |= {name.name for name in node.names}
    return found


def test_what_applies_entries_reads_no_limit_that_is_not_of_the_level():
    modules = [*(SOURCE / "core").rglob("*.py"), *(SOURCE / "model").rglob("*.py")]
    read = {
        str(path.relative_to(SOURCE)): limits_read(path)
        for path in modules
        if path.name != "levels.py"
    }
    others = {
        f"{module}: {name}" for module, names in read.items() for name in names - set(ALLOWED)
    }
    assert not others, f"read these from the bounds of the level, or say why not: {others}"
    assert set().union(*read.values()) == set(ALLOWED), "some are listed and not read"


def test_every_level_is_recorded():
    there = {path.name for level in NUMBERS for path in (log_of(level), text_of(level))}
    kept = {path.name for path in log_of(1).parent.glob("level-*")}
    assert kept == there, f"record it with `python -m tests.recorded.recording`. {NEW_LEVEL}"


@pytest.mark.parametrize("level", NUMBERS)
def test_the_bounds_of_a_level_stay_as_they_are(level):
    assert bounds_of(level) == recorded(level)["bounds"], NEW_LEVEL


def test_commands_and_their_fields_are_those_of_the_highest_level():
    of_level = recorded(NUMBERS[-1])
    kept = {
        name: of_level[name] for name in of_level if name not in ("states", "answers", "bounds")
    }
    assert vocabulary() == kept, NEW_LEVEL


@pytest.mark.parametrize("level", NUMBERS)
def test_a_recorded_log_leads_to_the_state_and_the_answers_that_it_led_to(level):
    entries = entries_of(level)
    found = {name: recorded(level)[name] for name in ("states", "answers")}
    assert replayed(entries) == found, NEW_LEVEL
    commands = Counter(type(entry.command).__name__ for entry in entries)
    known = {name.split()[1] for name in recorded(level) if name[0].isdigit()}
    assert set(commands) == known, "every command of the level is in its log"


def test_a_recorded_log_is_small():
    assert all(log_of(level).stat().st_size < 50_000 for level in NUMBERS)

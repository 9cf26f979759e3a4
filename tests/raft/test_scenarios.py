"""Each text in `scenarios` is a story with commands and what comes of them.

`QUIVER_REWRITE=1 pytest tests/raft/test_scenarios.py` writes down what comes of them now; then read
the difference.
"""

import os
from pathlib import Path

import pytest

from tests.raft.stage import Stage, scenes

HERE = Path(__file__).parent / "scenarios"
NAMES = sorted(path.stem for path in HERE.glob("*.txt"))


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_goes_as_it_is_written(name):
    path = HERE / f"{name}.txt"
    told = path.read_text()
    played = play(told)
    if os.environ.get("QUIVER_REWRITE") and played != told:
        path.write_text(played)
    assert played.splitlines() == path.read_text().splitlines()


def play(text: str) -> str:
    """The same story with the output that it has now."""
    stage = Stage()
    lines: list[str] = []
    for prose, command, _ in scenes(text):
        lines += prose
        if command is not None:
            lines += [f"> {command}", *stage.run(command)]
    return "\n".join(lines).rstrip() + "\n"

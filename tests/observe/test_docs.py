"""What docs/observe.md shows beyond what tests/docs runs: a node's answer, and a program that traces."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_snippets import ROOT, blocks_of
from tests.server.nodes import start_node

pytestmark = pytest.mark.process

BLOCKS = blocks_of((ROOT / "docs/observe.md").read_text(encoding="utf-8"))


def run_program(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_metrics_that_are_shown_are_those_of_the_queue(tmp_path: Path):
    first = next(block for block in BLOCKS if block.language == "python" and block.runs)
    run_program(first.text, tmp_path)
    (shown,) = [block.text for block in BLOCKS if "curl" in block.text]
    command, *lines = shown.splitlines()
    with start_node(tmp_path) as node:
        done = subprocess.run(
            command.removeprefix("$ ").replace(":7070", f":{node.port}"),
            shell=True, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    assert set(lines) <= set(done.stdout.splitlines())


def test_the_program_that_traces_prints_what_it_says(tmp_path: Path):
    (traced,) = [block.text for block in BLOCKS if "set_tracer_provider" in block.text]
    expected = re.findall(r"^# (.+)$", traced, re.MULTILINE)
    assert run_program(traced, tmp_path).splitlines() == expected

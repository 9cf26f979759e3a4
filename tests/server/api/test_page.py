"""docs/http.md: its curl commands run against a real node and answer what the page shows."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_snippets import blocks_of
from tests.server.nodes import Node

PAGE = Path(__file__).parents[3] / "docs" / "http.md"
VARIES = {"created_at", "receipt", "cursor", "refused"}  # by the moment, or by the node's secret


def examples() -> list[tuple[str, str]]:
    """Commands, each with the answer that the page shows."""
    found: list[tuple[str, str]] = []
    for block in blocks_of(PAGE.read_text(encoding="utf-8")):
        if block.language == "http":
            parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
            for part in parts:
                command, _, answer = part.partition("\n")
                found.append((command, answer.strip()))
    return found


@pytest.mark.process
def test_the_page_shows_what_a_node_answers(node: Node):
    receipt = ""
    for command, shown in examples():
        typed = command.replace("http://127.0.0.1:7070", node.url).replace("RECEIPT", receipt)
        done = subprocess.run(typed, shell=True, capture_output=True, timeout=60, check=True)
        answer = json.loads(done.stdout)
        assert steady(json.loads(shown)) == steady(answer), command
        if "/receive" in command:
            receipt = answer["messages"][0]["receipt"]


def steady(value: Any) -> Any:
    """What is the same every time."""
    if isinstance(value, dict):
        return {name: name in VARIES or steady(part) for name, part in value.items()}
    return [steady(part) for part in value] if isinstance(value, list) else value

"""What is not released cannot be installed by its name: no page, help or error says so."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACES = (
    ("docs", "*.md"),
    ("src", "*.py"),
    ("examples", "*.md"),
    ("deploy", "*"),
    ("examples", "*.py"),
)
WRITTEN = [
    path for folder, kind in PLACES for path in (ROOT / folder).rglob(kind) if path.is_file()
]
WRITTEN.append(ROOT / "README.md")
INSTALL = re.compile(r"pip install[^\n]*quiver-mq")


def test_nobody_is_told_to_install_by_name():
    told = [path for path in WRITTEN if INSTALL.search(path.read_text(encoding="utf-8"))]
    assert not told

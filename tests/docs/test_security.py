"""The page on security, typed in with a real node: answers are as shown.

Its blocks are marked `no-run`, because they run here.
"""

import re
from pathlib import Path

import pytest

from tests.docs.test_snippets import ROOT, blocks_of, ran
from tests.server.nodes import start_node

PAGE = ROOT / "docs" / "security.md"
SHOWN = "http://127.0.0.1:7070"
CHANGING = re.compile(r"[0-9a-f]{16}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


@pytest.mark.process
def test_the_page_tells_the_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in blocks_of(PAGE.read_text(encoding="utf-8")) if block.text]
    consoles = [block for block in blocks if block.language == "console"]
    commands = [pair for block in consoles for pair in said(block.text)]
    check(
        before
        for before in commands
        if before[0].startswith("quiver") and before[0] != "quiver serve"
    )
    with start_node(tmp_path) as node:
        check((line.replace(SHOWN, node.url), shown) for line, shown in commands if "curl" in line)
        (boto3_,) = [block.text for block in blocks if "boto3" in block.text]
        for line in Path("billing.env").read_text().splitlines():
            monkeypatch.setenv(*line.split("=", 1))
        exec(boto3_.replace(SHOWN, node.url), {})
        (ours,) = [block.text for block in blocks if "import quiver" in block.text]
        monkeypatch.setenv("QUIVER_TOKEN", "")  # the page sets it, too; afterwards it is gone
        capsys.readouterr()
        exec(ours.replace("127.0.0.1:7070", f"127.0.0.1:{node.port}"), {})
        assert f"```text\n{capsys.readouterr().out}```" in PAGE.read_text(encoding="utf-8")


def said(text: str) -> list[tuple[str, list[str]]]:
    """Commands with the lines shown after them."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def check(commands) -> None:
    for line, shown in commands:
        done = ran(line)
        assert done.code == 0, (line, done)
        if shown:
            assert plain(done.out.decode() + done.error) == plain("\n".join(shown)), line


def plain(text: str) -> list[str]:
    """Lines without what differs from one time to the next."""
    lines = [re.sub(r" +", " ", CHANGING.sub("#", line)).strip() for line in text.splitlines()]
    return [line for line in lines if not line.startswith("─")]

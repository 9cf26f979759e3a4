"""What the pages show works: their Python blocks run, and so do their `quiver` commands.

The blocks of a page run in order, in one namespace and one empty directory, as a reader would type
them. `no-run` after the language (```python no-run) keeps a block from running; Python must still
compile. In a console block only lines that start with `$ quiver` are run, and must exit with 0.
Pages that need Spark run in tests/spark, where there is a session.
"""

import os
import re
import shlex
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Ended, called

ROOT = Path(__file__).resolve().parents[2]
COMMAND_SECONDS_MAX = 100
SHELL = "|&;<>()$`*?"  # what a shell acts on, outside of quotes
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)$")


@dataclass(frozen=True)
class Block:
    language: str
    runs: bool
    line: int  # of its first line of code, counted from 1
    text: str


def blocks_of(page: str) -> list[Block]:
    found = []
    lines = iter(enumerate(page.splitlines(), start=1))
    for number, line in lines:
        opening = FENCE.match(line)
        if opening is None:
            continue
        inside = []
        for _, text in lines:
            if re.fullmatch(rf" *{opening['ticks']}`* *", text):
                break
            inside.append(text)
        else:
            pytest.fail(f"the block opened in line {number} is never closed")
        language, _, rest = opening["info"].strip().partition(" ")
        code = textwrap.dedent("\n".join(inside))
        found.append(Block(language, "no-run" not in rest, number + 1, code))
    return found


def commands_of(block: Block) -> list[str]:
    joined = block.text.replace("\\\n", " ")
    return [line[2:] for line in joined.splitlines() if re.match(r"\$ quiver\b", line)]


def pages(*, spark: bool) -> list[Path]:
    """Those whose Python uses Spark, or all others."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if uses_spark(page.read_text(encoding="utf-8")) == spark]


def uses_spark(page: str) -> bool:
    blocks = [block for block in blocks_of(page) if block.language == "python" and block.runs]
    return any(
        re.search(r"\bimport (quiver\.spark|pyspark)|\bfrom (quiver\.spark|pyspark)", block.text)
        for block in blocks
    )


@pytest.mark.process
@pytest.mark.parametrize("page", pages(spark=False), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_works_as_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run_page(page)


def run_page(page: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(page.read_text(encoding="utf-8")):
        if block.language == "python":
            run_python(page, block, namespace)
        elif block.language == "console" and block.runs:
            for command in commands_of(block):
                run_command(page, block, command)


def run_python(page: Path, block: Block, namespace: dict[str, Any]) -> None:
    padding = "\n" * (block.line - 1)  # so that a traceback names the page's own line
    code = compile(padding + block.text, str(page), "exec", dont_inherit=True)
    if block.runs:
        exec(code, namespace)


def run_command(page: Path, block: Block, command: str) -> None:
    done = ran(command)
    assert done.code == 0, (
        f"{page.name}, block at line {block.line}: `{command}` ended with {done.code}\n"
        f"{done.out.decode()}{done.error}"
    )


def ran(command: str) -> Ended:
    """Run a line as a shell does; a `quiver` that needs nothing of the shell is called here."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=SHELL)
    lexer.whitespace_split = True
    program, *words = lexer
    if program == "quiver" and not any(set(word) <= set(SHELL) for word in words):
        return called(words)
    bin_folder = Path(sys.executable).parent
    done = subprocess.run(
        command,
        shell=True,  # pages show pipes and redirections
        env={**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr.decode())


SAMPLE = """\
Text with `code`.

```python
x = 1
```

1. In a list:

   ```python no-run
   y = 2
   ```

````console
$ quiver topics data/ \\
    --json
[]
$ ls
$ quiver demo
````
"""


def test_blocks_are_found_with_language_line_and_mode():
    first, second, third = blocks_of(SAMPLE)
    assert first == Block("python", True, 4, "x = 1")
    assert second == Block("python", False, 10, "y = 2")
    assert third.language == "console"
    assert third.runs
    assert commands_of(third) == ["quiver topics data/      --json", "quiver demo"]


def test_a_shell_is_there_for_a_line_that_needs_it():
    assert ran("quiver topics -d nowhere").code == 2
    assert ran("quiver topics -d nowhere 2>&1 | grep -o nowhere").out == b"nowhere\n"


def test_blocks_of_one_page_share_a_namespace(tmp_path: Path):
    namespace: dict[str, Any] = {}
    for block in blocks_of("```python\nx = 1\n```\n\n```python\nassert x == 1\nz = x\n```\n"):
        run_python(tmp_path / "page.md", block, namespace)
    assert namespace["z"] == 1


def test_a_block_that_is_not_run_must_compile(tmp_path: Path):
    (block,) = blocks_of("```python no-run\nif\n```\n")
    with pytest.raises(SyntaxError):
        run_python(tmp_path / "page.md", block, {})

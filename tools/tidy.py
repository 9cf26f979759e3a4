"""Print the ten longest functions and files. It is a hint where to look, not a gate."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SHOWN = 10


def main(folder: str) -> None:
    sources = {path: path.read_text() for path in sorted(Path(folder).rglob("*.py"))}
    show("functions", (found for path in sources for found in functions(path, sources[path])))
    print()
    show("files", ((len(text.splitlines()), str(path)) for path, text in sources.items()))


def functions(path: Path, text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text, str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield lines, f"{path}:{node.lineno} {node.name}"


def show(what: str, found: Iterator[tuple[int, str]]) -> None:
    print(f"longest {what}")
    for lines, where in sorted(found, reverse=True)[:SHOWN]:
        print(f"{lines:6}  {where}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "src")

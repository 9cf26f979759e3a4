"""What people see: tables, sentences and quantities. Everything but results goes to stderr."""

import json
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import typer

from quiver.errors import InvalidRequest
from quiver.model import units

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDE: Final = 2_000  # columns of a "terminal" that is a file: nothing is cut


@cache
def console(*, stderr: bool = False) -> "Console":
    """Where to print for people."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def say(text: str = "", style: str = "") -> None:
    """A line of the result."""
    console().print(text, style=style, soft_wrap=True)


def note(text: str) -> None:
    """Something that is good to know, beside the result."""
    console(stderr=True).print(text, style="dim", soft_wrap=True)


def problem(text: str) -> None:
    """What went wrong."""
    console(stderr=True).print(f"quiver: {text}", style="red", soft_wrap=True)


def sentence(error: Exception) -> str:
    """The error's message with a stop at its end.

    It begins as it is, because its first word may be a path or the name of an argument.
    """
    text = str(error).strip() or type(error).__name__
    return text if text.endswith((".", "?", "!")) else text + "."


def document(value: Any) -> None:
    """The result for machines."""
    print(json.dumps(value, ensure_ascii=False, default=str))


def table(*columns: str, numbers: Iterable[str] = ()) -> "Table":
    """An empty table; the columns in `numbers` are aligned to the right."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False,
                 header_style="bold")  # fmt: skip
    right = set(numbers)
    for column in columns:
        if column in right:
            made.add_column(column, justify="right", no_wrap=True)
        else:
            made.add_column(column, overflow="fold", no_wrap=column == columns[0])
    return made


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Names and values, one a line."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, Text(value))
    console().print(grid)


def show(found: "Table") -> None:
    """Print a table."""
    console().print(found)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is gone for ever."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidRequest(f"{question} There is nobody to ask here: say --yes to do it")
    if not typer.confirm(question, err=True):
        raise typer.Abort


# -- quantities ------------------------------------------------------------------------------------


def count(number: int, noun: str, nouns: str | None = None) -> str:
    """A number of things: 1 message, 1,200 messages."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


size = units.size
duration = units.duration


def age(seconds: float) -> str:
    """How old something is, or a dash if there is nothing."""
    return duration(seconds) if seconds > 0 else "-"


def visible(text: str, limit: int = 0, *, keep: str = "") -> str:
    """Text without anything that could move a cursor; cut to `limit` characters."""
    if limit and len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(map(_escaper(keep), text))


@cache
def _escaper(keep: str) -> Callable[[str], str]:
    def escaped(char: str) -> str:
        if char.isprintable() or char in keep:
            return char
        return char.encode("unicode_escape").decode()

    return escaped

"""Options and arguments that several commands share, and how help shows examples."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path,
    typer.Option(
        "--data", "-d", metavar="DIR", envvar="QUIVER_DATA", help="The directory of the queue."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Topic = Annotated[str, typer.Argument(help="The topic's name.")]
Group = Annotated[str, typer.Argument(help="The group's name.")]

DATA = Path("data")


def epilog(examples: Iterable[str], *notes: str) -> str:
    """The foot of a help page: examples, then what else is good to know."""
    lines = ["[bold]Examples[/bold]"]
    lines += ["  " + example.replace("[", r"\[") for example in examples]
    paragraphs = ["\n".join(lines)]
    paragraphs += ["[dim]" + note.replace("[", r"\[") + "[/dim]" for note in notes]
    return "\n\n".join(paragraphs)

"""Options and arguments that several commands share, and how help shows examples."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from quiver.cli import completing

Data = Annotated[
    Path,
    typer.Option(
        "--data",
        "-d",
        metavar="DIR|URL",
        envvar="QUIVER_DATA",
        help="The directory of the queue, or a node's address: quiver://host:7070.",
    ),
]
Where = Annotated[
    Path | None,
    typer.Argument(metavar="DIR|URL", help="The queue; in place of --data.", show_default=False),
]
Directory = Annotated[
    Path,
    typer.Option(
        "--data",
        "-d",
        metavar="DIR",
        envvar="QUIVER_DATA",
        help="The directory of the queue.",
    ),
]
WhereDirectory = Annotated[
    Path | None,
    typer.Argument(metavar="DIR", help="The directory; in place of --data.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Topic = Annotated[str, typer.Argument(help="The topic's name.", autocompletion=completing.topics)]
Group = Annotated[str, typer.Argument(help="The group's name.", autocompletion=completing.groups)]

# Which part of a topic
Start = Annotated[
    str | None,
    typer.Option("--start", metavar="TIME", help="From this time on (ISO 8601; UTC if no zone)."),
]
Offset = Annotated[
    int | None, typer.Option("--offset", min=0, help="From this offset on, in each partition.")
]
End = Annotated[
    str | None,
    typer.Option("--end", metavar="TIME|OFFSET", help="Up to this time or offset, without it."),
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")
]
Most = Annotated[
    int | None, typer.Option("--max", "-n", min=1, help="End after this many messages.")
]

DATA = Path("data")


def until(end: str | None) -> str | int | None:
    """What `--end` means: digits are an offset."""
    return int(end) if end is not None and end.isdecimal() else end


def epilog(examples: Iterable[str], *notes: str) -> str:
    """The foot of a help page: examples, then what else is good to know."""
    lines = ["[bold]Examples[/bold]"]
    lines += ["  " + example.replace("[", r"\[") for example in examples]
    paragraphs = ["\n".join(lines)]
    paragraphs += ["[dim]" + note.replace("[", r"\[") + "[/dim]" for note in notes]
    return "\n\n".join(paragraphs)

"""`quiver read`: replay what a topic holds, without a group and without changing anything."""

from itertools import islice
from typing import Annotated, Final

import typer

from quiver.cli import directory, output
from quiver.cli.bodies import Writer
from quiver.cli.options import DATA, Data, Json, Topic, epilog
from quiver.cli.receive import choose_style
from quiver.cli.stdout import Stdout

CHUNK: Final = 500  # messages printed at once

EPILOG = epilog(
    [
        "quiver read orders",
        "quiver read orders --start 2026-11-01T00:00:00Z --verbose",
        "quiver read orders --partition 0 --offset 100 --end 200 --json",
    ],
    "What is still there depends on the topic's retention: by default a message goes when every "
    "group has settled it.",
)


def read(
    topic: Topic,
    start: Annotated[
        str | None,
        typer.Option(
            "--start", metavar="TIME", help="From this time on (ISO 8601; UTC if no zone)."
        ),
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, help="From this offset on, in each partition.")
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--end", metavar="TIME|OFFSET", help="Up to this time or offset, without it."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="End after this many messages.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show id, key, headers and age too.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write bodies byte for byte, with nothing between them.")
    ] = False,
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Replay messages without a group: nothing is leased, acked or changed."""
    style = choose_style(verbose=verbose, raw=raw, as_json=as_json)
    directory.require_queue(data)
    out = Stdout()
    writer = Writer(style, terminal=out.terminal)
    until = int(end) if end is not None and end.isdecimal() else end
    printed = 0
    with directory.opened(data) as queue:
        directory.require_topic(queue, topic, data)
        records = queue.read(topic, start=start, offset=offset, end=until, partition=partition)
        records = islice(records, most)
        while chunk := list(islice(records, CHUNK)):
            printed += out.write(map(writer.line, chunk))
            out.check()
    if not printed:
        output.note(f"{topic} holds no messages there.")

"""`quiver read`: replay what a topic holds, without a group and without changing anything."""

from itertools import islice
from typing import Annotated, Final

import typer

from quiver.cli import directory, output
from quiver.cli.bodies import BodyWriter
from quiver.cli.options import (
    DATA,
    Data,
    End,
    Json,
    Most,
    Offset,
    Partition,
    Start,
    Topic,
    epilog,
    until,
)
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
    start: Start = None,
    offset: Offset = None,
    end: End = None,
    partition: Partition = None,
    most: Most = None,
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
    writer = BodyWriter(style, terminal=out.terminal)
    printed = 0
    with directory.looked_into(data) as queue:
        directory.require_topic(queue, topic, data)
        records = queue.read(topic, start=start, offset=offset, end=until(end), partition=partition)
        records = islice(records, most)
        while chunk := list(islice(records, CHUNK)):
            printed += out.write(map(writer.line, chunk))
            out.check()
    if not printed:
        output.note(f"{topic} holds no messages there.")

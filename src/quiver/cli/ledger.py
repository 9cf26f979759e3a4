"""`quiver ledger` and `quiver trace`: what happened, to all messages or to one."""

import json
from itertools import chain, islice
from typing import Annotated, Any, Final

import typer

from quiver.cli import directory, output, words
from quiver.cli.completing import topics
from quiver.cli.options import DATA, Data, Json, Start, epilog
from quiver.cli.stdout import Stdout

CHUNK: Final = 500  # lines printed at once

LEDGER_EPILOG = epilog(
    [
        "quiver ledger orders",
        "quiver ledger orders --event dead_lettered --json | jq .reason",
        "quiver ledger --start 2026-11-01T00:00:00Z --group billing",
    ],
    "A line is about all messages of a partition to which the same thing happened at once. Times "
    "are UTC.",
)
TRACE_EPILOG = epilog(
    ["quiver trace 12-0", "quiver trace 12-0 --json"],
    "receive --verbose and read --verbose show ids. Times are UTC; behind each is how long "
    "after the send it was.",
)


def ledger(
    topic: Annotated[
        str | None,
        typer.Argument(
            help="Only this topic, and moves to it.",
            show_default=False,
            autocompletion=topics,
        ),
    ] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Only this group.")] = None,
    event: Annotated[
        str | None, typer.Option("--event", "-e", help="Only this: sent, leased, acked, …")
    ] = None,
    start: Start = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="TIME", help="Up to this time, without it.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="End after this many lines.")
    ] = None,
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Show what happened to messages: sends, leases, acks, failures and moves."""
    _check_event(event)
    out = Stdout()
    printed = 0
    with directory.looked_into(data) as queue:
        reader = queue.ledger_reader(topic, start=start, end=end)
        rows = chain.from_iterable(batch.to_pylist() for batch in reader)
        wanted = (
            row for row in rows
            if group in (None, row["group"]) and event in (None, row["event"])
        )  # fmt: skip
        chosen = islice(wanted, most)
        while chunk := list(islice(chosen, CHUNK)):
            printed += out.write(map(_json_line if as_json else _line, chunk))
            out.check()
    if not printed:
        output.note("The ledger has nothing of that.")


def trace(
    message_id: Annotated[str, typer.Argument(help="The message's id, such as 12-0.")],
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Tell a message's story: where it was sent, who had it, and what became of it."""
    with directory.looked_into(data) as queue:
        rows = queue.trace(message_id).to_pylist()
    if as_json:
        output.document([_plain(row) for row in rows])
        return
    first = rows[0]
    output.say(f"Message {message_id}, sent on {first['time']:%Y-%m-%d} (UTC)", style="bold")
    for row in rows:
        after = (row["time"] - first["time"]).total_seconds()
        since = "+" + output.duration(after) if row is not first else ""
        time = words.clock(row["time"], first)
        output.say(f"{time}  {since:<8}  {words.happened(row)}")


def _check_event(event: str | None) -> None:
    from quiver.client.arguments import choice
    from quiver.model.ledger import Event

    if event is not None:
        choice(event, "--event", [known.name.lower() for known in Event])


def _line(row: dict[str, Any]) -> bytes:
    where = "/".join(
        str(x) for x in (row["topic"], row["partition"], row["offset"]) if x is not None
    )
    many = f"{row['count']:,} messages " if row["count"] > 1 else ""
    time = f"{row['time']:%Y-%m-%d} {words.clock(row['time'], row)}"
    return f"{time}  {where:<24}  {many}{words.happened(row)}\n".encode()


def _json_line(row: dict[str, Any]) -> bytes:
    return json.dumps(_plain(row), ensure_ascii=False).encode() + b"\n"


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """The row without what it does not say; times as ISO 8601."""
    return {
        name: value.isoformat(timespec="milliseconds") if name in ("time", "until") else value
        for name, value in row.items()
        if value is not None
    }

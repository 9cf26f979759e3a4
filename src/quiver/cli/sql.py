"""`quiver sql`: a question about topics, and its answer as a table, as JSON or as a file."""

import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from quiver.cli import bodies, directory, output
from quiver.cli.files import check_replaceable, written
from quiver.cli.options import DATA, Data, Yes, epilog
from quiver.cli.stdout import Stdout
from quiver.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_SHOWN: Final = 50  # of a table; JSON and files have all
CELL_CHARS: Final = 80
PARQUET: Final = ".parquet"
CHUNK: Final = 1_000  # rows printed at once

EPILOG = epilog(
    [
        'quiver sql "select reason, count(*) from orders.dlq group by reason"',
        "quiver sql \"select json->>'$.customer' as customer, sum(json.amount::int) from orders "
        'where pending group by all"',
        "quiver sql 'select * from \"orders-eu\"' --out orders.parquet",
    ],
    'A topic is a table with the columns id, partition, "offset", key, body, text, json, headers, '
    "priority, created_at, deliver_at, expires_at, dedup_id, pending, and for dead letters "
    "origin_topic, origin_partition, origin_offset, origin_group, attempts, reason, dead_at.",
    "What happened to messages is the table ledger, with the columns that `quiver ledger` prints.",
    "It is one SELECT in the dialect of DuckDB, and can only read. "
    'Needs DuckDB: pip install ".[sql]" in a clone of Quiver.',
)


def sql(
    query: Annotated[str, typer.Argument(help="One SELECT; topics are its tables.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the answer to a Parquet file."),
    ] = None,
    yes: Yes = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, a line for each row.")
    ] = False,
    data: Data = DATA,
) -> None:
    """Ask about topics with SQL."""
    if out is not None:
        if as_json:
            raise InvalidRequest("--json and --out exclude each other")
        if out.suffix.lower() != PARQUET:
            raise InvalidRequest(
                f"the answer is written as Parquet: end the name {out} with {PARQUET}"
            )
        check_replaceable(out, data, yes=yes)
    with directory.looked_into(data) as queue:
        answer = queue.sql(query)
    if out is not None:
        _write(answer, out)
        output.say(f"Wrote {output.count(answer.num_rows, 'row')} to {out}.")
    elif as_json:
        _print(answer)
    else:
        _show(answer)


def _write(answer: "pa.Table", path: Path) -> None:
    import pyarrow.parquet as pq

    with written(path) as file:
        pq.write_table(answer, file)


def _print(answer: "pa.Table") -> None:
    out = Stdout()
    for batch in answer.to_batches(max_chunksize=CHUNK):
        out.write(_line(row) for row in batch.to_pylist(maps_as_pydicts="lossy"))
        out.check()


def _line(row: dict[str, Any]) -> bytes:
    fields: dict[str, Any] = {}
    for name, value in row.items():
        fields |= bodies.content(name, value) if isinstance(value, bytes) else {name: value}
    return json.dumps(fields, ensure_ascii=False, default=_plain).encode() + b"\n"


def _plain(value: Any) -> Any:
    """What JSON has no word for."""
    match value:
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime():
            return value.isoformat(timespec="milliseconds")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return value.decode(errors="backslashreplace")
    return str(value)


def _show(answer: "pa.Table") -> None:
    import pyarrow as pa

    numeric = [
        field.name
        for field in answer.schema
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        or pa.types.is_decimal(field.type)
    ]  # fmt: skip
    table = output.table(*answer.column_names, numbers=numeric)
    for row in answer.slice(0, ROWS_SHOWN).to_pylist(maps_as_pydicts="lossy"):
        table.add_row(*map(_cell, row.values()))
    output.show(table)
    if answer.num_rows > ROWS_SHOWN:
        output.note(
            f"{answer.num_rows:,} rows, the first {ROWS_SHOWN} shown: --json and --out have all."
        )
    elif not answer.num_rows:
        output.note("No rows.")


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bytes():
            text = bodies.readable(value)
        case str():
            text = value
        case bool():
            text = "yes" if value else "no"
        case int() | float() | Decimal():
            text = str(value)
        case datetime():
            text = f"{value:%Y-%m-%d %H:%M:%S}"
        case list() | dict():
            text = json.dumps(value, ensure_ascii=False, default=_plain)
        case _:
            text = str(value)
    return output.visible(text, CELL_CHARS)

"""`quiver audit`: whether everything that happened to messages may have happened."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from quiver.cli import directory, output
from quiver.cli.files import check_replaceable, written
from quiver.cli.options import DATA, Data, Json, Start, Where, Yes, epilog
from quiver.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

WRONG: Final = 1
SHOWN: Final = 50  # findings; JSON and files have all
SECONDS_MIN: Final = 1

EPILOG = epilog(
    [
        "quiver audit",
        "quiver audit --data quiver://host:7070 --start 2026-11-01T00:00:00Z --json",
        "quiver audit --every 300",
    ],
    "It looks for messages that were lost, duplicated, reordered or leased to two at a time, in the "
    "ledger and in what the topics hold. Exit code 0: there are none; 1: there are.",
    'Needs Spark: pip install ".[spark]" in a clone of Quiver.',
)


def audit(
    where: Where = None,
    start: Start = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="TIME", help="Up to this time, without it.")
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(
            "--every", metavar="SECONDS", min=SECONDS_MIN,
            help="Look again and again, until something is wrong.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write what is found to a Parquet file."),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
    data: Data = DATA,
) -> None:  # fmt: skip
    """Check that no message was lost, duplicated, reordered or leased twice at a time."""
    from quiver.spark.session import demand_pyspark, start_session

    demand_pyspark()
    data = where or data
    if out is not None:
        if out.suffix.lower() != ".parquet":
            raise InvalidRequest(
                f"findings are written as Parquet: end the name {out} with .parquet"
            )
        check_replaceable(out, data, yes=yes)
    spark = start_session("quiver audit", quiet=True)
    try:
        while True:
            found, looked_at = _look(spark, data, start, end)
            if every is None or found.num_rows:
                break
            output.note(f"Nothing is wrong with {looked_at}.")
            time.sleep(every)
    finally:
        spark.stop()
    if out is not None:
        _write(found, out)
    if as_json:
        output.document([_plain(row) for row in found.to_pylist()])
    else:
        _show(found, looked_at)
    if found.num_rows:
        raise typer.Exit(WRONG)


def _look(
    spark: "SparkSession", data: Path, start: str | None, end: str | None
) -> tuple["pa.Table", str]:
    """The findings, and what was looked at."""
    from quiver.spark.analytics import audit as look
    from quiver.spark.analytics import gather

    with TemporaryDirectory(prefix="quiver-audit-") as place:
        with directory.looked_into(data) as queue:
            evidence = gather(spark, queue, Path(place))
        found = look(evidence, start, end).toArrow()
        rows = evidence.ledger.count()
    topics = output.count(len(evidence.policies), "topic")
    return found, f"{topics} and {output.count(rows, 'row')} of the ledger"


def _write(found: "pa.Table", path: Path) -> None:
    import pyarrow.parquet as pq

    with written(path) as file:
        pq.write_table(found, file)


def _show(found: "pa.Table", looked_at: str) -> None:
    if not found.num_rows:
        output.say(f"Nothing is wrong with {looked_at}.")
        return
    table = output.table("what", "when (UTC)", "message", "group", "why")
    for row in found.slice(0, SHOWN).to_pylist():
        table.add_row(
            row["kind"].replace("_", "-"), f"{row['time']:%Y-%m-%d %H:%M:%S}", _which(row),
            row["group"] or "-", output.visible(row["why"]),
        )  # fmt: skip
    output.show(table)
    output.say(f"{output.count(found.num_rows, 'finding')} in {looked_at}.", style="bold")
    if found.num_rows > SHOWN:
        output.note(f"The first {SHOWN} are shown: --json and --out have all.")
    output.note("`quiver trace ID` tells a message's whole story.")


def _which(row: dict[str, Any]) -> str:
    many = f" ({row['count']:,})" if row["count"] > 1 else ""
    name = f", id {row['id']}" if row["id"] else ""
    return f"{row['topic']}/{row['partition']}/{row['offset']}{many}{name}"


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return row | {
        "time": row["time"].isoformat(timespec="milliseconds"),
        "rows": [
            {name: value if not hasattr(value, "isoformat") else value.isoformat()
             for name, value in one.items() if value is not None}
            for one in row["rows"]
        ],
    }  # fmt: skip

"""`quiver report`: what a queue does, as a page with plots, as tables, and in a few lines."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from quiver.cli import directory, output
from quiver.cli.options import DATA, Data, Json, Start, Where, Yes, epilog
from quiver.errors import InvalidRequest

if TYPE_CHECKING:
    from quiver.spark.analytics import Report

CAUSES_SHOWN: Final = 5
OUT: Final = Path("quiver-report")

EPILOG = epilog(
    [
        "quiver report",
        "quiver report --data quiver://host:7070 --start 2026-11-01T00:00:00Z --out november",
    ],
    "It writes index.html, which needs nothing but a browser, and tables/*.parquet, and prints a summary. "
    "The audit's findings are in it; for an exit code, use quiver audit.",
    'Needs Spark: pip install ".[spark]" in a clone of Quiver.',
)


def report(
    where: Where = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where the page and its tables go.")
    ] = OUT,
    start: Start = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="TIME", help="Up to this time, without it.")
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Report on throughput, latency, lag, failures, cost and capacity, with plots."""
    from quiver.spark.session import demand_pyspark, start_session

    demand_pyspark()
    data = where or data
    _check_place(out, data, yes=yes)
    from quiver.spark.analytics import gather
    from quiver.spark.analytics import report as make

    directory.require_queue(data)
    spark = start_session("quiver report", quiet=True)
    try:
        with TemporaryDirectory(prefix="quiver-report-") as place:
            with directory.looked_into(data) as queue:
                evidence = gather(spark, queue, Path(place))
            made = make(evidence, start, end)
    finally:
        spark.stop()
    try:
        page = made.save(out)
    except OSError as error:
        raise InvalidRequest(f"cannot write to {out}: {error.strerror}") from error
    if as_json:
        output.document(_figures(made) | {"page": str(page)})
    else:
        _summary(made)
        output.say(f"The report is {page}; its tables are in {page.parent / 'tables'}.")


def _check_place(out: Path, data: Path, *, yes: bool) -> None:
    if out.resolve().is_relative_to(data.resolve()):
        raise InvalidRequest(f"{out} is in the directory of the queue: write elsewhere")
    if not out.exists():
        return
    if not out.is_dir():
        raise InvalidRequest(f"{out} is not a directory")
    if (out / "index.html").exists():
        output.confirm(f"Replace the report in {out}?", yes=yes)
    elif any(out.iterdir()):
        raise InvalidRequest(f"{out} has other files: name a new directory")


def _summary(made: "Report") -> None:
    from quiver.spark.analytics.page import unattended

    columns = ("messages", "p50", "p99", "lag", "arrivals/s", "capacity/s")
    table = output.table("topic", "group", *columns, numbers=columns)
    for row in _groups(made):
        table.add_row(
            row["topic"], row["group"], f"{row['messages']:,}", _seconds(row["p50"]),
            _seconds(row["p99"]), f"{row['lag']:,}", _rate(row["arrivals"]), _rate(row["capacity"]),
        )  # fmt: skip
    output.show(table)
    for cause in made.tables["causes"].slice(0, CAUSES_SHOWN).to_pylist():
        what = cause["event"].replace("_", " ")
        output.say(
            f"{output.count(cause['messages'], 'message')} of {cause['topic']} {what}: "
            f"{output.visible(cause['cause']) or 'no reason given'}"
        )
    for sentence in unattended(made.tables):
        output.say(output.visible(sentence), "red")
    findings = made.tables["findings"].num_rows
    if findings:
        output.say(f"The audit found {output.count(findings, 'fault')}: see quiver audit.", "red")
    else:
        output.say("The audit found nothing wrong.")


def _groups(made: "Report") -> list[dict[str, Any]]:
    """Each group in one row; its latency is that of the window in which it acked most."""
    windows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in made.tables["latency"].to_pylist():
        windows.setdefault((row["topic"], row["group"]), []).append(row)
    rows = []
    for row in made.tables["forecast"].to_pylist():
        found = windows.get((row["topic"], row["group"]), [])
        busiest = max(found, key=lambda one: one["messages"], default={})
        rows.append(
            {name: row[name] for name in ("topic", "group", "lag", "arrivals", "capacity")}
            | {"messages": sum(one["messages"] for one in found)}
            | {name: busiest.get(name) for name in ("p50", "p99")}
        )
    return rows


def _figures(made: "Report") -> dict[str, Any]:
    return {
        "first": made.first.isoformat() if made.first else None,
        "last": made.last.isoformat() if made.last else None,
        "groups": _groups(made),
        "unattended": [
            {name: row[name] for name in ("topic", "group", "ready", "oldest_age", "paused")}
            for row in made.tables["unattended"].to_pylist()
        ],
        "findings": made.tables["findings"].num_rows,
    }


def _seconds(value: float | None) -> str:
    return "-" if value is None else output.duration(value)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}" if value >= 1 else f"{value:.2g}"

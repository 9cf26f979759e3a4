"""The page of a report: plots and tables in one file, without scripts, that loads nothing."""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from html import escape
from typing import Any, Final

import pyarrow as pa

from quiver.model.units import duration, size

ROWS_SHOWN: Final = 25  # of a table; its Parquet file has all
CHARS_SHOWN: Final = 120
SECTIONS: Final = (  # the plot and the table of that name, a title, and what they say
    ("unattended", "Groups that nobody works for",
     "Messages are ready, no consumer holds one, and none has come for a minute or ever. Start one, or "
     "delete the group: what it has not settled is kept for it."),
    ("findings", "Correctness",
     "Lost, duplicated, reordered and double-leased messages. There should be none."),
    ("forecast", "Capacity",
     "Arrivals a second; the most that a group got done in a window that began with work waiting; and "
     "how long until the backlog is drained, or full, or until arrivals reach capacity, as things go."),
    ("throughput", "Throughput", "Messages that came in, and that were acked, a second."),
    ("latency", "Latency",
     "From the arrival of a message to its ack, for what was acked in each window."),
    ("waiting", "Lag", "Messages that a group had not settled at the end of each window."),
    ("little", "Little's law",
     "The average number of messages that were there, and arrivals times stay, for each window. Points "
     "on the line are windows in which as much came as went."),
    ("service", "Service times", "From a lease to its end, by how it ended."),
    ("service_times", "Distribution of service times", "The share of leases that took so long."),
    ("causes", "Why messages fail",
     "Reasons of failures; what differs between alike ones is left out."),
    ("poison", "Poison messages", "Messages that failed three times or more, or were given up."),
    ("keys", "Hot keys", "The keys with most of the messages that are stored."),
    ("partitions", "Partitions", "How arrivals are spread; a skew of 1 is an even share."),
    ("cost", "Cost",
     "Deliveries, workers' time (and what of it ended without an ack) and room, by topic."),
)  # fmt: skip
IN_SECONDS: Final = ("p50", "p90", "p99", "max", "total", "oldest_age", "worker_seconds",
                     "wasted_seconds", "drained_in", "full_in", "saturated_in")  # fmt: skip
UNITS: Final[dict[str, Callable[[float], str]]] = {  # how the figures of a column are said
    **dict.fromkeys(IN_SECONDS, duration),
    **dict.fromkeys(("nbytes", "stored_bytes"), size),
    **dict.fromkeys(("arrivals", "capacity", "latest"), lambda rate: f"{_number(rate)}/s"),
    **dict.fromkeys(("share", "utilisation"), lambda share: f"{share:.0%}"),
    "trend": lambda growth: f"{'+' if growth > 0 else ''}{_number(3_600 * growth)}/s an hour",
}
HEADS: Final = {"worker_seconds": "worker time", "wasted_seconds": "wasted time", "nbytes": "size",
                "stored_bytes": "stored size"}  # fmt: skip
PLOTS_ONLY: Final = ("throughput", "latency", "waiting", "service_times")
STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;color:#1a202c;background:#f7fafc;margin:0}
main{max-width:72rem;margin:0 auto;padding:1.5rem}
h1{font-size:1.6rem;margin:0}h2{font-size:1.15rem;margin:0}
section{background:#fff;border:1px solid #e2e8f0;border-radius:8px;padding:1rem 1.25rem;margin:1rem 0}
p{color:#4a5568;margin:.2rem 0 .8rem}img{width:100%;max-width:60rem;height:auto}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;width:100%}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #edf2f7;white-space:nowrap}
td.text{white-space:normal;min-width:14rem}
th{color:#4a5568}td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
.good{color:#276749}.bad{color:#9b2c2c}
"""


def page(
    tables: Mapping[str, pa.Table],
    plots: Mapping[str, bytes],
    first: datetime | None,
    last: datetime | None,
) -> str:
    """The whole page."""
    sections = "".join(
        _section(title, text, plots.get(name), None if name in PLOTS_ONLY else tables.get(name))
        for name, title, text in SECTIONS
    )
    span = f"{_cell(first)} to {_cell(last)} (UTC)" if first else "Nothing has happened."
    wrong = tables["findings"].num_rows
    verdict = f"The audit found {wrong:,} faults." if wrong else "The audit found nothing wrong."
    said = [(verdict, "bad" if wrong else "good"), *((one, "bad") for one in unattended(tables))]
    head = "".join(f'<p class="{kind}"><b>{escape(text)}</b></p>' for text, kind in said)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Quiver report</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<main><h1>Quiver report</h1><p>{span}</p>{head}{sections}</main></body></html>\n"
    )


def unattended(tables: Mapping[str, pa.Table]) -> list[str]:
    """A sentence about each group that nobody works for."""
    return [
        f"Nobody works for group {row['group']} of {row['topic']}"
        f"{', which is paused' if row['paused'] else ''}: {row['ready']:,} "
        f"{'message waits' if row['ready'] == 1 else 'messages wait, the oldest'} for "
        f"{duration(row['oldest_age'])}."
        for row in tables["unattended"].to_pylist()
    ]


def _section(title: str, text: str, plot: bytes | None, table: pa.Table | None) -> str:
    parts = [f"<section><h2>{escape(title)}</h2><p>{escape(text)}</p>"]
    if plot is not None:
        picture = b64encode(plot).decode()
        parts.append(f'<img alt="{escape(title)}" src="data:image/svg+xml;base64,{picture}">')
    if table is not None:
        parts += _table(table)
    return "".join([*parts, "</section>"])


def _table(table: pa.Table) -> Iterator[str]:
    if not table.num_rows:
        yield "<p>None.</p>"
        return
    names = [
        name for name in table.column_names if not pa.types.is_nested(table.schema.field(name).type)
    ]
    kinds = {name: _kind(table.schema.field(name).type, table[name]) for name in names}
    head = "".join(
        f'<th class="{kinds[name]}">{escape(HEADS.get(name, name.replace("_", " ")))}</th>'
        for name in names
    )
    yield f'<div class="wide"><table><tr>{head}</tr>'
    for row in table.slice(0, ROWS_SHOWN).to_pylist():
        cells = "".join(
            f'<td class="{kinds[name]}">{_cell(row[name], UNITS.get(name))}</td>' for name in names
        )
        yield f"<tr>{cells}</tr>"
    yield "</table></div>"
    if table.num_rows > ROWS_SHOWN:
        yield f"<p>The first {ROWS_SHOWN} of {table.num_rows:,}; the Parquet file has all.</p>"


def _kind(type_: pa.DataType, values: pa.ChunkedArray) -> str:
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return "number"
    if pa.types.is_string(type_) and any(
        len(text or "") > 40 for text in values[:ROWS_SHOWN].to_pylist()
    ):
        return "text"
    return ""


def _number(value: float) -> str:
    return f"{value:,.3g}" if abs(value) < 1_000 else f"{value:,.0f}"


def _cell(value: Any, said: Callable[[float], str] | None = None) -> str:
    if said is not None and isinstance(value, int | float):
        return said(value)
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return _number(value)
        case int():
            return f"{value:,}"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
    text = str(value)
    return escape(text if len(text) <= CHARS_SHOWN else text[: CHARS_SHOWN - 1] + "…")

"""The page of a report: plots and tables in one file, without scripts, that loads nothing."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import datetime
from html import escape
from typing import Any, Final

import pyarrow as pa

ROWS_SHOWN: Final = 25  # of a table; its Parquet file has all
CHARS_SHOWN: Final = 120
TEXT_CHARS: Final = 40  # a column with longer ones may be broken into lines
SECTIONS: Final = (  # the plot and the table of that name, a title, and what they say
    ("findings", "Correctness",
     "Lost, duplicated, reordered and double-leased messages. There should be none."),
    ("forecast", "Capacity",
     "Arrivals a second; the most that a group got done in a window that began with work waiting; and "
     "the seconds until the backlog is drained, or full, or until arrivals reach capacity."),
    ("throughput", "Throughput", "Messages that came in, and that were acked, a second."),
    ("latency", "Latency",
     "Seconds from the arrival of a message to its ack, for what was acked in each window."),
    ("waiting", "Lag", "Messages that a group had not settled at the end of each window."),
    ("little", "Little's law",
     "The average number of messages that were there, and arrivals times stay, for each window. Points "
     "on the line are windows in which as much came as went."),
    ("service", "Service times", "Seconds from a lease to its end, by how it ended."),
    ("service_times", "Distribution of service times", "The share of leases that took so long."),
    ("causes", "Why messages fail",
     "Reasons of failures; what differs between alike ones is left out."),
    ("poison", "Poison messages", "Messages that failed three times or more, or were given up."),
    ("keys", "Hot keys", "The keys with most of the messages that are stored."),
    ("partitions", "Partitions", "How arrivals are spread; a skew of 1 is an even share."),
    ("cost", "Cost",
     "Deliveries, workers' time (and what of it ended without an ack) and room, by topic."),
)  # fmt: skip
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
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Quiver report</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<main><h1>Quiver report</h1><p>{span}</p>"
        f'<p class="{"bad" if wrong else "good"}"><b>{verdict}</b></p>{sections}</main></body></html>\n'
    )


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
        f'<th class="{kinds[name]}">{escape(name.replace("_", " "))}</th>' for name in names
    )
    yield f'<div class="wide"><table><tr>{head}</tr>'
    for row in table.slice(0, ROWS_SHOWN).to_pylist():
        cells = "".join(f'<td class="{kinds[name]}">{_cell(row[name])}</td>' for name in names)
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


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:,.3g}" if abs(value) < 1_000 else f"{value:,.0f}"
        case int():
            return f"{value:,}"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
    text = str(value)
    return escape(text if len(text) <= CHARS_SHOWN else text[: CHARS_SHOWN - 1] + "…")

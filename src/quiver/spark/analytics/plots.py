"""Figures as pictures: SVG, made by matplotlib without a screen."""

from collections.abc import Callable
from datetime import datetime, timedelta
from io import BytesIO
from math import nan
from typing import TYPE_CHECKING, Any, Final

from quiver.model.units import duration

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

LINES: Final = 6  # in one picture: topics, groups, causes or keys; those with most messages
INCHES: Final = (9.0, 3.2)
MARKS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0,
                60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0, 3_600.0, 7_200.0, 18_000.0, 43_200.0,
                86_400.0, 172_800.0, 432_000.0, 864_000.0, 2_592_000.0)  # fmt: skip
MARKS_SHOWN: Final = 8
COLOURS: Final = ("#2b6cb0", "#dd6b20", "#2f855a", "#805ad5", "#c53030", "#4a5568")
Row = dict[str, Any]
Rows = list[Row]
Who = tuple[Any, ...]


def plots(tables: "dict[str, pa.Table]") -> dict[str, bytes]:
    """The pictures that have something to show, by name."""
    seconds = tables["throughput"]["seconds"].to_pylist() or [0]
    width = timedelta(seconds=seconds[0])
    drawn = {name: draw(tables[table].to_pylist(), width) for name, (table, draw) in DRAWN.items()}
    return {name: _svg(figure) for name, figure in drawn.items() if figure is not None}


def _throughput(rows: Rows, width: timedelta) -> "Figure | None":
    lines: dict[Who, Rows] = _largest(rows, ("topic",), "sent", "leased", "delivered", "acked")
    if not lines:
        return None
    figure, axes = _figure("messages a second")
    for colour, ((topic,), found) in zip(COLOURS, lines.items(), strict=False):
        _line(axes, found, width, _came, f"{topic}: in", color=colour)
        label = f"{topic}: acked, all groups"
        _line(axes, found, width, _went, label, color=colour, linestyle="--")
    axes.set_ylim(bottom=0)
    return _finished(figure, axes)


def _came(row: Row) -> float:
    return float(row["sent"] + row["published"] + row["redriven"]) / float(row["seconds"])


def _went(row: Row) -> float:
    return float(row["acked"] + row["delivered"]) / float(row["seconds"])


def _latency(rows: Rows, width: timedelta) -> "Figure | None":
    lines = _largest(rows, ("topic", "group"), "messages")
    if not lines:
        return None
    figure, axes = _figure("from arrival to ack")
    for colour, (who, found) in zip(COLOURS, lines.items(), strict=False):
        for share, style in (("p50", "-"), ("p99", "--")):
            label = f"{' / '.join(who)}: {share}"
            _line(axes, found, width, _at_least(share), label, color=colour, linestyle=style)
    axes.set_yscale("log")
    _in_units_of_time(axes.yaxis)
    return _finished(figure, axes)


def _at_least(name: str) -> Callable[[Row], float]:
    """A time for an axis that has no 0."""
    return lambda row: max(float(row[name]), 0.001)


def _waiting(rows: Rows, width: timedelta) -> "Figure | None":
    lines = _largest(rows, ("topic", "group"), "lag", "came")
    if not lines:
        return None
    figure, axes = _figure("messages not settled")
    for colour, (who, found) in zip(COLOURS, lines.items(), strict=False):
        _line(axes, found, width, lambda row: float(row["lag"]), " / ".join(who), color=colour)
    axes.set_ylim(bottom=0)
    return _finished(figure, axes)


def _line(
    axes: "Axes", rows: Rows, width: timedelta, value: Callable[[Row], float], label: str,
    **style: str,
) -> None:  # fmt: skip
    """A line through windows that follow each other; where nothing happened, it is broken."""
    times, values = with_gaps([row["time"] for row in rows], [value(row) for row in rows], width)
    axes.plot(times, values, label=label, marker=".", **style)  # type: ignore[arg-type]  # of dates


def with_gaps(
    times: list[datetime], values: list[float], width: timedelta
) -> tuple[list[datetime], list[float]]:
    """Times and values with a NaN, which no line crosses, wherever windows of a `width` are missing."""
    broken: list[tuple[datetime, float]] = []
    for time, value in zip(times, values, strict=True):
        if broken and time - broken[-1][0] > 1.5 * width:
            broken.append((broken[-1][0] + width, nan))
        broken.append((time, value))
    return [time for time, _ in broken], [value for _, value in broken]


def _little(rows: Rows, _: timedelta) -> "Figure | None":
    known = [row for row in rows if row["expected"] and row["present"]]
    lines = _largest(known, ("topic", "group"), "came")
    if not lines:
        return None
    figure, axes = _figure("messages there (L)", height=4.0, over_time=False)
    for colour, (who, found) in zip(COLOURS, lines.items(), strict=False):
        axes.scatter([row["expected"] for row in found], [row["present"] for row in found],
                     color=colour, s=18, label=" / ".join(who))  # fmt: skip
    low = min(min(row["expected"], row["present"]) for row in known)
    high = max(max(row["expected"], row["present"]) for row in known)
    axes.plot([low, high], [low, high], color="#a0aec0", linewidth=1, label="L = λW")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("arrivals a second times stay (λW)")
    return _finished(figure, axes)


def _service_times(rows: Rows, _: timedelta) -> "Figure | None":
    lines = _largest(rows, ("topic", "group"), "leases")
    if not lines:
        return None
    figure, axes = _figure("share of leases", over_time=False)
    for colour, (who, found) in zip(COLOURS, lines.items(), strict=False):
        total = sum(row["leases"] for row in found)
        axes.plot([row["seconds"] for row in found], [row["leases"] / total for row in found],
                  color=colour, marker="o", label=" / ".join(who))  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("took up to")
    _in_units_of_time(axes.xaxis)
    return _finished(figure, axes)


def _causes(rows: Rows, _: timedelta) -> "Figure | None":
    return _bars(rows, "messages", lambda row: f"{row['topic']}, {row['event']}: {row['cause']}")


def _keys(rows: Rows, _: timedelta) -> "Figure | None":
    chosen = sorted(rows, key=lambda row: -row["share"] if row["keys"] > 1 else 0)
    return _bars(chosen, "share", lambda row: f"{row['topic']}: {row['key']}")


def _bars(rows: Rows, value: str, name: Callable[[dict[str, Any]], str]) -> "Figure | None":
    if not rows:
        return None
    from matplotlib.ticker import PercentFormatter  # noqa: PLC0415 - optional

    shown = rows[: 2 * LINES][::-1]
    figure, axes = _figure("", height=0.6 + 0.32 * len(shown), over_time=False)
    axes.barh([_short(name(row)) for row in shown], [row[value] for row in shown], color=COLOURS[0])
    axes.set_xlabel("messages" if value == "messages" else "share of the topic's messages")
    if value == "share":
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(axis="y", visible=False)
    return figure


def _largest(rows: Rows, by: tuple[str, ...], *weights: str) -> dict[Who, Rows]:
    """Rows by who they are about: those with most messages."""
    found: dict[Who, Rows] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in by), []).append(row)
    sizes = {who: sum(row[name] for row in some for name in weights) for who, some in found.items()}
    largest = sorted((who for who in found if sizes[who]), key=lambda who: (-sizes[who], who))
    return {who: found[who] for who in largest[:LINES]}


def _figure(
    label: str, height: float = INCHES[1], *, over_time: bool = True
) -> "tuple[Figure, Axes]":
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415 - optional
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(INCHES[0], height), layout="constrained")
    axes = figure.subplots()
    axes.set_ylabel(label)
    axes.grid(visible=True, color="#e2e8f0", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if over_time:
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]  # matplotlib has none there
        axes.xaxis.set_major_locator(locator)
        formatter = ConciseDateFormatter(locator, tz="UTC")  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(formatter)
    return figure, axes


def _in_units_of_time(axis: "Axis") -> None:
    """Mark a logarithmic axis where people would: 1s, 2s, 5s, … 1m, 2m, 5m, …"""
    from matplotlib.ticker import (  # noqa: PLC0415 - optional
        FixedFormatter,
        FixedLocator,
        NullLocator,
    )

    low, high = axis.get_data_interval()
    marks = [mark for mark in MARKS if low / 2 <= mark <= high * 2]
    marks = marks[:: len(marks) // MARKS_SHOWN + 1]
    axis.set_major_locator(FixedLocator(marks))
    axis.set_major_formatter(FixedFormatter([duration(mark) for mark in marks]))
    axis.set_minor_locator(NullLocator())


def _finished(figure: "Figure", axes: "Axes") -> "Figure":
    figure.legend(loc="outside right upper", fontsize="small", frameon=False)
    return figure


def _svg(figure: "Figure") -> bytes:
    file = BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# Each is made of a table: its name, and how.
DRAWN: Final[dict[str, tuple[str, Callable[[Rows, timedelta], "Figure | None"]]]] = {
    "throughput": ("throughput", _throughput),
    "latency": ("latency", _latency),
    "waiting": ("waiting", _waiting),
    "little": ("waiting", _little),
    "service_times": ("service_times", _service_times),
    "causes": ("causes", _causes),
    "keys": ("keys", _keys),
}

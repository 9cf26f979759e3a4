"""Figures as pictures: SVG, made by matplotlib without a screen."""

from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES: Final = 6  # in one picture: topics, groups, causes or keys; those with most messages
INCHES: Final = (9.0, 3.2)
COLOURS: Final = ("#2b6cb0", "#dd6b20", "#2f855a", "#805ad5", "#c53030", "#4a5568")
Rows = list[dict[str, Any]]
Who = tuple[Any, ...]


def plots(tables: "dict[str, pa.Table]") -> dict[str, bytes]:
    """The pictures that have something to show, by name."""
    drawn = {name: draw(tables[table].to_pylist()) for name, (table, draw) in DRAWN.items()}
    return {name: _svg(figure) for name, figure in drawn.items() if figure is not None}


def _throughput(rows: Rows) -> "Figure | None":
    lines: dict[Who, Rows] = _largest(rows, ("topic",), "sent", "leased", "delivered", "acked")
    if not lines:
        return None
    figure, axes = _figure("messages a second")
    for colour, ((topic,), found) in zip(COLOURS, lines.items(), strict=False):
        times = [row["time"] for row in found]
        came = [
            (row["sent"] + row["published"] + row["redriven"]) / row["seconds"] for row in found
        ]
        went = [(row["acked"] + row["delivered"]) / row["seconds"] for row in found]
        axes.plot(times, came, color=colour, label=f"{topic}: in", marker=".")
        axes.plot(
            times,
            went,
            color=colour,
            label=f"{topic}: acked, all groups",
            linestyle="--",
            marker=".",
        )
    return _finished(figure, axes)


def _latency(rows: Rows) -> "Figure | None":
    lines = _largest(rows, ("topic", "group"), "messages")
    if not lines:
        return None
    figure, axes = _figure("seconds from arrival to ack")
    for colour, (who, found) in zip(COLOURS, lines.items(), strict=False):
        times = [row["time"] for row in found]
        axes.plot(times, [max(row["p50"], 0.001) for row in found], color=colour, marker=".",
                  label=f"{' / '.join(who)}: p50")  # fmt: skip
        axes.plot(times, [max(row["p99"], 0.001) for row in found], color=colour, marker=".",
                  linestyle="--", label=f"{' / '.join(who)}: p99")  # fmt: skip
    axes.set_yscale("log")
    return _finished(figure, axes)


def _waiting(rows: Rows) -> "Figure | None":
    lines = _largest(rows, ("topic", "group"), "lag", "came")
    if not lines:
        return None
    figure, axes = _figure("messages not settled")
    for colour, (who, found) in zip(COLOURS, lines.items(), strict=False):
        times = [row["time"] for row in found]
        axes.plot(times, [row["lag"] for row in found], color=colour, marker=".",
                  label=" / ".join(who))  # fmt: skip
    return _finished(figure, axes)


def _little(rows: Rows) -> "Figure | None":
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


def _service_times(rows: Rows) -> "Figure | None":
    lines = _largest(rows, ("topic", "group"), "leases")
    if not lines:
        return None
    figure, axes = _figure("share of leases", over_time=False)
    for colour, (who, found) in zip(COLOURS, lines.items(), strict=False):
        total = sum(row["leases"] for row in found)
        axes.plot([row["seconds"] for row in found], [row["leases"] / total for row in found],
                  color=colour, marker="o", label=" / ".join(who))  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("seconds, up to")
    return _finished(figure, axes)


def _causes(rows: Rows) -> "Figure | None":
    return _bars(rows, "messages", lambda row: f"{row['topic']}, {row['event']}: {row['cause']}")


def _keys(rows: Rows) -> "Figure | None":
    chosen = sorted(rows, key=lambda row: -row["share"] if row["keys"] > 1 else 0)
    return _bars(chosen, "share", lambda row: f"{row['topic']}: {row['key']}")


def _bars(rows: Rows, value: str, name: Callable[[dict[str, Any]], str]) -> "Figure | None":
    if not rows:
        return None
    shown = rows[: 2 * LINES][::-1]
    figure, axes = _figure("", height=0.6 + 0.32 * len(shown), over_time=False)
    axes.barh([_short(name(row)) for row in shown], [row[value] for row in shown], color=COLOURS[0])
    axes.set_xlabel("messages" if value == "messages" else "share of the topic's messages")
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
DRAWN: Final[dict[str, tuple[str, Callable[[Rows], "Figure | None"]]]] = {
    "throughput": ("throughput", _throughput),
    "latency": ("latency", _latency),
    "waiting": ("waiting", _waiting),
    "little": ("waiting", _little),
    "service_times": ("service_times", _service_times),
    "causes": ("causes", _causes),
    "keys": ("keys", _keys),
}

"""The figures as a table for people and as JSON for programs."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from bench.machine import WAIT_MAX
from bench.measure import Row, spread

VERDICTS = {True: "[green]PASS[/]", False: "[red]below[/]", None: ""}


def show_facts(console: Console, facts: dict[str, str]) -> None:
    for name, fact in facts.items():
        console.print(f"[bold]{name:14}[/] {fact}", highlight=False)
    console.print()


def show_rows(console: Console, experiment: str, rows: Sequence[Row], waited: float) -> None:
    """One experiment as a table, and below it how each of its rows was obtained.

    `waited` is the share of the time in which other processes had the processors.
    """
    table = Table(title=experiment, title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("Quiver")
    table.add_column("", justify="right")
    table.add_column("against")
    table.add_column("", justify="right")
    table.add_column("ratio (min to max)", justify="right")
    table.add_column("target", justify="right")
    table.add_column("")
    for number, row in enumerate(rows, 1):
        target = f"{row.target.sign} {row.target.value:g}" if row.target else ""
        ours, theirs = _figure(row.ours, row.unit), _figure(row.theirs, row.unit)
        verdict = VERDICTS[row.met] + ("?" if waited > WAIT_MAX and row.target else "")
        table.add_row(str(number), row.name, ours, row.peer, theirs, _ratio(row), target, verdict)
    if rows:
        console.print(table)
    if waited > WAIT_MAX:
        console.print(
            f" [yellow]Not to be trusted[/]: for {waited:.0%} of the time other processes had the "
            "processors. Ratios may be wrong either way; repeat it on an idle machine.",
            highlight=False,
        )
    notes: dict[str, list[str]] = {}
    for number, row in enumerate(rows, 1):
        notes.setdefault(row.how, []).append(str(number))
    for how, numbers in notes.items():
        said = f"[dim]{', '.join(numbers)}. {how}[/]"
        console.print(Padding(said, (0, 0, 0, 1)), highlight=False)
    console.print()


def show_skipped(console: Console, skipped: dict[str, str]) -> None:
    for name, reason in skipped.items():
        console.print(f" [yellow]skipped[/] {name}: {reason}", highlight=False)
    if skipped:
        console.print()


def show_verdict(console: Console, rows: Sequence[Row], waited: dict[str, float]) -> None:
    aimed = [row for row in rows if row.target is not None]
    missed = [row for row in aimed if not row.met]
    console.print(f"{len(aimed) - len(missed)} of {len(aimed)} targets met.")
    noisy = [name for name, share in waited.items() if share > WAIT_MAX]
    if noisy:
        console.print(f"[yellow]Not to be trusted[/], the machine was busy: {', '.join(noisy)}.")
    for row in missed:
        assert row.target is not None
        console.print(
            f"[red]below[/] {row.name} against {row.peer}: {row.ratio:.2f}, "
            f"wanted {row.target.sign} {row.target.value:g}"
        )


def as_json(facts: dict[str, str], rows: dict[str, list[Row]], **more: Any) -> dict[str, Any]:
    return {
        "machine": facts,
        **more,
        "rows": [
            {"experiment": name, **_row(row)} for name, found in rows.items() for row in found
        ],
    }


def _row(row: Row) -> dict[str, Any]:
    ratio, low, high = spread(row.ratios)
    return {
        "name": row.name,
        "unit": row.unit,
        "ours": row.ours,
        "peer": row.peer,
        "theirs": row.theirs,
        "ratio": {"median": ratio, "min": low, "max": high},
        "target": f"{row.target.sign} {row.target.value:g}" if row.target else None,
        "met": row.met,
        "how": row.how,
    }


def _figure(figures: Sequence[float], unit: str) -> str:
    middle = spread(figures)[0]
    digits = 0 if middle >= 100 else 1 if middle >= 10 else 2
    return f"{middle:,.{digits}f} {unit}"


def _ratio(row: Row) -> str:
    middle, low, high = (_short(ratio) for ratio in spread(row.ratios))
    return f"{middle} ({low} to {high})" if len(row.ratios) > 1 else middle


def _short(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2f}"

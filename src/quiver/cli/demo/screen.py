"""How the demo looks: sentences as things happen, bars below them, a table at the end."""

import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Final, Literal, Self

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

import quiver
from quiver.cli.demo.accounting import Account, ServiceAccount

INDENT: Final = 3
BAR_CHARS: Final = 22
LOOK_AROUND: Final = (
    "topics",
    "groups orders",
    "dlq list orders.dlq",
    "read shipments --max 3",
    "doctor",
)
COLUMNS: Final = {  # of the table at the end: heading -> field of ServiceAccount
    "sent": "sent",
    "processed": "processed",
    "retried": "retried",
    "timed\nout": "timed_out",
    "dead-\nlettered": "dead_lettered",
    "re-\ndriven": "redriven",
    "duplicates\nabsorbed": "absorbed",
}


class Screen:
    """A terminal; plain text without bars if it is none; nothing at all if `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(quiet=quiet, highlight=False)
        self._chapters = 0
        self._bars = Progress(
            TextColumn(" " * (INDENT - 1)),
            TextColumn("{task.description:<13}"),
            BarColumn(BAR_CHARS),
            TextColumn("{task.completed:>5,.0f} of {task.total:,.0f}"),
            TextColumn("[dim]{task.fields[state]}"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._bar_of: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    # -- while it happens --------------------------------------------------------------------------

    def chapter(self, title: str) -> None:
        """A new part of the story begins."""
        self._chapters += 1
        self._console.print()
        self._console.print(Text(f"{self._chapters}  {title}", "bold cyan"))

    def say(self, sentence: str) -> None:
        """Something happened."""
        self._print(Text(sentence))

    def show_progress(self, stats: quiver.TopicStats) -> None:
        """How far each group of the topic is."""
        for group in stats.groups.values():
            if group.group not in self._bar_of:
                self._bar_of[group.group] = self._bars.add_task(group.group, state="")
            self._bars.update(
                self._bar_of[group.group],
                total=stats.sent,
                completed=stats.sent - group.lag,
                state=_state(group),
            )

    def show_dead_letters(self, letters: list[quiver.Origin]) -> None:
        """Dead letters by reason."""
        table = _table("dead letters of", "reason", "attempts", "orders", text_columns=2)
        kinds = Counter((letter.group, letter.reason, letter.attempts) for letter in letters)
        for (group, reason, attempts), count in kinds.most_common():
            table.add_row(group, reason, str(attempts), str(count))
        self._print(table)
        self._console.print()

    # -- at the end --------------------------------------------------------------------------------

    def show_account(self, account: Account) -> None:
        """The table and the verdict."""
        self.chapter("The count")
        self._print(_service_table(account.services))
        self._console.print()
        self._show_verdict(account)

    def show_report(self, summary: str) -> None:
        """What `quiver report` has printed."""
        self._console.print()
        self._print(Text(summary.rstrip()))

    def show_end(self, account: Account) -> None:
        """What Spark found wrong, if anything, and what to try next."""
        for problem in account.analysis.problems if account.analysis else ():
            self._print(Text(problem, "bold red"))
        self._console.print(
            f"\nIt took {account.seconds:.1f} s. The queue is in {account.data}; look around:",
            soft_wrap=True,
        )
        for command in LOOK_AROUND:
            self._console.print(f"   {_program()} {command} -d {account.data}", soft_wrap=True)

    def _show_verdict(self, account: Account) -> None:
        style = "bold red" if account.problems else "bold green"
        self._print(Text(f"lost {account.lost}, duplicated {account.duplicated}", style))
        for problem in account.problems:
            self._print(Text(problem, "red"))
        self._print(
            Text(
                "orders compared by id with charges, shipments and mails\n"
                f"charged {account.cents_charged / 100:,.2f} of "
                f"{account.cents_ordered / 100:,.2f}\n"
                f"orders of a customer charged out of order: {account.out_of_order}",
                "dim",
            )
        )

    def show_failure(self, message: str) -> None:
        """The demo could not be done."""
        self._console.print(Text(message, "bold red"))

    def _print(self, what: RenderableType) -> None:
        self._console.print(Padding(what, (0, 0, 0, INDENT), expand=False))


def _program() -> str:
    """How to call `quiver` here: by name, or by path if its environment is not activated."""
    beside = Path(sys.executable).parent / "quiver"
    return "quiver" if shutil.which("quiver") or not beside.exists() else os.path.relpath(beside)


def _state(group: quiver.GroupStats) -> str:
    """What a group has in hand, in few words: they must fit behind the bar."""
    counts = {"busy": group.in_flight, "retry": group.delayed, "dead": group.dead_lettered}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def _service_table(services: list[ServiceAccount]) -> Table:
    table = _table("service", *COLUMNS, text_columns=1)
    for service in services:
        counts = [getattr(service, field) for field in COLUMNS.values()]
        table.add_row(service.service, *(f"{count:,}" for count in counts))
    return table


def _table(*headings: str, text_columns: int) -> Table:
    """Narrow enough for 80 columns; numbers, which come after the text, are right-aligned."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for at, heading in enumerate(headings):
        justify: Literal["left", "right"] = "left" if at < text_columns else "right"
        table.add_column(heading, justify=justify, vertical="bottom", no_wrap=True)
    return table

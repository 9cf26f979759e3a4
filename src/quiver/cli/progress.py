"""A progress bar on stderr, for work that takes longer than a moment and somebody who watches."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

MOMENT_SECONDS: Final = 0.5
REFRESH_SECONDS: Final = 0.1


class Bar:
    """Shows itself after a moment. `unit` says what is counted, "bytes" or a noun."""

    def __init__(self, label: str, total: float | None, unit: str, *, wanted: bool) -> None:
        self._label = label
        self._total = total
        self._unit = unit
        self._wanted = wanted and sys.stderr.isatty()
        self._due = time.monotonic() + MOMENT_SECONDS
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self.done = 0  # messages

    def update(self, done: float, messages: int) -> None:
        """So much is done. Cheap enough to be called for every message."""
        now = time.monotonic()
        if not self._wanted or now < self._due:
            return
        self._due = now + REFRESH_SECONDS
        if self._progress is None or self._task is None:
            self._progress, self._task = self._start()
        self._progress.update(self._task, completed=done, messages=messages)

    def messages(self, number: int) -> None:
        """So many messages are done, and messages are what is counted."""
        self.done = number
        self.update(number, number)

    def close(self) -> None:
        """Take it away."""
        if self._progress is not None:
            self._progress.stop()

    def _start(self) -> "tuple[Progress, TaskID]":
        from rich import progress

        from quiver.cli.output import console

        columns: list[progress.ProgressColumn] = [
            progress.TextColumn("{task.description}"),
            progress.BarColumn(pulse_style="dim"),
            progress.TextColumn("{task.fields[messages]:,} messages"),
        ]
        if self._unit == "bytes":
            columns += [progress.DownloadColumn(), progress.TransferSpeedColumn()]
        if self._total is not None:
            columns.append(progress.TimeRemainingColumn())
        shown = progress.Progress(*columns, console=console(stderr=True), transient=True)
        shown.start()
        return shown, shown.add_task(self._label, total=self._total, messages=0)


@contextmanager
def bar(label: str, total: float | None, unit: str, *, wanted: bool) -> Iterator[Bar]:
    """A bar that is gone at the end of the block."""
    made = Bar(label, total, unit, wanted=wanted)
    try:
        yield made
    finally:
        made.close()

"""`quiver top`: topics, groups, lag and rates, as they are now and again every few seconds.

A directory is only read, so that others can use it. A node that goes away is tried again, and what it
said last stays on the screen.
"""

import os
import select
import sys
import time
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import typer

from quiver.cli import directory, output
from quiver.cli.completing import words
from quiver.cli.options import DATA, Data, Json, Where, epilog
from quiver.cli.signals import Stop, stoppable
from quiver.errors import QueueClosed, QuiverError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.live import Live

    from quiver.cli.board import Board, Look
    from quiver.client.sync import Queue
    from quiver.model.stats import Overview

SORTS: Final = ("lag", "rate", "oldest", "dead", "name")
LOOK_SECONDS: Final = 1.0  # for a node to answer, before we say that it does not
LOOK_SECONDS_MAX: Final = 2.0  # then we say so also if it is still busy
KEYS_SECONDS: Final = 0.1  # how late a key, a signal or a new size of the window is noticed
KEYS_MAX: Final = 100  # taken at once

EPILOG = epilog(
    [
        "quiver top",
        "quiver top quiver://127.0.0.1:7070 --sort rate",
        "quiver top --topic 'order*' --every 5",
        "quiver top --once --json | jq '.topics.orders.depth'",
    ],
    "Keys: s sorts by the next of lag, rate, oldest, dead and name; q ends. `in/s` are messages that "
    "arrive (sent, redriven, given up elsewhere) and `out/s` messages delivered a second, since the look "
    "before. `dead` counts messages given up since the group was made.",
)


def top(
    where: Where = None,
    topic: Annotated[
        str,
        typer.Option("--topic", "-t", metavar="PATTERN", help="Only topics like this: 'order*'."),
    ] = "*",
    sort: Annotated[
        str, typer.Option(help="By lag, rate, oldest, dead or name.", autocompletion=words(SORTS))
    ] = "lag",
    every: Annotated[
        float, typer.Option(min=0.2, max=3600, help="Seconds from one look to the next.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Watch topics and groups: lag, rates, leases, dead letters."""
    from quiver.client.arguments import choice

    choice(sort, "--sort", SORTS)
    with closing(_place(where or data)) as place:
        if once:
            _show_once(place.name, place.look(), topic, sort, as_json=as_json)
            return
        with stoppable() as stop:
            if as_json or not sys.stdout.isatty():
                _print_on(place, topic, sort, every, stop, as_json=as_json)
            else:
                _Screen(place, topic, sort, every, stop).run()
        if stop.signal:
            raise typer.Exit(stop.exit_code)


class _Directory:
    """A queue that is only read, whoever owns it."""

    def __init__(self, path: Path) -> None:
        from quiver.client.connect import connect

        self.name = str(path)
        directory.require_queue(path)
        self._queue = connect(path, read_only=True)

    def look(self) -> "Overview":
        """What is in it now."""
        return self._queue.overview()

    def close(self) -> None:
        """Let go of it."""
        self._queue.close()


class _Node:
    """A node, which need not be there yet, or any more."""

    def __init__(self, url: str) -> None:
        from quiver.client.remote.address import parse

        self._address = replace(parse(url), patience_seconds=LOOK_SECONDS)
        self.name = str(self._address)
        self._queue: Queue | None = None

    def look(self) -> "Overview":
        """What it says now."""
        from quiver.client.connect import open_node
        from quiver.client.sync import Queue

        if self._queue is None:
            self._queue = Queue(*open_node(self._address, "disk"))
        return self._queue.overview()

    def close(self) -> None:
        """Let go of it."""
        if self._queue is not None:
            self._queue.close()


def _place(path: Path) -> _Directory | _Node:
    node = directory.address(path)
    return _Directory(path) if node is None else _Node(node)


def _show_once(place: str, overview: "Overview", pattern: str, sort: str, *, as_json: bool) -> None:
    if as_json:
        _print_json(overview, pattern)
        return
    from quiver.cli.board import Board, Look

    console = output.console()
    console.print(Board(place, Look(overview, 0.0), sort=sort, pattern=pattern))


def _print_json(overview: "Overview", pattern: str) -> None:
    from fnmatch import fnmatchcase

    said = asdict(overview)
    said["topics"] = {
        name: stats for name, stats in said["topics"].items() if fnmatchcase(name, pattern)
    }
    output.document({"time": _now().isoformat(), **said})


def _print_on(
    place: _Directory | _Node, pattern: str, sort: str, every: float, stop: Stop, *, as_json: bool
) -> None:
    """For a file or a pipe: one look below the other."""
    while not stop.signal:
        try:
            _show_once(place.name, place.look(), pattern, sort, as_json=as_json)
        except QuiverError as error:
            _raise_if_lasting(error)
            output.problem(f"{output.sentence(error)} Trying again.")
        sys.stdout.flush()
        _pause(every, stop)


def _pause(seconds: float, stop: Stop) -> None:
    until = time.monotonic() + seconds
    while not stop.signal and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, KEYS_SECONDS))


class _Screen:
    """The terminal, while somebody looks at it."""

    def __init__(
        self, place: _Directory | _Node, pattern: str, sort: str, every: float, stop: Stop
    ) -> None:
        self._place = place
        self._pattern = pattern
        self._sort = sort
        self._every = every
        self._stop = stop
        self._now: Look | None = None
        self._before: Look | None = None
        self._clock = ""
        self._trouble = ""
        self._ended = False
        self._drawn: Any = None  # what was drawn last, and for which size

    def run(self) -> None:
        """Look and draw until somebody says stop."""
        from rich.live import Live

        with (
            _Keyboard() as keyboard,
            Live(self._board(), console=output.console(), screen=True, auto_refresh=False) as live,
        ):
            while not self._over():
                glance = _Glance(self._place)
                self._wait(keyboard, live, LOOK_SECONDS_MAX, glance)
                if glance.is_alive():
                    self._trouble = f"no answer{self._since()}, and waiting for one"
                    self._wait(keyboard, live, float("inf"), glance)
                if not self._over():
                    self._take(glance)
                self._wait(keyboard, live, self._every)

    def _wait(
        self, keyboard: "_Keyboard", live: "Live", seconds: float, glance: "_Glance | None" = None
    ) -> None:
        """Draw whenever there is something new, until the time is up, or the glance is done."""
        until = time.monotonic() + seconds
        while not self._over() and (left := until - time.monotonic()) > 0:
            if glance is not None and not glance.is_alive():
                return
            state = live.console.size, self._sort, self._now, self._trouble
            if state != self._drawn:
                live.update(self._board(), refresh=True)
                self._drawn = state
            self._react(keyboard.pressed(min(left, KEYS_SECONDS)))

    def _over(self) -> bool:
        return self._ended or bool(self._stop.signal)

    def _take(self, glance: "_Glance") -> None:
        """What was seen, or why nothing was."""
        from quiver.cli.board import Look

        if glance.problem is not None:
            _raise_if_lasting(glance.problem)
            told = output.sentence(glance.problem)
            self._trouble = f"no answer{self._since()}, trying again: {told}"
        elif glance.found is not None:
            self._before, self._now = self._now, Look(glance.found, time.monotonic())
            self._clock, self._trouble = f"{_now().astimezone():%H:%M:%S}", ""

    def _since(self) -> str:
        return f" since {self._clock}" if self._clock else ""

    def _react(self, keys: str) -> None:
        for key in keys:
            if key == "q":
                self._ended = True
            elif key == "s":
                self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]

    def _board(self) -> "Board":
        from quiver.cli.board import Board

        return Board(
            self._place.name, self._now, self._before, sort=self._sort, pattern=self._pattern,
            clock=self._clock, trouble=self._trouble, foot=f"by {self._sort} · s sort · q quit", fits=True,
        )  # fmt: skip


class _Glance(Thread):
    """One look, beside the screen: a node may take its time, and keys are to work meanwhile."""

    def __init__(self, place: _Directory | _Node) -> None:
        super().__init__(name="quiver-top", daemon=True)  # nobody waits for it in the end
        self._place = place
        self.found: Overview | None = None
        self.problem: Exception | None = None
        self.start()

    def run(self) -> None:
        """Look."""
        try:
            self.found = self._place.look()
        except Exception as error:  # noqa: BLE001  # told to who asked for it
            self.problem = error


def _raise_if_lasting(error: Exception) -> None:
    """What trying again cannot help against ends the command."""
    passing = isinstance(error, QueueClosed)  # the node is ending
    if not isinstance(error, QuiverError) or (isinstance(error, RequestError) and not passing):
        raise error


class _Keyboard:
    """Keys come one by one and are not shown; without a terminal, or on Windows, there are none."""

    def __enter__(self) -> Self:
        self._restore: Callable[[], None] | None = None
        if sys.stdin.isatty():
            self._restore = _key_by_key()
        return self

    def __exit__(self, *_: object) -> None:
        if self._restore is not None:
            self._restore()

    def pressed(self, seconds: float) -> str:
        """Wait so long for keys; what was pressed."""
        if self._restore is None:
            time.sleep(seconds)
            return ""
        if not select.select([sys.stdin], [], [], seconds)[0]:
            return ""
        return os.read(sys.stdin.fileno(), KEYS_MAX).decode(errors="ignore")


def _key_by_key() -> "Callable[[], None] | None":
    """Have the terminal give keys as they are pressed; what sets it back, None where that is not known."""
    try:
        import termios
        import tty
    except ImportError:  # Windows
        return None
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    return lambda: termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _now() -> datetime:
    return datetime.now(UTC)

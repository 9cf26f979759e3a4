"""`quiver receive`: lease, print, ack, in this order.

Nothing is acked that was not handed to stdout, and nothing that was is left unacked, whatever ends
the command. Batches begin with one message and grow, so that `| head` swallows little.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from quiver.cli import directory, output
from quiver.cli.bodies import BodyWriter, Style
from quiver.cli.completing import groups
from quiver.cli.options import DATA, Data, Json, Topic, epilog
from quiver.cli.signals import Stop, stoppable
from quiver.cli.stdout import Stdout
from quiver.errors import DirectoryInUse, ReceiptExpired

if TYPE_CHECKING:
    from quiver.client.results import Delivery
    from quiver.client.sync import Queue
    from quiver.model.stats import GroupStats

BATCH_MAX: Final = 1_000  # messages leased at once
POLL_SECONDS: Final = 0.1  # between looks at the confirmation mark, while there is nothing to do
REOPEN_SECONDS: Final = 0.5  # between looks for what becomes due by itself
NODE_WAIT_SECONDS: Final = 1.0  # one wait at a node

EPILOG = epilog(
    [
        "quiver receive orders",
        "quiver receive orders --group billing --max 10 --verbose",
        "quiver receive orders --follow --json | jq .body",
        "quiver receive photos --max 1 --raw > photo.jpg",
    ],
    "Without --max it prints all that is ready, then ends. While it waits (--wait, --follow) it lets "
    "go of the directory, so that other commands can send.",
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What to receive."""

    path: Path
    topic: str
    group: str
    lease: str
    ack: bool


def receive(
    topic: Topic,
    group: Annotated[
        str,
        typer.Option("--group", "-g", help="The group to receive for.", autocompletion=groups),
    ] = "default",
    most: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="End after this many messages.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    wait: Annotated[
        str,
        typer.Option("--wait", "-w", metavar="TIME", help="Wait so long for a message: 20, 5m."),
    ] = "0",
    lease: Annotated[
        str, typer.Option("--lease", metavar="TIME", help="How long messages are held unacked.")
    ] = "30s",
    ack: Annotated[
        bool,
        typer.Option(
            "--ack/--no-ack", help="Ack what was printed, or let it come again after the lease."
        ),
    ] = True,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show id, key, headers, attempt and age too.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write bodies byte for byte, with nothing between them.")
    ] = False,
    as_json: Json = False,
    data: Data = DATA,
) -> None:
    """Receive messages and print them, one a line; what was printed is acked."""
    style = choose_style(verbose=verbose, raw=raw, as_json=as_json)
    from quiver.client.arguments import lease_ms
    from quiver.model.units import milliseconds

    lease_ms(lease)
    patience = milliseconds(wait, "wait") / 1000
    directory.require_queue(data)
    out = Stdout()
    writer = BodyWriter(style, terminal=out.terminal, receipts=not ack)
    wish = Wish(data, topic, group, lease, ack)
    with stoppable() as stop:
        receiving = Receiving(wish, out, writer, stop, most)
        printed = receiving.run(None if follow else patience)
        if stop.signal:
            raise typer.Exit(stop.exit_code)
    out.check()
    if not printed:
        output.note(f"No messages in {topic} are ready for group {group}{receiving.why_none}.")


def choose_style(*, verbose: bool, raw: bool, as_json: bool) -> Style:
    """How messages are printed."""
    if as_json + raw + verbose > 1:
        raise typer.BadParameter("--json, --raw and --verbose exclude each other")
    return "json" if as_json else "raw" if raw else "verbose" if verbose else "text"


class Receiving:
    """A receive that goes on over several openings of the directory."""

    def __init__(
        self, wish: Wish, out: Stdout, writer: BodyWriter, stop: Stop, most: int | None
    ) -> None:
        self._wish = wish
        self._out = out
        self._writer = writer
        self._stop = stop
        self._left = most
        self._printed = 0
        self._batch = 1
        self._reopen_seconds: float | None = None  # None: only somebody else can change anything
        self.why_none = ""  # why the group has been given nothing, where that can be seen
        self._in_use: DirectoryInUse | None = None  # nobody has let us in yet

    def run(self, patience: float | None) -> int:
        """Print until there is nothing more for `patience` seconds (None: for ever); how many."""
        if directory.address(self._wish.path) is not None:
            return self._run_at_node(patience)
        idle_since = time.monotonic()
        while True:
            before = self._printed
            index = self._open_and_drain()
            if self._printed > before:
                idle_since = time.monotonic()
            deadline = None if patience is None else idle_since + patience
            if self._finished() or not self._wait_for_change(index, deadline):
                if self._in_use is not None and not self._stop.signal:
                    raise self._in_use
                return self._printed

    def _run_at_node(self, patience: float | None) -> int:
        """As `run`; a node can be waited for, and is not in anybody's way."""
        with directory.opened(self._wish.path) as queue:
            idle_since = time.monotonic()
            wait = 0.0
            while True:
                before = self._printed
                self._drain(queue, wait)
                now = time.monotonic()
                idle_since = now if self._printed > before else idle_since
                left = NODE_WAIT_SECONDS if patience is None else idle_since + patience - now
                if self._finished() or left <= 0:
                    return self._printed
                wait = min(left, NODE_WAIT_SECONDS)  # short, so that Ctrl-C is heard

    def _finished(self) -> bool:
        return self._left == 0 or bool(self._stop.signal) or self._out.closed

    def _open_and_drain(self) -> int:
        """Print all that is ready; the number by which a later change will be noticed."""
        started = time.monotonic()
        index = directory.confirmed_index(self._wish.path)  # read before: what comes now counts
        try:
            with directory.opened(self._wish.path) as queue:
                cost = time.monotonic() - started
                self._in_use = None
                self._drain(queue)
                self._plan(queue, cost)
        except DirectoryInUse as error:
            if self._in_use is None:
                output.note(f"Waiting: {str(error).split('. ')[0]}.")
            self._in_use = error
            self._reopen_seconds = REOPEN_SECONDS
            return index
        return directory.confirmed_index(self._wish.path)

    def _plan(self, queue: "Queue", cost: float) -> None:
        """When to look again by ourselves: messages may become due, and leases end."""
        group = queue.groups(self._wish.topic).get(self._wish.group)
        waits = group is not None and (group.delayed or group.in_flight)
        self._reopen_seconds = max(REOPEN_SECONDS, 5 * cost) if waits else None

    def _drain(self, queue: "Queue", wait: float = 0) -> None:
        wish = self._wish
        directory.require_topic(queue, wish.topic, wish.path)
        if wish.group not in queue.groups(wish.topic):
            output.note(f"Group {wish.group} is new: it starts with the oldest message.")
        while not self._finished():
            most = self._batch if self._left is None else min(self._batch, self._left)
            got = queue.receive(
                wish.topic, wish.group, max_messages=most, lease=wish.lease, wait=wait
            )
            if not got:
                self.why_none = _why_none(queue.groups(wish.topic).get(wish.group))
                return
            self._print(queue, got)
            self._batch = min(2 * self._batch, BATCH_MAX)

    def _print(self, queue: "Queue", got: list["Delivery"]) -> None:
        printed = self._out.write(map(self._writer.line, got))
        self._printed += printed
        if self._left is not None:
            self._left -= printed
        if self._wish.ack and printed:
            _settle(queue.ack, got[:printed])
        unprinted = got[printed:]
        if unprinted and not unprinted[0].lease.settled:
            _settle(queue.nack, unprinted, delay=0, reason="quiver receive could not print it")

    def _wait_for_change(self, index: int, deadline: float | None) -> bool:
        """Wait until there may be something to receive; False if nothing came in time."""
        started = time.monotonic()
        while not self._finished():
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return False
            if self._reopen_seconds is not None and now >= started + self._reopen_seconds:
                return True
            if directory.confirmed_index(self._wish.path) != index:
                return True
            left = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - now)
            time.sleep(left)
        return False


def _why_none(group: "GroupStats | None") -> str:
    if group is None:
        return ""
    waiting = [
        f"{n:,} {what}"
        for n, what in ((group.in_flight, "in flight"), (group.delayed, "delayed"))
        if n
    ]
    reasons = ["the group is paused", *waiting] if group.paused else waiting
    return f" ({', '.join(reasons)})" if reasons else ""


def _settle(how: Any, deliveries: list["Delivery"], **options: Any) -> None:
    try:
        how(deliveries, **options)
    except ReceiptExpired:
        output.note(
            f"{output.count(len(deliveries), 'message')} took longer to print than the lease lasts, "
            "and will come again. Use a longer --lease."
        )

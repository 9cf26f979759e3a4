"""`quiver doctor`: what is in a directory, whether it is well, and what to do if it is not."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from quiver.cli import directory, output
from quiver.cli.options import DATA, Directory, Json, WhereDirectory, epilog

if TYPE_CHECKING:
    from quiver.cli.checkup import Checkup

EPILOG = epilog(
    [
        "quiver doctor data",
        "quiver doctor data --json | jq .status",
        "quiver doctor --config /etc/quiver/node.toml",
        "quiver doctor --ready",
    ],
    "It only reads, so it may be run at any time, also while another process has the queue open. "
    "Exit code 0: all is well, or there are only warnings; 1: something confirmed is damaged or cannot "
    "be read, or the node is not ready. Which node --ready asks is said by --config and by variables "
    "such as QUIVER_LISTEN, as for quiver serve.",
)
DAMAGED: Final = 1
NOT_READY: Final = 1  # which is what health checks of containers expect
VERDICTS: Final = {
    "healthy": ("is healthy.", "green"),
    "warnings": ("is sound; see the warnings.", "yellow"),
    "unreadable": ("could not be read completely.", "red"),
    "damaged": ("is damaged.", "red"),
}


def doctor(
    where: WhereDirectory = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Check a node's configuration instead."),
    ] = None,
    ready: Annotated[
        bool,
        typer.Option("--ready", help="Ask the running node on this machine whether it is ready."),
    ] = False,
    accept_clock: Annotated[
        bool,
        typer.Option(
            "--accept-clock",
            help="First: this machine's clock is right, let the queue's time follow it, back or forth.",
        ),
    ] = False,
    as_json: Json = False,
    data: Directory = DATA,
) -> None:
    """Check a directory's files, a configuration or a node, and explain what is found; change nothing."""
    if ready:
        _ask_node(config)
        return
    if config is not None:
        _check_configuration(config, as_json=as_json)
        return
    path = where or data
    directory.require_directory(path, "the doctor looks at files")
    directory.require_queue(path)
    if accept_clock:
        _accept_clock(path)
    from quiver.cli.checkup import examine

    found = examine(path)
    if as_json:
        output.document({"status": found.status, **asdict(found)})
    else:
        _show(found)
    if found.status in ("damaged", "unreadable"):
        raise typer.Exit(DAMAGED)


def _accept_clock(path: Path) -> None:
    """Let the queue's time follow the clock."""
    from quiver.client.connect import connect
    from quiver.limits import DURATION_SECONDS_MAX

    with connect(path, accept_clock=True, ledger_retention=DURATION_SECONDS_MAX):
        output.note(f"The time of {path} follows this machine's clock from now on.")


def _check_configuration(path: Path, *, as_json: bool) -> None:
    """Say what a node would be started with, or why it would not start."""
    from quiver.server.config import load
    from quiver.server.extra import demand_server

    demand_server()
    from quiver.server.serve import check

    config = load(path)
    guard, tls = check(config)
    facts = {
        "listen": config.listen,
        "data": str(config.data),
        "hosts": ", ".join(("localhost", *config.hosts)),
        "credentials": "everybody may do everything" if guard.open else "are asked for",
        "tls": "on" if tls is not None else "off",
        "durability": config.durability,
    }
    if as_json:
        output.document({"status": "healthy", "config": str(path), **facts})
        return
    output.say(f"{path} is good. A node started with it:", style="bold green")
    output.say()
    output.facts(facts.items())


def _ask_node(path: Path | None) -> None:
    from quiver.server.config import load
    from quiver.server.ready import why_not

    reason = why_not(load(path))
    if reason:
        output.problem(reason)
        raise typer.Exit(NOT_READY)
    output.say("The node is ready.", style="bold green")


def _show(found: "Checkup") -> None:
    verdict, style = VERDICTS[found.status]
    output.say(f"{found.directory} {verdict}", style=f"bold {style}")
    output.say()
    total = sum(file.bytes for file in found.files)
    formats = ", ".join(f"{name} {version}" for name, version in found.formats.items())
    output.facts(
        [
            ("owner", found.owner or "nobody has it open"),
            ("confirmed", f"entries up to {found.confirmed:,} are known to be on disk"),
            ("time", found.time),
            ("size", f"{output.size(total)} in {output.count(len(found.files), 'file')}"),
            ("free disk", output.size(found.free_bytes)),
            ("formats", f"{formats} (the newest that this Quiver reads and writes)"),
        ]
    )
    output.say()
    table = output.table("file", "holds", "entries", "bytes", numbers=("entries", "bytes"))
    for file in found.files:
        count = file.last - file.first + 1 if file.last else 0
        entries = f"{file.first:,}-{file.last:,}" if count > 0 else "-"
        table.add_row(output.visible(file.name), file.kind, entries, f"{file.bytes:,}")
    output.show(table)
    for problem in found.problems:
        style = "red" if problem.severity == "error" else "yellow"
        at = f" at byte {problem.offset:,}" if problem.offset else ""
        output.say()
        output.say(
            f"{problem.severity}: {output.visible(problem.file)}{at}: {problem.what}.", style=style
        )
        output.facts([("  means", problem.means), ("  to do", problem.todo)])

"""`quiver serve`: a queue for many processes and languages, behind one HTTP port."""

from pathlib import Path
from typing import Annotated

import typer

from quiver.cli.directory import require_directory
from quiver.cli.options import WhereDirectory, epilog

EPILOG = epilog(
    [
        "quiver serve",
        "quiver serve --data /var/lib/quiver --listen 127.0.0.1:8080",
        "quiver serve --config /etc/quiver/node.toml",
    ],
    "Without --listen it is 127.0.0.1:7070, for this machine only; any other address needs "
    "credentials (quiver access). Options weigh more than variables such as QUIVER_LISTEN, and "
    "these more than the file; quiver doctor --config checks one.",
    "SIGTERM and Ctrl-C end it in order: what runs is finished. A second signal ends it at once.",
)


def serve(
    where: WhereDirectory = None,
    data: Annotated[
        Path | None, typer.Option("--data", "-d", metavar="DIR", help="The directory of the queue.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A configuration in TOML.")
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option("--log-format", metavar="auto|json|text", help="How the log on stderr looks."),
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Let everybody who reaches this address do everything."),
    ] = None,
    accept_clock: Annotated[
        bool,
        typer.Option(
            "--accept-clock",
            help="The machine's clock is right: the queue's time follows it, back or forth. Once only.",
        ),
    ] = False,
) -> None:
    """Serve a queue over HTTP until it is told to stop."""
    from quiver.server.config import load
    from quiver.server.extra import demand_server

    demand_server()
    from quiver.server.serve import serve as run

    options = {"data": where or data, "listen": listen, "insecure": insecure or None,
               "log": {"format": log_format} if log_format else None}  # fmt: skip
    found = load(config, options=options)
    require_directory(found.data, "a node serves a directory")
    raise typer.Exit(run(found, accept_clock=accept_clock))

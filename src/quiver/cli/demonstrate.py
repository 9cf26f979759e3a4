"""`quiver demo`: the order system of `quiver.cli.demo`."""

from pathlib import Path
from typing import Annotated

import typer

from quiver.cli.directory import require_directory
from quiver.cli.options import Json, epilog

EPILOG = epilog(["quiver demo", "quiver demo --json | tail -1"])


def demo(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", "-d", metavar="DIR", help="Where to run it [default: a temporary directory]."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Watch an order system with failures, retries, a crash and a count at the end."""
    from quiver.cli import demo as order_system

    if data is not None:
        require_directory(data, "the demo kills and restarts its own queue")
    code = order_system.main(None if data is None else str(data), json=as_json)
    raise typer.Exit(code)

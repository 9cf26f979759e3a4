"""`quiver backup` and `quiver restore`: a copy of a queue that may be open, and a queue of the copy."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quiver.cli import directory, output
from quiver.cli.options import Json, epilog

if TYPE_CHECKING:
    from quiver import Backup

EPILOG = epilog(
    [
        "quiver backup data /backup/queue",
        "quiver backup data /backup/queue --json | jq .copied_bytes",
    ],
    "The queue may be open meanwhile, also by a node: run it on the node's machine, as a user who may "
    "read the files. Into the directory of the last backup it copies only what is new. Killed at any "
    "moment, it leaves the last backup as it was.",
)
RESTORE_EPILOG = epilog(
    ["quiver restore /backup/queue data"],
    "All checksums are compared first. The restored queue is the past: what was sent since is missing, "
    "what was acked since is delivered again. Do not let it and the original serve the same consumers.",
)
USE = "quiver backup DIR DEST"
Dest = Annotated[
    Path, typer.Argument(metavar="DEST", help="A new directory, or that of the last backup.")
]


def backup(
    where: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the queue.")],
    dest: Dest,
    as_json: Json = False,
) -> None:
    """Copy everything that is confirmed in a queue, which may be open, into a backup."""
    directory.require_directory(
        where, "a backup copies the files of a directory, beside the running node", USE
    )
    directory.require_directory(dest, "a backup is a directory", USE)
    directory.require_queue(where, f"with {USE}")
    with directory.looked_into(where) as queue:
        made = queue.backup(dest)
    _show(made, f"Everything up to entry {made.entry:,} is in {dest}", "copied", as_json=as_json)


def restore(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="The directory of the backup.")],
    where: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty directory.")],
    as_json: Json = False,
) -> None:
    """Make the queue of a backup anew, in an empty directory."""
    from quiver.client.backup import restore as run

    made = run(source, where)
    _show(made, f"{where} has everything up to entry {made.entry:,}", "written", as_json=as_json)


def _show(made: "Backup", what: str, done: str, *, as_json: bool) -> None:
    if as_json:
        output.document(asdict(made))
        return
    output.say(
        f"{what}: {output.count(made.files, 'file')}, {output.size(made.bytes)}; "
        f"{done}: {output.count(made.copied, 'file')}, {output.size(made.copied_bytes)}."
    )

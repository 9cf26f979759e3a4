"""Files in which other processes leave messages for the owner of a directory to take.

They are `staging/<name>.arrow` in the data directory, in Arrow's own format. Nothing of them is synced:
they count only once the owner has logged what is in them, and whoever wrote one tells him its name when
it is complete. The owner trusts them no more than any other sender.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa

from quiver.errors import InvalidRequest
from quiver.storage.files import PRIVATE, translated

FOLDER: Final = "staging"
ENDING: Final = ".arrow"
PRIVATE_FOLDER: Final = 0o700


def write(directory: Path, batches: Iterable[pa.RecordBatch]) -> str | None:
    """Leave these batches, of one schema; return the name of the file, None if there is nothing."""
    waiting = iter(batches)
    first = next(waiting, None)
    if first is None:
        return None
    path = directory / FOLDER / f"{uuid4().hex}{ENDING}"
    try:
        with translated(path, wants_room=True):
            path.parent.mkdir(PRIVATE_FOLDER, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
            with os.fdopen(descriptor, "wb") as file, pa.ipc.new_file(file, first.schema) as out:
                out.write_batch(first)
                for batch in waiting:
                    out.write_batch(batch)
    except BaseException:
        remove(directory, [path.name])
        raise
    return path.name


def read(directory: Path, name: str) -> Iterator[pa.RecordBatch]:
    """What was left in a file."""
    path = directory / FOLDER / name
    try:
        with pa.memory_map(os.fspath(path)) as file:
            reader = pa.ipc.open_file(file)
            for place in range(reader.num_record_batches):
                yield reader.get_batch(place)
    except FileNotFoundError:
        raise InvalidRequest(
            f"{path} is gone, and with it the messages that were to be sent; write them again. All tasks "
            "and the driver must see the same directory"
        ) from None


def remove(directory: Path, names: Iterable[str]) -> None:
    """Nobody needs these files any more."""
    for name in names:
        path = directory / FOLDER / name
        with translated(path):
            path.unlink(missing_ok=True)


def sweep(directory: Path, before: float) -> None:
    """Remove what was left before that time (in seconds since 1970) and never taken."""
    for path in (directory / FOLDER).glob(f"*{ENDING}"):
        with suppress(FileNotFoundError):  # somebody else sweeps, too
            if path.stat().st_mtime < before:
                path.unlink()

"""Files that commands write for people: there when they are complete, and not before."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from quiver.cli import output
from quiver.errors import InvalidRequest


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name when all is in it; what was there under that name stays till then."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise InvalidRequest(f"cannot write {path}: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def check_replaceable(path: Path, data: Path, *, yes: bool) -> None:
    """Ask before a file is replaced; what is in the queue's directory is never ours to replace."""
    if (path.parent.resolve() / path.name).is_relative_to(data.resolve()):
        raise InvalidRequest(
            f"{path} is in the directory of the queue, which is for its own files: write elsewhere"
        )
    if path.exists():
        if not path.is_file():
            raise InvalidRequest(f"{path} is not a file")
        output.confirm(f"Replace {path}?", yes=yes)
    elif not path.parent.is_dir():
        raise InvalidRequest(f"there is no directory {path.parent} for {path.name}")

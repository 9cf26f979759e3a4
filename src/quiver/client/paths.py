"""The directory that was asked for, and what is in it."""

import os
from pathlib import Path
from typing import Any

from quiver.errors import InvalidRequest
from quiver.storage.files import translated


def directory(url: Any) -> Path:
    """The directory that an address means."""
    if not isinstance(url, str | os.PathLike) or not str(url) or "\0" in str(url):
        raise InvalidRequest('connect takes the path of a directory, such as "data/"')
    if "://" in str(url):
        raise InvalidRequest(
            f"{str(url)[:60]!r} is neither the path of a directory nor the address of a node, such as "
            '"quiver://127.0.0.1:7070"'
        )
    return Path(url)


def names_in(path: Path) -> list[str]:
    """The names of the files of a directory; none if it is not there."""
    with translated(path):
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []

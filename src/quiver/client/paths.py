"""The directory that was asked for, and what is in it."""

import os
import re
from pathlib import Path
from typing import Any, Final

from quiver.errors import InvalidRequest
from quiver.storage.files import translated

# More likely the address of nodes without its scheme than a directory.
HOST_PORT: Final = re.compile(r"[\w.@:,\[\]-]{1,200}:\d{1,5}", re.ASCII)


def directory(url: Any) -> Path:
    """The directory that an address means."""
    if not isinstance(url, str | os.PathLike) or not str(url) or "\0" in str(url):
        raise InvalidRequest('connect takes the path of a directory, such as "data/"')
    if "://" in str(url):
        raise InvalidRequest(
            f"{str(url)[:60]!r} is neither the path of a directory nor the address of a node, such as "
            '"quiver://127.0.0.1:7070"'
        )
    path = Path(url)
    demand_no_host(path)
    return path


def demand_no_host(path: Path) -> None:
    """Refuse `localhost:7070`, which would make a directory of that name, if there is none."""
    text = str(path)
    if HOST_PORT.fullmatch(text) and not path.exists():
        shown = text.rpartition("@")[2]  # before it may be a token
        raise InvalidRequest(
            f"there is no directory {shown!r}: did you mean quiver://{shown}? For a directory of that "
            "name, make it first"
        )


def names_in(path: Path) -> list[str]:
    """The names of the files of a directory; none if it is not there."""
    with translated(path):
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []

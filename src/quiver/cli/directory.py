"""From a directory (or the address of a node) to an open queue, with patience for others.

A directory has one owner at a time, and any number of readers. Commands are short, so one that
changes something waits a moment for another; and one that follows a topic lets go of the directory
whenever it has nothing to do.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quiver.errors import DirectoryInUse, GroupNotFound, InvalidRequest, TopicNotFound
from quiver.limits import DURATION_SECONDS_MAX

if TYPE_CHECKING:
    from quiver.client.sync import Queue

PATIENCE_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 0.05


@contextmanager
def looked_into(path: Path) -> Iterator["Queue"]:
    """The queue in `path`, only to be read, whoever owns it."""
    from quiver.client.connect import connect

    node = address(path)
    require_queue(path)
    with connect(path, read_only=True) if node is None else connect(node) as queue:
        yield queue


@contextmanager
def opened(path: Path, *, create: bool = False) -> Iterator["Queue"]:
    """The queue in `path`; one is made there only if `create`."""
    from quiver.client.connect import connect

    node = address(path)
    if node is not None:
        with connect(node) as queue:
            yield queue
        return
    if not create:
        require_queue(path)
    # How long the ledger is kept is for the program to say whose queue this is.
    keep_all = DURATION_SECONDS_MAX
    with _patiently(lambda: connect(path, ledger_retention=keep_all)) as queue:
        yield queue


def _patiently(connect: "Callable[[], Queue]") -> "Queue":
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return connect()
        except DirectoryInUse:
            if time.monotonic() >= deadline:
                raise
        time.sleep(RETRY_SECONDS)


def require_queue(
    path: Path, say: str = "with --data DIR, or make one: quiver topics create NAME"
) -> None:
    """Refuse a directory without a queue, instead of making one by mistake."""
    if address(path) is not None:
        return  # a node has one
    if not holds_queue(path):
        raise InvalidRequest(
            f"there is no queue in {path}: it {_what(path)}. Say where it is {say}"
        )


def address(path: Path) -> str | None:
    """The address of a node that was given in place of a directory, if so."""
    from quiver.client.paths import demand_no_host
    from quiver.client.remote.address import is_address

    scheme = path.parts[0] if len(path.parts) > 1 else ""
    url = f"{scheme}//{'/'.join(path.parts[1:])}"
    if is_address(url):
        return url
    if scheme.endswith(":") and not path.exists():
        raise InvalidRequest(
            f"{scheme}//… is neither a directory nor the address of a node, which is "
            "quiver://host:port (quivers:// with TLS) or the http://host:port that it prints"
        )
    demand_no_host(path)
    return None


def require_directory(path: Path, why: str, say: str = "--data DIR") -> None:
    """Refuse an address where only the owner of the directory can do what is asked for."""
    if address(path) is not None:
        raise InvalidRequest(f"{why}; run it where the node's directory is: {say}")


def _what(path: Path) -> str:
    if not path.exists():
        return "is not there"
    if not path.is_dir():
        return "is a file"
    return "has other files" if any(path.iterdir()) else "is empty"


def holds_queue(path: Path) -> bool:
    """Whether a queue was made in `path`."""
    from quiver.storage import mark
    from quiver.storage.files import DiskFiles

    if not path.is_dir():
        return False
    names = DiskFiles(path, read_only=True).names()
    return any(name == mark.NAME or name.startswith(("wal-", "snapshot-")) for name in names)


def confirmed_index(path: Path) -> int:
    """A number that grows with everything that happens in the queue; it can be read at any time."""
    from quiver.storage.files import DiskFiles
    from quiver.storage.mark import Mark

    return Mark(DiskFiles(path, read_only=True)).commit


def require_topic(queue: "Queue", topic: str, path: Path) -> None:
    """Refuse a topic that is not there, and say which one may have been meant."""
    from quiver.client.arguments import name

    topics = queue.topics()
    if name(topic, "topic") in topics:
        return
    hint = _near(topic, topics) or (
        "`quiver topics` lists those there are." if topics else "It has no topics yet."
    )
    where = "there" if address(path) is not None else f"in {path}"  # an address may have a token
    raise TopicNotFound(
        f"there is no topic {topic!r} {where}. {hint} To make it: quiver topics create {topic}"
    )


def require_group(queue: "Queue", topic: str, group: str) -> None:
    """Refuse a group that is not there, and say which one may have been meant."""
    from quiver.client.arguments import name

    groups = list(queue.groups(topic))
    if name(group, "group") not in groups:
        hint = _near(group, groups) or (
            f"Its groups: {', '.join(groups[:10])}." if groups else "It has no groups yet."
        )
        raise GroupNotFound(f"topic {topic!r} has no group {group!r}. {hint}")


def _near(name: str, names: list[str]) -> str:
    near = get_close_matches(name, names, n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(map(repr, near))}?" if near else ""

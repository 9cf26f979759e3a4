"""What the shell may complete: names of topics and groups, as the queue in question has them.

A person waits for it at each press of a key, so it takes a second at most, and when the queue cannot
be asked there is nothing to complete: never an error.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from quiver.client.sync import Queue

SECONDS_MAX: Final = 1.0  # from a key to the names
NAMES_MAX: Final = 1_000  # more do not fit on any screen


def words(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Completes one of these words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    return complete


def topics(ctx: Any, incomplete: str) -> list[str]:
    """The topics that begin like this."""
    return _names(ctx, incomplete, lambda queue: queue.topics())


def groups(ctx: Any, incomplete: str) -> list[str]:
    """The groups, of the topic that was named before, that begin like this."""
    # An option that waits for its value keeps the words before it from being understood.
    topic: Any = ctx.params.get("topic") or next(
        (word for word in ctx.parent.args if not word.startswith("-")), None
    )
    return _names(ctx, incomplete, lambda queue: sorted(queue.groups(topic)))


def _names(ctx: Any, incomplete: str, ask: "Callable[[Queue], list[str]]") -> list[str]:
    import quiver.client.connect  # noqa: F401  # before the time runs, which is for the queue to answer
    from quiver.client.arguments import NAME

    answers: SimpleQueue[list[str]] = SimpleQueue()

    def look() -> None:
        try:
            found = _asked(ctx.params["data"], ask)
            # Shells evaluate what they are offered, and a node may be another one than was meant.
            answers.put([name for name in found if NAME.fullmatch(name)])
        except Exception:  # noqa: BLE001  # whatever is wrong is for the command itself to say
            answers.put([])

    Thread(target=look, name="quiver-completing", daemon=True).start()
    try:
        names = answers.get(timeout=SECONDS_MAX)
    except Empty:
        return []
    return [name for name in names if name.startswith(incomplete)][:NAMES_MAX]


def _asked(place: Path, ask: "Callable[[Queue], list[str]]") -> list[str]:
    from quiver.cli.directory import address, looked_into
    from quiver.client.connect import open_node
    from quiver.client.remote.address import parse
    from quiver.client.sync import Queue

    url = address(place)
    if url is None:
        with looked_into(place) as queue:
            return ask(queue)
    node = replace(parse(url), patience_seconds=SECONDS_MAX)
    with Queue(*open_node(node, "disk", read_only=True)) as queue:
        return ask(queue)

"""Open queues of this process. Tasks of one Python worker follow each other and share them."""

import atexit
from collections import OrderedDict

from quiver import limits
from quiver.client.connect import connect
from quiver.client.remote.address import is_address
from quiver.client.sync import Queue

_open: OrderedDict[str, Queue] = OrderedDict()


def connected(url: str) -> Queue:
    """The queue of a node, or of a directory to read from; whoever asks closes it."""
    return connect(url, read_only=not is_address(url))  # it may have an owner, who is not we


def node(url: str) -> Queue:
    """The queue of a node, for every verb; it stays open for the next one who asks."""
    return reading(url)


def reading(url: str) -> Queue:
    """The queue of a node or a directory, to read from; it stays open, too."""
    queue = _open.pop(url, None) or connected(url)
    _open[url] = queue
    while len(_open) > limits.SPARK_QUEUES_MAX:
        _open.popitem(last=False)[1].close()
    return queue


@atexit.register
def close() -> None:
    """Close what is open; also at the end of the process."""
    while _open:
        _open.popitem()[1].close()

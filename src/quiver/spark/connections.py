"""Open queues of this process. Tasks of one Python worker follow each other and share them."""

from collections import OrderedDict

from quiver import limits
from quiver.client.connect import connect
from quiver.client.sync import Queue

_open: OrderedDict[str, Queue] = OrderedDict()


def reading(url: str) -> Queue:
    """The queue at `url`, to read from; it stays open for the next one who asks."""
    queue = _open.pop(url, None) or connect(url)
    _open[url] = queue
    while len(_open) > limits.SPARK_QUEUES_MAX:
        _open.popitem(last=False)[1].close()
    return queue


def node(url: str) -> Queue:
    """The queue of a node, for every verb; it stays open, too."""
    return reading(url)

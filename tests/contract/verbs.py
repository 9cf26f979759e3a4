"""Short forms that many behaviours share."""

from typing import Any


def bodies(messages: Any) -> list[bytes]:
    return [message.body for message in messages]


def drain(queue: Any, topic: str = "t", group: str = "g") -> list[bytes]:
    """Receive and ack until nothing is ready."""
    found: list[bytes] = []
    while got := queue.receive(topic, group, max_messages=100):
        found += bodies(got)
        queue.ack(got)
    return found


def take(queue: Any, topic: str = "t", group: str = "g", **options: Any) -> Any:
    """The one message that is ready."""
    (delivery,) = queue.receive(topic, group, **options)
    return delivery


def nothing(queue: Any, topic: str = "t", group: str = "g") -> bool:
    """Whether nothing is ready now."""
    return queue.receive(topic, group, max_messages=100) == []

"""What a flow may wait for, besides a `Ticket`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for some seconds."""

    seconds: float


class Stopped(Exception):
    """A flow was given up, because whoever drives it was told to stop or waited long enough."""


@dataclass(frozen=True, slots=True)
class Work:
    """Something that may take a while (reading the disk, decoding), to be done off an event loop."""

    do: Callable[[], Any]

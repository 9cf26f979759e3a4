"""What a broker must be able to do to be compared."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from bench.measure import Loop, Side, Step


@dataclass(frozen=True, slots=True)
class Everyday:
    """What most programs do: a message at a time, and not in batches."""

    take_one: Loop
    loop: Callable[[int], AbstractContextManager[Loop]]  # with this prefetch
    take_many: Loop | None = None  # thousands at a time, as objects
    tasks: Callable[[int], AbstractContextManager[Side]] | None = (
        None  # so many lone senders at once
    )
    tasks_what: str = ""
    # As `loop`, with acks that are collected and go together.
    collected: Callable[[int], AbstractContextManager[Loop]] | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """A running broker through its client. Each step returns how many messages it did."""

    name: str
    settings: str  # versions, and what is done before a message counts as confirmed
    send: Step  # a batch; returns when all of it is confirmed
    take: Step  # what there is, up to a batch, and its acks
    send_one: Step  # one message; returns when it is confirmed
    verbs: tuple[str, str, str]  # what these three are in its own words
    crowd: Callable[[], AbstractContextManager[Side]] | None = None  # several client processes
    everyday: Everyday | None = None
    kept: Callable[[int], AbstractContextManager[Side]] | None = None  # `send`, on kept connections

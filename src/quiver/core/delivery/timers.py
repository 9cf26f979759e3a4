"""What ends by itself, and when: leases, lives of messages, sessions of members.

Timers are compared as the tuples they are, by time and then by kind: all who apply the same entries
must end what is due at one moment in the same order. A timer is never withdrawn. When it goes off, or
when there are many, it is asked whether what it would end is still there.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

LEASE: Final = 0
LIFE: Final = 1
SESSION: Final = 2
NUMBERS: Final = 6  # of a timer in the stored state; what is not needed is 0


class LeaseEnd(NamedTuple):
    """What a lease held until `when_ms` is given back, as an attempt that failed."""

    when_ms: int
    kind: Literal[0]
    topic: int
    group: int
    partition: int
    epoch: int


class LifeEnd(NamedTuple):
    """A message expires, for all groups."""

    when_ms: int
    kind: Literal[1]
    topic: int
    partition: int
    offset: int


class SessionEnd(NamedTuple):
    """A member that was not heard of leaves its group."""

    when_ms: int
    kind: Literal[2]
    topic: int
    group: int
    member: int


Timer: TypeAlias = LeaseEnd | LifeEnd | SessionEnd


def dump(timer: Timer) -> list[int]:
    """As plain data."""
    return [*timer, 0][:NUMBERS]


def load(data: Sequence[Any]) -> Timer:
    """What `dump` gave."""
    when_ms, kind, *numbers = data
    assert len(data) == NUMBERS, "a stored timer has as many numbers as any other"
    match kind:
        case 0:
            return LeaseEnd(when_ms, LEASE, *numbers)
        case 1:
            return LifeEnd(when_ms, LIFE, *numbers[:3])
        case _:
            assert kind == SESSION, "a kind of timer that is known"
            return SessionEnd(when_ms, SESSION, *numbers[:3])

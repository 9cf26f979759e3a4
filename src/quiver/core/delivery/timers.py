"""What ends by itself, and when: leases, lives of messages, sessions of members.

A timer is a plain tuple of numbers, as it is stored: there may be one for each message, and Python's
garbage collector looks again and again at everything but those. It is made by name here, and told
apart by patterns with the names of the kinds:

    (when_ms, timers.LEASE, topic, group, partition, epoch)     what a lease held until then fails
    (when_ms, timers.LIFE, topic, partition, offset, _)         a message expires, for all groups
    (when_ms, timers.SESSION, topic, group, member, _)          a member that was silent leaves

Timers are compared as tuples, by time and then by kind: all who apply the same entries must end what
is due at one moment in the same order. A timer is never withdrawn. When it goes off, or when there are
many, it is asked whether what it would end is still there.
"""

from typing import Final, TypeAlias

Timer: TypeAlias = tuple[int, int, int, int, int, int]

LEASE: Final = 0
LIFE: Final = 1
SESSION: Final = 2


def of_lease(when_ms: int, topic: int, group: int, partition: int, epoch: int) -> Timer:
    """The end of what a lease holds until `when_ms`."""
    return when_ms, LEASE, topic, group, partition, epoch


def of_life(when_ms: int, topic: int, partition: int, offset: int) -> Timer:
    """The end of a message's life."""
    return when_ms, LIFE, topic, partition, offset, 0


def of_session(when_ms: int, topic: int, group: int, member: int) -> Timer:
    """The end of a member's session."""
    return when_ms, SESSION, topic, group, member, 0

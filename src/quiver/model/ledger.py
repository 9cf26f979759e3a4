"""The ledger's rows as plain values: what the core writes down and storage keeps."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from struct import Struct
from typing import Final


class Event(IntEnum):
    """What can happen to messages. Files have the names in lower case, so names are for ever."""

    SENT = 0
    DUPLICATE = 1  # sent again, and not stored again
    LEASED = 2
    DELIVERED = 3  # given out and settled in one step: at-most-once
    EXTENDED = 4
    ACKED = 5
    NACKED = 6
    TIMED_OUT = 7
    EXPIRED = 8
    DEAD_LETTERED = 9
    REDRIVEN = 10
    DISCARDED = 11
    PURGED = 12
    SOUGHT = 13  # the group was put elsewhere; `offset` is where
    GROUP_DELETED = 14
    TOPIC_DELETED = 15
    COMPACTED = 16  # a newer message has its key
    DROPPED = 17  # for its age or the topic's size
    LOST = 18  # dropped before the group had settled it
    PUBLISHED = 19  # no longer staged
    RESERVED = 20  # leased, and not begun: no attempt yet
    RELEASED = 21  # given back, or taken over by another consumer: not an attempt


COLUMNS: Final = (
    "time", "entry", "event", "topic", "partition", "group", "consumer", "attempt", "reason",
    "until", "to_topic", "to_partition",
    "offset", "count", "also",  # these move on; `also` is the row in the entry, or to_offset
)  # fmt: skip
ROW: Final = Struct(f"{len(COLUMNS)}q")
MOVING: Final = Struct("3q")
FIXED_BYTES: Final = ROW.size - MOVING.size


@dataclass(frozen=True, slots=True)
class LedgerRows:
    """Rows of the entries `first … last`: COLUMNS as 64-bit numbers, row after row.

    Texts are numbers of `names`; number 0 is the empty text. Where there is nothing to say, a
    partition is -1, an attempt and a time 0.
    """

    first: int
    last: int
    data: bytes
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many rows."""
        return len(self.data) // ROW.size

    def parts(self, most: int) -> Iterator["LedgerRows"]:
        """The same rows, at most so many at a time."""
        step = most * ROW.size
        for start in range(0, len(self.data), step):
            yield replace(self, data=self.data[start : start + step])

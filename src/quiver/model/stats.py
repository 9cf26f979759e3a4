"""What a queue, its topics and their groups are doing, as numbers."""

from dataclasses import dataclass
from typing import Final

SYNC_BOUNDS: Final = (
    0.000_1,
    0.000_25,
    0.000_5,
    0.001,
    0.002_5,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    10,
)  # seconds


@dataclass(frozen=True, slots=True)
class GroupStats:
    """One group. The first four count messages now; the rest count events since the group began."""

    group: str
    lag: int  # not settled yet: ready + in_flight + delayed
    ready: int
    in_flight: int
    delayed: int
    oldest_age: float  # seconds since the oldest unsettled message was stored
    paused: bool
    guarantee: str
    members: int
    delivered: int
    redelivered: int  # of those, second and later attempts
    acked: int
    nacked: int
    timed_out: int  # leases that ended unsettled
    dead_lettered: int
    redriven: int
    expired: int  # their time to live ended
    behind_retention: int  # unsettled, and dropped for their age or the topic's size
    reserved: int = 0  # of those in flight now: leased, and not begun
    released: int = (
        0  # given back, or taken over by another consumer, without counting as an attempt
    )


@dataclass(frozen=True, slots=True)
class TopicStats:
    """One topic. `depth` is what its slowest group has not settled (all there is, without a group)."""

    topic: str
    partitions: int
    depth: int
    in_flight: int
    delayed: int
    oldest_age: float
    stored: int  # messages that can be read, settled or not
    stored_bytes: int  # of these, and of removed ones that still are in the same batch
    sent: int
    duplicates: int
    dropped: int  # for their age or the topic's size
    compacted: int  # because a newer one has their key
    groups: dict[str, GroupStats]
    arrived: int = (
        0  # messages that were added, in whatever way: sent, published, given up, redriven
    )
    staged: int = 0  # messages that wait to be published; they are not part of the other figures


@dataclass(frozen=True, slots=True)
class StorageStats:
    """The files of a queue, and how long the log's syncs took since it was opened."""

    log_bytes: int
    log_files: int
    segment_bytes: int  # of the messages in them, before compression
    segments: int
    disk_bytes: int  # of the file system that the directory is on
    disk_free_bytes: int
    sync_counts: tuple[int, ...]  # syncs that took up to each of SYNC_BOUNDS, and longer ones
    sync_seconds: float  # all of them together


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything there is, at about the same time."""

    topics: dict[str, TopicStats]
    dead_letter_topics: tuple[str, ...]  # those of the topics that hold dead letters of others
    reasons: dict[str, int]  # messages given up since the queue was opened, by kind of reason
    storage: StorageStats | None  # None for who may not observe every topic of a node

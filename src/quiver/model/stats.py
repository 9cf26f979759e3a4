"""What a topic and its groups are doing, as numbers."""

from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class TopicStats:
    """One topic. `depth` is what its slowest group has not settled (all there is, without a group)."""

    topic: str
    partitions: int
    depth: int
    in_flight: int
    delayed: int
    oldest_age: float
    stored: int  # messages that exist, settled or not
    stored_bytes: int
    sent: int
    duplicates: int
    dropped: int  # for their age or the topic's size
    compacted: int  # because a newer one has their key
    groups: dict[str, GroupStats]

"""Telling a caller what retention has taken."""

from datetime import timedelta

from quiver.errors import BehindRetention
from quiver.model.commands import Position
from quiver.model.units import EPOCH
from quiver.notices import warn


def lost(topic: str, group: str, count: int) -> None:
    """A group had not settled messages when the topic's retention dropped them."""
    if count:
        warn(
            BehindRetention(
                f"group {group!r} is behind the retention of topic {topic!r} and has lost messages "
                f"that it had not settled: {count}. Add consumers, or keep messages longer",
                topic,
                group,
                count,
            )
        )


def behind(topic: str, group: str, position: Position, starts: tuple[tuple[int, int], ...]) -> None:
    """Messages that were asked for are gone; `starts` has partitions and where they begin now."""
    if starts:
        asked = f"offset {position.value}"
        if position.start == "time":
            asked = (EPOCH + timedelta(milliseconds=position.value)).isoformat()
        where = ", ".join(f"offset {first} of partition {number}" for number, first in starts[:10])
        more = f" and {len(starts) - 10} others" if len(starts) > 10 else ""
        who = f"group {group!r} of topic {topic!r}" if group else f"reading topic {topic!r}"
        warn(
            BehindRetention(
                f"{who} starts at {where}{more}, the oldest that retention has kept, not at {asked}",
                topic,
                group,
            )
        )

"""Setting the queue's time back, after a machine's clock that was far ahead has been set right.

The time was `wrong_ms` and becomes `right_ms`. Every time in the state is mapped so that what was over
stays over and what was still to come is still to come: then no message changes its place, and no
invariant can break. In between lie messages that were stored while the clock was ahead: they count as
stored at `right_ms`, so that times of storing still grow with the offset. What was counted from the
wrong time (a lease, a session, a retry, the delay of such a message) has as long to go as before.
"""

from collections.abc import Callable
from typing import NamedTuple

from quiver.core.delivery.extents import Columns
from quiver.core.delivery.partition import Partition
from quiver.core.delivery.topic import Topic
from quiver.core.delivery.view import View


class Rewind(NamedTuple):
    """From which time to which."""

    wrong_ms: int
    right_ms: int

    def past(self, time_ms: int) -> int:
        """When something happened."""
        return min(time_ms, self.right_ms)

    def wait(self, time_ms: int) -> int:
        """When something ends that was counted from the queue's time."""
        if time_ms > self.wrong_ms:
            return time_ms - self.wrong_ms + self.right_ms
        return min(time_ms, self.right_ms)

    def moment(self, time_ms: int, stored_ms: int) -> int:
        """When a message that was stored at `stored_ms` is due, or its life ends; 0 is never.

        If it was stored before the clock went wrong, that is a moment of the right time.
        """
        if time_ms > self.wrong_ms and stored_ms <= self.right_ms:
            return time_ms
        return self.wait(time_ms)

    def columns(self) -> Callable[[Columns, int], Columns]:
        """What maps the attributes of messages stored at a time; shared ones stay shared."""
        known: dict[tuple[int, bool], tuple[Columns, Columns]] = {}

        def mapped(columns: Columns, stored_ms: int) -> Columns:
            key = id(columns), stored_ms <= self.right_ms
            if key not in known:
                made = columns.with_times(lambda time_ms: self.moment(time_ms, stored_ms))
                known[key] = columns, made  # the old one as well: its id must not be another's
            return known[key][1]

        return mapped


def rewind(topic: Topic, back: Rewind) -> None:
    """Set everything in a topic back."""
    for group in topic.groups.values():
        for member in group.members.members.values():
            member.deadline_ms = back.wait(member.deadline_ms)
        for view in group.views:
            _rewind_view(view, back)
    for partition in topic.partitions:  # afterwards: views ask when a message was stored
        partition.gone_ms = back.past(partition.gone_ms)
        partition.set_times(back.past, back.columns())
    # Kept for the whole window from now on: an id must not be forgotten too early.
    latest_ms = back.right_ms + topic.policy.dedup_window_ms
    for dedup_id, (until_ms, where) in topic.dedup.items():
        kept_ms = min(until_ms, latest_ms) if until_ms > back.wrong_ms else back.past(until_ms)
        topic.dedup[dedup_id] = (kept_ms, where)


def _rewind_view(view: View, back: Rewind) -> None:
    view.set_times(
        back.wait, lambda due_ms, offset, attempts: _due(view, back, due_ms, offset, attempts)
    )


def _due(view: View, back: Rewind, due_ms: int, offset: int, attempts: int) -> int:
    """When a message that waits is due: at its own moment, or when its retry is."""
    partition = view.partition
    if attempts == 0 and offset >= 0 and partition.deliver_at_of(offset) == due_ms:
        return back.moment(due_ms, partition.find(offset).stored_ms)
    return back.wait(due_ms)


def life_ends(partition: Partition, offset: int, time_ms: int, back: Rewind) -> int:
    """When the life of a message that exists ends."""
    return back.moment(time_ms, partition.find(offset).stored_ms)

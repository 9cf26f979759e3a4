"""A member's side of sharing out partitions: what it owns, and how far it has read."""

from functools import partial
from typing import Any

from quiver import limits
from quiver.client import arguments, losses
from quiver.client.flows import Flows
from quiver.client.results import Record
from quiver.client.steps import Flow, Work, done
from quiver.errors import InvalidRequest
from quiver.model.commands import Commit, Heartbeat, Join, Leave
from quiver.model.replies import Assigned
from quiver.model.units import milliseconds
from quiver.node.placing import TopicHandle


class Membership:
    """Positions start at the committed offset and move on with each fetch."""

    def __init__(
        self, flows: Flows, topic: TopicHandle, group: str, member: str, session_ms: int
    ) -> None:
        self.generation = 0
        self._flows = flows
        self._topic = topic
        self._who = (topic.number, group, member)
        self._session_ms = session_ms
        self._beat_ms = flows.now_ms()  # when the group last heard of this member
        self._positions: dict[int, int] = {}

    def __str__(self) -> str:
        _, group, member = self._who
        return f"{member} of {self._topic.name}/{group} in {self._flows.place}"

    @property
    def partitions(self) -> list[int]:
        """What is owned."""
        return sorted(self._positions)

    @classmethod
    def open(
        cls, flows: Flows, topic: str, group: str, member: str, session: Any
    ) -> Flow["Membership"]:
        """Join."""
        session_ms = milliseconds(session, "session", max_seconds=limits.LEASE_SECONDS_MAX)
        if session_ms == 0:
            raise InvalidRequest("session must be more than 0")
        arguments.name(group, "group")
        arguments.name(member, "member")
        handle = yield from flows.find(topic)
        made = cls(flows, handle, group, member, session_ms)
        command = Join(handle.number, group, member, session_ms)
        made._hear((yield from flows.member(command)))
        return made

    def heartbeat(self, released: tuple[int, ...] = ()) -> Flow[Assigned]:
        """Still here, and letting go of `released`."""
        command = Heartbeat(*self._who, released)
        assigned = yield from self._flows.member(command)
        self._beat_ms = self._flows.now_ms()
        self._hear(assigned)
        return assigned

    def fetch(self, max_messages: int, wait: Any) -> Flow[list[Record]]:
        """The next messages. What was fetched before from partitions to be let go of is given up.

        A long wait is cut in pieces shorter than the session, so that waiting keeps the membership.
        """
        arguments.whole(max_messages, "max_messages", 1, limits.READ_MESSAGES_MAX)
        left_ms = milliseconds(wait, "wait", max_seconds=limits.WAIT_SECONDS_MAX)
        while True:
            yield from self._keep_up()
            piece_ms = min(left_ms, self._session_ms // 3)
            page = yield from self._flows.fetch(
                *self._who, dict(self._positions), max_messages, piece_ms
            )
            if page is not None:
                # All of it, and only then go on: a commit settles everything before the position.
                read = partial(page.records, self._topic.name, whole=True)
                records = yield from done(Work(read))
                self._positions |= page.ahead
                return records
            left_ms -= piece_ms
            if left_ms <= 0:
                return []

    def _keep_up(self) -> Flow[None]:
        """Learn what is owned, let go of what shall be another's, and be heard of in time."""
        assigned = yield from self._flows.assigned(*self._who)
        self._take(assigned)
        if assigned.revoked or assigned.lost:  # what is lost is told by an entry, once
            yield from self.heartbeat(assigned.revoked)
        elif self._flows.now_ms() - self._beat_ms >= self._session_ms // 3:
            yield from self.heartbeat()

    def commit(self) -> Flow[None]:
        """What was fetched is processed."""
        offsets = tuple(sorted(self._positions.items()))
        if offsets:
            assigned = yield from self._flows.member(Commit(*self._who, offsets))
            losses.lost(self._topic.name, self._who[1], assigned.lost)

    def leave(self) -> Flow[None]:
        """Go."""
        yield from self._flows.leave(Leave(*self._who))

    def _hear(self, assigned: Assigned) -> None:
        self._take(assigned)
        losses.lost(self._topic.name, self._who[1], assigned.lost)

    def _take(self, assigned: Assigned) -> None:
        self.generation = assigned.generation
        self._positions = {
            partition: self._positions.get(partition, committed)
            for partition, committed in assigned.partitions
        }

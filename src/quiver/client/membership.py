"""A member's side of sharing out partitions: what it owns, and how far it has read."""

from typing import Any

from quiver import limits
from quiver.client import arguments
from quiver.client.flows import Flow, Flows, Page, records
from quiver.client.results import Record
from quiver.errors import InvalidRequest
from quiver.model.commands import Commit, Heartbeat, Join, Leave
from quiver.model.replies import Assigned
from quiver.model.units import milliseconds
from quiver.node.engine import Engine
from quiver.node.shard import TopicHandle


class Membership:
    """Positions start at the committed offset and move on with each fetch."""

    def __init__(self, flows: Flows, topic: TopicHandle, group: str, member: str) -> None:
        self.generation = 0
        self._flows = flows
        self._topic = topic
        self._who = (topic.number, group, member)
        self._positions: dict[int, int] = {}

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
        handle = yield from flows.handle(topic)
        made = cls(flows, handle, group, member)
        made._take((yield flows.shard.propose(Join(handle.number, group, member, session_ms))))
        return made

    def heartbeat(self, released: tuple[int, ...] = ()) -> Flow[Assigned]:
        """Still here, and letting go of `released`."""
        assigned: Assigned = yield self._flows.shard.propose(Heartbeat(*self._who, released))
        self._take(assigned)
        return assigned

    def fetch(self, max_messages: int, wait: Any) -> Flow[list[Record]]:
        """The next messages. What was fetched before from partitions to be let go of is given up."""
        arguments.whole(max_messages, "max_messages", 1, limits.READ_MESSAGES_MAX)
        wait_ms = milliseconds(wait, "wait", max_seconds=limits.WAIT_SECONDS_MAX)
        assigned = yield from self.heartbeat()
        if assigned.revoked:
            yield from self.heartbeat(assigned.revoked)
        positions = dict(self._positions)

        def ask(engine: Engine, now_ms: int) -> tuple[Page | None, int | None]:
            number = self._topic.number
            if engine.core.is_paused(number, self._who[1]):
                return None, None
            ends, due_ms = engine.core.fetchable(number, positions, now_ms)
            page = self._flows.page(engine, number, positions, ends, max_messages)
            return (page if page.slices else None), due_ms

        page: Page | None = yield self._flows.shard.watch(self._topic.number, ask, wait_ms)
        if page is None:
            return []
        self._positions |= page.ahead
        return records(self._topic.name, page)

    def commit(self) -> Flow[None]:
        """What was fetched is processed."""
        offsets = tuple(sorted(self._positions.items()))
        if offsets:
            yield self._flows.shard.propose(Commit(*self._who, offsets))

    def leave(self) -> Flow[None]:
        """Go."""
        yield self._flows.shard.propose(Leave(*self._who))

    def _take(self, assigned: Assigned) -> None:
        self.generation = assigned.generation
        self._positions = {
            partition: self._positions.get(partition, committed)
            for partition, committed in assigned.partitions
        }

"""A member's side of sharing out partitions: what it owns, and how far it has read."""

from collections.abc import Callable
from functools import partial
from typing import Any

from quiver import limits
from quiver.client import arguments, losses
from quiver.client.flows import Flow, Flows, Page, Work, records
from quiver.client.results import Record
from quiver.errors import InvalidRequest
from quiver.model.commands import Commit, Heartbeat, Join, Leave
from quiver.model.replies import Assigned
from quiver.model.units import milliseconds
from quiver.node.engine import Engine
from quiver.node.shard import TopicHandle


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
        self._beat_ms = flows.shard.clock.now_ms()  # when the group last heard of this member
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
        made = cls(flows, handle, group, member, session_ms)
        made._hear((yield flows.shard.propose(Join(handle.number, group, member, session_ms))))
        return made

    def heartbeat(self, released: tuple[int, ...] = ()) -> Flow[Assigned]:
        """Still here, and letting go of `released`."""
        assigned: Assigned = yield self._flows.shard.propose(Heartbeat(*self._who, released))
        self._beat_ms = self._flows.shard.clock.now_ms()
        self._hear(assigned)
        return assigned

    def fetch(self, max_messages: int, wait: Any) -> Flow[list[Record]]:
        """The next messages. What was fetched before from partitions to be let go of is given up.

        A long wait is cut in pieces shorter than the session, so that waiting keeps the membership.
        """
        arguments.whole(max_messages, "max_messages", 1, limits.READ_MESSAGES_MAX)
        wait_ms = milliseconds(wait, "wait", max_seconds=limits.WAIT_SECONDS_MAX)
        clock = self._flows.shard.clock
        until_ms = clock.now_ms() + wait_ms
        while True:
            yield from self._keep_up()
            left_ms = until_ms - clock.now_ms()
            piece_ms = min(max(left_ms, 0), self._session_ms // 3)
            page: Page | None = yield self._flows.shard.watch(
                self._topic.number, self._question(max_messages), piece_ms
            )
            if page is not None:
                # All of it, and only then go on: a commit settles everything before the position.
                read = partial(records, self._topic.name, page, whole=True)
                records_: list[Record] = yield Work(read)
                self._positions |= page.ahead
                return records_
            if left_ms <= piece_ms:
                return []

    def _keep_up(self) -> Flow[None]:
        """Learn what is owned, let go of what shall be another's, and be heard of in time."""
        assigned: Assigned = yield self._flows.shard.ask(
            lambda engine: engine.core.assigned(*self._who)
        )
        self._take(assigned)
        if assigned.revoked or assigned.lost:  # what is lost is told by an entry, once
            yield from self.heartbeat(assigned.revoked)
        elif self._flows.shard.clock.now_ms() - self._beat_ms >= self._session_ms // 3:
            yield from self.heartbeat()

    def _question(
        self, max_messages: int
    ) -> Callable[[Engine, int], tuple[Page | None, int | None]]:
        positions = dict(self._positions)
        number, group, member = self._who

        def ask(engine: Engine, now_ms: int) -> tuple[Page | None, int | None]:
            owned = dict(engine.core.assigned(number, group, member).partitions)
            mine = {partition: at for partition, at in positions.items() if partition in owned}
            if engine.core.is_paused(number, group):
                return None, None
            ends, due_ms = engine.core.fetchable(number, mine, now_ms)
            page = self._flows.page(engine, number, mine, ends, max_messages)
            return (page if page.slices else None), due_ms

        return ask

    def commit(self) -> Flow[None]:
        """What was fetched is processed."""
        offsets = tuple(sorted(self._positions.items()))
        if offsets:
            assigned: Assigned = yield self._flows.shard.propose(Commit(*self._who, offsets))
            losses.lost(self._topic.name, self._who[1], assigned.lost)

    def leave(self) -> Flow[None]:
        """Go."""
        yield self._flows.shard.propose(Leave(*self._who))

    def _hear(self, assigned: Assigned) -> None:
        self._take(assigned)
        losses.lost(self._topic.name, self._who[1], assigned.lost)

    def _take(self, assigned: Assigned) -> None:
        self.generation = assigned.generation
        self._positions = {
            partition: self._positions.get(partition, committed)
            for partition, committed in assigned.partitions
        }

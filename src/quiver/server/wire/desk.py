"""What all requests need: the topic that is meant, the right to it, and the payload of a frame."""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from quiver import limits
from quiver.batches.codec import BytesLike
from quiver.client.local import LocalBroker
from quiver.client.steps import Work
from quiver.errors import ProtocolError, TopicNotFound
from quiver.model import commands
from quiver.model.queries import ListTopics
from quiver.model.topic import is_staging
from quiver.node.placing import TopicHandle
from quiver.server.auth import EVERY_TOPIC
from quiver.server.auth import Verb as Right
from quiver.server.body import unpacking, unzstd
from quiver.server.context import Context
from quiver.server.wire import checks, rights
from quiver.server.wire.calls import Await, Steps, WireCall, first, firsts
from quiver.server.wire.rights import RightRule, Where
from quiver.wire import values
from quiver.wire.frames import Flag, Verb
from quiver.wire.values import NamedHead

T = TypeVar("T")

_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
# As metrics call a command, query or errand.
OPERATIONS: Final = {kind: _WORD.sub("_", kind.__name__).lower() for kind in rights.NAMED}


class Desk:
    """Looks into requests, in the name of who asks."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.flows = context.flows
        self.broker: LocalBroker = context.broker
        self._names: dict[int, str] = {}  # of topics, by their numbers, which are given once

    # -- topics and rights -------------------------------------------------------------------------

    def demand(self, call: WireCall, rule: RightRule, given: Any) -> Steps[TopicHandle | None]:
        """Refuse who may not; the topic, if it is asked for by its number."""
        match rule.where:
            case Where.NUMBER:
                return (yield from self.topic(call, given.topic, *rule.rights))
            case Where.NAME:
                name = given.name if isinstance(given, commands.CreateTopic) else given.topic
                for right in rule.rights:
                    on = EVERY_TOPIC if name is None else name
                    call.standing.demand(call.principal, right, on)
                if name is not None:
                    checks.name(name)
            case Where.EVERY:
                for right in rule.rights:
                    call.standing.demand(call.principal, right, EVERY_TOPIC)
            case Where.SOMEWHERE:
                call.principal.demand_somewhere(*rule.rights)
            case Where.SEEN | Where.NONE:
                pass
        return None

    def topic(self, call: WireCall, number: int, right: Right) -> Steps[TopicHandle]:
        """The topic of this number, if the principal may do this on it.

        It is the handle that all doors share, so it has the policy of now. Who may not see the topic, and
        everybody where it is nobody's, is told what is told of a number that there is not.
        """
        name = yield from self.name_of(number)
        if name is None or is_staging(name):
            raise unknown(number)
        if not call.standing.has_shown(right, name):
            if not call.principal.sees(name):
                raise unknown(number)
            call.standing.demand(call.principal, right, name)
        handle = self.flows.known(name)
        if handle is None or handle.number != number:
            handle = yield from self._found(name, number)
        return handle

    def known(self, call: WireCall, number: int, right: Right) -> TopicHandle | None:
        """The same, if nothing must be looked up for it."""
        name = self._names.get(number, "")
        handle = self.flows.known(name)
        if handle is None or handle.number != number or not call.standing.has_shown(right, name):
            return None
        return handle

    def name_of(self, number: int) -> Steps[str | None]:
        """The name of a topic, if it is there."""
        known = self._names.get(number)
        if known is not None:
            return known
        found = yield from first(self.broker.ask(ListTopics((number,))))
        if not found:
            return None
        if len(self._names) >= limits.WIRE_TOPICS_KNOWN_MAX:
            self._names.clear()
        name: str = found[0]
        self._names[number] = name
        return name

    def _found(self, name: str, number: int) -> Steps[TopicHandle]:
        """The handle of a topic that nobody has asked for lately, or that is another one by now."""
        try:
            handle = yield from firsts(self.flows.find(name))
        except TopicNotFound:
            raise unknown(number) from None
        if handle.number != number:
            raise unknown(number)
        return handle

    @staticmethod
    def checked(call: WireCall, check: Callable[[], T]) -> Steps[T]:
        """What a check returns, which may take a while for what has a large head."""
        if len(call.frame.head) <= limits.INLINE_BYTES_MAX:
            return check()
        return (yield from first(Work(check)))

    # -- payloads ----------------------------------------------------------------------------------

    def payload(self, call: WireCall, most: int) -> Steps[BytesLike]:
        """The payload of a frame, decompressed within a bound."""
        frame = call.frame
        if not frame.flags & Flag.ZSTD:
            return frame.payload

        async def unpack() -> bytes:
            async with unpacking:
                return await asyncio.to_thread(partial(unzstd, frame.payload, most))

        found = yield from first(Await(unpack()))
        if len(found) > limits.BODY_FREE_BYTES:
            call.held.add(len(found))
        return found

    def named(self, call: WireCall, head: NamedHead, verb: Verb) -> tuple[Any, RightRule]:
        """What a head names, and who may ask for it."""
        given = values.value_of(head)
        rule = rights.NAMED.get(type(given))
        if rule is None or rule.verb is not verb:
            raise ProtocolError(f"{head.name[:80]!r} is not asked for like this")
        call.operation = OPERATIONS[type(given)]
        return given, rule


def unknown(number: int) -> TopicNotFound:
    """What is said of a topic that is not there, or not for who asks."""
    return TopicNotFound(f"there is no topic of number {number}; it may have been deleted")

"""What each query does: most are asked as they are; some show only what the principal may see."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from quiver import limits, notices
from quiver.batches.codec import BytesLike
from quiver.batches.output import Piece
from quiver.client.flows import Page
from quiver.client.steps import Work, done
from quiver.model import queries
from quiver.model.queries import PageFound
from quiver.model.topic import TopicPolicy, is_staging
from quiver.node.placing import TopicHandle
from quiver.server.api import arrow
from quiver.server.api.endpoint import making
from quiver.server.api.messages import part_of
from quiver.server.auth import EVERY_TOPIC
from quiver.server.wire import checks
from quiver.server.wire.calls import NIL, More, Steps, WireCall, WireReply, awaited
from quiver.server.wire.desk import Desk
from quiver.wire.frames import Verb
from quiver.wire.values import NamedHead, PageOut, encode, encode_pieces

# What senders must know of a policy: where messages go, and how they are packed.
SENDERS: Final = (
    "partitions", "order", "fair", "partition_by", "split_keys", "compression", "max_backlog",
)  # fmt: skip
Answer = Callable[[WireCall, Any, TopicHandle | None], Steps[WireReply]]


class WireQuestions:
    """Answers queries."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._broker = desk.broker
        self._special: dict[type[Any], Answer] = {
            queries.FindTopic: self._find_topic,
            queries.ListTopics: self._list_topics,
            queries.ReadFigures: self._figures,
            queries.ReadStorage: self._storage,
            queries.FindPicks: self._picks,
            queries.ReadPage: self._read_page,
            queries.ReadLedger: self._ledger,
        }

    def ask(self, call: WireCall, head: NamedHead) -> Steps[WireReply]:
        """A question that has an answer now."""
        query, rule = self._desk.named(call, head, Verb.ASK)
        topic = yield from self._desk.demand(call, rule, query)
        yield from self._desk.checked(call, partial(checks.query, query, topic))
        special = self._special.get(type(query))
        if special is not None:
            return (yield from special(call, query, topic))
        found = yield from done(self._broker.ask(query))
        return WireReply(encode(found))

    def watch(self, call: WireCall, head: NamedHead) -> Steps[WireReply]:
        """One that may have no answer yet."""
        query, rule = self._desk.named(call, head, Verb.WATCH)
        topic = yield from self._desk.demand(call, rule, query)
        yield from self._desk.checked(call, partial(checks.query, query, topic))
        checks.wait_ms(head.wait_ms)
        call.held.demand_room()
        with self._desk.context.waiting(call.principal, head.wait_ms):
            found = yield from done(self._broker.watch(query, head.wait_ms))
        if isinstance(
            found, PageFound
        ):  # all of it: a commit settles everything before its offsets
            return (yield from self._page(call, found, whole=True))
        return WireReply(encode(found))

    # -- topics ------------------------------------------------------------------------------------

    def _find_topic(
        self, call: WireCall, query: queries.FindTopic, _: TopicHandle | None
    ) -> Steps[WireReply]:
        """All of the policy is for who observes or manages the topic; senders need not know it all."""
        principal, name = call.principal, query.name
        knows = principal.may("observe", name) or principal.may("manage", name)
        if query.whole and not knows:
            principal.demand("observe", name)
        principal.demand_seen(name)
        checks.name(name)
        found = yield from done(self._broker.ask(query))
        if not knows:
            known = {field: getattr(found.policy, field) for field in SENDERS}
            found = replace(found, policy=TopicPolicy(**known))
        return WireReply(encode(found))

    def _list_topics(
        self, call: WireCall, query: queries.ListTopics, _: TopicHandle | None
    ) -> Steps[WireReply]:
        found = yield from done(self._broker.ask(query))
        names = [name for name in found if not is_staging(name)]
        return WireReply(encode(call.principal.visible(names)))

    def _figures(
        self, call: WireCall, query: queries.ReadFigures, _: TopicHandle | None
    ) -> Steps[WireReply]:
        found = yield from done(self._broker.ask(query))

        def shown(name: str) -> bool:
            return not is_staging(name) and call.principal.may("observe", name)

        topics = tuple(one for one in found.topics if shown(one.topic))
        letters = tuple(filter(shown, found.dead_letter))
        return WireReply(encode(queries.Figures(found.looked_at, topics, letters)))

    def _storage(
        self, call: WireCall, query: queries.ReadStorage, _: TopicHandle | None
    ) -> Steps[WireReply]:
        """Files are everybody's together: they are shown to who may observe every topic."""
        if not call.principal.may("observe", EVERY_TOPIC):
            return WireReply(encode(queries.Storage(None, {})))
        found = yield from done(self._broker.ask(query))
        return WireReply(encode(found))

    def _picks(
        self, call: WireCall, query: queries.FindPicks, _: TopicHandle | None
    ) -> Steps[WireReply]:
        """Who may manage dead letters learns of topics only what he may see."""
        found = yield from done(self._broker.ask(query))
        origins = tuple(call.principal.visible(found.origins))
        return WireReply(encode(replace(found, origins=origins)))

    # -- messages ----------------------------------------------------------------------------------

    def _read_page(
        self, call: WireCall, query: queries.ReadPage, _: TopicHandle | None
    ) -> Steps[WireReply]:
        call.held.demand_room()
        found = yield from done(self._broker.ask(query))
        return (yield from self._page(call, found, whole=False))

    def _page(self, call: WireCall, page: PageFound, *, whole: bool) -> Steps[WireReply]:
        """A page with its messages, as many as an answer may carry."""
        bodies = page.bodies
        if bodies is None:
            return WireReply(encode(PageOut.of(page, page.slices, page.ahead)))

        def read() -> tuple[bytes, BytesLike]:
            with notices.collected() as warned:
                pieces = bodies.pieces() if whole else bodies.readable(some=False)
                found = part_of(Page(page.slices, bodies, page.ahead), pieces)
            call.warned[:] = warned
            parts = [piece.part for piece in found.pieces]
            value = encode(PageOut.of(page, parts, found.ahead))
            return value, encode_pieces(found.pieces)

        if bodies.at_hand and sum(part.count for part in page.slices) <= limits.INLINE_ROWS_MAX:
            pieces = list(bodies.pieces())
            if small(pieces):
                return WireReply(*read())

        async def made() -> tuple[bytes, BytesLike]:
            async with making(call.held):
                return await asyncio.to_thread(read)

        return WireReply(*(yield from awaited(made())))

    # -- the ledger --------------------------------------------------------------------------------

    def _ledger(
        self, call: WireCall, query: queries.ReadLedger, _: TopicHandle | None
    ) -> Steps[WireReply]:
        """A table at a time, each read when there is room for it; the last ends the answer."""
        call.held.demand_room()
        tables: Iterator[pa.Table] = yield from done(self._broker.ask(query))
        before: BytesLike = b""
        while True:
            table = yield from done(Work(partial(next, tables, None)))
            if table is None:
                return WireReply(NIL, before)
            if before:
                yield More(before)
            before = yield from done(Work(partial(stream, table)))


def small(pieces: list[Piece]) -> bool:
    """Whether messages are so few bytes that they may be made an answer in the event loop."""
    nbytes = 0
    for batch, at, part in pieces:
        if part.count == batch.num_rows:
            nbytes += batch.nbytes
        else:
            nbytes += sum(column.slice(at, part.count).nbytes for column in batch.columns)
        if nbytes > limits.WIRE_INLINE_BYTES_MAX:
            return False
    return True


def stream(table: pa.Table) -> BytesLike:
    """A table as a stream of Arrow."""
    return arrow.whole(table, table.schema)

"""What each errand does: the same flows that an embedded queue runs, with the secret and with SQL."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from quiver import limits, notices
from quiver.client import moving
from quiver.client.flows import Place
from quiver.client.questions import ask
from quiver.client.sql import Sql
from quiver.client.steps import Flow, Work, done
from quiver.client.tasks import run
from quiver.errors import InvalidRequest
from quiver.model import errands
from quiver.node.placing import TopicHandle
from quiver.server.api.history import told
from quiver.server.wire import checks
from quiver.server.wire.calls import NIL, Steps, WireCall, WireReply, awaited, first, firsts
from quiver.server.wire.desk import Desk
from quiver.server.wire.questions import stream
from quiver.wire.frames import Flag, Verb
from quiver.wire.values import NamedHead, encode

T = TypeVar("T")


class Errands:
    """Does errands."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._context = desk.context
        self._flows = desk.flows
        self._do: dict[type[Any], Callable[[WireCall, Any], Steps[WireReply]]] = {
            errands.StageBatch: self._stage,
            errands.PublishStaged: self._publish,
            errands.Unstage: self._unstage,
            errands.Choose: self._choose,
            errands.DemandOrigins: self._demand_origins,
            errands.AskSql: self._ask_sql,
            errands.Trace: self._trace,
            errands.SealAll: self._seal,
            errands.CompactTopic: self._compact,
        }

    def run(self, call: WireCall, head: NamedHead) -> Steps[WireReply]:
        """One errand."""
        errand, rule = self._desk.named(call, head, Verb.ERRAND)
        yield from self._desk.demand(call, rule, errand)
        yield from self._desk.checked(call, partial(checks.errand, errand))
        if len(call.frame.payload) and not isinstance(errand, errands.StageBatch):
            raise InvalidRequest("this errand has no messages with it")
        return (yield from self._do[type(errand)](call, errand))

    def _driven(self, call: WireCall, flow: Flow[T]) -> Steps[T]:
        """The result of a flow, and what it warns of."""

        return self._warned(call, partial(run, flow))

    def _warned(self, call: WireCall, work: Callable[[], Coroutine[Any, Any, T]]) -> Steps[T]:
        async def collect() -> T:
            with notices.collected() as warned:
                call.warned = warned
                return await work()

        return awaited(collect())

    # -- staging -----------------------------------------------------------------------------------

    def _stage(self, call: WireCall, errand: errands.StageBatch) -> Steps[WireReply]:
        data = yield from self._desk.payload(call, limits.ENCODED_BYTES_MAX)
        relative = call.frame.flags & Flag.RELATIVE
        now_ms = self._desk.broker.now_ms() if relative else None
        batch = yield from first(Work(partial(checks.batch, data, now_ms)))
        flow = self._flows.stage_packed(errand.topic, batch, call.principal.name)
        return WireReply(encode((yield from self._driven(call, flow))))

    def _publish(self, call: WireCall, errand: errands.PublishStaged) -> Steps[WireReply]:
        fields = errand.parts, errand.application, errand.batch, errand.run, call.principal.name
        flow = self._flows.publish(errand.topic, *fields)
        return WireReply(encode((yield from self._driven(call, flow))))

    def _unstage(self, call: WireCall, errand: errands.Unstage) -> Steps[WireReply]:
        flow = self._flows.unstage(errand.topic, errand.parts, call.principal.name)
        return WireReply(encode((yield from self._driven(call, flow))))

    # -- dead letters ------------------------------------------------------------------------------

    def _choose(self, call: WireCall, errand: errands.Choose) -> Steps[WireReply]:
        """A condition reads messages: its errors quote them, and a count answers any question."""
        call.standing.demand(call.principal, "read", errand.topic)
        yield from self._replayed(errand)
        it = errand

        def flow(sql: Sql) -> Flow[tuple[list[Place], dict[int, int]]]:
            return moving.choose(
                self._flows, it.topic, it.number, it.positions, it.ends, it.condition, sql
            )

        work = partial(self._context.questions.choose, flow)
        chosen, ahead = yield from self._warned(call, work)
        return WireReply(encode(errands.Chosen(_runs(chosen), ahead)))

    def _demand_origins(self, call: WireCall, errand: errands.DemandOrigins) -> Steps[WireReply]:
        yield from self._replayed(errand)
        demand = partial(call.principal.demand, "send")
        flow = self._flows.demand_origins(
            errand.topic, errand.number, errand.positions, errand.ends, demand
        )
        yield from self._driven(call, flow)
        return WireReply(NIL)

    def _replayed(self, errand: errands.Choose | errands.DemandOrigins) -> Steps[TopicHandle]:
        """The topic that is meant, which has such places."""
        topic = yield from firsts(self._flows.find(errand.topic))
        if topic.number != errand.number:
            raise InvalidRequest(f"topic {errand.topic!r} was deleted and made again meanwhile")
        checks.replay(topic, errand.positions, errand.ends)
        return topic

    # -- what happened, and SQL --------------------------------------------------------------------

    def _ask_sql(self, call: WireCall, errand: errands.AskSql) -> Steps[WireReply]:
        call.held.demand_room()

        def question(sql: Sql) -> Flow[pa.Table]:
            return ask(self._flows, errand.query, limits.SQL_ANSWER_BYTES_MAX, sql)

        answer = yield from self._warned(call, partial(self._context.questions.answer, question))
        call.held.demand_room()  # questions wait for each other, and may all have been let in
        return (yield from self._table(call, answer))

    def _trace(self, call: WireCall, errand: errands.Trace) -> Steps[WireReply]:
        call.held.demand_room()
        story = yield from self._driven(call, self._flows.trace(errand.message))
        return (yield from self._table(call, told(story, call.principal, errand.message)))

    def _table(self, call: WireCall, table: pa.Table) -> Steps[WireReply]:
        call.held.note(table.nbytes)
        return WireReply(NIL, (yield from done(Work(partial(stream, table)))))

    # -- files -------------------------------------------------------------------------------------

    def _seal(self, call: WireCall, errand: errands.SealAll) -> Steps[WireReply]:
        yield from self._driven(call, self._flows.seal())
        return WireReply(NIL)

    def _compact(self, call: WireCall, errand: errands.CompactTopic) -> Steps[WireReply]:
        return WireReply(encode((yield from self._driven(call, self._flows.compact(errand.topic)))))


def _runs(chosen: list[Place]) -> tuple[tuple[int, int, int], ...]:
    """Places as runs of them."""
    runs: list[tuple[int, int, int]] = []
    for partition, offset in chosen:
        if runs and (runs[-1][0], runs[-1][2]) == (partition, offset):
            runs[-1] = (partition, runs[-1][1], offset + 1)
        else:
            runs.append((partition, offset, offset + 1))
    return tuple(runs)

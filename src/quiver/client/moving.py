"""Redrive and discard: the pending messages that are meant, step by step, at a rate.

A step is one entry of the log: its messages are gone from here and, if redriven, are there, or
nothing has happened. So whoever was interrupted starts again and goes on with what is left. A run
ends where the topic ended when it began, so what comes back meanwhile is not moved in circles.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeAlias

from quiver import limits
from quiver.client import arguments
from quiver.client.flows import Demand, Flows, Place
from quiver.client.results import Record
from quiver.client.scanning import Scan
from quiver.client.sql import Evaluator, Sql, bounded, columns_of
from quiver.client.steps import Flow, Pause, Work, done
from quiver.errors import InvalidRequest, QuiverError
from quiver.model.commands import Discard, Pick, Redrive
from quiver.model.ranges import merge

Function: TypeAlias = Callable[[Record], bool]


@dataclass(frozen=True, slots=True)
class SqlAndFunction:
    """A condition in SQL, and a function that is asked about what the condition has chosen."""

    condition: str
    function: Function


Where: TypeAlias = str | Function | SqlAndFunction | None


def move(
    flows: Flows,
    topic: str,
    command: Callable[[int, tuple[Pick, ...]], Redrive | Discard],
    where: Where,
    *,
    rate: float | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
    demand: Demand | None = None,
    sql: Sql | None = None,
) -> Flow[int]:
    """Redrive or discard the pending messages that `where` chooses; return how many.

    Messages that go back to where they died need the right to send there: `demand` is asked about all
    pending messages before the first is moved, whatever `where` chooses, and in each step again.
    `sql` evaluates a condition, if not this process.
    """
    if limit is not None:
        arguments.whole(limit, "limit", 1, 2**62)
    pace = MovePace(flows, None if rate is None else arguments.rate(rate))
    number, positions, ends = yield from flows.read_start(topic)
    if _goes_back(command(number, ())):
        yield from flows.demand_origins(topic, number, positions, ends, demand)
    scan = Scan(flows, number, positions, ends, pending=True)
    choice = Choice(flows, topic, where, sql)
    moved = 0
    begun = False
    try:
        yield from choice.check()
        while (
            scan.more or not begun
        ) and moved != limit:  # a node is asked for a condition at least once
            begun = True
            chosen = yield from choice.of_next(scan)
            while chosen and moved != limit:
                most = pace.step if limit is None else min(pace.step, limit - moved)
                step, chosen = picks(chosen[:most]), chosen[most:]
                if dry_run:
                    moved += yield from flows.movable(topic, number, step)
                else:
                    yield from pace.wait()
                    count = yield from flows.move(topic, command(number, step), demand)
                    pace.did(count)
                    moved += count
                if progress is not None:
                    progress(moved)
    except QuiverError as error:
        if not moved or dry_run:
            raise
        raise type(error)(f"{error}; {moved:,} messages were moved before") from error
    finally:
        choice.close()
    return moved


def _goes_back(command: Redrive | Discard) -> bool:
    """Whether messages go to where they died, as no target is named."""
    return isinstance(command, Redrive) and command.target is None


def choose(
    flows: Flows, topic: str, number: int, positions: dict[int, int], ends: dict[int, int],
    condition: str, sql: Sql,
) -> Flow[tuple[list[Place], dict[int, int]]]:  # fmt: skip
    """The next pending messages for which a condition holds, oldest first, and where to go on.

    It goes on until it has found a page of them, or has taken its time. If the condition fails for a
    message, what was found before is told, and the failure when it is asked again.
    """
    scan = Scan(flows, number, positions, ends, pending=True)
    choice = Choice(flows, topic, condition, sql)
    chosen: list[Place] = []
    until = perf_counter() + limits.CHOOSE_SECONDS
    try:
        yield from choice.check()
        while scan.more and len(chosen) < limits.READ_MESSAGES_MAX and perf_counter() < until:
            before = scan.positions
            try:
                chosen += yield from choice.of_next(scan)
            except QuiverError:
                if not chosen:
                    raise
                return chosen, before
    finally:
        choice.close()
    return chosen, scan.positions


class Choice:
    """Which messages are meant: all, or those that a condition or a function chooses."""

    def __init__(self, flows: Flows, topic: str, where: Where, sql: Sql | None = None) -> None:
        self._flows = flows
        self._topic = topic
        self._condition, self._function = _parts(where)
        if self._condition is not None:
            bounded(self._condition, "where")
        self._elsewhere = flows.elsewhere and self._function is None
        self._sql: Sql = Evaluator() if sql is None else sql

    def check(self) -> Flow[None]:
        """Refuse what is no condition, before anything moves; what is asked elsewhere is refused there."""
        condition = self._condition
        if condition is not None and not self._elsewhere:
            yield from done(Work(lambda: self._sql.check(condition)))

    def of_next(self, scan: Scan) -> Flow[list[Place]]:
        """Those of the next page that are meant, oldest first."""
        condition = self._condition
        if condition is not None and self._elsewhere:
            return (yield from scan.chosen(self._topic, condition))
        page = yield from scan.page()
        chosen = page.places
        if condition is not None:
            chosen = yield from scan.given(
                page, lambda table: self._sql.places(condition, columns_of(table))
            )
        elif self._function is None:
            scan.saw(len(chosen), 0)
        if self._function is None or not chosen:
            return chosen
        wanted = set(chosen)
        records: list[Record] = yield from self._flows.read_records(self._topic, page)
        scan.saw(len(records), sum(len(record.body) for record in records))
        records = [record for record in records if (record.partition, record.offset) in wanted]
        return [(record.partition, record.offset) for record in records if self._function(record)]

    def close(self) -> None:
        """Let go of what the condition needed."""
        self._sql.close()


class MovePace:
    """So many messages a second. A step waits for what those before it have used up, no longer."""

    def __init__(self, flows: Flows, rate: float | None) -> None:
        self._now_ms = flows.now_ms
        self._rate = rate
        self._due_ms: float | None = None
        # Four steps a second are smooth enough for whoever is behind the topic.
        most = limits.REDRIVE_MESSAGES
        self.step = most if rate is None else max(min(most, int(rate / 4)), 1)

    def wait(self) -> Flow[None]:
        """Until the next step may be taken."""
        now_ms = self._now_ms()
        if self._due_ms is None:
            self._due_ms = now_ms
        if self._rate is not None and self._due_ms > now_ms:
            yield Pause((self._due_ms - now_ms) / 1000)

    def did(self, count: int) -> None:
        """Account for a step. Time that was lost is made up for, but no more than a step's worth."""
        if self._rate is not None and self._due_ms is not None:
            earliest_ms = self._now_ms() - 1000 * self.step / self._rate
            self._due_ms = max(self._due_ms, earliest_ms) + 1000 * count / self._rate


def picks(chosen: Iterable[Place]) -> tuple[Pick, ...]:
    """Places as a command has them."""
    found: dict[int, list[tuple[int, int]]] = {}
    for partition, offset in chosen:
        found.setdefault(partition, []).append((offset, offset + 1))
    return tuple(Pick(partition, tuple(merge(ranges))) for partition, ranges in found.items())


def _parts(where: Any) -> tuple[str | None, Function | None]:
    match where:
        case None:
            return None, None
        case str():
            return where, None
        case SqlAndFunction():
            return where.condition, where.function
    if not callable(where):
        raise InvalidRequest(
            "where must be a condition in SQL, such as \"reason like 'Timeout%'\", or a function of "
            "a message, such as lambda m: m.origin.reason.startswith('Timeout')"
        )
    return None, where

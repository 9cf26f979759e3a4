"""Between callers and the log: packing, parking, waking and answering. No thread, no clock, no IO.

A driver steps it. `Shard` does so with a thread; a test does it by hand.

    take(requests, now)      answers what the state can answer and parks receives that would find
                             nothing; returns what is to be committed
    answered(outcomes, now)  tells the requests what became of their proposals; returns the receives
                             that this has woken, to be committed next
    woken(topics, now)       the same for topics that changed without a proposal of this front
    tick(now), sweep(now)    entries that nobody asks for; only the one that leads proposes them
    next_due_ms()            when to call `take` again although there is no request

The driver may have several rounds in flight. An outcome is given back with the `Pending` that it
belongs to, never by its position or its index alone: once a log has terms, the entry at an index may
be somebody else's. Outcomes come in the order of the log.

    request ──► answered from the state                          ask, watch
            ├─► proposed ──► outcome ──► answered                send, command, receive that found something
            │      ▲            └─────► parked                   receive that found nothing
            └─► parked ─┘ woken by an outcome or a due message
                    └───► answered empty at its deadline
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from quiver import limits
from quiver.errors import DiskFull, QuiverError
from quiver.model.commands import Command, Held, Receive, Send, Settle, Tick
from quiver.model.queries import Query, Watched
from quiver.model.replies import Grant, Outcome, Received, SentMany
from quiver.node.answers import answer, answer_watched
from quiver.node.cache import BatchCache
from quiver.node.engine import Engine, Proposal
from quiver.node.packing import SendRequest, answer_packed, by_partition, packed
from quiver.node.receipts import tag
from quiver.node.source import Source
from quiver.node.tickets import Ticket
from quiver.node.waiting import Dues, WaitingRoom

Line: TypeAlias = tuple[int, str | None]  # a topic, and the group; None for those who watch it


class GrantTicket(Ticket[Grant]):
    """The ticket of a receive; an answer that is abandoned goes to `give_back`."""

    __slots__ = ("_abandoned", "_give_back")

    def __init__(self, give_back: Callable[[Received], None]) -> None:
        self._give_back = give_back
        super().__init__()

    @property
    def abandoned(self) -> bool:
        return self._abandoned

    @abandoned.setter
    def abandoned(self, value: bool) -> None:
        self._abandoned = value
        if value and self.done and self.value is not None:
            self._give_back(self.value.received)


@dataclass(slots=True)
class CommandRequest:
    """Anything that is one command."""

    proposal: Proposal
    ticket: Ticket[Any]
    sync: bool

    @property
    def nbytes(self) -> int:
        return len(self.proposal.encoded)


@dataclass(slots=True)
class ReceiveRequest:
    """A receive, and until when it may wait."""

    command: Receive
    proposal: Proposal
    ticket: Ticket[Grant]
    until_ms: int
    sync: bool
    nbytes: int = 0
    lost: int = 0  # what the group lost to retention, to be told with the answer

    @property
    def line(self) -> Line:
        return self.command.topic, self.command.group


@dataclass(slots=True)
class WatchRequest:
    """A question that is asked again when its topic wakes, until it has an answer or time is up.

    With no answer it also says when it may have one by itself, `due_ms`.
    """

    query: Watched[Any]
    ticket: Ticket[Any]
    until_ms: int
    due_ms: int | None = None
    nbytes: int = 0

    @property
    def line(self) -> Line:
        return self.query.topic, None


@dataclass(slots=True)
class AskRequest:
    """A question about the state, answered between commits."""

    query: Query[Any]
    ticket: Ticket[Any]
    nbytes: int = 0


Waiting: TypeAlias = ReceiveRequest | WatchRequest
FrontRequest: TypeAlias = CommandRequest | SendRequest | Waiting | AskRequest


@dataclass(slots=True, eq=False)
class Pending:
    """A proposal to commit, and the requests that its outcome answers."""

    proposal: Proposal
    sync: bool
    requests: Sequence[FrontRequest]
    answer: Callable[[Outcome, int], None]  # with the time at which it is answered


@dataclass(slots=True)
class _InFlight:
    """The receives of a line that are proposed and have no outcome yet."""

    line: Line
    wanted: int = 0  # messages that they may get, at most
    left: int | None = None  # messages that there may be beyond these; None: to be asked

    def add(self, count: int) -> None:
        """One more, for so many messages."""
        self.wanted += count
        if self.left is not None:
            self.left -= count

    def remove(self, count: int) -> None:
        """One less, and there may be others now than it was to get."""
        self.wanted -= count
        self.left = None
        assert self.wanted >= 0, "a receive is answered once"


class Front:
    """Requests on one side, proposals and outcomes on the other. Used by one thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.secret = engine.core.secret  # what leases are signed with
        self.waiters: WaitingRoom[Waiting] = WaitingRoom()
        self.dues = Dues(self.due_ms)
        self._may_park = True
        self._no_tick_before_ms = 0
        self._pending: set[Pending] = set()  # proposed, and without an outcome
        self._in_flight: dict[Line, _InFlight] = {}
        self._to_wake: dict[Line, None] = {}  # others wait where a receive got something
        self._released: list[Pending] = []  # what was granted to receivers that had gone
        self._in_hand: list[FrontRequest] = []  # of the call that runs: neither parked nor proposed

    # -- what a driver calls -----------------------------------------------------------------------

    def take(self, requests: Sequence[FrontRequest], now_ms: int) -> list[Pending]:
        """Answer, park or propose each; propose also what has become due for those who wait.

        Proposals are in the order of the requests, but single messages come after them: for each
        topic in one `Send`, those to one partition in their order.
        """
        found: list[Pending] = []
        rows: dict[int, list[SendRequest]] = {}
        self._in_hand += requests
        for request in requests:
            match request:
                case CommandRequest():
                    found.append(self._command(request))
                case SendRequest():
                    rows.setdefault(request.topic.number, []).append(request)
                case ReceiveRequest() | WatchRequest():
                    self._try(request, found, now_ms)
                case AskRequest():
                    _resolve(request.ticket, request.query, self._engine, now_ms)
        for together in rows.values():
            self._send(together, found, now_ms)
        self._wake_due(found, now_ms)
        return self._propose(found)

    def answered(self, outcomes: Iterable[tuple[Pending, Outcome]], now_ms: int) -> list[Pending]:
        """Tell the requests; return the receives that these outcomes woke, and what is given back."""
        topics: dict[int, None] = {}
        for pending, outcome in outcomes:
            assert pending in self._pending, "an outcome is given once"
            self._note_change(pending.proposal.command)
            topics |= dict.fromkeys(outcome.woken)
            pending.answer(outcome, now_ms)
            self._pending.remove(pending)
        return self._woken(topics, now_ms)

    def woken(self, topics: Collection[int], now_ms: int) -> list[Pending]:
        """These topics changed, and perhaps others, by what is no proposal of this front."""
        self.dues.all_changed()
        return self._woken(topics, now_ms)

    def _woken(self, topics: Collection[int], now_ms: int) -> list[Pending]:
        found, self._released = self._released, []
        lines, self._to_wake = self._to_wake, {}
        self.dues.changed(topics)
        for topic in topics:
            self._wake_topic(topic, found, now_ms)
        for line in lines:
            if line[0] not in topics:
                self._wake(line, found, now_ms)
        return self._propose(found)

    def tick(self, now_ms: int) -> list[Pending]:
        """An entry that lets time pass, if a lease, a life or a session ends by now.

        Not again before this one is answered; and a while later if the disk had no room for it.
        """
        tick_ms = self._tick_ms()
        if tick_ms is None or tick_ms > now_ms:
            return []
        self._no_tick_before_ms = now_ms + limits.FULL_DISK_PAUSE_MS
        return self._propose([Pending(Proposal(Tick()), True, (), self._ticked)])

    def sweep(self, now_ms: int) -> list[Pending]:
        """An entry that drops what has become too old in topics to which nothing happens."""
        if not self._engine.core.is_overdue(now_ms):
            return []
        sweep = Proposal(Tick(sweep=True))
        return self._propose([Pending(sweep, True, (), _ignore)])

    def next_due_ms(self) -> int | None:
        """When something is due by itself: a deadline, a message for a waiter, a timer of the core."""
        dues = [self._tick_ms(), self.waiters.next_ms()]
        dues += self.dues.by_topic(self.waiters.topics).values()
        return min((due for due in dues if due is not None), default=None)

    def stop_waiting(self) -> None:
        """From now on nothing is parked; what is parked is answered by the next `take`."""
        self._may_park = False
        for waiter in self.waiters:
            waiter.until_ms = 0
        self.waiters.tidy()

    def unanswered(self) -> list[FrontRequest]:
        """All requests that have no answer; they are forgotten, because there will be none."""
        found = [*self._in_hand, *self.waiters]
        found += [request for pending in self._pending for request in pending.requests]
        self._in_hand, self._pending, self.waiters = [], set(), WaitingRoom()
        return found

    # -- proposing ---------------------------------------------------------------------------------

    def _propose(self, found: list[Pending]) -> list[Pending]:
        self._pending.update(found)
        self._in_hand.clear()  # each is answered, parked or pending
        return found

    def _command(self, request: CommandRequest) -> Pending:
        sync = request.sync and not self._may_be_lost(request.proposal.command)
        return Pending(request.proposal, sync, (request,), partial(_answer, request.ticket))

    def _may_be_lost(self, command: Command) -> bool:
        """Whether it is confirmed before it is synced.

        A begin that is lost in a power cut is an attempt that is not counted. At most once it settles.
        """
        if not isinstance(command, Settle) or command.action != "begin":
            return False
        guarantee = self._engine.core.guarantee(command.topic, command.group)
        return guarantee == "at-least-once"

    def _send(self, requests: list[SendRequest], found: list[Pending], now_ms: int) -> None:
        requests = by_partition(requests)
        try:
            proposal = packed(requests, now_ms)
        except Exception as error:  # noqa: BLE001  # theirs, and told to them
            _fail(requests, error)
            return
        sync = any(request.sync for request in requests)
        found.append(Pending(proposal, sync, requests, partial(_answer_sends, requests)))

    def _ticked(self, outcome: Outcome, now_ms: int) -> None:
        if not isinstance(outcome.reply, DiskFull):
            self._no_tick_before_ms = 0

    def _tick_ms(self) -> int | None:
        tick_ms = self._engine.core.next_tick_ms()
        return None if tick_ms is None else max(tick_ms, self._no_tick_before_ms)

    # -- receiving and waiting ---------------------------------------------------------------------

    def _try(self, waiter: Waiting, found: list[Pending], now_ms: int) -> bool:
        """Serve a waiter now if there may be something for it; else park it, or send it away empty.

        False if it is abandoned: a message would be leased to nobody.
        """
        if waiter.ticket.abandoned:
            return False
        if isinstance(waiter, WatchRequest):
            self._try_watch(waiter, now_ms)
            return True
        command, line = waiter.command, waiter.line
        core = self._engine.core
        if not core.is_ready(command.topic, command.group, now_ms, begins=command.begin != 0):
            self._park_or_send_away(waiter, now_ms)
            return True
        flight = self._in_flight.get(line)
        if flight is None:
            flight = self._in_flight[line] = _InFlight(line)
        elif not self._is_left(flight, now_ms) and self._may_wait(waiter, now_ms):
            self._park(waiter)
            return True
        flight.add(command.max_messages)
        granted = partial(self._granted, waiter, flight)
        found.append(Pending(waiter.proposal, waiter.sync, (waiter,), granted))
        return True

    def _is_left(self, flight: _InFlight, now_ms: int) -> bool:
        """Whether there may be messages beyond those that receives in flight are about to get."""
        if flight.left is None:
            flight.left = self._ready_count(*flight.line, now_ms) - flight.wanted
        return flight.left > 0

    def _ready_count(self, topic: int, group: str | None, now_ms: int) -> int:
        """For how many messages it is worth trying; if none and yet ready, the core must answer one."""
        if group is None:
            return self.waiters.length(topic, None)
        core = self._engine.core
        if not core.is_ready(topic, group, now_ms):
            return 0
        return core.ready_count(topic, group, now_ms) or 1

    def _try_watch(self, watch: WatchRequest, now_ms: int) -> None:
        try:
            found, watch.due_ms = answer_watched(self._engine, watch.query, now_ms)
        except Exception as error:  # noqa: BLE001  # the asker's, and told to the asker
            watch.ticket.fail(error)
            return
        if found is None and self._may_wait(watch, now_ms):
            self._park(watch)
        else:
            watch.ticket.resolve(found)

    def _granted(
        self, waiter: ReceiveRequest, flight: _InFlight, outcome: Outcome, now_ms: int
    ) -> None:
        reply = outcome.reply
        flight.remove(waiter.command.max_messages)
        got_nothing = isinstance(reply, Received) and not reply.slices
        if not got_nothing and self.waiters.length(*flight.line):  # else they find nothing, either
            self._to_wake[flight.line] = None
        if not flight.wanted:
            self._in_flight.pop(flight.line, None)
        if isinstance(reply, Exception):
            waiter.ticket.fail(reply)
            return
        assert isinstance(reply, Received)
        waiter.lost += reply.lost
        if not reply.slices and self._may_wait(waiter, now_ms):
            self._park(waiter)
            return
        told = replace(reply, lost=waiter.lost) if waiter.lost else reply
        source = self._engine.source(reply.topic, reply.slices)
        waiter.ticket.resolve(Grant(told, source, self._tag(reply)))
        if waiter.ticket.abandoned:  # afterwards: from then on the ticket sees to that
            release = release_of(reply)
            if release is not None:
                self._released.append(Pending(release, False, (), _ignore))

    def _tag(self, reply: Received) -> bytes:
        """What proves that a lease was given out; there is none if it is of nothing."""
        return tag(reply.topic, reply.group, reply.epoch, self.secret) if reply.slices else b""

    def _park_or_send_away(self, waiter: ReceiveRequest, now_ms: int) -> None:
        if self._may_wait(waiter, now_ms):
            self._park(waiter)
        else:  # with peers: only while it is sure to lead, for this answer is no entry
            nothing = Received(waiter.command.topic, 0, 0, 0, (), lost=waiter.lost)
            waiter.ticket.resolve(Grant(nothing, _NOTHING))

    def _may_wait(self, waiter: Waiting, now_ms: int) -> bool:
        """A receive that begins nothing may not: it would be woken for what it cannot take over."""
        looks_ahead = isinstance(waiter, ReceiveRequest) and waiter.command.begin == 0
        return waiter.until_ms > now_ms and self._may_park and not looks_ahead

    def _park(self, waiter: Waiting) -> None:
        self.waiters.add(waiter)
        self.dues.changed(waiter.line[:1])

    # -- waking ------------------------------------------------------------------------------------

    def _wake_topic(self, topic: int, found: list[Pending], now_ms: int) -> None:
        for group in self.waiters.groups(topic):
            self._wake((topic, group), found, now_ms)

    def _wake(self, line: Line, found: list[Pending], now_ms: int) -> None:
        """Try a line's waiters in the order they came, as many as there may be messages for."""
        topic, group = line
        flight = self._in_flight.get(line)
        left = self._ready_count(topic, group, now_ms) - (flight.wanted if flight else 0)
        if flight is not None:
            flight.left = left
        for _ in range(self.waiters.length(topic, group)):  # not those who are parked again
            if left <= 0:
                break
            waiter = self.waiters.take(topic, group)
            self._in_hand.append(waiter)
            if self._try(waiter, found, now_ms):
                left -= waiter.command.max_messages if isinstance(waiter, ReceiveRequest) else 1

    def _wake_due(self, found: list[Pending], now_ms: int) -> None:
        """Try waiters whose time is up, or for whom a message has become due."""
        for waiter in self.waiters.overdue(now_ms):
            self.dues.changed(waiter.line[:1])
            self._in_hand.append(waiter)
            self._try(waiter, found, now_ms)
        dues = self.dues.by_topic(self.waiters.topics)
        due = [topic for topic, due_ms in dues.items() if due_ms <= now_ms]
        for topic in due:
            self._wake_topic(topic, found, now_ms)
        self.dues.changed(due)

    def due_ms(self, topic: int) -> int | None:
        """When a message that a waiter of the topic could have becomes due by itself."""
        dues: list[int | None] = []
        for group in self.waiters.groups(topic):
            if group is None:
                watches = self.waiters.line(topic, None)
                dues += [watch.due_ms for watch in watches if isinstance(watch, WatchRequest)]
            elif (topic, group) not in self._in_flight:  # else it is tried when those are answered
                dues.append(self._engine.core.next_due_ms(topic, group))
        return min((due for due in dues if due is not None), default=None)

    def _note_change(self, command: Command) -> None:
        match command:
            case Send(topic=topic) | Receive(topic=topic) | Settle(topic=topic):
                self.dues.changed((topic,))  # what else they change is woken
            case _:
                self.dues.all_changed()


def release_of(reply: Received) -> Proposal | None:
    """What gives messages back that were leased just when the one who wanted them went away."""
    held = tuple(
        Held(found.partition, reply.epoch, ((found.offset, found.offset + found.count),))
        for found in reply.slices
        if found.reserved or not reply.settled
    )
    if not held:
        return None
    reason = "the receiver was gone"
    with suppress(QuiverError):  # then the lease ends by itself
        return Proposal(Settle(reply.topic, reply.group, "release", held, reason=reason))
    return None


_NOTHING = Source(BatchCache(0), ())


def _ignore(outcome: Outcome, now_ms: int) -> None:
    """For what nobody waits."""


def _answer(ticket: Ticket[Any], outcome: Outcome, now_ms: int) -> None:
    if isinstance(outcome.reply, Exception):
        ticket.fail(outcome.reply)
    else:
        ticket.resolve(outcome.reply)


def _answer_sends(requests: Sequence[SendRequest], outcome: Outcome, now_ms: int) -> None:
    if isinstance(outcome.reply, Exception):
        _fail(requests, outcome.reply)
    else:
        assert isinstance(outcome.reply, SentMany)
        answer_packed(requests, outcome.reply)


def _fail(requests: Sequence[SendRequest], error: Exception) -> None:
    for request in requests:
        request.fail(error)


def _resolve(ticket: Ticket[Any], query: Query[Any], engine: Engine, now_ms: int) -> None:
    try:
        ticket.resolve(answer(engine, query, now_ms))
    except Exception as error:  # noqa: BLE001  # the asker's, and told to the asker
        ticket.fail(error)

"""The thread that runs an engine: inbox in, one commit for all that came meanwhile, answers out.

Every request becomes a `Ticket`. The thread takes whatever is in the inbox, turns it into
proposals, and commits them with a single write and sync; while it waits for the disk, the next
requests gather. That is group commit, and there is no timer in it: alone, a request goes at once.

A receive that finds nothing is parked, not logged. It is tried again when an outcome wakes its
topic or the next delayed message is due, and answered empty at its deadline. The thread sleeps
until then; it never polls.
"""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from threading import RLock, Thread
from typing import Any, TypeVar

from quiver import limits
from quiver.batches.codec import BytesLike
from quiver.batches.rows import Row
from quiver.errors import DiskFull, Overloaded, QueueClosed, QuiverError, ReadFailed, StorageFailed
from quiver.model.commands import Command, Held, Receive, Send, Settle, Tick
from quiver.model.queries import Ability, Bodies, Query, Watched
from quiver.model.replies import Outcome, Placed, Received, SentMany
from quiver.node import answers
from quiver.node.cache import BatchCache
from quiver.node.clock import Clock
from quiver.node.compaction import Compactor
from quiver.node.engine import Engine, Proposal, Snapshot, Source
from quiver.node.placing import TopicHandle, place_rows
from quiver.node.tickets import Ticket
from quiver.node.waiting import Dues, WaitingRoom

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a receive got, and where its batches are."""

    received: Received
    source: Bodies


@dataclass(slots=True)
class _Propose:
    """Anything that is one command."""

    proposal: Proposal
    ticket: Ticket[Any]
    sync: bool

    @property
    def nbytes(self) -> int:
        return len(self.proposal.encoded)


class _SendRow(Ticket[tuple[Placed, int]]):
    """One message, and its own ticket; those to one topic are sent together."""

    __slots__ = ("partition", "row", "shard", "sync", "topic")

    def __init__(self, shard: "Shard", topic: TopicHandle, row: Row, *, sync: bool) -> None:
        super().__init__()
        self.shard: Shard | None = shard  # until it is submitted
        self.topic = topic
        self.row = row
        self.sync = sync
        self.partition = 0

    def submit(self) -> None:
        shard, self.shard = self.shard, None
        if shard is not None:
            shard.submit(self)

    @property
    def ticket(self) -> Ticket[tuple[Placed, int]]:
        return self

    @property
    def nbytes(self) -> int:
        return self.row.nbytes


class _Granted(Ticket[Grant]):
    """What a receive got; it is given back if nobody wants it any more."""

    __slots__ = ("_abandoned", "_shard")

    def __init__(self, shard: "Shard") -> None:
        self._shard = shard
        super().__init__()

    @property
    def abandoned(self) -> bool:
        return self._abandoned

    @abandoned.setter
    def abandoned(self, value: bool) -> None:
        self._abandoned = value
        if value and self.done and self.value is not None:
            self._shard.give_back(self.value.received)


@dataclass(slots=True)
class _Receive:
    """A receive, and until when it may wait."""

    command: Receive
    proposal: Proposal
    ticket: Ticket[Grant]
    until_ms: int
    sync: bool
    nbytes: int = 0
    lost: int = 0  # what the group lost to retention, to be told with the answer

    @property
    def line(self) -> tuple[int, str | None]:
        return self.command.topic, self.command.group


@dataclass(slots=True)
class _Watch:
    """A question that is asked again when its topic wakes, until it has an answer or time is up.

    With no answer it also says when it may have one by itself, `due_ms`.
    """

    query: Watched[Any]
    ticket: Ticket[Any]
    until_ms: int
    due_ms: int | None = None
    nbytes: int = 0

    @property
    def line(self) -> tuple[int, str | None]:
        return self.query.topic, None


@dataclass(slots=True)
class _Ask:
    """A question about the state, answered between commits."""

    query: Query[Any]
    ticket: Ticket[Any]
    nbytes: int = 0


@dataclass(slots=True)
class _Do:
    """Housekeeping that somebody else finished: to be done here, and if it fails the shard stops."""

    action: Callable[[], None]
    nbytes: int = 0


@dataclass(slots=True)
class _Seal:
    """Write everything that is kept into segments, now."""

    ticket: Ticket[None]
    nbytes: int = 0


class _Close:
    """The last request."""

    nbytes = 0


_Request = _Propose | _SendRow | _Receive | _Watch | _Ask | _Seal | _Do | _Close
_Waiter = _Receive | _Watch


@dataclass(slots=True)
class _Round:
    """What one commit carries, and whom each outcome answers."""

    proposals: list[Proposal] = field(default_factory=list)
    answers: list[Callable[[Outcome], None]] = field(default_factory=list)
    sync: bool = False

    def add(self, proposal: Proposal, answer: Callable[[Outcome], None], *, sync: bool) -> None:
        self.proposals.append(proposal)
        self.answers.append(answer)
        self.sync = self.sync or sync


class Shard:
    """Requests from any thread, served by one."""

    abilities: frozenset[Ability] = frozenset({"write", "seal", "compact", "backup"})

    def __init__(self, engine: Engine, clock: Clock) -> None:
        clock.not_before(engine.core.now_ms)
        self.clock = clock
        self.secret = engine.core.secret
        self.jump = engine.jump
        self._engine = engine
        self._inbox: SimpleQueue[_Request] = SimpleQueue()
        self._gate = (
            RLock()
        )  # around what requests (also of signal handlers) and the thread change:
        self._pending_bytes = 0  # of the inbox
        self._closing = False
        self._failure: BaseException | None = None
        self._hasty = False
        self._waiters: WaitingRoom[_Waiter] = WaitingRoom()
        self._dues = Dues(self._due_ms)
        self._no_tick_before_ms = 0
        self._saver: Thread | None = None  # writes a snapshot
        self._late = False  # it is not done yet, and the next one is due
        self._seals: list[_Seal] = []  # wait for a snapshot that seals everything
        self._sealing: list[_Seal] = []  # and for the one that is being written
        self._chores_ms = clock.now_ms() + limits.CHORES_SECONDS * 1000
        self._compactor = Compactor(self, clock.now_ms)
        self._crowd = 1  # how many requests the last commit took
        self._serving: list[_Request] = []  # taken, and perhaps not answered yet
        self._pid = os.getpid()
        self._thread = Thread(target=self._run, name="quiver-shard", daemon=True)
        self._thread.start()

    # -- requests, from any thread -----------------------------------------------------------------

    def now_ms(self) -> int:
        """The time of the queue."""
        return self.clock.now_ms()

    @property
    def directory(self) -> str:
        """Where its files are."""
        return self._engine.directory

    def propose(
        self,
        command: Command,
        encoded: BytesLike = b"",
        *,
        sync: bool = True,
    ) -> Ticket[Any]:
        """Do a command; the ticket gets its reply.

        Readers get the batch from the log: the sender may use the memory of his again.
        """
        ticket: Ticket[Any] = Ticket()
        self.submit(_Propose(Proposal(command, None, encoded), ticket, sync))
        return ticket

    def send_row(
        self, topic: TopicHandle, row: Row, *, sync: bool = True
    ) -> Ticket[tuple[Placed, int]]:
        """Send one message, together with others that arrive at the same time.

        It goes when somebody waits for the ticket, which gets where they were placed together, and
        which of them this one is.
        """
        return _SendRow(self, topic, row, sync=sync)

    def receive(self, command: Receive, wait_ms: int, *, sync: bool = True) -> Ticket[Grant]:
        """Lease messages, waiting up to `wait_ms` for the first."""
        ticket = _Granted(self)
        until_ms = self.clock.now_ms() + wait_ms
        self.submit(_Receive(command, Proposal(command), ticket, until_ms, sync))
        return ticket

    def watch(self, query: Watched[T], wait_ms: int) -> Ticket[T | None]:
        """Ask until there is an answer, or None when the time is up."""
        ticket: Ticket[T | None] = Ticket()
        self.submit(_Watch(query, ticket, self.clock.now_ms() + wait_ms))
        return ticket

    def seal(self) -> Ticket[None]:
        """Write everything that is kept into segments; the ticket is set when they are durable."""
        ticket: Ticket[None] = Ticket()
        self.submit(_Seal(ticket))
        return ticket

    def ask(self, query: Query[T]) -> Ticket[T]:
        """Ask about the state, between two commits."""
        ticket: Ticket[T] = Ticket()
        self.submit(_Ask(query, ticket))
        return ticket

    def compact(self, topic: int) -> Ticket[int]:
        """Drop what newer messages of the same key have superseded; the ticket gets how many."""
        return self._compactor.compact(topic)

    @property
    def failure(self) -> BaseException | None:
        """What has stopped this shard, if anything has."""
        return self._failure

    def hasten(self) -> None:
        """From now on nobody waits: those who do are answered, with what there is for them."""
        self._hasty = True
        self.submit(_Do(self._hurry))

    def _hurry(self) -> None:
        for waiter in self._waiters:
            waiter.until_ms = 0
        self._waiters.tidy()

    def close(self) -> None:
        """Finish what was submitted, release everybody who waits, and end the thread."""
        if os.getpid() != self._pid:
            return
        with self._gate:
            if not self._closing:
                self._closing = True
                self._inbox.put(_Close())
        self._thread.join()
        self._compactor.close()

    def submit(self, request: _Request) -> None:
        """Put a request into the inbox, or say why not."""
        if os.getpid() != self._pid:
            raise QueueClosed(
                "this process was forked from the one that opened the queue, and only that one may "
                "use it: open the queue after forking, in one process"
            )
        with self._gate:
            if self._failure is not None:
                raise StorageFailed(f"the queue has stopped: {self._failure}") from self._failure
            if self._closing:
                raise QueueClosed("the queue is closed; connect again")
            if (
                self._pending_bytes > limits.PENDING_BYTES_MAX
                or self._inbox.qsize() >= limits.PENDING_REQUESTS_MAX
            ):
                raise Overloaded(
                    f"more than {limits.PENDING_REQUESTS_MAX:,} requests or "
                    f"{limits.PENDING_BYTES_MAX:,} bytes wait for the disk; send larger batches, "
                    "or retry after a moment"
                )
            self._pending_bytes += request.nbytes
            self._inbox.put(request)

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        closing = False
        try:
            while not closing:
                self._serving = self._gather()
                closing = any(isinstance(request, _Close) for request in self._serving)
                self._serve(list(self._serving))
                self._serving = []  # a snapshot among them would hold its files open
        except BaseException as failure:  # noqa: BLE001  # whatever it was, nobody may wait for ever
            with self._gate:
                self._failure = failure
        if self._saver is not None:
            self._saver.join()
        try:
            self._engine.close()
        except StorageFailed as failure:
            with self._gate:
                self._failure = self._failure or failure
        self._release_all()

    def _gather(self) -> list[_Request]:
        """Wait for something to do, then take all that is there, up to one commit's worth.

        Those who shared the last commit have just been woken and will often ask again; as long as
        fewer are back, others get the processor once more before the disk is kept busy.
        """
        requests: list[_Request] = []
        nbytes = 0
        yields = self._crowd
        with suppress(Empty):
            requests.append(self._inbox.get(timeout=self._patience()))
            nbytes = requests[0].nbytes
            while nbytes < limits.COMMIT_BYTES_MAX and len(requests) < limits.COMMIT_REQUESTS_MAX:
                if len(requests) < yields and self._inbox.empty():
                    yields -= 1
                    time.sleep(0)
                request = self._inbox.get_nowait()
                requests.append(request)
                nbytes += request.nbytes
        self._crowd = len(requests)
        with self._gate:
            self._pending_bytes -= nbytes
        return requests

    def _patience(self) -> float | None:
        """Seconds until something is due by itself."""
        dues = [self._tick_ms(), self._chores_ms, self._waiters.next_ms()]
        dues += self._dues.by_topic(self._waiters.topics).values()
        due_ms = min((due for due in dues if due is not None), default=None)
        if due_ms is None:
            return None
        return min(max(due_ms - self.clock.now_ms(), 0) / 1000, limits.PATIENCE_SECONDS_MAX)

    def _tick_ms(self) -> int | None:
        """When an entry is due by itself; a while later if the disk had no room for the last one."""
        tick_ms = self._engine.core.next_tick_ms()
        return None if tick_ms is None else max(tick_ms, self._no_tick_before_ms)

    def _ticked(self, outcome: Outcome, now_ms: int) -> None:
        if isinstance(outcome.reply, DiskFull):
            self._no_tick_before_ms = now_ms + limits.FULL_DISK_PAUSE_MS

    def _due_ms(self, topic: int) -> int | None:
        """When a message that a waiter of the topic could have becomes due by itself."""
        dues: list[int | None] = []
        for group in self._waiters.groups(topic):
            if group is not None:
                dues.append(self._engine.core.next_due_ms(topic, group))
            else:
                watches = self._waiters.line(topic, None)
                dues += [watch.due_ms for watch in watches if isinstance(watch, _Watch)]
        return min((due for due in dues if due is not None), default=None)

    def _serve(self, requests: list[_Request]) -> None:
        now_ms = self.clock.now_ms()
        round_ = _Round()
        rows: dict[int, list[_SendRow]] = {}
        for request in requests:
            match request:
                case _Propose():
                    sync = request.sync and not self._may_be_lost(request.proposal.command)
                    round_.add(request.proposal, _answer(request.ticket), sync=sync)
                case _SendRow():
                    rows.setdefault(request.topic.number, []).append(request)
                case _Receive() | _Watch():
                    self._try(request, round_, now_ms)
                case _Ask():
                    _resolve(request.ticket, request.query, self._engine, now_ms)
                case _Seal():
                    self._seals.append(request)
                case _Do():
                    request.action()
        for together in rows.values():
            self._add_rows(together, round_, now_ms)
        self._wake_due(round_, now_ms)
        tick_ms = self._tick_ms()
        if not round_.proposals and tick_ms is not None and tick_ms <= now_ms:
            round_.add(Proposal(Tick()), lambda outcome: self._ticked(outcome, now_ms), sync=True)
        if now_ms >= self._chores_ms:
            self._do_chores(round_, now_ms)
        while round_.proposals:
            round_ = self._commit(round_, now_ms)
        self._seals = self._with_room(self._seals)
        self._late = self._engine.wants_snapshot
        if self._saver is None and (self._seals or self._late):
            self._snapshot(now_ms)

    def _may_be_lost(self, command: Command) -> bool:
        """Whether it is confirmed before it is synced.

        A begin that is lost in a power cut is an attempt that is not counted. At most once it settles.
        """
        if not isinstance(command, Settle) or command.action != "begin":
            return False
        guarantee = self._engine.core.guarantee(command.topic, command.group)
        return guarantee == "at-least-once"

    def _commit(self, round_: _Round, now_ms: int) -> _Round:
        """Commit a round and answer it; return the round of those it woke."""
        for proposal in round_.proposals:
            match proposal.command:
                case Send(topic=topic) | Receive(topic=topic) | Settle(topic=topic):
                    self._dues.changed((topic,))  # what else they change is woken
                case _:
                    self._dues.all_changed()
        outcomes = self._engine.commit(round_.proposals, now_ms=now_ms, sync=round_.sync)
        woken: dict[int, None] = {}
        for answer, outcome in zip(round_.answers, outcomes, strict=True):
            woken |= dict.fromkeys(outcome.woken)
            answer(outcome)
        return self._woken(woken, now_ms)

    def _woken(self, topics: Iterable[int], now_ms: int) -> _Round:
        """The round of those who wait for something of these topics."""
        self._dues.changed(topics)
        round_ = _Round()
        for topic in topics:
            self._wake(topic, round_, now_ms)
        return round_

    def _add_rows(self, requests: list[_SendRow], round_: _Round, now_ms: int) -> None:
        requests = _by_partition(requests)
        try:
            topic, partitions = requests[0].topic, [request.partition for request in requests]
            rows = [request.row for request in requests]
            proposal = Proposal(*place_rows(topic, rows, partitions, now_ms))
        except Exception as error:  # noqa: BLE001  # theirs, and told to them
            for request in requests:
                request.ticket.fail(error)
            return

        def answer(outcome: Outcome) -> None:
            reply = outcome.reply
            if isinstance(reply, Exception):
                for request in requests:
                    request.ticket.fail(reply)
                return
            assert isinstance(reply, SentMany)
            waiting = iter(requests)
            for one in reply.answers:
                if isinstance(one, Exception):
                    next(waiting).ticket.fail(one)
                    continue
                answered = []
                for placed in one.placed:
                    for at in range(placed.count):
                        request = next(waiting)
                        request.value = (placed, at)
                        answered.append(request)
                Ticket.wake(answered)

        round_.add(proposal, answer, sync=any(request.sync for request in requests))

    # -- waiting -----------------------------------------------------------------------------------

    def _try(self, waiter: _Waiter, round_: _Round, now_ms: int) -> bool:
        """Serve a waiter now if there may be something for it; else park it, or send it away empty.

        False if nobody waits any more: a message would be leased to nobody.
        """
        core = self._engine.core
        if waiter.ticket.abandoned:
            return False
        if isinstance(waiter, _Watch):
            self._try_watch(waiter, now_ms)
        elif core.is_ready(
            waiter.command.topic,
            waiter.command.group,
            now_ms,
            begins=waiter.command.begin != 0,
        ):
            round_.add(
                waiter.proposal,
                lambda outcome: self._granted(waiter, outcome, now_ms),
                sync=waiter.sync,
            )
        else:
            self._park_or_send_away(waiter, now_ms)
        return True

    def _try_watch(self, watch: _Watch, now_ms: int) -> None:
        try:
            found, watch.due_ms = answers.answer_watched(self._engine, watch.query, now_ms)
        except Exception as error:  # noqa: BLE001  # the asker's, and told to the asker
            watch.ticket.fail(error)
            return
        if found is None and self._may_wait(watch, now_ms):
            self._park(watch)
        else:
            watch.ticket.resolve(found)

    def _granted(self, waiter: _Receive, outcome: Outcome, now_ms: int) -> None:
        reply = outcome.reply
        if isinstance(reply, Exception):
            waiter.ticket.fail(reply)
            return
        assert isinstance(reply, Received)
        waiter.lost += reply.lost
        if not reply.slices and self._may_wait(waiter, now_ms):
            self._park(waiter)
        else:
            told = replace(reply, lost=waiter.lost) if waiter.lost else reply
            waiter.ticket.resolve(Grant(told, self._engine.source(reply.topic, reply.slices)))
            if waiter.ticket.abandoned:  # afterwards: from then on it sees to that by itself
                self.give_back(reply)

    def give_back(self, reply: Received) -> None:
        """Let go of messages that were leased just when the one who wanted them went away."""
        held = tuple(
            Held(found.partition, reply.epoch, ((found.offset, found.offset + found.count),))
            for found in reply.slices
            if found.reserved or not reply.settled
        )
        if not held:
            return
        command = Settle(reply.topic, reply.group, "release", held, reason="the receiver was gone")
        with suppress(QuiverError):  # then the lease ends by itself
            self.submit(_Propose(Proposal(command), Ticket(), sync=False))

    def _park_or_send_away(self, waiter: _Receive, now_ms: int) -> None:
        if self._may_wait(waiter, now_ms):
            self._park(waiter)
        else:
            nothing = Received(waiter.command.topic, 0, 0, 0, (), lost=waiter.lost)
            waiter.ticket.resolve(Grant(nothing, _NOTHING))

    def _may_wait(self, waiter: _Waiter, now_ms: int) -> bool:
        """Asked when it would be parked: meanwhile all may have been hastened.

        A receive that begins nothing may not: it would be woken for what it cannot take over.
        """
        looks_ahead = isinstance(waiter, _Receive) and waiter.command.begin == 0
        return waiter.until_ms > now_ms and not self._hasty and not looks_ahead

    def _park(self, waiter: _Waiter) -> None:
        self._waiters.add(waiter)
        self._dues.changed(waiter.line[:1])

    def _wake(self, topic: int, round_: _Round, now_ms: int) -> None:
        """Try the topic's waiters in the order they came, as many as there may be messages for."""
        core = self._engine.core
        for group in self._waiters.groups(topic):
            wanted = self._waiters.length(topic, group)
            if group is None:
                left = wanted
            else:
                left = core.ready_count(topic, group, now_ms)
                left = left or core.is_ready(topic, group, now_ms)
            for _ in range(wanted):  # and not those who are parked again meanwhile
                if left <= 0:
                    break
                waiter = self._waiters.take(topic, group)
                self._serving.append(waiter)
                if self._try(waiter, round_, now_ms):
                    left -= waiter.command.max_messages if isinstance(waiter, _Receive) else 1

    def _wake_due(self, round_: _Round, now_ms: int) -> None:
        """Try waiters whose time is up, or for whom a message has become due."""
        for waiter in self._waiters.overdue(now_ms):
            self._dues.changed(waiter.line[:1])
            self._serving.append(waiter)
            self._try(waiter, round_, now_ms)
        dues = self._dues.by_topic(self._waiters.topics)
        due = [topic for topic, due_ms in dues.items() if due_ms <= now_ms]
        for topic in due:
            self._wake(topic, round_, now_ms)
        self._dues.changed(due)

    # -- the rest ----------------------------------------------------------------------------------

    def _do_chores(self, round_: _Round, now_ms: int) -> None:
        """What nobody asks for and need not be done at once: retention of idle topics, compaction."""
        self._chores_ms = now_ms + limits.CHORES_SECONDS * 1000
        if self._engine.core.is_overdue(now_ms):
            round_.add(Proposal(Tick(sweep=True)), lambda outcome: None, sync=True)
        self._compactor.start_due(self._engine.core, now_ms)

    def _snapshot(self, now_ms: int) -> None:
        """Take the state now and save it in a thread of its own; the log shrinks when that is done."""
        self._sealing, self._seals, self._late = self._seals, [], False
        made = self._engine.begin_snapshot(now_ms, seal_all=bool(self._sealing))
        self._sealing = self._with_room(self._sealing)
        self._saver = Thread(target=self._save, args=(made,), name="quiver-snapshot", daemon=True)
        self._saver.start()
        self._dues.all_changed()
        round_ = self._woken(made.woken, now_ms)
        while round_.proposals:
            round_ = self._commit(round_, now_ms)

    def _with_room(self, seals: list[_Seal]) -> list[_Seal]:
        """Those for whom there is room; the others are told."""
        if not self._engine.is_full:
            return seals
        for request in seals:
            request.ticket.fail(DiskFull("the disk has no room for segments; free some of it"))
        return []

    def _save(self, made: Snapshot) -> None:
        problem: Exception | None = None
        try:
            made.save(_Pace(lambda: self._closing or self._late).rest)
        except Exception as error:  # noqa: BLE001  # it is the shard's thread that must stop
            problem = error
        self._inbox.put(_Do(lambda: self._saved(made, problem)))

    def _saved(self, made: Snapshot, problem: Exception | None) -> None:
        self._saver = None
        if problem is None:
            self._engine.finish_snapshot(made)
        elif self._engine.spare(made, problem):
            self._seals = self._sealing + self._seals
            self._snapshot(self.clock.now_ms())
            return
        elif isinstance(problem, DiskFull):
            self._engine.drop_snapshot()
        elif isinstance(problem, ReadFailed):
            self._engine.put_off_snapshot()
        else:
            raise problem
        # Not before: if what is above fails, those who wait for it are told so, too.
        sealed, self._sealing = self._sealing, []
        for request in sealed:
            if problem is None:
                request.ticket.resolve(None)
            else:
                request.ticket.fail(problem)

    def _release_all(self) -> None:
        """Nobody will be served any more: say so to all who wait."""
        requests, self._serving = self._serving, []
        with suppress(Empty):
            while True:
                requests.append(self._inbox.get_nowait())
        requests += self._waiters
        self._waiters = WaitingRoom()
        requests += self._seals + self._sealing
        for request in requests:
            if isinstance(request, _Do | _Close) or request.ticket.done:
                continue
            if self._failure is not None:
                error: Exception = StorageFailed(
                    f"the queue has stopped, and whether this request was kept is not known: "
                    f"{self._failure}"
                )
                error.__cause__ = self._failure
                request.ticket.fail(error)
            else:
                request.ticket.fail(QueueClosed("the queue was closed while this request waited"))


_NOTHING = Source(BatchCache(0), ())


class _Pace:
    """Rests longer than the work before took, so that those who wait for an answer hardly notice.

    It may be called as often as one likes: others get Python's lock after a fraction of a
    millisecond of work, and by themselves would get it after five.
    """

    def __init__(self, hurry: Callable[[], bool]) -> None:
        self._hurry = hurry
        self._since = time.perf_counter()

    def rest(self) -> None:
        worked = time.perf_counter() - self._since
        if worked < limits.SEAL_WORK_SECONDS_MIN:
            return
        if not self._hurry():
            time.sleep(min(limits.SEAL_REST_FACTOR * worked, limits.SEAL_REST_SECONDS_MAX))
        self._since = time.perf_counter()


def _by_partition(requests: list[_SendRow]) -> list[_SendRow]:
    """The requests with those to one partition next to each other, in their order."""
    topic = requests[0].topic
    found: dict[int, list[_SendRow]] = {}
    for request in requests:
        request.partition = topic.partitioner.one(request.row.key, topic.turn())
        found.setdefault(request.partition, []).append(request)
    return [request for together in found.values() for request in together]


def _answer(ticket: Ticket[Any]) -> Callable[[Outcome], None]:
    def answer(outcome: Outcome) -> None:
        if isinstance(outcome.reply, Exception):
            ticket.fail(outcome.reply)
        else:
            ticket.resolve(outcome.reply)

    return answer


def _resolve(ticket: Ticket[Any], query: Query[Any], engine: Engine, now_ms: int) -> None:
    try:
        ticket.resolve(answers.answer(engine, query, now_ms))
    except Exception as error:  # noqa: BLE001  # the asker's, and told to the asker
        ticket.fail(error)

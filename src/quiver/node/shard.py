"""The thread that runs a peer: inbox in, one commit for all that came meanwhile, answers out.

Every request becomes a `Ticket`. The thread takes whatever is in the inbox, lets the `Front` turn it
into proposals, and commits them with a single write and sync; while it waits for the disk, the next
requests gather. That is group commit, and there is no timer in it: alone, a request goes at once.

What a request becomes, who waits and who is told what is the front's business. Here are the inbox
and its bounds, the thread, what happens when something fails, and what is done in the background.
"""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import RLock, Thread
from typing import Any, TypeAlias, TypeVar, cast

from quiver import limits
from quiver.batches.codec import BytesLike
from quiver.batches.rows import Row
from quiver.errors import DiskFull, Overloaded, QueueClosed, QuiverError, ReadFailed, StorageFailed
from quiver.model.commands import Command, Receive
from quiver.model.queries import Query, Watched
from quiver.model.replies import Grant, Placed, Received
from quiver.node.clock import Clock
from quiver.node.compaction import Compactor
from quiver.node.engine import Proposal
from quiver.node.front import (
    AskRequest,
    CommandRequest,
    Front,
    FrontRequest,
    GrantTicket,
    Pending,
    ReceiveRequest,
    WatchRequest,
    release_of,
)
from quiver.node.packing import SendRequest
from quiver.node.peer import Peer
from quiver.node.placing import TopicHandle
from quiver.node.snapshots import Snapshot
from quiver.node.tickets import Ticket

T = TypeVar("T")


class _OwnRequest:
    """What the shard does itself, in front of what it hands to the front."""

    __slots__ = ()
    nbytes = 0


@dataclass(slots=True)
class _RunHere(_OwnRequest):
    """What another thread wants done by this one. If it fails the shard stops."""

    action: Callable[[], None]


@dataclass(slots=True)
class _Seal(_OwnRequest):
    """Write everything that is kept into segments, now."""

    ticket: Ticket[None]


class _Close(_OwnRequest):
    """The last request."""


_Request: TypeAlias = FrontRequest | _RunHere | _Seal | _Close


class Shard:
    """Requests from any thread, served by one."""

    def __init__(self, peer: Peer, clock: Clock) -> None:
        engine = peer.engine
        clock.not_before(engine.core.now_ms)
        self.clock = clock
        self.jump = engine.jump
        self._peer = peer
        self._engine = engine
        self._front = Front(engine)
        self._inbox: SimpleQueue[_Request] = SimpleQueue()
        # Around submitting. A signal handler may submit in the middle of it, and wait for the answer:
        # so the thread of the shard never takes it.
        self._lock = RLock()
        self._submitted_bytes = 0
        self._taken_bytes = 0  # and what of them has left the inbox
        self._closing = False
        self._failure: BaseException | None = None
        self._ended = False  # what comes into the inbox now, nobody takes out
        self._batch_size = 1  # how many requests the last commit took
        self._taken: list[_Request] = []  # from the inbox, and not with the front yet
        self._snapshot_thread: Thread | None = None
        self._snapshot_is_late = False  # it is not done yet, and the next one is due
        self._seals: list[_Seal] = []  # wait for a snapshot that seals everything
        self._sealing: list[_Seal] = []  # and for the one that is being written
        self._chores_ms = clock.now_ms() + limits.CHORES_SECONDS * 1000
        self._compactor = Compactor(self, clock.now_ms)
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

    @property
    def secret(self) -> bytes:
        """What leases are signed with."""
        return self._front.secret

    @secret.setter
    def secret(self, secret: bytes) -> None:
        self._front.secret = secret

    def propose(
        self, command: Command, encoded: BytesLike = b"", *, sync: bool = True
    ) -> Ticket[Any]:
        """Do a command; the ticket gets its reply.

        Readers get the batch from the log: the sender may use the memory of his again.
        """
        ticket: Ticket[Any] = Ticket()
        self.submit(CommandRequest(Proposal(command, None, encoded), ticket, sync))
        return ticket

    def send_row(
        self, topic: TopicHandle, row: Row, *, sync: bool = True
    ) -> Ticket[tuple[Placed, int]]:
        """Send one message, together with others that arrive at the same time.

        It goes when somebody waits for the ticket, which gets where they were placed together, and
        which of them this one is.
        """
        return SendRequest(self.submit, topic, row, sync=sync)

    def receive(self, command: Receive, wait_ms: int, *, sync: bool = True) -> Ticket[Grant]:
        """Lease messages, waiting up to `wait_ms` for the first."""
        ticket = GrantTicket(self.give_back)
        until_ms = self.clock.now_ms() + wait_ms
        self.submit(ReceiveRequest(command, Proposal(command), ticket, until_ms, sync))
        return ticket

    def watch(self, query: Watched[T], wait_ms: int) -> Ticket[T | None]:
        """Ask until there is an answer, or None when the time is up."""
        ticket: Ticket[T | None] = Ticket()
        self.submit(WatchRequest(query, ticket, self.clock.now_ms() + wait_ms))
        return ticket

    def seal(self) -> Ticket[None]:
        """Write everything that is kept into segments; the ticket is set when they are durable."""
        ticket: Ticket[None] = Ticket()
        self.submit(_Seal(ticket))
        return ticket

    def ask(self, query: Query[T]) -> Ticket[T]:
        """Ask about the state, between two commits."""
        ticket: Ticket[T] = Ticket()
        self.submit(AskRequest(query, ticket))
        return ticket

    def compact(self, topic: int) -> Ticket[int]:
        """Drop what newer messages of the same key have superseded; the ticket gets how many."""
        return self._compactor.compact(topic)

    @property
    def failure(self) -> BaseException | None:
        """What has stopped this shard, if anything has."""
        return self._failure

    def stop_waiting(self) -> None:
        """From now on nothing is waited for: receives are answered with what there is for them."""
        self.submit(_RunHere(self._front.stop_waiting))

    def give_back(self, reply: Received) -> None:
        """Let go of messages that were leased just when the one who wanted them went away."""
        release = release_of(reply)
        if release is not None:
            with suppress(QuiverError):  # then the lease ends by itself
                self.submit(CommandRequest(release, Ticket(), sync=False))

    def close(self) -> None:
        """Finish what was submitted, release everybody who waits, and end the thread."""
        if os.getpid() != self._pid:
            return
        with self._lock:
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
        with self._lock:
            if self._failure is not None:
                raise StorageFailed(f"the queue has stopped: {self._failure}") from self._failure
            if self._closing:
                raise QueueClosed("the queue is closed; connect again")
            if (
                self._submitted_bytes - self._taken_bytes > limits.PENDING_BYTES_MAX
                or self._inbox.qsize() >= limits.PENDING_REQUESTS_MAX
            ):
                raise Overloaded(
                    f"more than {limits.PENDING_REQUESTS_MAX:,} requests or "
                    f"{limits.PENDING_BYTES_MAX:,} bytes wait for the disk; send larger batches, "
                    "or retry after a moment"
                )
            self._submitted_bytes += request.nbytes
            self._inbox.put(request)
        if self._ended:
            self._fail_inbox()

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        closing = False
        try:
            while not closing:
                self._taken = self._gather()
                closing = self._serve()
        except BaseException as failure:  # noqa: BLE001  # whatever it was, no ticket may be forgotten
            self._failure = failure
        if self._snapshot_thread is not None:
            self._snapshot_thread.join()
        try:
            self._peer.close()
        except StorageFailed as failure:
            self._failure = self._failure or failure
        self._ended = True
        self._fail([*self._taken, *self._front.unanswered(), *self._seals, *self._sealing])
        self._fail_inbox()

    def _gather(self) -> list[_Request]:
        """Wait for something to do, then take all that is there, up to one commit's worth.

        Those who shared the last commit have just been woken and will often ask again; as long as
        fewer are back, others get the processor once more before the disk is kept busy.
        """
        requests: list[_Request] = []
        nbytes = 0
        yields = self._batch_size
        with suppress(Empty):
            requests.append(self._inbox.get(timeout=self._seconds_until_due()))
            nbytes = requests[0].nbytes
            while nbytes < limits.COMMIT_BYTES_MAX and len(requests) < limits.COMMIT_REQUESTS_MAX:
                if len(requests) < yields and self._inbox.empty():
                    yields -= 1
                    time.sleep(0)
                request = self._inbox.get_nowait()
                requests.append(request)
                nbytes += request.nbytes
        self._batch_size = len(requests)
        self._taken_bytes += nbytes
        return requests

    def _seconds_until_due(self) -> float:
        """How long to sleep if no request comes."""
        due_ms = self._front.next_due_ms()
        due_ms = self._chores_ms if due_ms is None else min(due_ms, self._chores_ms)
        return min(max(due_ms - self.clock.now_ms(), 0) / 1000, limits.SLEEP_SECONDS_MAX)

    def _serve(self) -> bool:
        """One turn of the loop: all that was taken, and all that is due; whether it is the last."""
        own = [request for request in self._taken if isinstance(request, _OwnRequest)]
        if own:
            self._do_own(own)
        requests = cast("list[FrontRequest]", self._taken)
        now_ms = self.clock.now_ms()
        self._taken = []
        pending = self._front.take(requests, now_ms) or self._front.tick(now_ms)
        if now_ms >= self._chores_ms:
            pending += self._do_chores(now_ms)
        self._commit(pending, now_ms)
        self._seals = self._with_room(self._seals)
        self._snapshot_is_late = self._engine.snapshots.is_due
        if self._snapshot_thread is None and (self._seals or self._snapshot_is_late):
            self._snapshot(now_ms)
        return any(isinstance(request, _Close) for request in own)

    def _do_own(self, own: list[_RunHere | _Seal | _Close]) -> None:
        self._seals += [request for request in own if isinstance(request, _Seal)]
        for request in own:
            if isinstance(request, _RunHere):
                request.action()
        self._taken = [one for one in self._taken if not isinstance(one, _OwnRequest)]

    def _commit(self, pending: list[Pending], now_ms: int) -> None:
        """Propose, wait for the disk and answer; then the same for the receives that this woke.

        `Peer` says what that promises. If it raises nothing of this is answered by its outcome: the
        loop ends, and each request is told that its fate is not known.
        """
        while pending:
            effects = self._peer.propose(pending, now_ms)
            pending = self._front.answered(effects.answers, now_ms)
            if effects.sync:
                self._engine.wal.sync()
                pending += self._front.answered(self._peer.synced().answers, now_ms)

    # -- the rest ----------------------------------------------------------------------------------

    def _do_chores(self, now_ms: int) -> list[Pending]:
        """What nobody asks for and need not be done at once: retention of idle topics, compaction."""
        self._chores_ms = now_ms + limits.CHORES_SECONDS * 1000
        self._compactor.start_due(self._engine.core, now_ms)
        return self._front.sweep(now_ms)

    def _snapshot(self, now_ms: int) -> None:
        """Take the state now and save it in a thread of its own; the log shrinks when that is done."""
        self._sealing, self._seals, self._snapshot_is_late = self._seals, [], False
        made = self._peer.begin_snapshot(now_ms, seal_all=bool(self._sealing))
        self._sealing = self._with_room(self._sealing)
        self._snapshot_thread = Thread(
            target=self._save, args=(made,), name="quiver-snapshot", daemon=True
        )
        self._snapshot_thread.start()
        self._commit(self._front.woken(made.woken, now_ms), now_ms)

    def _with_room(self, seals: list[_Seal]) -> list[_Seal]:
        """Those for whom there is room; the others are told."""
        if not self._engine.snapshots.disk_is_full:
            return seals
        for request in seals:
            request.ticket.fail(DiskFull("the disk has no room for segments; free some of it"))
        return []

    def _save(self, made: Snapshot) -> None:
        problem: Exception | None = None
        try:
            made.save(_Throttle(lambda: self._closing or self._snapshot_is_late).rest)
        except Exception as error:  # noqa: BLE001  # it is the shard's thread that must stop
            problem = error
        self._inbox.put(_RunHere(lambda: self._saved(made, problem)))

    def _saved(self, made: Snapshot, problem: Exception | None) -> None:
        self._snapshot_thread = None
        snapshots = self._engine.snapshots
        if problem is None:
            snapshots.finish(made)
            self._peer.compacted(made)
        elif snapshots.spare(made, problem):
            self._seals = self._sealing + self._seals
            self._snapshot(self.clock.now_ms())
            return
        elif isinstance(problem, DiskFull):
            snapshots.drop()
        elif isinstance(problem, ReadFailed):
            snapshots.put_off()
        else:
            raise problem
        # Not before: if what is above fails, those who wait for it are told so, too.
        sealed, self._sealing = self._sealing, []
        for request in sealed:
            if problem is None:
                request.ticket.resolve(None)
            else:
                request.ticket.fail(problem)

    def _fail_inbox(self) -> None:
        """Tell each request that nobody will take out of the inbox any more."""
        with suppress(Empty):
            while True:
                self._fail([self._inbox.get_nowait()])

    def _fail(self, requests: Iterable[_Request]) -> None:
        """Nothing is served any more: tell these requests, which have no answer."""
        for request in requests:
            if isinstance(request, _RunHere | _Close) or request.ticket.done:
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


class _Throttle:
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

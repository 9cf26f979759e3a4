"""The channel of threads: a connection that is read by whoever waits for an answer. No thread of its own.

Of the threads that wait, one reads for all (it *leads*); the others sleep. When the leader has its own
answer it wakes one of those who sleep, which leads from then on. So an answer that a thread waits for
costs a write, a read, and no hand-over to another thread. (One that is under a signal handler cannot lead
when it is woken; so all who sleep look by themselves now and then.) What is to be written is put in order
under the lock and written outside of it, by one thread at a time; if the node does not take it, the writer
reads meanwhile, for the node may be waiting for just that.

The one thread there may be is for calls with a callback, for which no thread waits: it does, and ends a
while after the last.
"""

import os
import ssl
import time
from collections.abc import Callable, Iterable
from functools import partial
from threading import Lock, RLock, Thread, current_thread, get_ident
from typing import Any, Final

from quiver import limits
from quiver.client.remote.address import Address
from quiver.client.remote.calls import MAYBE, NEVER, Call
from quiver.client.remote.deferred import DeferredWork, not_here
from quiver.client.remote.handshake import Busy, NoUpgrade
from quiver.client.remote.session import Finish, NodeClock, Session
from quiver.client.remote.sockets import Wire, connect, demand_no_tls, may_be_tls
from quiver.errors import OutcomeUnknown, ProtocolError, QueueClosed, QuiverError, Unreachable

BREAKS: Final = (OSError, ProtocolError, Busy)


class Turn:
    """What one thread is doing for all: it may lead, and write.

    It can be interrupted anywhere (Ctrl-C). Then whoever it was leading for must be told what was found
    out, and a connection of which something may have got lost is broken.
    """

    __slots__ = ("before", "doubtful", "due", "telling", "thread")

    def __init__(self) -> None:
        self.thread = get_ident()
        self.before: Turn | None = None  # of this thread, which a signal handler has interrupted
        self.telling = 0  # what is called back then may ask for more
        self.due: list[Finish] = []  # calls that have an end, and are to be told
        self.doubtful: Wire | None = None  # what was read is not understood, or to be sent not kept


class BlockingChannel:
    """Calls of threads, over one connection at a time."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None, clock: NodeClock) -> None:
        self._address = address
        self._tls = tls
        self._clock = clock
        self._closed = False
        self._wire: Wire | None = None
        self._begin()

    def forget(self) -> None:
        """In a process that was forked: nothing is under way here, and locks may be held for ever."""
        if self._wire is not None:
            self._wire.forget()
        self._begin()

    def _begin(self) -> None:
        self._lock = RLock()  # a signal handler may call, too; around these:
        self._deferred = DeferredWork(self._lock)
        self._session = Session(self._address, self._clock)
        self._wire = None
        self._leader: Turn | None = None
        self._writer: Turn | None = None
        self._asleep: dict[Turn, Call[Any]] = {}
        self._watched: dict[Call[Any], None] = {}  # have a callback, and no answer
        self._attendant: Thread | None = None
        self._attention = Lock()  # the attendant sleeps on it
        self._ended = Lock()  # a pause sleeps on it; free when the channel is closed
        self._ended.acquire()

    # -- from any thread ---------------------------------------------------------------------------

    def start(self, call: Call[Any]) -> None:
        """Ask, if there is a connection; else when somebody waits."""
        turn = Turn()
        try:
            self._look(turn)
            with self._lock:
                if self._closed:
                    raise QueueClosed("the queue is closed; connect again")
                self._session.add(call)
            self._write(turn)
        finally:
            try:
                self._leave(turn)
            finally:  # an interrupt came between
                self._leave_again(turn)

    def wait(self, call: Call[Any], seconds: float | None = None) -> None:
        """Read until the call is done or nudged, or the time is over, or sleep while another thread reads.

        To connect may take longer than somebody has: then it is the attendant's.
        """
        if not (call.done or call.nudged or self._may_wait(call)):
            if seconds is None:
                raise not_here()
            return  # nothing comes of it before the thread goes on
        turn = Turn()
        until = NEVER if seconds is None else time.monotonic() + seconds
        try:
            while not (call.done or call.nudged):
                if until != NEVER and self._wire is None:
                    self._resign(turn)
                    self._watch(call, turn)
                    self._sleep(turn, call, until)
                elif self._leads(turn, call):
                    self._lead(turn, call, until)
                else:
                    self._sleep(turn, call, until)
                if until != NEVER and time.monotonic() >= until:
                    break
        finally:
            self._asleep.pop(turn, None)
            try:
                self._leave(turn)
            finally:  # an interrupt came between
                self._leave_again(turn)

    def watch(self, call: Call[Any]) -> None:
        """See to it that the call gets done although no thread may wait for it."""
        self._do(partial(self._watch, call))

    def nudge(self, call: Call[Any]) -> None:
        """Let go of a thread that waits for the call: if it reads, by the answer to a ping."""
        call.ring()
        self._do(self._ping)

    def cancel(self, call: Call[Any]) -> None:
        """Tell the node that nobody waits for the call."""
        self._do(partial(self._cancel, call))

    def is_interrupted(self) -> bool:
        """Whether this thread is in the middle of what it does for all: then a signal handler asks, who
        would wait here for himself, or begin what must not be begun twice."""
        return self._deferred.inside or any(not turn.telling for turn in self._own_turns())

    def _own_turns(self) -> list[Turn]:
        """What this thread does for all: in the middle of it, if it is a signal handler that asks."""
        thread, turns = get_ident(), (self._leader, self._writer)
        return [turn for turn in turns if turn is not None and turn.thread == thread]

    def _may_wait(self, call: Call[Any]) -> bool:
        """Whether what this thread waits for can come: it may be a signal handler, and its thread be
        inside the lock, or in the middle of taking the answer."""
        turns = self._own_turns()
        if self._deferred.inside or any(turn.doubtful is not None for turn in turns):
            return False
        for turn in turns:
            self._tell_early(turn, call)
        return True

    @staticmethod
    def _tell_early(turn: Turn, call: Call[Any]) -> None:
        """Tell what this thread has found out of the call; it does so once more when it goes on."""
        if turn.telling > 1:  # who is told of something waits for something else
            return
        before = turn.telling
        turn.telling = before + 1
        try:
            for due in turn.due[::-1]:  # the first may be about to be told
                if not call.done:
                    due()
        finally:
            turn.telling = before

    def close(self) -> None:
        """End what is under way."""
        self._do(self._close)

    # -- what a signal handler may leave to the thread that it has interrupted ---------------------------

    def _do(self, work: Callable[[Turn], None]) -> None:
        """Do it now; or, if this thread is inside the lock already, when it has let go of that."""
        if self._deferred.inside:
            self._deferred.leave(work)
            return
        turn = Turn()
        try:
            work(turn)
            self._write(turn)
        finally:
            try:
                self._leave(turn)
            finally:  # an interrupt came between
                self._leave_again(turn)

    def _catch_up(self, turn: Turn) -> None:
        """Do what was left; whoever is about to wait does this before."""
        while self._deferred.works:
            self._deferred.do(turn)
            self._write(turn)

    def _watch(self, call: Call[Any], _: Turn) -> None:
        with self._lock:
            if self._closed or call.done:
                return
            self._watched[call] = None
            if self._attendant is None:
                self._attendant = Thread(target=self._attend, name="quiver-attendant", daemon=True)
                try:
                    self._attendant.start()
                except BaseException:  # an interrupt: there may be two of them, which does no harm
                    self._attendant = None
                    raise
            elif self._attention.locked():
                self._attention.release()

    def _ping(self, _: Turn) -> None:
        with self._lock:
            self._session.ping()

    def _cancel(self, call: Call[Any], turn: Turn) -> None:
        with self._lock:
            self._session.cancel(call, turn.due)

    def _close(self, turn: Turn) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            turn.due += self._session.close()
            wire, self._wire = self._wire, None
            if self._attention.locked():
                self._attention.release()
            self._ended.release()
            attendant = self._attendant
        if wire is not None:
            wire.close()
        self._tell(turn)
        if attendant not in (None, current_thread()) and not self.is_interrupted():
            attendant.join(limits.CONNECT_SECONDS_MAX)  # a handler's own thread may hold its answer

    # -- turns -------------------------------------------------------------------------------------

    def _leave(self, turn: Turn) -> None:
        """Leave nothing to a thread that does something else now."""
        if turn.doubtful is not None:
            self._broke(turn.doubtful, ConnectionResetError("interrupted"), turn)
        if self._writer is turn:
            self._writer = None
        self._tell(turn)  # before another leads, and waits for what is known
        self._resign(turn)
        self._catch_up(turn)
        self._tell(turn)

    def _leave_again(self, turn: Turn) -> None:
        left = turn.due or self._asleep or self._deferred.works
        if left or self._leader is turn or self._writer is turn:
            self._leave(turn)

    def _resign(self, turn: Turn) -> None:
        with self._lock:
            if self._leader is turn:
                self._leader = turn.before
                if turn.before is not None:  # it may be about to wait for what has been read now
                    self._deferred.leave(self._ping)
            if self._leader is None:  # somebody is to look whether to lead
                for call in tuple(self._asleep.values())[
                    :1
                ]:  # they go as they wake, without the lock
                    call.ring()

    @staticmethod
    def _tell(turn: Turn) -> None:
        before = turn.telling
        turn.telling = before + 1
        try:
            while turn.due:
                turn.due[0]()
                del turn.due[0]
        finally:
            turn.telling = before

    def _leads(self, turn: Turn, call: Call[Any]) -> bool:
        if self._leader is turn:
            return True
        with self._lock:
            leader = self._leader
            if leader is None or leader.thread == turn.thread:  # which is a signal handler's, now
                turn.before, self._leader = leader, turn
            else:
                self._asleep[turn] = call
        if self._leader is turn:
            self._take_over_writing(turn)
            return True
        return False

    def _sleep(self, turn: Turn, call: Call[Any], until: float) -> None:
        self._catch_up(turn)
        call.sleep(min(until - time.monotonic(), limits.WIRE_LOOK_SECONDS))

    def _take_over_writing(self, turn: Turn) -> None:
        """What this thread was writing when a signal handler came cannot go on before that has ended."""
        writer, wire = self._writer, self._wire
        if writer is not None and writer is not turn and writer.thread == turn.thread:
            self._writer = None
            if wire is not None:
                self._broke(wire, ConnectionResetError("interrupted"), turn)

    # -- reading -----------------------------------------------------------------------------------

    def _lead(self, turn: Turn, call: Call[Any], until: float) -> None:
        if not (call.done or call.nudged):  # else whoever led before has read its answer
            self._step(turn, until)

    def _step(self, turn: Turn, until: float = NEVER) -> None:
        """Wait for something to come, or to be due, and do what follows from it."""
        wire, now = self._wire, time.monotonic()
        if wire is None:
            self._connect(turn, now)
            return
        with self._lock:
            due = self._session.due(now)
        self._catch_up(turn)
        try:
            readable, _ = wire.wait(max(min(due, until - now), 0.0))
            self._read(turn, wire, readable=readable)
        except BREAKS as error:
            self._broke(wire, error, turn)
        self._write(turn)

    def _read(self, turn: Turn, wire: Wire, *, readable: bool) -> None:
        turn.doubtful = wire if readable else None
        frames = wire.read() if readable else []
        now = time.monotonic()
        with self._lock:
            if self._wire is wire:
                if frames:
                    self._session.take(frames, now, turn.due)
                elif readable:
                    self._session.moves(now)
                self._session.tick(now)
                if self._session.drained:
                    self._session.left()
                    self._wire = None
                    wire.close()
            turn.doubtful = None
        self._tell(turn)

    def _broke(self, wire: Wire, error: Exception, turn: Turn) -> None:
        turn.doubtful = wire  # if this is interrupted, too, it is done again
        with self._lock:
            if self._wire is wire:
                self._session.broke(why(error), time.monotonic(), turn.due)
                self._wire = None
                wire.close()
            turn.doubtful = None
        self._tell(turn)

    def _look(self, turn: Turn) -> None:
        """If nothing is under way, find out whether the node has ended the connection, or is about to.

        What is written to a dead connection would have an outcome that nobody knows.
        """
        with self._lock:
            wire = self._wire
            if wire is None or self._leader is not None or not self._session.idle:
                return
            self._leader = turn
        try:
            if wire.wait(0)[0]:
                self._read(turn, wire, readable=True)
        except BREAKS as error:
            self._broke(wire, error, turn)
        self._resign(turn)

    # -- writing -----------------------------------------------------------------------------------

    def _write(self, turn: Turn) -> None:
        """Write what there is to write, unless another thread does."""
        while True:
            with self._lock:
                wire = self._wire
                if wire is None or self._writer is not None:
                    return
                turn.doubtful = wire
                wire.add(self._session.to_write(time.monotonic()))
                turn.doubtful = None
                if not wire.unsent:
                    return
                self._writer = turn
            try:
                self._send(turn, wire)
            except BREAKS as error:
                self._broke(wire, error, turn)
            self._writer = None

    def _send(self, turn: Turn, wire: Wire) -> None:
        while not wire.send():
            with self._lock:
                leads = self._leader is None
                if leads:
                    self._leader = turn
            self._catch_up(turn)
            readable, writable = wire.wait(limits.WIRE_STUCK_SECONDS, write=True)
            if writable:
                with self._lock:
                    self._session.moves(time.monotonic())
            if self._leader is turn:
                self._read(turn, wire, readable=readable)
            if leads:
                self._resign(turn)
            if self._wire is not wire:
                return

    # -- connecting --------------------------------------------------------------------------------

    def open(self, call: Call[Any], seconds: float) -> None:
        """Connect for the first time, and make the first call; `NoUpgrade` if frames do not get through."""
        self.start(call)
        turn = self._leader = Turn()
        try:
            while not call.done:
                if self._wire is None:
                    self._connect(turn, time.monotonic(), seconds, opens=True)
                else:
                    self._step(turn)
        finally:
            try:
                self._leave(turn)
            finally:  # an interrupt came between
                self._leave_again(turn)
        call.get()

    def _connect(
        self, turn: Turn, now: float, seconds: float = limits.CONNECT_SECONDS_MAX, *,
        opens: bool = False,
    ) -> None:  # fmt: skip
        """One attempt, when it is time for it."""
        with self._lock:
            session = self._session
            wait, host = session.retry_at - now, session.host
        self._catch_up(turn)
        if wait > 0 and self._ended.acquire(timeout=wait):
            self._ended.release()
        if self._closed:
            return
        try:
            wire = connect(self._address, self._tls, host, seconds)
        except NoUpgrade as error:
            if opens:
                raise
            self._failed(turn, str(error))
        except (OSError, ValueError, Busy) as error:  # or what is no name of a host
            self._look_for_tls(turn, host, error)
            self._failed(turn, why(error))
        except QuiverError as error:
            self._give_up(turn, error)
        else:
            self._connected(turn, wire)

    def _connected(self, turn: Turn, wire: Wire) -> None:
        with self._lock:
            if not self._closed:
                self._wire = wire
                self._session.connected(time.monotonic())
        if self._closed:
            wire.close()
        self._write(turn)

    def _failed(self, turn: Turn, reason: str) -> None:
        with self._lock:
            self._session.failed(reason, time.monotonic(), turn.due)
        self._tell(turn)

    def _give_up(self, turn: Turn, error: QuiverError) -> None:
        with self._lock:
            self._session.give_up(error, turn.due)
        self._tell(turn)

    def _look_for_tls(self, turn: Turn, host: str, error: Exception) -> None:
        """It may be something else that listens there."""
        if may_be_tls(self._tls, error, known=self._clock.known):
            try:
                demand_no_tls(host)
            except Unreachable as found:
                self._give_up(turn, found)

    # -- the attendant -----------------------------------------------------------------------------

    def _attend(self) -> None:
        """Wait for calls that have a callback, one after the other."""
        while True:
            with self._lock:
                while self._watched and next(iter(self._watched)).done:
                    del self._watched[next(iter(self._watched))]
                call = next(iter(self._watched), None)
            if call is not None:
                self._attend_to(call)
                continue
            woken = self._attention.acquire(timeout=limits.ATTENDANT_IDLE_SECONDS)
            with self._lock:
                if self._closed or not (woken or self._watched):
                    self._attendant = None
                    return

    def _attend_to(self, call: Call[Any]) -> None:
        try:
            self.wait(call)
        except Exception as error:  # noqa: BLE001  # whatever it is, the calls of others go on
            call.failed(OutcomeUnknown(f"waiting for the answer failed ({why(error)}): {MAYBE}"))
            self.cancel(call)


def why(error: BaseException) -> str:
    """What broke, in few words."""
    if isinstance(error, OSError) and error.errno:
        known = os.strerror(error.errno) if error.errno > 0 else error.strerror  # or of a name
        return known or str(error)
    return str(error) or type(error).__name__


def finish(finished: Iterable[Finish]) -> None:
    for finish in finished:
        finish()

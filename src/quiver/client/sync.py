"""The API for threads."""

import atexit
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, suppress
from math import inf
from threading import Condition, Lock, RLock, Thread, get_ident
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeVar
from weakref import WeakSet

import pyarrow as pa

from quiver import limits
from quiver.client import arguments
from quiver.client.acks import AckMode
from quiver.client.arguments import PositionLike
from quiver.client.consuming import LOGGER, Consuming, Outage, limit_of
from quiver.client.flows import Flows
from quiver.client.keeping import Kept, extend
from quiver.client.owner import Owner
from quiver.client.prefetch import GIVEN_UP, Ask, PrefetchBuffer, Rest
from quiver.client.results import (
    Delivery,
    Record,
)
from quiver.client.scanning import Scan
from quiver.client.send_buffer import SendBuffer, open_send_buffer
from quiver.client.steps import Course, Flow, Stopped
from quiver.client.sync_verbs import Verbs
from quiver.client.threads import is_held, run
from quiver.errors import QueueClosed, QuiverError
from quiver.model.replies import Durability
from quiver.model.units import Duration, milliseconds
from quiver.node.tickets import Ticket

T = TypeVar("T")


NOT_PICKLED: Final = (
    "a queue cannot be pickled or given to another process; connect in each process, to a node if several "
    "of them need the queue"
)


class ThreadRunner:
    """Drives flows in threads; when it is stopped, whatever they wait for is given up.

    A signal handler may stop it in the middle of anything that its own thread does here. So it waits for
    tickets: an Event has a lock inside that such a handler would wait for in vain.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._stopped = False
        self._waiting: Counter[Ticket[Any]] = Counter()

    def stop(self) -> None:
        """From now on nothing is waited for."""
        with self._lock:
            self._stopped = True
            for ticket in list(self._waiting):
                ticket.nudge()

    def run(self, flow: Generator[Any, Any, T], seconds: float | None = None) -> T:
        """Drive a flow; `Stopped` is raised when it waits for something that takes longer."""
        return run(flow, lambda ticket: self._answer(ticket, seconds))

    def pause(self, seconds: float) -> None:
        """Wait for so long, or until it is stopped."""
        with suppress(Stopped):
            self.wait(Ticket(), seconds)

    def wait(self, ticket: Ticket[Any], seconds: float | None) -> bool:
        """Wait for a ticket; whether it is set in time. `Stopped` if it is not and this is stopped."""
        try:
            with self._lock:
                self._waiting[ticket] += 1
                if self._stopped:
                    seconds = 0
            done = ticket.wait_for(seconds)
        finally:
            with self._lock:
                self._waiting[ticket] -= 1
                others = self._waiting[ticket] > 0
                if not others:
                    del self._waiting[ticket]
        if self._stopped and not done:
            if others:  # a nudge lets go of one
                ticket.nudge()
            raise Stopped
        return done

    def _answer(self, ticket: Ticket[Any], seconds: float | None) -> Any:
        try:
            if not self.wait(ticket, seconds):
                raise Stopped
        except BaseException:
            ticket.give_up()
            raise
        return ticket.get()


def _wake(waiting: Any) -> None:
    with suppress(RuntimeError):  # it was done already
        waiting.release()


class Queue(Verbs):
    """A queue in a directory. Threads may share one; it is a context manager that closes itself."""

    def __init__(self, flows: Flows, close: Callable[[], None]) -> None:
        self._opened = flows
        self._close = close
        self._keeper: Keeper | None = None
        self._producers: WeakSet[Producer] = WeakSet()
        self._consumers: WeakSet[Consumer] = WeakSet()

    def __reduce__(self) -> NoReturn:
        raise TypeError(NOT_PICKLED)

    def __repr__(self) -> str:
        return f"<Queue {self._flows.place}>"

    @property
    def _flows(self) -> Flows:
        return self._opened

    def close(self) -> None:
        """Close its consumers, finish what was started, and let go of the directory."""
        with ExitStack() as last:
            for producer in self._producers & _OPEN:
                last.callback(producer._belongs_to_closed)
            last.callback(self._close)
            if self._keeper is not None:
                last.callback(self._keeper.close)
            for consumer in self._consumers:
                consumer._belongs_to_closed()
            for consumer in self._consumers & _OPEN:
                last.callback(consumer.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def producer(
        self,
        topic: str,
        *,
        linger: Duration = 0.005,
        max_messages: int = limits.PRODUCER_ROWS,
        max_bytes: int = limits.PRODUCER_BYTES,
        durability: Durability | None = None,
        name: str | None = None,
    ) -> "Producer":
        """A producer that collects messages for up to `linger` and sends them in batches.

        With a `name` it is idempotent: its batches are numbered, and a producer that opens the
        name again knows how many messages are stored (`sequence`) and fences the one before.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            linger: How long the first message of a batch waits for others; at most a minute.
            max_messages: A batch with so many is sent at once.
            max_bytes: So is one with so many bytes.
            durability: "disk" (synced before this returns) or "memory"; None for what `connect` was
                told.
            name: Makes it idempotent, under this name; None for a producer without memory.
        """
        seconds = milliseconds(linger, "linger", max_seconds=60) / 1000
        outbox = run(
            open_send_buffer(self._flows, topic, max_messages, max_bytes, durability, name)
        )
        producer = Producer(outbox, seconds)
        self._producers.add(producer)
        return producer

    # -- receiving ---------------------------------------------------------------------------------

    def _keeping(self, count: int) -> "Keeper":
        if self._keeper is None or self._keeper.owner.gone:
            self._keeper = Keeper(self._flows)
        self._keeper.demand_room(count)
        return self._keeper

    def _kept(self) -> "Keeper | None":
        return self._keeper

    def consumer(
        self,
        topic: str,
        group: str = "default",
        *,
        prefetch: int = 100,
        lease: Duration = 30,
        keep: bool = False,
        consumer: str = "",
        give_up_after: Duration | None = None,
        acks: AckMode = "wait",
    ) -> "Consumer":
        """A consumer that receives up to `prefetch` messages ahead, while you work on the last one.

        With 0 it receives one at a time, when you ask for it. With `keep` it makes leases longer in the
        background until messages are settled. It waits for a node that is away, for `give_up_after` at
        most (None: as long as it takes).

        Args:
            topic: Its name. TopicNotFound if it is not there.
            group: The group's name: 1 to 255 letters, digits, '.', '_' or '-'. It is made if it is
                new.
            prefetch: How many may wait to be taken, up to 100,000; 0 for none.
            lease: How long they are yours; more than 0, at most 7 days.
            keep: Whether leases are made longer in the background until messages are settled.
            consumer: A name that is kept with the lease, for those who look; cut at 1,000
                characters.
            give_up_after: How long a node may be away before `get` raises that; None for any time.
            acks: "wait" for each `ack` until it is stored, or "background": it returns at once, and
                what was acked in the last milliseconds may come again if this process dies.
        """
        stock: PrefetchBuffer[Delivery] = PrefetchBuffer(
            prefetch, lease, keep=keep, acks=acks, now_ms=self._flows.now_ms
        )
        limit = limit_of(give_up_after)
        run(self._flows.policy(topic))  # it is there
        names = arguments.name(group, "group"), arguments.text(consumer, "consumer")
        consuming = Consumer(self._flows, stock, limit, topic, *names)
        self._consumers.add(consuming)
        return consuming

    # -- reading -----------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        *,
        start: PositionLike | None = None,
        offset: int | None = None,
        end: PositionLike | None = None,
        partition: int | None = None,
    ) -> Iterator[Record]:
        """Replay what the topic holds now, oldest first, without a group and without a lease.

        `start` and `end` are times, or "earliest" and "latest"; `offset` (and an int as `end`)
        counts in each partition. `end` is not included.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            start: A time, "earliest" or "latest"; None for the earliest. Not together with
                `offset`.
            offset: The first offset, in each partition.
            end: A time, an offset (int), "earliest" or "latest", not included; None for what is
                there now.
            partition: Its number, for one alone; None for all.
        """
        begin = run(self._flows.read_start(topic, start, offset, end, partition))
        return self._pages(topic, *begin)

    def _pages(
        self, topic: str, number: int, positions: dict[int, int], ends: dict[int, int]
    ) -> Iterator[Record]:
        while any(positions[part] < ends[part] for part in positions):
            page = run(self._flows.read_page(number, positions, ends))
            positions = {**positions, **page.ahead}
            yield from run(self._flows.read_records(topic, page))

    def read_arrow(
        self,
        topic: str,
        *,
        start: PositionLike | None = None,
        offset: int | None = None,
        end: PositionLike | None = None,
        partition: int | None = None,
    ) -> Iterator[pa.Table]:
        """`read` as Arrow tables, each of a bounded size.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            start: A time, "earliest" or "latest"; None for the earliest. Not together with
                `offset`.
            offset: The first offset, in each partition.
            end: A time, an offset (int), "earliest" or "latest", not included; None for what is
                there now.
            partition: Its number, for one alone; None for all.
        """
        scan = Scan(self._flows, *run(self._flows.read_start(topic, start, offset, end, partition)))
        return tables_of(scan)


def flows_of(queue: Queue) -> Flows:
    """The flows that a queue drives, for what is built on them beside it."""
    return queue._flows


def tables_of(scan: Scan) -> Iterator[pa.Table]:
    """What a scan finds, a page at a time."""
    while scan.more:
        table = run(scan.table(run(scan.page())))
        if table.num_rows:
            yield table


class Producer:
    """Batches behind your back: `send` returns at once, `flush` and `close` when all is stored.

    What was refused is reported by the next call as ProducerFailed, with all its messages; what
    that call itself sends is taken over nevertheless, or is among them. When too much is
    unconfirmed, `send` waits.
    """

    def __init__(self, outbox: SendBuffer, linger: float) -> None:
        self._outbox = outbox
        self._owner = outbox.owner
        self._linger = linger
        self._lock = RLock()  # taken as it is: a condition can be interrupted half way
        self._bell = Lock()  # the thread waits for it
        self._bell.acquire()
        self._parked = False  # whether it waits until it is woken
        self._due = 0.0
        self._closed = False
        self._orphaned = False  # its queue is closed
        outbox.begins = self._begins
        self._thread = Thread(target=self._flush_when_due, name="quiver-producer", daemon=True)
        self._thread.start()
        _OPEN.add(self)

    def __repr__(self) -> str:
        return f"<Producer {self._outbox}>"

    @property
    def sequence(self) -> int:
        """How many messages were sent under this producer's name, in this and earlier runs."""
        return self._outbox.sequence + self._outbox.rows

    @property
    def confirmed(self) -> int:
        """How many messages of this producer are known to be stored."""
        return self._outbox.confirmed

    def send(
        self,
        body: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        ttl: Duration | None = None,
        dedup_id: str | None = None,
    ) -> None:
        """Collect one message.

        Args:
            body: bytes, or str as UTF-8; anything else is sent as JSON. At most 16 MiB.
            key: What order, fairness and partitions go by; 1 to 1,024 bytes, or None.
            headers: Names and values, both str; at most 64, with 2 MiB in all.
            priority: 0 (the default) to 9, which goes first.
            delay: Not delivered before this has passed; at most a century. None for at once.
            ttl: Not delivered after this has passed; more than 0. None for no end.
            dedup_id: Stored once within the topic's `dedup_window`; 1 to 256 bytes, or None.
        """
        if self._owner.gone:
            self._owner.demand()
        with self._lock:
            if self._closed:
                raise QueueClosed("the producer is closed; open another")
            try:
                # First taken over, whatever is then reported.
                if self._outbox.add(body, key, headers, priority, delay, ttl, dedup_id):
                    self._wait(all_of_them=False)
            finally:
                if self._closed:  # by a signal handler, meanwhile
                    self._finish()

    def flush(self) -> None:
        """Return when everything sent so far is stored."""
        self._owner.demand()
        with self._lock:
            self._finish()

    def _finish(self) -> None:
        self._outbox.submit()
        self._wait(all_of_them=True)

    def _wait(self, *, all_of_them: bool) -> None:
        while True:
            for ticket in self._outbox.awaited(all_of_them=all_of_them):
                ticket.wait_done()
            self._outbox.collect()  # at least once: an interrupt may have come before it had raised
            if not self._outbox.awaited(all_of_them=all_of_them):
                return

    def _begins(self) -> None:
        """A batch begins: the thread must look when it is due. It sees to the others by itself."""
        self._due = time.monotonic() + self._linger
        if self._parked:
            _wake(self._bell)
            self._parked = False

    def _flush_when_due(self) -> None:
        """Submit what has lingered. To be woken for each batch would cost more than to look."""
        while True:
            with self._lock:
                left = self._due - time.monotonic()
                if self._closed or self._orphaned:
                    return
                if self._outbox.rows and left <= 0:
                    self._outbox.submit()
                self._parked = not self._outbox.rows
                seconds = -1 if self._parked else left
            self._bell.acquire(timeout=seconds)

    def _belongs_to_closed(self) -> None:
        """Its queue was closed: nothing can be sent any more."""
        self._orphaned = True
        _wake(self._bell)
        if not self._closed:
            self._outbox.belongs_to_closed()

    def close(self) -> None:
        """Flush and end; in a forked process there is nothing to end.

        A signal handler that comes in the middle of a `send` leaves the flush to that, or to the end of
        the program.
        """
        if self._owner.gone:
            return
        self._closed = True  # from here on nothing is taken
        _wake(self._bell)
        if is_held(self._lock):
            return
        try:
            with self._lock:
                self._finish()
        except QuiverError:
            _OPEN.discard(self)
            raise
        finally:
            self._thread.join()
        _OPEN.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Keeper:
    """Makes leases of received messages longer, in a thread that lives while there are some."""

    def __init__(self, flows: Flows) -> None:
        self.owner = Owner("queue")
        self._flows = flows.patient(limits.CONSUMER_PATIENCE_SECONDS)
        self._runner = ThreadRunner()
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._kept: Kept[Delivery] = Kept()
        self._closed = False
        self._thread: Thread | None = None

    def demand_room(self, count: int) -> None:
        """Refuse to keep so many more than there may be."""
        with self._lock:
            self._kept.demand_room(count)

    def add(self, deliveries: list[Delivery], lease_seconds: float, asked: float) -> None:
        """Keep these from now on."""
        with self._lock:
            self._kept.add(deliveries, lease_seconds, asked)
            self._changed.notify_all()
            if self._thread is None and self._kept and not self._closed:
                self._thread = Thread(target=self._work, name="quiver-keeper", daemon=True)
                self._thread.start()

    def settled(self, items: list[Any]) -> None:
        """These need no lease any more."""
        if not self.owner.gone:
            with self._lock:
                self._kept.settled(items)
                self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._lock:
                pause = self._kept.pause(time.monotonic())
                if pause is None or self._closed:
                    self._thread = None
                    return
                if pause:
                    self._changed.wait(pause)
                    continue
                due = self._kept.due(time.monotonic())
            with suppress(
                QuiverError, Stopped
            ):  # the next time, unless the lease has ended by then
                self._runner.run(extend(self._flows, due, self._told))

    def _told(self, _: Any, lost: Any) -> None:
        with self._lock:
            self._kept.settled(lost)

    def close(self) -> None:
        """Keep nothing any more."""
        if self.owner.gone:
            return
        with self._lock:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        self._runner.stop()
        if thread is not None and not is_held(
            self._lock
        ):  # else a handler's, which it would wait for
            thread.join()
        self._kept = Kept()  # deliveries keep their queue, and the collector does not see how


class Consumer:
    """Receives ahead: what you take has been fetched before, while you worked on the last one.

    Iterate over it, or `get`. At most `prefetch` messages wait. They are only reserved until you are about
    to take them: no attempt is counted before, and an idle consumer of the group may take them over.
    When it is closed, what you have not taken is given back at once, uncounted; only what an at-most-once
    group has begun cannot be, and can be taken after closing, too. With `keep`, leases are made longer in
    the background, of what waits and of what you have taken, until it is settled or the consumer closed.

    With acks="background" the `ack` of what you took returns at once. Acks go together, with the next
    request for messages or a few milliseconds later; `flush` and `close` wait for them. Until then a
    message may come again if this process dies. What was refused, because a lease had ended before, is
    told by the next `get`, `flush` or `close`: ReceiptExpired, with all that it is about as `refused`.

    While its node is away it waits, and goes on when it is back; both are logged, as "quiver".
    """

    # Whoever calls `get` drives: asks for more when half of what waits is taken, and reads the answer when
    # nothing waits any more. One thread does so at a time. What is due while nobody calls is seen to by a
    # thread of our own, the minder. It is not woken by `get`, but looks now and then.

    def __init__(
        self, flows: Flows, stock: PrefetchBuffer[Delivery], give_up_after: float | None, *wish: str
    ) -> None:
        self._place = flows.place
        self._stock = stock
        self._topic, self._group, _ = wish
        self._consuming = Consuming(flows, stock, Delivery, self._settle, wish)
        self._consuming.open()
        self._outage = Outage(self._consuming.title, give_up_after)
        self._runner = ThreadRunner()
        self._lock = self._consuming.lock
        self._changed = Condition(self._lock)
        self._closed = False
        self._error: Exception | None = None
        self._driver = 0  # the thread that drives
        self._waiting = 0  # how many wait for it
        self._turn: ConsumerTurn | None = None  # what it is about, or somebody has left
        self._gave_up = False  # an answer may still come that is not wanted
        self._retry_at = 0.0  # the node is away until then
        self._look_after = min(limits.CONSUMER_BEGIN_SECONDS, stock.pause)
        self._idle_until = 0.0  # nothing is due before, if nobody calls
        self._looks_at = 0.0  # when the minder looks what is due
        self._bell = Lock()  # and what it sleeps on
        self._bell.acquire()
        self._thread = Thread(target=self._mind, name="quiver-consumer", daemon=True)
        self._thread.start()
        _OPEN.add(self)

    def __repr__(self) -> str:
        return f"<Consumer {self._topic}/{self._group} in {self._place}>"

    def get(self, *, wait: Duration | None = None) -> Delivery | None:
        """The next message; None if none came within `wait` (None: for ever) or it was closed.

        Args:
            wait: How long to wait; None for as long as it takes. What is received ahead is asked for and
                begun in that time: 0 gives only what has begun already. None may come of it because the
                node is away, too: see `give_up_after`.
        """
        until = inf if wait is None else time.monotonic() + milliseconds(wait, "wait") / 1000
        stock = self._stock
        if stock.owner.gone:
            stock.owner.demand()
        if not stock.ahead:
            self._consuming.demand_queue()
            return self._receive(until)
        with self._lock:
            if not stock.acks.refused:
                delivery = stock.take(time.monotonic())
                if delivery is not None:
                    if self._turn is None and stock.has_work and not self._driver:
                        self._look_ahead()
                    return delivery
        self._consuming.demand_queue()
        return self._wait_for_one(until)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        delivery = self.get()
        if delivery is None:
            raise StopIteration
        return delivery

    def flush(self) -> None:
        """Return when all acks that were collected are stored."""
        self._stock.owner.demand()
        self._flush()
        self._tell_refused()

    def _flush(self, runner: ThreadRunner | None = None) -> None:
        """Send what was collected, and wait until all that was sent is answered."""
        wait = ThreadRunner().wait if runner is None else runner.wait
        run(self._consuming.flush(), lambda ticket: wait(ticket, None))

    def _tell_refused(self) -> None:
        with self._lock:
            refusal = self._stock.acks.refusal()
        if refusal is not None:
            raise refusal

    def _belongs_to_closed(self) -> None:
        """Its queue is about to be closed: who asks for more afterwards is told."""
        self._consuming.queue_closed = True

    # -- one at a time -----------------------------------------------------------------------------

    def _receive(self, until: float) -> Delivery | None:
        """The next message, which is asked for now."""
        while not self._closed:
            self._tell_refused()
            if self._error is not None:  # what it gave before is no longer kept
                raise self._error
            asked = time.monotonic()
            wait = min(max(until - asked, 0), self._stock.pause)
            with suppress(Stopped):
                for delivery in self._attempt(self._consuming.one(wait)):
                    with self._lock:
                        self._stock.keep([delivery], asked)
                    return delivery
            if time.monotonic() >= until:
                break
        return None

    def _attempt(self, flow: Flow[list[Delivery]]) -> list[Delivery]:
        """What the flow answers; nothing if its node is away, after a pause."""
        began = time.monotonic()
        try:
            answer = self._runner.run(flow)
        except QuiverError as error:
            if self._closed and isinstance(error, QueueClosed):  # just now, by another thread
                return []
            if not self._consuming.is_passing(error):
                raise
            with self._lock:
                pause = self._outage.failed(error, began)
            self._runner.pause(pause)
            return []
        with self._lock:
            self._outage.is_over()
        return answer

    # -- driving -----------------------------------------------------------------------------------

    def _wait_for_one(self, until: float) -> Delivery | None:
        """The next message; drive until there is one, or wait for whoever drives."""
        me, over = get_ident(), False
        while True:
            try:
                with self._lock:
                    self._tell_refused()
                    if self._stock.has_begun or not over:
                        delivery = self._stock.take(time.monotonic())
                        if delivery is not None:
                            return delivery
                    if self._error is not None and not self._closed:
                        raise self._error
                    if self._closed or over:
                        if not self._waiting:
                            self._stock.nobody_waits()
                        return None
                    if self._driver not in (0, me):
                        self._wait_for_driver(until)
                    else:
                        self._driver = me
                if self._driver == me:
                    self._drive(until)
            finally:
                now = time.monotonic()
                over = now >= until
                if self._driver == me:
                    with self._lock:
                        self._leave(now)

    def _wait_for_driver(self, until: float) -> None:
        self._waiting += 1
        try:
            self._changed.wait(None if until == inf else until - time.monotonic())
        finally:
            self._waiting -= 1

    def _look_ahead(self) -> None:
        """Ask for more, and do not wait for it. The lock is held."""
        now = time.monotonic()
        if now >= self._retry_at:
            self._driver = get_ident()
            try:
                self._go(-inf)
            finally:
                self._leave(now)

    def _drive(self, until: float) -> None:
        """Go on with a turn, or begin one, while there is time."""
        with suppress(Stopped):
            pause = min(self._retry_at, until) - time.monotonic()
            if self._turn is None and pause > 0:
                self._runner.pause(pause)
            else:
                self._go(until)

    def _go(self, until: float) -> float | None:
        """Take the turn as far as it goes until then; if there is nothing to do, for how long."""
        turn = self._turn
        try:
            if turn is None:
                turn = self._turn = ConsumerTurn(self._consuming)
            if turn.course.go(lambda ticket: self._answered(ticket, until)):
                with self._lock:
                    self._turn = None
                    if not isinstance(turn.step, Rest):
                        self._outage.is_over()
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001  # whoever takes the next message is told
            with self._lock:
                self._turn = None
                self._failed(error, time.monotonic() if turn is None else turn.asked)
        return turn.step.seconds if turn is not None and isinstance(turn.step, Rest) else None

    def _answered(self, ticket: Ticket[Any], until: float) -> bool:
        if until == inf:
            return self._runner.wait(ticket, None)
        return until > 0 and self._runner.wait(ticket, max(until - time.monotonic(), 0))

    def _failed(self, error: Exception, began: float) -> None:
        """If the node is away, try again later; else that was all."""
        if self._closed:
            return
        try:
            if not isinstance(error, QuiverError) or not self._consuming.is_passing(error):
                raise error
            self._retry_at = time.monotonic() + self._outage.failed(error, began)
        except Exception as final:  # noqa: BLE001
            self._error = final
            self._stock.acks.open = False  # nobody would send them

    def _leave(self, now: float, idle: float | None = None) -> None:
        """Somebody else may drive; if nobody does, the minder is to look after a while."""
        self._driver = 0
        if self._closed:
            self._end_turn()
        self._changed.notify_all()
        self._idle_until = now + (self._look_after if idle is None else idle)
        self._rings_by(self._idle_until)

    # -- minding -----------------------------------------------------------------------------------

    def _rings_by(self, at: float) -> None:
        """See to it that the minder looks by then."""
        if at < self._looks_at:
            self._looks_at = at
            _wake(self._bell)

    def _mind(self) -> None:
        """See to what is due while nobody calls."""
        while not (self._closed or self._error):
            with self._lock:
                now = time.monotonic()
                acks_at = max(self._stock.acks.due_at, self._retry_at)
                self._looks_at = due = min(acks_at, self._due())
                drives = due < acks_at and due <= now
                if drives:
                    self._driver = get_ident()
            if due > now:
                self._bell.acquire(timeout=-1 if due == inf else due - now)
            elif drives:
                self._do_what_is_due()
            else:
                self._send_acks()

    def _due(self) -> float:
        """When something else than acks is due. Whoever drives sees to it."""
        if self._driver or self._waiting:
            return inf
        due = self._idle_until
        if self._turn is not None:
            due = max(due, self._turn.asked + self._look_after)
        return max(due, self._retry_at)

    def _do_what_is_due(self) -> None:
        seconds = None
        with suppress(Stopped):
            seconds = self._go(inf)
        with self._lock:
            self._leave(time.monotonic(), seconds or 0)

    def _send_acks(self) -> None:
        began = time.monotonic()
        try:
            self._flush(self._runner)
        except Stopped:
            pass
        except Exception as error:  # noqa: BLE001  # whoever takes the next message is told
            with self._lock:
                self._failed(error, began)

    def _settle(self, action: Any, items: Any, **options: Any) -> None:
        acks = self._stock.acks
        if action == "ack" and acks.open and not self._stock.owner.gone:
            with self._lock:
                collected = acks.add(items[0], hurry=self._driver != 0 and self._may_wait_long)
            if collected:
                if collected == "look":
                    self._look_at_acks()
                return
        run(self._consuming.settle(action, items, **options))

    @property
    def _may_wait_long(self) -> bool:
        """Whether somebody waits for messages, perhaps for those that an ack makes ready."""
        turn = self._turn
        return turn is not None and isinstance(turn.step, Ask) and turn.step.waits

    def _look_at_acks(self) -> None:
        """The minder is to send them in time; if there are enough, wait until they are stored."""
        acks = self._stock.acks
        with self._lock:
            self._rings_by(acks.due_at)
        if acks.enough:
            self._flush()

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop receiving, store acks, and give back what was not taken; in a forked process nothing."""
        if self._stock.owner.gone:
            return
        inside = self._is_inside()
        with self._lock:
            self._closed = True
            self._stock.close()
            self._changed.notify_all()
            self._looks_at = 0.0
            _wake(self._bell)
        self._runner.stop()
        with self._lock:
            if not inside:
                self._changed.wait_for(lambda: not self._driver, limits.CONSUMER_CLOSE_SECONDS)
            self._end_turn()
            waiting = self._stock.emptied()
        self._runner.stop()  # again: the end of the turn may have used up what wakes its wait
        try:
            with suppress(QuiverError):  # then it is told below
                self._consuming.send_acks()
            if not self._outage.lasts:
                with suppress(Stopped, *GIVEN_UP):
                    ending = self._consuming.end(waiting, asked=self._gave_up)
                    ThreadRunner().run(ending, limits.CONSUMER_CLOSE_SECONDS)
            self._stock.were_given_back()
            self._flush()
        except QuiverError:
            _OPEN.discard(self)
            raise
        finally:
            self._consuming.close()
            if not inside:
                self._thread.join()
        _OPEN.discard(self)  # only now: after an interrupt the end of the program does it again
        self._tell_refused()

    def _is_inside(self) -> bool:
        """Whether this is a signal handler, in the middle of something that this thread does here."""
        return is_held(self._lock) or self._driver == get_ident()

    def _end_turn(self) -> None:
        """End what somebody has left, or is in the middle of: a thread that hangs, or has this handler."""
        turn = self._turn
        if turn is None:
            return
        ticket = turn.course.ticket
        if ticket is not None and isinstance(turn.step, Ask):
            if not (turn.step.waits or self._outage.lasts or ticket.stuck):
                ticket.wait_for(limits.CONSUMER_CLOSE_SECONDS)
            ticket.abandoned, self._gave_up = True, True  # what it gets is given back
        if not self._driver:
            self._turn = None
            with suppress(*GIVEN_UP):
                if not turn.course.go():
                    turn.course.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class ConsumerTurn:
    """What a consumer does now: a step of its stock, and how far that is."""

    __slots__ = ("asked", "course", "step")

    def __init__(self, consuming: Consuming[Delivery]) -> None:
        self.asked = time.monotonic()
        with consuming.lock:
            self.step = consuming.stock.next(self.asked)
        self.course = Course(consuming.do(self.step, self.asked))


_OPEN: WeakSet[Producer | Consumer] = WeakSet()


@atexit.register
def _exiting() -> None:
    """A program may end without `close`: what was sent or acked is stored, what waits is given back."""
    for one in list(_OPEN):
        try:
            one.close()
        except Exception as error:  # noqa: BLE001  # those of others are to be stored as well
            LOGGER.warning("%r could not store all it had at the end: %s", one, error)

"""A producer's batches on their way to a node: one request at a time, in order.

While a request is under way others gather, and go together in the next: the slower the network, the
larger the requests. So a producer keeps its order, and its pace does not depend on the distance.
"""

from collections import deque
from collections.abc import Callable, Hashable
from threading import RLock
from typing import Final, TypeAlias

import pyarrow as pa

from quiver import limits
from quiver.batches.schema import concat
from quiver.errors import OutcomeUnknown, QuiverError
from quiver.model.commands import ProducerStamp
from quiver.model.replies import SentMany
from quiver.node.tickets import Ticket

RELATIVE: Final = {b"quiver.times": b"relative"}  # of a batch whose times count from its sending
Waiting: TypeAlias = tuple[pa.RecordBatch, ProducerStamp, Ticket[SentMany]]
Send: TypeAlias = Callable[[pa.RecordBatch, ProducerStamp], Ticket[SentMany]]


class ProducerLanes:
    """The lanes of producers that are sending. A signal handler may have one of its own."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._lanes: dict[Hashable, Lane] = {}

    def add(
        self, key: Hashable, send: Send, batch: pa.RecordBatch, producer: ProducerStamp
    ) -> Ticket[SentMany]:
        """Send a batch in the lane of this key."""
        with self._lock:
            if key not in self._lanes:
                for known, lane in list(self._lanes.items()):
                    if lane.idle:
                        self._lanes.pop(known, None)
            return self._lanes.setdefault(key, Lane(send)).add(batch, producer)


class Lane:
    """The batches of one producer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = RLock()
        self._waiting: deque[Waiting] = deque()
        self._busy = False

    @property
    def idle(self) -> bool:
        """Whether nothing is under way or waits."""
        with self._lock:
            return not self._busy and not self._waiting

    def add(self, batch: pa.RecordBatch, producer: ProducerStamp) -> Ticket[SentMany]:
        """Send a batch after those before it; the ticket gets the answer to it and its company."""
        ticket: Ticket[SentMany] = Ticket()
        try:
            with self._lock:
                self._waiting.append((batch, producer, ticket))
            self._next()
        except BaseException:  # Ctrl-C: nobody would wait for it, or send it later
            with self._lock:
                self._waiting = deque(one for one in self._waiting if one[2] is not ticket)
            raise
        return ticket

    def _next(self) -> None:
        """Send what waits, if nothing is under way. Whatever happens, Ctrl-C too, the lane goes on."""
        together: list[Waiting] = []
        try:
            with self._lock:
                if self._busy:
                    return
                together = self._taken()
                self._busy = bool(together)
            if together:
                answer = self._send(_joined([batch for batch, _, _ in together]), together[0][1])
                answer.when_done(lambda: self._tell(together, answer))
        except BaseException as error:
            failed: Ticket[SentMany] = Ticket()
            failed.fail(_known(error))
            self._tell(together, failed)
            if not isinstance(error, Exception):
                raise

    def _tell(self, together: list[Waiting], answer: Ticket[SentMany]) -> None:
        with self._lock:
            told = together.copy()
            together.clear()  # a ticket may call twice, from two threads
            if not told:
                return
            self._busy = False
        error, sent = answer.error, None
        if error is None:
            try:
                sent = answer.get()
            except Exception as problem:  # noqa: BLE001  # an answer is read only here
                error = _known(problem)
        for _, _, ticket in told:
            if error is not None:
                ticket.fail(error)
            else:
                ticket.resolve(sent)  # type: ignore[arg-type]  # it is there without an error
        self._next()

    def _taken(self) -> list[Waiting]:
        """As many as may go in one request: they follow each other, and are not too large."""
        found: list[Waiting] = []
        nbytes = rows = 0
        while self._waiting:
            batch, producer, _ = self._waiting[0]
            nbytes += batch.nbytes
            if found:
                first = found[0][1]
                following = ProducerStamp(first.name, first.epoch, first.sequence + rows)
                if producer != following or nbytes > limits.LANE_BYTES_MAX:
                    break
            rows += batch.num_rows
            found.append(self._waiting.popleft())
        return found


def _known(error: BaseException) -> QuiverError:
    """What a producer is told of an error; an interrupt may come before the request or after it."""
    if isinstance(error, QuiverError):
        return error
    known = OutcomeUnknown(
        f"sending was interrupted ({type(error).__name__}): it may have been done or not"
    )
    known.__cause__ = error
    return known


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    relative = any(batch.schema.metadata for batch in batches)
    made = concat([batch.replace_schema_metadata(None) for batch in batches])
    return made.replace_schema_metadata(RELATIVE) if relative else made

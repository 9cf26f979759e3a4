"""A producer's batches on their way to a node: one request at a time, in order.

While a request is under way others gather, and go together in the next: the slower the network, the
larger the requests. So a producer keeps its order, and its pace does not depend on the distance.
"""

from collections import deque
from collections.abc import Callable, Hashable
from threading import Lock
from typing import TypeAlias

import pyarrow as pa

from quiver import limits
from quiver.batches.schema import concat
from quiver.client.remote import wire
from quiver.model.commands import Producer
from quiver.model.replies import SentMany
from quiver.node.tickets import Ticket

Waiting: TypeAlias = tuple[pa.RecordBatch, Producer, Ticket[SentMany]]


Send: TypeAlias = Callable[[pa.RecordBatch, Producer], Ticket[SentMany]]


class Lanes:
    """The lanes of producers that are sending."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._lanes: dict[Hashable, Lane] = {}

    def add(
        self, key: Hashable, send: Send, batch: pa.RecordBatch, producer: Producer
    ) -> Ticket[SentMany]:
        """Send a batch in the lane of this key."""
        with self._lock:
            lane = self._lanes.get(key)
            if lane is None:
                self._lanes = {key: lane for key, lane in self._lanes.items() if not lane.idle}
                lane = self._lanes[key] = Lane(send)
            return lane.add(batch, producer)


class Lane:
    """The batches of one producer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = Lock()
        self._waiting: deque[Waiting] = deque()
        self._busy = False

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._busy

    def add(self, batch: pa.RecordBatch, producer: Producer) -> Ticket[SentMany]:
        """Send a batch after those before it; the ticket gets the answer to it and its company."""
        ticket: Ticket[SentMany] = Ticket()
        with self._lock:
            self._waiting.append((batch, producer, ticket))
            if self._busy:
                return ticket
            self._busy = True
        self._next()
        return ticket

    def _next(self) -> None:
        with self._lock:
            together = self._taken()
            self._busy = bool(together)
        if not together:
            return
        try:
            batch = _joined([batch for batch, _, _ in together])
            answer = self._send(batch, together[0][1])
        except Exception as error:  # noqa: BLE001  # whoever waits is told
            answer = Ticket()
            answer.fail(error)
        told = False

        def tell() -> None:
            nonlocal told
            with self._lock:
                if told:  # a ticket may call twice, from two threads
                    return
                told = True
            for _, _, ticket in together:
                if answer.error is not None:
                    ticket.fail(answer.error)
                else:
                    ticket.resolve(answer.get())
            self._next()

        answer.when_done(tell)

    def _taken(self) -> list[Waiting]:
        """As many as may go in one request: they follow each other, and are not too large."""
        found: list[Waiting] = []
        nbytes = rows = 0
        while self._waiting:
            batch, producer, _ = self._waiting[0]
            nbytes += batch.nbytes
            if found:
                first = found[0][1]
                following = Producer(first.name, first.epoch, first.sequence + rows)
                if producer != following or nbytes > limits.LANE_BYTES_MAX:
                    break
            rows += batch.num_rows
            found.append(self._waiting.popleft())
        return found


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    relative = any(batch.schema.metadata for batch in batches)
    made = concat([batch.replace_schema_metadata(None) for batch in batches])
    return made.replace_schema_metadata(wire.RELATIVE) if relative else made

"""Acks and sends that happen together or not at all."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from quiver.batches.rows import make_row
from quiver.client import arguments
from quiver.client.flows import Flow, Flows
from quiver.client.results import Leased, SentBatch
from quiver.errors import InvalidRequest
from quiver.model.message import Message

Settleable = Leased | str | Iterable[Leased | str]


class Collected:
    """What a transaction will do; collecting it needs no waiting, so both faces share it."""

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        self._settles: list[Any] = []
        self._sends: list[tuple[str, Any]] = []
        self._done = False
        self.sent: list[SentBatch] = []  # filled when the transaction is done

    def ack(self, deliveries: Settleable) -> None:
        """Settle these if the transaction is done."""
        self._settles += self._flows.settles("ack", deliveries)

    def nack(
        self, deliveries: Settleable, *, delay: float | str | None = None, reason: str = ""
    ) -> None:
        """Give these back if the transaction is done."""
        self._settles += self._flows.settles("nack", deliveries, delay=delay, reason=reason)

    def dead_letter(self, deliveries: Settleable, *, reason: str = "") -> None:
        """Give these up if the transaction is done."""
        self._settles += self._flows.settles("dead_letter", deliveries, reason=reason)

    def send(
        self,
        topic: str,
        body: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay: float | str | None = None,
        ttl: float | str | None = None,
        dedup_id: str | None = None,
    ) -> None:
        """Send this if the transaction is done."""
        row = make_row(
            body, key=key, headers=headers, priority=priority, delay=delay, ttl=ttl,
            dedup_id=dedup_id,
        )  # fmt: skip
        self._sends.append((arguments.name(topic, "topic"), [row]))

    def send_batch(
        self, topic: str, messages: Iterable[Message | Any] | pa.RecordBatch | pa.Table
    ) -> None:
        """Send these if the transaction is done."""
        self._sends.append((arguments.name(topic, "topic"), self._flows.batch_of(messages)))

    def commit(self) -> Flow[None]:
        """Do it, in one entry of the log, once."""
        if self._done:
            raise InvalidRequest("the transaction is over; begin another")
        self._done = True
        self.sent = yield from self._flows.transact(self._settles, self._sends)

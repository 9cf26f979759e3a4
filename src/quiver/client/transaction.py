"""Acks and sends that happen together or not at all."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from quiver.batches.rows import make_row
from quiver.client import arguments
from quiver.client.flows import Flows, Unpacked, demand_not_acked, listed
from quiver.client.results import Collects, Leased, SentBatch
from quiver.client.steps import Flow
from quiver.errors import InvalidRequest
from quiver.model.commands import Action
from quiver.model.message import Message
from quiver.model.settlement import Settlement
from quiver.model.units import Duration

Settleable = Leased | str | Iterable[Leased | str]


class Collected:
    """What a transaction will do; collecting it needs no waiting, so both faces share it."""

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        self._settles: list[Settlement] = []
        self._sends: list[tuple[str, Unpacked]] = []
        self._done = False
        self._before: dict[Collects, None] = {}  # whose acks come first
        self.sent: list[SentBatch] = []  # filled when the transaction is done

    def __repr__(self) -> str:
        parts = f"{len(self._settles)} to settle, {len(self._sends)} to send"
        return f"<{type(self).__name__} in {self._flows.place}, {'done' if self._done else parts}>"

    def ack(self, deliveries: Settleable) -> None:
        """Settle these if the transaction is done.

        Args:
            deliveries: One or many deliveries or receipts (str).
        """
        self._settles += self._settled("ack", deliveries)

    def nack(
        self, deliveries: Settleable, *, delay: Duration | None = None, reason: str = ""
    ) -> None:
        """Give these back if the transaction is done.

        Args:
            deliveries: One or many deliveries or receipts (str).
            delay: How long until then; None for what the topic's retry policy says.
            reason: Kept with a dead letter and in the ledger; cut at 1,000 characters.
        """
        self._settles += self._settled("nack", deliveries, delay=delay, reason=reason)

    def dead_letter(self, deliveries: Settleable, *, reason: str = "") -> None:
        """Give these up if the transaction is done.

        Args:
            deliveries: One or many deliveries or receipts (str).
            reason: Kept with a dead letter and in the ledger; cut at 1,000 characters.
        """
        self._settles += self._settled("dead_letter", deliveries, reason=reason)

    def _settled(self, action: Action, deliveries: Settleable, **options: Any) -> list[Settlement]:
        """What settles these; not what was acked in the background already."""
        items = listed(deliveries)
        for one in items:
            if isinstance(one, Leased) and one.lease.acks is not None:
                demand_not_acked(one)
                self._before[one.lease.acks] = None
        return self._flows.settles(action, items, **options)

    def send(
        self,
        topic: str,
        body: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        ttl: Duration | None = None,
        dedup_id: str | None = None,
    ) -> None:
        """Send this if the transaction is done.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            body: bytes, or str as UTF-8; anything else is sent as JSON. At most 16 MiB.
            key: What order, fairness and partitions go by; 1 to 1,024 bytes, or None.
            headers: Names and values, both str; at most 64, with 2 MiB in all.
            priority: 0 (the default) to 9, which goes first.
            delay: Not delivered before this has passed; at most a century. None for at once.
            ttl: Not delivered after this has passed; more than 0. None for no end.
            dedup_id: Stored once within the topic's `dedup_window`; 1 to 256 bytes, or None.
        """
        row = make_row(
            body, key=key, headers=headers, priority=priority, delay=delay, ttl=ttl,
            dedup_id=dedup_id,
        )  # fmt: skip
        self._sends.append((arguments.name(topic, "topic"), [row]))

    def send_batch(
        self, topic: str, messages: Iterable[Message | Any] | pa.RecordBatch | pa.Table
    ) -> None:
        """Send these if the transaction is done.

        Args:
            topic: Its name. TopicNotFound if it is not there.
            messages: Message objects, bare bodies, or Arrow data with a `body` column; at least
                one, at most 1,000,000 of 64 MiB in all.
        """
        self._sends.append((arguments.name(topic, "topic"), self._flows.checked(messages)))

    def commit(self) -> Flow[None]:
        """Do it, in one entry of the log, once."""
        if self._done:
            raise InvalidRequest("the transaction is over; begin another")
        self._done = True
        for consuming in self._before:
            yield from consuming.flush()
        self.sent = yield from self._flows.transact(self._settles, self._sends)

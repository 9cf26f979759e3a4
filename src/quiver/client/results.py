"""What the API hands out: stored messages, deliveries, leased tables and confirmations."""

from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from quiver.batches.output import LazyColumns
from quiver.client.steps import Flow
from quiver.client.twins import explained_by
from quiver.errors import InvalidRequest
from quiver.model.ranges import merge, subtract
from quiver.model.replies import Durability, Origin, Placed, Slice
from quiver.model.units import Duration
from quiver.node.receipts import Receipt, parse, text

Ranges = dict[int, list[tuple[int, int]]]  # of offsets, by partition
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Sent:
    """A message is stored: where, how safely, and whether its dedup id had been sent before."""

    id: str
    partition: int
    offset: int
    duplicate: bool
    durability: Durability


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch is stored. `count` messages are new; `duplicates` had been sent before."""

    count: int
    duplicates: int
    durability: Durability
    placed: tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class SentBatches:
    """Batches are stored. `count` messages are new, `duplicates` had been sent before, and `skipped`
    were stored by an earlier call under the same name."""

    count: int
    duplicates: int
    skipped: int
    durability: Durability


class Collects(Protocol):
    """What collects acks, to send them later."""

    def flush(self) -> Flow[None]:
        """Send what was collected, and wait until it is answered."""


class GrantedLease:
    """What the deliveries of one receive share."""

    __slots__ = ("acks", "deadline_ms", "epoch", "group", "group_number", "settled", "tag", "topic",
                 "topic_number")  # fmt: skip

    def __init__(
        self, topic: str, topic_number: int, group: str, group_number: int, epoch: int,
        deadline_ms: int, settled: bool, tag: bytes,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.topic_number = topic_number
        self.group = group
        self.group_number = group_number
        self.epoch = epoch
        self.deadline_ms = deadline_ms
        self.settled = settled
        self.tag = tag
        self.acks: Collects | None = None  # by whom acks of its messages are collected, if they are

    def until(self, deadline_ms: int) -> "GrantedLease":
        """The same lease with another deadline."""
        made = copy(self)
        made.deadline_ms = deadline_ms
        return made


class MessagePage:
    """What messages share that follow each other: their slice, and columns of the batch they are in.

    A message is a row of the columns; `first` is that of the slice's first message. Where a column says
    for each message what the slice says for all, the column is right.
    The garbage collector does not look at the messages (`gc=False`): there are many, and looking takes
    longer than making them. So a page must not refer to them, and what their `settle` belongs to lets go
    of them when it is closed.
    """

    __slots__ = ("columns", "first", "part", "settle", "topic")

    def __init__(
        self, topic: str, part: Slice, first: int, columns: LazyColumns, settle: Any
    ) -> None:  # fmt: skip
        self.topic = topic
        self.part = part
        self.first = first
        self.columns = columns
        self.settle = settle  # by what deliveries are settled; records are not

    def only(self, row: int) -> "MessagePage":
        """The page of this row alone, for a message that leaves the process."""
        part = self.part.cut(row - self.first, 1)
        return MessagePage(self.topic, part, 0, self.columns.only(row), self.settle)


class Record(msgspec.Struct, gc=False, eq=False):
    """A stored message."""

    _page: MessagePage
    _row: int
    body: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        rest = (getattr(self, name) for name in self.__struct_fields__[2:])
        return type(self), (self._page.only(self._row), 0, *rest)

    @property
    def topic(self) -> str:
        """The topic it was read from."""
        return self._page.topic

    @property
    def partition(self) -> int:
        """The partition that it is in."""
        return self._page.part.partition

    @property
    def offset(self) -> int:
        """Where it is in its partition."""
        page = self._page
        return page.part.offset + self._row - page.first

    @property
    def key(self) -> str | None:
        """Its key, if it has one."""
        keys = self._page.columns["key"]
        return None if keys is None else keys[self._row]

    @property
    def headers(self) -> Mapping[str, str]:
        """Names and values; empty if it has none."""
        headers = self._page.columns["headers"]
        return NO_HEADERS if headers is None else headers[self._row] or NO_HEADERS

    @property
    def priority(self) -> int:
        """0 to 9; 9 goes first."""
        priorities = self._page.columns["priority"]
        return 0 if priorities is None else priorities[self._row]

    @property
    def origin(self) -> Origin | None:
        """Of a dead letter: where it came from, and why it died."""
        page = self._page
        origins = page.columns["origin"]
        if origins is not None:
            known: Origin | None = origins[self._row]
            return known
        origin = page.part.origin
        return None if origin is None else origin.shift(self._row - page.first)

    @property
    def id(self) -> str:
        """The message's identity: where its bytes are in the log. It stays when the message moves."""
        entry, row = self.place
        return f"{entry}-{row}"

    @property
    def place(self) -> tuple[int, int]:
        """Entry and row of the log: what `id` says in text."""
        page = self._page
        entries, rows = page.columns["entry"], page.columns["row"]
        if entries is None or rows is None:
            return page.part.index, page.part.row + self._row - page.first
        return entries[self._row], rows[self._row]

    @property
    def created_ms(self) -> int:
        """`created_at` in milliseconds since 1970."""
        times = self._page.columns["created_at"]
        made = None if times is None else times[self._row]
        return made or self._page.part.created_ms

    @property
    def created_at(self) -> datetime:
        """When the message was made (or else stored), in UTC."""
        return datetime.fromtimestamp(self.created_ms / 1000, UTC)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as what its JSON says."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"the body of message {self.id} is not JSON: {error}") from error

    def __repr__(self) -> str:
        body = self.body if len(self.body) <= 40 else self.body[:37] + b"..."
        key = f", key={self.key!r}" if self.key is not None else ""
        return (
            f"<{type(self).__name__} {self.topic}/{self.partition}/{self.offset} {body!r}{key}"
            f"{self._more()}>"
        )

    def _more(self) -> str:
        """What a `repr` says besides."""
        return ""


class Leased(Record, gc=False, eq=False):
    """A message under a lease; `Delivery` and `AsyncDelivery` can settle it.

    While it is `reserved` it has not begun, and another consumer may take it over.
    """

    lease: GrantedLease
    reserved: bool
    acked: bool = False  # its ack was collected

    def _more(self) -> str:
        return f", group={self.group!r}, attempt={self.attempt}"

    @property
    def attempt(self) -> int:
        """Which delivery to the group it is: 1 for the first."""
        attempts = self._page.columns["attempt"]
        return self._page.part.attempt if attempts is None else attempts[self._row]

    @property
    def group(self) -> str:
        """The group it was delivered to."""
        return self.lease.group

    @property
    def epoch(self) -> int:
        """The lease's epoch, which only grows: a fencing token for whatever the message changes."""
        return self.lease.epoch

    @property
    def receipt(self) -> str:
        """The receipt as text, for settling from elsewhere."""
        return text(receipt_of(self), self.lease.tag)


Item: TypeAlias = Leased | str  # what is settled: a delivery, or a receipt's text


def receipt_of(item: Item) -> Receipt:
    """What a delivery or a receipt's text stands for, whoever gave it out."""
    if isinstance(item, str):
        return parse(item)[0]
    lease = item.lease
    return Receipt(lease.topic_number, lease.group_number, item.partition, item.offset, lease.epoch)


class Delivery(Leased, gc=False, eq=False):
    """A message in your hands until its lease ends: ack it, or it will be delivered again."""

    def ack(self) -> None:
        """Done with it."""
        self._page.settle("ack", [self])

    def nack(self, *, delay: Duration | None = None, reason: str = "") -> None:
        """Failed: deliver it again after `delay`, or after what the topic's retry policy says.

        Args:
            delay: How long until then; None for what the topic's retry policy says.
            reason: Kept with a dead letter and in the ledger; cut at 1,000 characters.
        """
        self._page.settle("nack", [self], delay=delay, reason=reason)

    def extend(self, lease: Duration) -> None:
        """Hold it for `lease` from now.

        Args:
            lease: How long from now on; more than 0, at most 7 days.
        """
        self._page.settle("extend", [self], lease=lease)

    def dead_letter(self, *, reason: str = "") -> None:
        """Give it up: move it to the dead-letter topic.

        Args:
            reason: Kept with a dead letter and in the ledger; cut at 1,000 characters.
        """
        self._page.settle("dead_letter", [self], reason=reason)

    def begin(self, *, lease: Duration | None = None) -> None:
        """Work on it now, if it was reserved: an attempt. Hold it for `lease` from now, if given.

        Args:
            lease: How long from now on; None for as long as it is held anyway.
        """
        self._page.settle("begin", [self], lease=lease)

    def release(self, *, delay: Duration | None = None) -> None:
        """Give it back, for after `delay`: the attempt does not count.

        Args:
            delay: How long until it may be delivered again; None for at once.
        """
        self._page.settle("release", [self], delay=delay)


@explained_by(Delivery)
class AsyncDelivery(Leased, gc=False, eq=False):
    """`Delivery`, awaited."""

    async def ack(self) -> None:
        """Done with it."""
        await self._page.settle("ack", [self])

    async def nack(self, *, delay: Duration | None = None, reason: str = "") -> None:
        """Failed: deliver it again after `delay`, or after what the topic's retry policy says."""
        await self._page.settle("nack", [self], delay=delay, reason=reason)

    async def extend(self, lease: Duration) -> None:
        """Hold it for `lease` from now."""
        await self._page.settle("extend", [self], lease=lease)

    async def dead_letter(self, *, reason: str = "") -> None:
        """Give it up: move it to the dead-letter topic."""
        await self._page.settle("dead_letter", [self], reason=reason)

    async def begin(self, *, lease: Duration | None = None) -> None:
        """Work on it now, if it was reserved: an attempt. Hold it for `lease` from now, if given."""
        await self._page.settle("begin", [self], lease=lease)

    async def release(self, *, delay: Duration | None = None) -> None:
        """Give it back, for after `delay`: the attempt does not count."""
        await self._page.settle("release", [self], delay=delay)


class LeasedTable:
    """Messages under one lease as an Arrow table, settled by row mask."""

    def __init__(
        self,
        settle: Callable[..., Any],
        lease: GrantedLease,
        table: pa.Table,
        ranges: Ranges,
        reserved: int = 0,
    ) -> None:
        self._settle = settle
        self.lease = lease
        self.table = table
        self.ranges = ranges  # all offsets, by partition
        self.reserved = reserved  # so many of the last rows had not begun when it was received
        # At most once: which of them are still to begin. All others are settled.
        self.unbegun = ranges_of(table.slice(len(table) - reserved)) if lease.settled else {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        place = f"{self.lease.topic}/{self.lease.group}"
        return f"<{type(self).__name__} {place}, {len(self):,} messages>"


def to_begin(leased: LeasedTable, ranges: Ranges) -> Ranges:
    """Of these rows of an at-most-once group, those that have not begun; the others are settled."""
    return {
        partition: subtract(merge(found), subtract(merge(found), leased.unbegun[partition]))
        for partition, found in ranges.items()
        if partition in leased.unbegun
    }


def note_settled(leased: LeasedTable, ranges: Ranges, refused: list[tuple[int, int]]) -> None:
    """These rows are settled, but for those that were refused."""
    for partition, found in ranges.items():
        kept = merge([(offset, offset + 1) for at, offset in refused if at == partition])
        before = leased.unbegun.get(partition, [])
        leased.unbegun[partition] = subtract(before, subtract(found, kept))


def ranges_of(rows: pa.Table) -> Ranges:
    """The offsets of these rows, as ranges by partition."""
    found: Ranges = {}
    for partition in pc.unique(rows["partition"]).to_pylist():
        of_partition = rows.filter(pc.equal(rows["partition"], partition))
        found[partition] = merge([(at, at + 1) for at in of_partition["offset"].to_pylist()])
    return found


class DeliveryBatch(LeasedTable):
    """What `receive_arrow` gives. A mask is a list or Arrow array of booleans, one a row."""

    def ack(self, mask: Any = None) -> None:
        """Done with the chosen rows, or all.

        Args:
            mask: A list or Arrow array of booleans, one for each row; None for all rows.
        """
        self._settle("ack", self, mask)

    def nack(self, mask: Any = None, *, delay: Duration | None = None, reason: str = "") -> None:
        """Failed: deliver the chosen rows again.

        Args:
            mask: A list or Arrow array of booleans, one for each row; None for all rows.
            delay: How long until then; None for what the topic's retry policy says.
            reason: Kept with a dead letter and in the ledger; cut at 1,000 characters.
        """
        self._settle("nack", self, mask, delay=delay, reason=reason)

    def extend(self, lease: Duration, mask: Any = None) -> None:
        """Hold the chosen rows for `lease` from now.

        Args:
            lease: How long from now on; more than 0, at most 7 days.
            mask: A list or Arrow array of booleans, one for each row; None for all rows.
        """
        self._settle("extend", self, mask, lease=lease)

    def dead_letter(self, mask: Any = None, *, reason: str = "") -> None:
        """Give the chosen rows up.

        Args:
            mask: A list or Arrow array of booleans, one for each row; None for all rows.
            reason: Kept with a dead letter and in the ledger; cut at 1,000 characters.
        """
        self._settle("dead_letter", self, mask, reason=reason)

    def begin(self, mask: Any = None, *, lease: Duration | None = None) -> None:
        """Work on the chosen rows now, if they were reserved: an attempt.

        Args:
            mask: A list or Arrow array of booleans, one for each row; None for all rows.
            lease: How long from now on; None for as long as it is held anyway.
        """
        self._settle("begin", self, mask, lease=lease)

    def release(self, mask: Any = None, *, delay: Duration | None = None) -> None:
        """Give the chosen rows back, for after `delay`: the attempt does not count.

        Args:
            mask: A list or Arrow array of booleans, one for each row; None for all rows.
            delay: How long until it may be delivered again; None for at once.
        """
        self._settle("release", self, mask, delay=delay)


@explained_by(DeliveryBatch)
class AsyncDeliveryBatch(LeasedTable):
    """`DeliveryBatch`, awaited."""

    _settle: Callable[..., Awaitable[None]]

    async def ack(self, mask: Any = None) -> None:
        """Done with the chosen rows, or all."""
        await self._settle("ack", self, mask)

    async def nack(
        self, mask: Any = None, *, delay: Duration | None = None, reason: str = ""
    ) -> None:
        """Failed: deliver the chosen rows again."""
        await self._settle("nack", self, mask, delay=delay, reason=reason)

    async def extend(self, lease: Duration, mask: Any = None) -> None:
        """Hold the chosen rows for `lease` from now."""
        await self._settle("extend", self, mask, lease=lease)

    async def dead_letter(self, mask: Any = None, *, reason: str = "") -> None:
        """Give the chosen rows up."""
        await self._settle("dead_letter", self, mask, reason=reason)

    async def begin(self, mask: Any = None, *, lease: Duration | None = None) -> None:
        """Work on the chosen rows now, if they were reserved: an attempt."""
        await self._settle("begin", self, mask, lease=lease)

    async def release(self, mask: Any = None, *, delay: Duration | None = None) -> None:
        """Give the chosen rows back, for after `delay`: the attempt does not count."""
        await self._settle("release", self, mask, delay=delay)

"""From messages to a `Send`: in which partitions they go, what the core must know of them, their bytes.

All that sends builds its command here, in the thread of whoever has the messages.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeAlias

import pyarrow as pa

from quiver import limits
from quiver.batches.attributes import attributes_of
from quiver.batches.codec import BytesLike, encode_one, encode_whole
from quiver.batches.keys import Partitioner
from quiver.batches.rows import Row, pack
from quiver.batches.schema import concat
from quiver.model.commands import ProducerStamp, Run, Send
from quiver.model.topic import Compression, TopicPolicy

Made: TypeAlias = pa.RecordBatch | Callable[[], pa.RecordBatch]  # a batch, or what makes it


class TopicHandle:
    """What a sender must know of a topic."""

    __slots__ = ("_turns", "name", "number", "partitioner", "policy")

    def __init__(self, name: str, number: int, policy: TopicPolicy) -> None:
        self.name = name
        self.number = number
        self.policy = policy
        self.partitioner = Partitioner(policy)
        self._turns = count()

    def turn(self) -> int:
        """A number that goes up by one for each message or batch without a key."""
        return next(self._turns)


def place(
    topic: TopicHandle, batch: pa.RecordBatch, producer: ProducerStamp | None = None,
    *, staged: bool = False,
) -> tuple[Send, BytesLike]:  # fmt: skip
    """One request of a canonical batch, and its bytes."""
    send, batch = _split(topic, batch, 0, producer, staged)
    return send, encode_whole(batch, topic.policy.compression)


def place_all(
    sends: Sequence[tuple[TopicHandle, pa.RecordBatch]],
) -> tuple[tuple[Send, ...], BytesLike]:
    """A request for each of some batches, which one entry carries together, and its bytes."""
    made: list[tuple[Send, pa.RecordBatch]] = []
    compression: Compression | None = None
    row = 0
    for topic, batch in sends:
        made.append(_split(topic, batch, row))
        row += batch.num_rows
        compression = compression or topic.policy.compression
    batches = [batch for _, batch in made]
    encoded = encode_whole(concat(batches), compression) if batches else b""
    return tuple(send for send, _ in made), encoded


def _split(
    topic: TopicHandle, batch: pa.RecordBatch, first_row: int,
    producer: ProducerStamp | None = None, staged: bool = False,
) -> tuple[Send, pa.RecordBatch]:  # fmt: skip
    """One request, whose rows begin at `first_row`, and the batch in the order of its runs."""
    batch, runs = topic.partitioner.split(batch, topic.turn())
    attributes = attributes_of(batch, keyed=topic.policy.keyed)
    fields = (topic.number, runs, (len(runs),), attributes, first_row, producer, staged)
    return Send(*fields), batch


def place_rows(
    topic: TopicHandle, rows: list[Row], partitions: list[int], now_ms: int
) -> tuple[Send, Made, BytesLike]:
    """One Send of many single messages, ordered by partition; their batch, and its bytes.

    If a message may be refused by itself it is a request of its own. Otherwise all are one request
    with a run for each partition: for a thousand messages the core has no more to do than for one,
    and the log no more to keep.
    """
    if len(rows) == 1 and _is_simple(rows[0], topic.policy):
        send = Send(topic.number, (Run(partitions[0], 1, rows[0].nbytes),), (1,))
        return send, lambda: pack(rows, now_ms), encode_one(rows[0].body)
    batch = pack(rows, now_ms)
    runs: tuple[Run, ...]
    if topic.policy.max_backlog is not None or any(row.dedup_id is not None for row in rows):
        runs = tuple([Run(at, 1, row.nbytes) for at, row in zip(partitions, rows, strict=True)])
        counts: tuple[int, ...] = (1,) * len(runs)
    else:
        sizes: dict[int, list[int]] = {}
        for at, row in zip(partitions, rows, strict=True):
            sizes.setdefault(at, []).append(row.nbytes)
        runs = tuple([Run(number, len(found), sum(found)) for number, found in sizes.items()])
        counts = (len(runs),)
    attributes = attributes_of(batch, keyed=topic.policy.keyed)
    send = Send(topic.number, runs, counts, attributes)
    return send, batch, encode_whole(batch, topic.policy.compression)


def _is_simple(row: Row, policy: TopicPolicy) -> bool:
    return row.plain and row.nbytes <= limits.ENVELOPE_BYTES_MAX and policy.compression is None

"""The ledger's rows as Arrow tables: its schema, and how to choose from it."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from quiver.batches.schema import TEXT, TIME
from quiver.model.ledger import COLUMNS, Event, LedgerRows

SCHEMA: Final = pa.schema(
    [
        pa.field("time", TIME, nullable=False),  # of the entry
        pa.field("entry", pa.int64(), nullable=False),  # its index in the log
        pa.field("event", TEXT, nullable=False),
        pa.field("topic", TEXT, nullable=False),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),  # of the first message; the others follow it
        pa.field("count", pa.int64(), nullable=False),
        pa.field("group", TEXT),
        pa.field("consumer", TEXT),
        pa.field("attempt", pa.int32()),
        pa.field("reason", TEXT),
        pa.field("until", TIME),  # when the lease ends, or the message may be delivered
        pa.field("to_topic", TEXT),  # where the messages moved
        pa.field("to_partition", pa.int32()),
        pa.field("to_offset", pa.int64()),
        pa.field("row", pa.int32()),  # of the first message in the entry: its id is <entry>-<row>
    ]
)

_SENT: Final = int(Event.SENT)


@cache  # and not when this is imported: the first array takes pandas along, where there is one
def _events() -> pa.Array:
    return pa.array([event.name.lower() for event in Event], TEXT)


def table(rows: LedgerRows) -> pa.Table:
    """The rows as a table."""
    numbers = memoryview(rows.data).cast("q")
    column = {
        name: _numbers(numbers[place :: len(COLUMNS)].tobytes())
        for place, name in enumerate(COLUMNS)
    }
    names = pa.array([None, *rows.names[1:]], TEXT)
    moved = pc.greater(column["to_topic"], 0)
    sent = pc.equal(column["event"], _SENT)
    made = {
        "time": column["time"],
        "entry": column["entry"],
        "event": _events().take(column["event"]),
        "topic": names.take(column["topic"]),
        "partition": _known(column["partition"], -1),
        "offset": _where(pc.not_equal(column["partition"], -1), column["offset"]),
        "count": column["count"],
        "group": names.take(column["group"]),
        "consumer": names.take(column["consumer"]),
        "attempt": _known(column["attempt"], 0),
        "reason": names.take(column["reason"]),
        "until": _known(column["until"], 0),
        "to_topic": names.take(column["to_topic"]),
        "to_partition": _known(column["to_partition"], -1),
        "to_offset": _where(moved, column["also"]),
        "row": _where(sent, column["also"]),
    }
    arrays = [made[field.name].cast(field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def chosen(
    found: pa.Table, topic: str | None, start_ms: int | None, end_ms: int | None
) -> pa.Table:
    """The rows of a topic, or moves to it, in a span of time; `end_ms` is not included."""
    if start_ms is not None:
        found = found.filter(pc.greater_equal(found["time"], _time(start_ms)))
    if end_ms is not None:
        found = found.filter(pc.less(found["time"], _time(end_ms)))
    if topic is not None:
        to_it = pc.fill_null(pc.equal(found["to_topic"], topic), False)
        found = found.filter(pc.or_(pc.equal(found["topic"], topic), to_it))
    return found


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables one after the other."""
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def _numbers(data: bytes) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(data) // 8, [None, pa.py_buffer(data)])


def _known(values: pa.Array, nothing: int) -> pa.Array:
    return _where(pc.not_equal(values, nothing), values)


def _where(mask: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(mask, values, pa.scalar(None, values.type))


def _time(when_ms: int) -> Any:
    return pa.scalar(when_ms, TIME)

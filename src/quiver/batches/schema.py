"""The columns of a batch of messages, and how a batch says which of them it has.

A batch carries only the columns in which some message has a value; a mask of one bit a column says
which. So plain bodies cost nothing for all that they do not use, and a stored batch needs no schema
of its own. A missing value means the default: null, priority 0, created when its log entry was.

The order of FIELDS is the order on disk. A new column goes to the end; none is ever removed.
"""

from collections.abc import Mapping, Sequence
from functools import cache, reduce
from operator import or_
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from quiver.batches.bounds import check_bytes, check_rows

BODY: Final = pa.binary()
TEXT: Final = pa.string()
HEADERS: Final = pa.map_(TEXT, TEXT)
PRIORITY: Final = pa.int8()
TIME: Final = pa.timestamp("ms", tz="UTC")

FIELDS: Final = (
    pa.field("body", BODY, nullable=False),
    pa.field("key", TEXT),
    pa.field("headers", HEADERS),
    pa.field("priority", PRIORITY),
    pa.field("deliver_at", TIME),
    pa.field("expires_at", TIME),
    pa.field("dedup_id", TEXT),
    pa.field("created_at", TIME),
)
TYPES: Final = {str(field.name): field.type for field in FIELDS}
NAMES: Final = tuple(TYPES)
MASK_ALL: Final = (1 << len(FIELDS)) - 1
MASK_BODY: Final = 1

BARE: Final = pa.schema([FIELDS[0].with_nullable(True)])  # bodies only, as senders make them

_BITS: Final = {name: 1 << place for place, name in enumerate(NAMES)}


@cache
def schema_of(mask: int) -> pa.Schema:
    """The schema of a batch with the columns of `mask`, which always include the body."""
    assert mask & MASK_BODY
    assert mask <= MASK_ALL
    return pa.schema([field for field in FIELDS if mask & _BITS[field.name]])


def mask_of(batch: pa.RecordBatch) -> int:
    """Which columns the batch has."""
    return sum(_BITS[name] for name in batch.schema.names)


def column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """The column of that name, or None if no message of the batch has a value for it."""
    place = batch.schema.get_field_index(name)
    return batch.column(place) if place >= 0 else None


def assemble(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """The batch of these canonical columns, in canonical order."""
    schema = schema_of(sum(_BITS[name] for name in columns))
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of several, with every column that any has: requests that share a log entry."""
    check_rows(sum(batch.num_rows for batch in batches))
    check_bytes(sum(batch.nbytes for batch in batches))
    mask = reduce(or_, map(mask_of, batches))
    return pa.concat_batches([_widened(batch, mask) for batch in batches])


def shifted(batch: pa.RecordBatch, by_ms: int) -> pa.RecordBatch:
    """The batch with times of delivery and lives that are later by so much."""
    for name in ("deliver_at", "expires_at"):
        place = batch.schema.get_field_index(name)
        if place >= 0:
            moments = pc.add(batch.column(place).view(pa.int64()), by_ms).view(TIME)
            batch = batch.set_column(place, batch.schema.field(place), moments)
    return batch


def _widened(batch: pa.RecordBatch, mask: int) -> pa.RecordBatch:
    schema = schema_of(mask)
    if batch.schema.equals(schema):
        return batch
    columns = [column(batch, field.name) for field in schema]
    filled = [
        pa.nulls(batch.num_rows, field.type) if values is None else values
        for field, values in zip(schema, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(filled, schema=schema)

"""The rows of a segment: messages with everything that a stranger wants to know of them.

A segment is read by other programs, so it always has all columns, in this order, whatever its
messages carry. Beside the columns of a batch there are the message's place (`partition`, `offset`),
its identity (`entry` and `row`: where in the log it was stored first), when it was stored, and
where a dead letter came from.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from quiver.batches.output import ORIGIN, Piece, Spread, origins_of, stored
from quiver.batches.schema import FIELDS, TIME, assemble

SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("entry", pa.int64(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
        pa.field("stored_at", TIME, nullable=False),
        *FIELDS,
        pa.field("origin", ORIGIN),
    ]
)
IDENTITY: Final = ("entry", "row")


def seal(pieces: Sequence[Piece]) -> pa.Table:
    """The messages of some pieces as a segment has them."""
    parts = [piece.part for piece in pieces]
    spread = Spread([part.count for part in parts])
    made = stored(pieces, spread.rows)
    made["partition"] = spread.same([part.partition for part in parts], pa.int32())
    made["offset"] = spread.growing([part.offset for part in parts])
    made["entry"] = spread.same([part.index for part in parts], pa.int64())
    made["row"] = spread.growing([part.row for part in parts]).cast(pa.int32())
    made["stored_at"] = spread.same([part.time_ms for part in parts], TIME)
    made["priority"] = made["priority"].fill_null(0)
    created = spread.same([part.created_ms for part in parts], TIME)
    made["created_at"] = pc.coalesce(made["created_at"], created)
    made["origin"] = origins_of([part.origin for part in parts], spread)
    return pa.Table.from_arrays([made[name] for name in SCHEMA.names], schema=SCHEMA)


def unseal(table: pa.Table) -> pa.RecordBatch:
    """The batch that was sealed, without the columns in which no message has a value."""
    columns = {}
    for field in FIELDS:
        values = table[field.name].combine_chunks()
        given = pc.not_equal(values, 0) if field.name == "priority" else values.is_valid()
        if pc.any(given).as_py():
            columns[field.name] = values.chunk(0) if isinstance(values, pa.ChunkedArray) else values
    return assemble(columns)

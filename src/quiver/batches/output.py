"""Batches for readers: as Python lists, or as one Arrow table.

Both work column by column and only on columns that exist. A table's bodies are views of the stored
batches, one chunk a slice; what a batch lacks (and what only the log knows, such as offsets) is
made for all slices together, so that many small slices do not cost much more than one.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quiver.batches.schema import BODY, FIELDS, TEXT, TIME, column
from quiver.model.replies import Origin, Slice

ORIGIN: Final = pa.struct(
    [
        pa.field("topic", TEXT),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("group", TEXT),
        pa.field("attempts", pa.int32()),
        pa.field("reason", TEXT),
        pa.field("time", TIME),
    ]
)
OUTPUT_SCHEMA: Final = pa.schema(
    [
        *FIELDS,
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("attempt", pa.int32()),
        pa.field("origin", ORIGIN),
    ]
)
ID: Final = pa.field("id", TEXT)
WHERE: Final = (pa.field("entry", pa.int64()), pa.field("row", pa.int32()))  # what an id is made of
RUN_ROWS: Final = 400  # of an entry, on average, from which on its ids are made together
RUNS: Final = pa.run_end_encoded(pa.int32(), pa.int64())


class Piece(NamedTuple):
    """The messages of a slice: rows `at …` of a batch, which may hold many more."""

    batch: pa.RecordBatch
    at: int
    part: Slice


class LazyColumns(dict[str, list[Any] | None]):
    """What messages have besides their bodies, a list each, made when it is first asked for.

    None for a column in which none of them has a value; times are milliseconds.
    """

    __slots__ = ("_arrays",)

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = arrays

    def __missing__(self, name: str) -> list[Any] | None:
        values = self._arrays.get(name)
        if values is None or values.null_count == len(values):
            return self.setdefault(name, None)
        return self.setdefault(name, as_list(name, values))

    def only(self, row: int) -> "LazyColumns":
        """Those of this row, on their own."""
        made = LazyColumns({})
        for name in (*self._arrays, *self):
            values = self[name]
            made[name] = None if values is None else [values[row]]
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyColumns, ({},), None, None, iter(self.items())


NONE: Final = LazyColumns(
    {}
)  # of messages that have only bodies; no key, priority and so on is kept


def columns(batch: pa.RecordBatch) -> LazyColumns:
    """What its messages have besides their bodies."""
    if batch.num_columns == 1:
        return NONE
    found = dict(zip(batch.schema.names, batch.columns, strict=True))
    del found["body"]
    return LazyColumns(found)


def as_list(name: str, values: Any) -> Any:
    """A column as Python has it."""
    match name:
        case "headers":
            return [None if pairs is None else dict(pairs) for pairs in values.to_pylist()]
        case "priority":
            return values.fill_null(0).to_pylist()
        case "created_at":  # as numbers: Arrow makes datetimes two hundred times more slowly
            return values.cast(pa.int64()).to_pylist()
        case "origin":
            times = pc.struct_field(values, "time").cast(pa.int64()).to_pylist()
            return list(map(_origin, values.to_pylist(), times))
        case _:
            return values.to_pylist()


def _origin(given: dict[str, Any] | None, time_ms: int) -> Origin | None:
    if given is None:
        return None
    return Origin(
        given["topic"], given["partition"], given["offset"], given["group"], given["attempts"],
        given["reason"], time_ms,
    )  # fmt: skip


def table(pieces: Sequence[Piece], *, with_ids: bool = False, with_where: bool = False) -> pa.Table:
    """The slices' messages in OUTPUT_SCHEMA; `id` only if asked: it costs as much as the rest."""
    more = [*([ID] if with_ids else []), *(WHERE if with_where else ())]
    schema = pa.schema([*OUTPUT_SCHEMA, *more])
    if not pieces:
        return schema.empty_table()
    parts = [piece.part for piece in pieces]
    spread = Spread([part.count for part in parts])
    made = stored(pieces, spread.rows)
    made["priority"] = made["priority"].fill_null(0)
    made["created_at"] = pc.coalesce(
        made["created_at"], spread.same([part.created_ms for part in parts], TIME)
    )
    made["partition"] = spread.same([part.partition for part in parts], pa.int32())
    made["offset"] = spread.growing([part.offset for part in parts])
    made["attempt"] = spread.same([part.attempt for part in parts], pa.int32())
    made["origin"] = origins_of([part.origin for part in parts], spread)
    if more:
        made["entry"] = spread.same([part.index for part in parts], pa.int64())
        made["row"] = spread.growing([part.row for part in parts]).cast(pa.int32())
    if with_ids:
        made["id"] = ids_of(made["entry"], made["row"])
    return pa.Table.from_arrays([made[name] for name in schema.names], schema=schema)


class Spread:
    """Values that slices have, written out for each of their rows."""

    def __init__(self, counts: Sequence[int]) -> None:
        assert min(counts) > 0
        self._starts = [0, *accumulate(counts)]
        self.rows = self._starts.pop()
        # Made from its buffers, runs cost a twentieth of what `from_arrays` takes.
        ends = pa.array([*self._starts[1:], self.rows], RUNS.run_end_type)
        numbers = pa.arange(0, len(counts))
        runs = pa.Array.from_buffers(RUNS, self.rows, [None], children=[ends, numbers])
        self._slice_of_row = pc.run_end_decode(runs)

    def same(self, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        """Each slice's value for all its rows."""
        return pa.array(values, kind).take(self._slice_of_row)

    def growing(self, firsts: Sequence[int | None]) -> pa.Array:
        """Numbers that grow by one from each slice's first."""
        before = [
            None if first is None else first - start
            for first, start in zip(firsts, self._starts, strict=True)
        ]
        return pc.add(pa.arange(0, self.rows), self.same(before, pa.int64()))


def stored(pieces: Sequence[Piece], rows: int) -> dict[str, Any]:
    """The columns of the stored batches, cut to the slices, null where a batch lacks one."""
    present = {name for piece in pieces for name in piece.batch.schema.names}
    made = {}
    for field in FIELDS:
        if field.name not in present:
            made[field.name] = pa.nulls(rows, field.type)
            continue
        chunks = [_cut(piece, field.name, field.type) for piece in pieces]
        made[field.name] = pa.chunked_array(chunks, field.type)
    return made


def _cut(piece: Piece, name: str, kind: pa.DataType) -> pa.Array:
    values, count = column(piece.batch, name), piece.part.count
    if values is None:
        return pa.nulls(count, kind)
    assert piece.at + count <= len(values)
    return values.slice(piece.at, count)


def origins_of(origins: Sequence[Origin | None], spread: Spread) -> pa.Array:
    if not any(origins):
        return pa.nulls(spread.rows, ORIGIN)

    def of_each(name: str) -> list[Any]:
        return [None if origin is None else getattr(origin, name) for origin in origins]

    children = [
        spread.same(of_each("topic"), TEXT),
        spread.same(of_each("partition"), pa.int32()),
        spread.growing(of_each("offset")),
        spread.same(of_each("group"), TEXT),
        spread.same(of_each("attempts"), pa.int32()),
        spread.same(of_each("reason"), TEXT),
        spread.same(of_each("time_ms"), TIME),
    ]
    missing = spread.same([origin is None for origin in origins], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(ORIGIN), mask=missing)


def ids_of(entries: pa.Array, rows: pa.Array) -> pa.Array:
    """The id of each message: its entry, and its row there.

    Something put before all rows of an entry costs a fraction of texts joined row by row, unless the
    entries are small.
    """
    texts = rows.cast(TEXT)
    runs = pc.run_end_encode(entries)
    if len(runs.values) * RUN_ROWS >= len(rows):
        return pc.binary_join_element_wise(entries.cast(TEXT), texts, pa.scalar("-", TEXT))
    ends = runs.run_ends.to_pylist()
    made = [
        pc.binary_replace_slice(texts.slice(start, end - start).view(BODY), 0, 0, b"%d-" % entry)
        for start, end, entry in zip([0, *ends], ends, runs.values.to_pylist(), strict=False)
    ]
    return pa.concat_arrays(made).view(TEXT)

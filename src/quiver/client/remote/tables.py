"""Messages as a node sends them, an Arrow stream, to what the API hands out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from quiver.batches.output import ID, OUTPUT_SCHEMA, WHERE, ids_of
from quiver.client.flows import Place
from quiver.client.remote import wire
from quiver.client.remote.link import Reply
from quiver.client.results import Lease, Leased, Record
from quiver.model.replies import Origin

SCHEMA: Final = pa.schema([*OUTPUT_SCHEMA, *WHERE])

T = TypeVar("T")
L = TypeVar("L", bound=Leased)


def read(reply: Reply, kind: type[T]) -> tuple[pa.Table, T]:
    """The table of an answer, and what belongs to it as a whole."""
    table = open_(reply).read_all()
    about = msgspec.json.decode(table.schema.metadata[wire.ABOUT], type=kind)
    return _whole(table), about


def _whole(table: pa.Table) -> pa.Table:
    """With the columns that were left out because no message has a value there."""
    made = dict(zip(table.column_names, table.columns, strict=True))
    columns = [
        made[field.name] if field.name in made else pa.nulls(table.num_rows, field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def open_(reply: Reply) -> pa.RecordBatchReader:
    """An answer in Arrow, or the error that it is, raised."""
    if reply.status >= 400:
        raise reply.error()
    return pa.ipc.open_stream(pa.py_buffer(reply.body))


def plain(table: pa.Table) -> pa.Table:
    """The columns that `receive_arrow` gives."""
    return table.drop_columns([field.name for field in WHERE])


def deliveries(
    make: Callable[..., L], settle: Callable[..., Any], lease: Lease, table: pa.Table, reserved: int
) -> list[L]:
    """The messages of a receive as objects of the caller's kind; the last are `reserved`."""
    attempts = table["attempt"].to_pylist()
    begun = chain(repeat(False, table.num_rows - reserved), repeat(True, reserved))
    columns = _columns(lease.topic, table)
    return list(map(make, repeat(settle), repeat(lease), attempts, begun, *columns))


def ranges(table: pa.Table) -> dict[int, list[tuple[int, int]]]:
    """All offsets of a table, by partition."""
    found: dict[int, list[tuple[int, int]]] = {}
    whole = table.select(["partition", "offset"]).combine_chunks()
    for part in whole.to_batches():  # one, or none
        moved = (pc.pairwise_diff(values) for values in part.columns)
        breaks = pc.or_(*(pc.not_equal(by, same) for by, same in zip(moved, (0, 1), strict=True)))
        starts = [0, *pc.indices_nonzero(breaks).to_pylist()]
        firsts = part.take(pa.array(starts)).to_pydict()
        ends = [*starts[1:], part.num_rows]
        for partition, offset, start, end in zip(*firsts.values(), starts, ends, strict=True):
            found.setdefault(partition, []).append((offset, offset + end - start))
    return found


@dataclass(frozen=True)
class TablePage:
    """A page that a node has sent."""

    content: pa.Table
    ahead: dict[int, int]

    @cached_property
    def places(self) -> list[Place]:
        """Where its messages are, oldest first."""
        columns = self.content["partition"], self.content["offset"]
        return list(zip(*(column.to_pylist() for column in columns), strict=True))

    def records(self, topic: str, *, whole: bool = False) -> list[Record]:
        """Its messages; what the node could not read it has left out, or refused."""
        return list(map(Record, *_columns(topic, self.content)))

    def table(self) -> pa.Table:
        """Its messages as Arrow, with ids."""
        entries, rows = (self.content[field.name].combine_chunks() for field in WHERE)
        return plain(self.content).append_column(ID, ids_of(entries, rows))


def _columns(topic: str, table: pa.Table) -> list[Iterable[Any]]:
    """The arguments of `Record` for each message, a column each."""
    return [
        repeat(topic),
        table["body"].to_pylist(),
        _or(table["key"], None, pa.ChunkedArray.to_pylist),
        _or(table["headers"], None, _headers),
        table["priority"].to_pylist(),
        table["partition"].to_pylist(),
        table["offset"].to_pylist(),
        table["entry"].to_pylist(),
        table["row"].to_pylist(),
        table["created_at"].cast(pa.int64()).to_pylist(),
        _or(table["origin"], None, _origins),
    ]


def _or(column: pa.ChunkedArray, missing: Any, values: Callable[[Any], Iterable[Any]]) -> Any:
    return repeat(missing) if column.null_count == len(column) else values(column)


def _headers(column: pa.ChunkedArray) -> Iterable[Any]:
    return (None if pairs is None else dict(pairs) for pairs in column.to_pylist())


def _origins(column: pa.ChunkedArray) -> Iterable[Origin | None]:
    times = pc.struct_field(column, "time").cast(pa.int64()).to_pylist()
    for given, time_ms in zip(column.to_pylist(), times, strict=True):
        yield None if given is None else _origin(given, time_ms)


def _origin(given: dict[str, Any], time_ms: int) -> Origin:
    return Origin(
        given["topic"], given["partition"], given["offset"], given["group"], given["attempts"],
        given["reason"], time_ms,
    )  # fmt: skip

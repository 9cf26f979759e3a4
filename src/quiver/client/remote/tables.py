"""Messages as a node sends them, an Arrow stream, to what the API hands out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count, pairwise, repeat
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from quiver.batches.output import ID, OUTPUT_SCHEMA, WHERE, Columns, ids_of
from quiver.client.flows import Place, each
from quiver.client.remote import wire
from quiver.client.remote.link import Reply
from quiver.client.results import Lease, Leased, MessagePage, Record
from quiver.model.replies import Slice

SCHEMA: Final = pa.schema([*OUTPUT_SCHEMA, *WHERE])
MADE_WHEN_ASKED: Final = tuple(  # into objects, a column at a time
    field.name for field in SCHEMA if field.name not in ("body", "partition", "offset")
)

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
    begun = chain(repeat(False, table.num_rows - reserved), repeat(True, reserved))
    pages = each(_pages(lease.topic, table, settle))
    return list(map(make, pages, count(), table["body"].to_pylist(), repeat(lease), begun))


def ranges(table: pa.Table) -> dict[int, list[tuple[int, int]]]:
    """All offsets of a table, by partition."""
    found: dict[int, list[tuple[int, int]]] = {}
    for _, rows, partition, offset in _runs(table):
        found.setdefault(partition, []).append((offset, offset + rows))
    return found


def _pages(topic: str, table: pa.Table, settle: Any) -> Iterator[MessagePage]:
    """A page for messages that follow each other; what else their slices would say are columns here."""
    known = Columns({name: table[name] for name in MADE_WHEN_ASKED})
    for start, rows, partition, offset in _runs(table):
        part = Slice(partition, offset, rows, index=0, row=0, time_ms=0)
        yield MessagePage(topic, part, start, known, settle)


def _runs(table: pa.Table) -> Iterator[tuple[int, int, int, int]]:
    """Messages that follow each other: the first's row, how many, their partition, the first's offset."""
    for part in table.select(["partition", "offset"]).combine_chunks().to_batches():  # one, or none
        moved = (pc.pairwise_diff(values) for values in part.columns)
        breaks = pc.or_(*(pc.not_equal(by, same) for by, same in zip(moved, (0, 1), strict=True)))
        starts = [0, *pc.indices_nonzero(breaks).to_pylist()]
        counts = (end - start for start, end in pairwise([*starts, part.num_rows]))
        firsts = part.take(pa.array(starts)).to_pydict()
        yield from zip(starts, counts, *firsts.values(), strict=True)


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
        pages = each(_pages(topic, self.content, None))
        return list(map(Record, pages, count(), self.content["body"].to_pylist()))

    def table(self) -> pa.Table:
        """Its messages as Arrow, with ids."""
        entries, rows = (self.content[field.name].combine_chunks() for field in WHERE)
        return plain(self.content).append_column(ID, ids_of(entries, rows))

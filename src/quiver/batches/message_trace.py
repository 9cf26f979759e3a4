"""One message's way through the ledger, from topic to topic."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quiver.batches.ledger import SCHEMA

OF_GROUPS: Final = ("sought", "group_deleted")  # of interest if the group has had the message
TOPIC_DELETED: Final = "topic_deleted"


class StoryPlace(NamedTuple):
    """Where a message is, or was."""

    topic: str
    partition: int
    offset: int


class MessageTrace:
    """The rows of one message, each as if it were about that message alone.

    It begins with the send. A row that moves the message (a dead letter, a redrive) gives it one
    more place; from then on, what happens there belongs to the story, too.
    """

    def __init__(self, entry: int, row: int) -> None:
        """The message with the id `<entry>-<row>`."""
        self._entry = entry
        self._row = row
        self._places: dict[StoryPlace, None] = {}
        self._groups: dict[tuple[str, str], None] = {}  # topic and group that have had it
        self._rows: list[dict[str, Any]] = []

    def read(self, tables: Iterable[pa.Table]) -> pa.Table:
        """Follow the message through these rows, which are in order."""
        for table in tables:
            left = table
            while left.num_rows:
                left = self._until_it_moves(left)
        return pa.Table.from_pylist(self._rows, SCHEMA)

    def _until_it_moves(self, table: pa.Table) -> pa.Table:
        """Take what is told of the places known so far; return the rows behind the next move."""
        hits = pc.indices_nonzero(self._mask(table)).to_pylist()
        for at in hits:
            found = table.slice(at, 1).to_pylist()[0]
            if self._take(found):
                return table.slice(at + 1)
        return table.slice(table.num_rows)

    def _mask(self, table: pa.Table) -> pa.ChunkedArray:
        if not self._rows:
            sent = pc.and_(pc.equal(table["event"], "sent"), pc.equal(table["entry"], self._entry))
            return pc.and_(sent, _covers(table, "row", self._row))
        mask = pa.chunked_array([pa.repeat(pa.scalar(False), table.num_rows)])
        for place in self._places:
            here = pc.equal(table["topic"], place.topic)
            same = pc.fill_null(pc.equal(table["partition"], place.partition), False)
            message = pc.and_(same, _covers(table, "offset", place.offset))
            wide = pc.is_in(table["event"], pa.array([*OF_GROUPS, TOPIC_DELETED]))
            of_all = pc.and_(wide, pc.or_(same, pc.is_null(table["partition"])))
            mask = pc.or_(mask, pc.and_(here, pc.or_(message, of_all)))
        return mask

    def _take(self, found: dict[str, Any]) -> bool:
        """Add what a row tells; whether the message has other places after it."""
        topic, group, event = found["topic"], found["group"], found["event"]
        before = len(self._places)
        if event in OF_GROUPS:
            self._rows += [found] if (topic, group) in self._groups else []
        elif event == TOPIC_DELETED:
            self._rows.append(found)
            self._places = {place: None for place in self._places if place.topic != topic}
        elif not self._rows:
            offset = found["offset"] + self._row - found["row"]
            self._places[StoryPlace(topic, found["partition"], offset)] = None
            self._add(found, offset)
        else:
            for place in [place for place in self._places if _is_at(place, found)]:
                self._add(found, place.offset)
        self._groups[topic, group] = None
        return len(self._places) != before

    def _add(self, found: dict[str, Any], offset: int) -> None:
        skip = offset - found["offset"]
        row = {**found, "offset": offset, "count": 1}
        if found["row"] is not None:
            row["row"] = found["row"] + skip
        if found["to_topic"] is not None:
            row["to_offset"] = found["to_offset"] + skip
            place = StoryPlace(found["to_topic"], found["to_partition"], row["to_offset"])
            self._places[place] = None
        self._rows.append(row)


def _is_at(place: StoryPlace, found: dict[str, Any]) -> bool:
    return (
        (place.topic, place.partition) == (found["topic"], found["partition"])
        and found["offset"] <= place.offset < found["offset"] + found["count"]
    )  # fmt: skip


def _covers(table: pa.Table, column: str, value: int) -> pa.ChunkedArray:
    """Whether the range that begins at `column` has `value` in it."""
    first = table[column]
    found = pc.and_(
        pc.less_equal(first, value), pc.greater(pc.add(first.cast("int64"), table["count"]), value)
    )
    return pc.fill_null(found, False)

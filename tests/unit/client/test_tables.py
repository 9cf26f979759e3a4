"""Tables that a node has sent."""

import pyarrow as pa
import pytest

from quiver.client.remote import tables


@pytest.mark.parametrize(
    ("places", "ranges"),
    [
        ([], {}),
        ([(0, 5)], {0: [(5, 6)]}),
        ([(0, 5), (0, 6), (0, 7)], {0: [(5, 8)]}),
        ([(0, 5), (0, 7), (0, 8), (0, 3)], {0: [(5, 6), (7, 9), (3, 4)]}),
        ([(0, 5), (1, 6), (1, 7), (0, 6)], {0: [(5, 6), (6, 7)], 1: [(6, 8)]}),
    ],
)
@pytest.mark.parametrize("chunks", [1, 2])
def test_offsets_that_follow_each_other_become_ranges(places, ranges, chunks):
    schema = pa.schema([pa.field("partition", pa.int32()), pa.field("offset", pa.int64())])
    rows = [dict(zip(schema.names, place, strict=True)) for place in places]
    middle = len(rows) // chunks
    table = pa.concat_tables(
        pa.Table.from_pylist(part, schema) for part in (rows[:middle], rows[middle:])
    )
    assert tables.ranges(table) == ranges

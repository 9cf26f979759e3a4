"""What tasks read, asked of a real queue without Spark."""

import pytest

import quiver
from quiver.spark import connections
from quiver.spark.options import Options
from quiver.spark.reading import MessagesReader
from quiver.spark.rows import MESSAGES, wanted

pytestmark = pytest.mark.spark


def test_rows_that_cannot_be_read_are_an_error_and_not_left_out(tmp_path):
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("t", retention="forever")
        queue.send_batch("t", ["a", "b"])
        queue.seal()
        queue.send("t", "c")
    [segment] = tmp_path.glob("t@*.parquet")
    data = bytearray(segment.read_bytes())
    data[40] ^= 1
    segment.write_bytes(data)
    options = Options.of({"url": str(tmp_path), "topic": "t"})
    reader = MessagesReader(options, wanted(MESSAGES, "messages"))
    try:
        [share] = reader.partitions()
        with pytest.raises(quiver.CorruptSegment, match="2 messages were left out"):
            list(reader.read(share))
    finally:
        connections.close()

"""What a task stages is staged as a whole."""

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import quiver
from quiver import limits
from quiver.errors import InvalidBatch, InvalidRequest
from quiver.spark.options import Options
from quiver.spark.writing import StreamWriter, Written, staged


def test_of_a_task_that_fails_half_way_nothing_stays_staged(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "SPARK_STAGE_BYTES", 1)
    good, bad = (pa.record_batch({"body": ["1"], "priority": [number]}) for number in (1, 77))
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("orders")
        with pytest.raises(InvalidBatch, match="priority of row 0"):
            staged(queue, "orders", [good, good, bad])
        assert queue.stats("orders").staged == 0
        assert [one.rows for one in staged(queue, "orders", [good, good])] == [1, 1]
        assert queue.stats("orders").staged == 2


def test_a_stream_that_spark_does_not_name_is_refused_and_not_left_out(tmp_path):
    options = Options.of({"url": str(tmp_path), "topic": "orders"})
    schema = StructType([StructField("body", BinaryType())])
    writer = StreamWriter(options, schema, overwrite=False)
    with pytest.raises(InvalidRequest, match="which query they belong to"):
        writer.commit([Written(("one.arrow",), None, None, 0)], 0)
    writer.commit([Written((), None, None, 0), None], 0)

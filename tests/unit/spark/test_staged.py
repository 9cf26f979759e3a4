"""What a task stages is staged as a whole."""

import pyarrow as pa
import pytest

import quiver
from quiver import limits
from quiver.errors import InvalidBatch
from quiver.spark.writing import staged


def test_of_a_task_that_fails_half_way_nothing_stays_staged(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "SPARK_STAGE_BYTES", 1)
    good, bad = (pa.record_batch({"body": ["1"], "priority": [number]}) for number in (1, 77))
    with quiver.connect(tmp_path) as queue:
        queue.create_topic("orders")
        with pytest.raises(InvalidBatch, match="priority of row 0"):
            staged(queue, "orders", [good, good, bad])
        assert not list(queue.read("orders.staged"))
        assert [one.rows for one in staged(queue, "orders", [good, good])] == [1, 1]
        assert len(list(queue.read("orders.staged"))) == 2

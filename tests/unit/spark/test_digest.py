"""What tells one DataFrame of an application from another."""

import pyarrow as pa
import pytest

from quiver.spark.writing import Digest

pytestmark = pytest.mark.spark


def digest(*batches: pa.RecordBatch) -> int:
    made = Digest()
    assert list(made.taken(batches)) == list(batches)
    return made.sum


def batch(**columns: list) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values) for name, values in columns.items()})


def test_the_same_rows_in_other_batches_orders_and_zones_are_the_same():
    whole = batch(body=[b"a", b"b"], key=["1", None])
    assert digest(whole) == digest(batch(key=["1"], body=[b"a"]), batch(body=[b"b"]))
    assert digest(whole) == digest(whole.take(pa.array([1, 0])))
    times = [pa.array([5], pa.timestamp("us", zone)) for zone in ("UTC", "Asia/Tokyo")]
    utc, tokyo = (pa.record_batch({"deliver_at": values}) for values in times)
    assert digest(utc) == digest(tokyo)


@pytest.mark.parametrize(
    "other",
    [
        batch(body=[b"a"], dedup_id=["1"]),
        batch(body=[b"b"], key=["1"]),
        batch(body=[b"a"], key=["2"]),
        batch(body=[b"a", b"a"], key=["1", "1"]),
        batch(body=[b"1"], key=["a"]),
    ],
)
def test_other_rows_are_others(other):
    assert digest(batch(body=[b"a"], key=["1"])) != digest(other)

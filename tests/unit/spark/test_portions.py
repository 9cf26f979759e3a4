"""Rows of any size are put into requests that a queue takes."""

import pyarrow as pa
import pytest

from quiver import limits
from quiver.spark.writing import portions


def batch(*sizes: int) -> pa.RecordBatch:
    return pa.record_batch({"body": pa.array([b"x" * size for size in sizes], pa.binary())})


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(limits, "SPARK_STAGE_BYTES", 1_000)
    monkeypatch.setattr(limits, "BATCH_ROWS_MAX", 5)


def shapes(*batches: pa.RecordBatch) -> list[list[int]]:
    return [[len(body) for body in one["body"].to_pylist()] for one in portions(batches)]


def test_nothing_is_nothing():
    assert shapes() == []


def test_small_batches_go_together_up_to_the_limits():
    assert shapes(batch(10), batch(20, 30), batch(40)) == [[10, 20, 30, 40]]
    assert shapes(batch(600), batch(600)) == [[600], [600]]
    assert shapes(batch(1, 1, 1), batch(1, 1, 1)) == [[1, 1, 1], [1, 1, 1]]


def test_a_large_batch_is_cut_and_keeps_its_order():
    assert shapes(batch(400, 500, 450, 600)) == [[400, 500], [450], [600]]


def test_a_row_that_is_too_large_goes_alone_for_the_queue_to_refuse():
    assert shapes(batch(1, 5_000, 1)) == [[1], [5_000], [1]]


def test_too_many_rows_are_cut():
    found = [len(shape) for shape in shapes(batch(*[1] * 12))]
    assert sum(found) == 12
    assert max(found) <= 5

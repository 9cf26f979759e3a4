"""A folder to which batches are added."""

import pytest

from quiver.errors import InvalidRequest
from quiver.spark.pipeline.folder import Folder


@pytest.mark.slow
def test_a_batch_that_was_half_added_is_not_taken_for_that_of_another_run(
    spark, tmp_path, monkeypatch
):
    folder = Folder(spark, str(tmp_path / "out"), "shop")
    with monkeypatch.context() as dying:
        dying.setattr(folder, "_parquet_files", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            folder.add(spark.range(3), (), 0, "one")
    with pytest.raises(InvalidRequest, match="another checkpoint"):
        folder.add(spark.range(5), (), 0, "two")
    for _ in range(2):
        folder.add(spark.range(5), (), 0, "one")  # it was complete with three
    assert spark.read.parquet(folder.path).count() == 3
    folder.add(spark.range(5), (), 1, "one")
    assert spark.read.parquet(folder.path).count() == 8
    assert folder._names() == ["1.one"]

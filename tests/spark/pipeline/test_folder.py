"""Batches are added to a folder once, wherever their process ends."""

from typing import Any

import pyarrow.dataset as ds
import pytest

from quiver.errors import InvalidRequest
from quiver.spark.pipeline.folder import Folder

CHANGING = {"rename", "delete", "create", "mkdirs"}


class Died(Exception):
    pass


class Mortal:
    """A file system whose process ends before its next change, after so many."""

    def __init__(self, files: Any, changes: int) -> None:
        self._files = files
        self._changes = changes

    def __getattr__(self, name: str) -> Any:
        if name in CHANGING:
            if not self._changes:
                raise Died
            self._changes -= 1
        return getattr(self._files, name)


def found(path) -> list[tuple[int, str]]:
    if not list(path.glob("*=*/*.parquet")):
        return []
    table = ds.dataset(path, partitioning="hive").to_table()
    return sorted(zip(table["n"].to_pylist(), table["part"].to_pylist(), strict=True))


ONE = [(n, f"p{n % 2}") for n in range(6)]


@pytest.fixture
def one(spark):
    return spark.createDataFrame(ONE, "n INT, part STRING")


@pytest.mark.slow
def test_a_batch_is_there_once_whatever_its_process_had_done(spark, tmp_path, one):
    changes = deaths = 0
    while deaths == changes:
        path = tmp_path / str(changes)
        folder = Folder(spark, str(path), "shop")
        folder._files = Mortal(folder._files, changes)
        changes += 1
        try:
            folder.add(one, ("part",), 0, "run")
        except Died:
            deaths += 1
        assert set(found(path)) <= set(ONE)
        assert len(found(path)) == len(set(found(path))), "nobody sees a row twice, at any time"
        Folder(spark, str(path), "shop").add(one, ("part",), 0, "run")
        assert found(path) == ONE
    assert deaths > 6, "each change was the last one once"


def test_a_batch_that_was_added_is_not_added_again(spark, tmp_path, one):
    folder = Folder(spark, str(tmp_path), "shop")
    more = spark.createDataFrame([(9, "p1")], "n INT, part STRING")
    folder.add(one, ("part",), 0, "run")
    folder.add(more, ("part",), 1, "run")
    folder.add(one, ("part",), 0, "run")  # by somebody who was believed dead
    assert found(tmp_path) == [*ONE, (9, "p1")]
    with pytest.raises(InvalidRequest, match="another checkpoint"):
        folder.add(more, ("part",), 0, "another run")
    (left,) = (tmp_path / "_quiver" / "shop").iterdir()
    assert left.name == "1.run", "what is done is not kept"


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

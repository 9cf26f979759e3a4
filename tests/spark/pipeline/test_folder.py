"""Batches are added to a folder once, wherever their process ends."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pyarrow.dataset as ds
import pytest
from py4j.protocol import Py4JJavaError

from quiver import limits
from quiver.errors import InvalidRequest, PipelineFailed
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
            self.change()
        return getattr(self._files, name)

    def before(self, change: Callable[..., None]) -> Callable[..., None]:
        def changed(*arguments: Any) -> None:
            self.change()
            change(*arguments)

        return changed

    def change(self) -> None:
        if not self._changes:
            raise Died
        self._changes -= 1


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
def test_a_batch_is_there_once_whatever_its_process_had_done(spark, tmp_path, one, monkeypatch):
    changes = deaths = 0
    while deaths == changes:
        path = tmp_path / str(changes)
        folder = Folder(spark, str(path), "shop")
        folder._files = mortal = Mortal(folder._files, changes)
        monkeypatch.setattr(folder, "_take", mortal.before(folder._take))
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


@pytest.mark.slow
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_two_drivers_at_once_add_a_batch_once(spark, tmp_path, step):
    for number in range(0, 20, step):
        path = tmp_path / str(number)
        rows = spark.range(0, 100, 1, 2)
        together = threading.Barrier(2)

        def add(delay, path=path, rows=rows, together=together):
            together.wait()
            time.sleep(delay)
            folder = Folder(spark, str(path), "shop")
            folder.add(rows, (), 0, "run")
            folder.add(rows, (), 1, "run")

        with ThreadPoolExecutor(2) as drivers:
            list(drivers.map(add, (0, 0.01 * number)))
        found = sorted(row.id for row in spark.read.parquet(str(path)).collect())
        assert found == sorted([*range(100), *range(100)])


def test_a_driver_that_is_late_adds_nothing(spark, tmp_path, one, monkeypatch):
    late, other = (Folder(spark, str(tmp_path), "shop") for _ in range(2))
    take = late._take

    def later(*names):
        other.add(one, ("part",), 0, "run")
        take(*names)

    monkeypatch.setattr(late, "_take", later)
    late.add(one, ("part",), 0, "run")
    assert found(tmp_path) == ONE
    assert late._names() == ["0.run"]


@pytest.mark.parametrize("take", ["_take_on_disk", "_take_elsewhere"])
def test_a_folder_is_not_taken_for_another(spark, tmp_path, take):
    folder = Folder(spark, str(tmp_path), "shop")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mark").write_text(name)
    with pytest.raises(Py4JJavaError):
        getattr(folder, take)(*(folder._path(f"file:{tmp_path}/{name}") for name in "ab"))
    getattr(folder, take)(*(folder._path(f"file:{tmp_path}/{name}") for name in "bc"))
    left = {file.parent.name: file.read_text() for file in tmp_path.glob("*/mark")}
    assert left == {"a": "a", "c": "b"}


def test_what_dead_drivers_left_is_removed(spark, tmp_path, one, monkeypatch):
    folder = Folder(spark, str(tmp_path), "shop")
    with monkeypatch.context() as dying:
        dying.setattr(folder, "_take", lambda *_: 1 / 0)
        for _ in range(limits.PIPELINE_DRIVERS_MAX + 3):
            with pytest.raises(ZeroDivisionError):
                folder.add(one, (), 0, "run")
            assert len(folder._names()) <= limits.PIPELINE_DRIVERS_MAX + 1
    folder.add(one, (), 0, "run")
    folder.add(one, (), 1, "run")
    assert folder._names() == ["1.run"]


def test_a_driver_whose_folder_was_removed_does_not_take_the_rest_for_all(spark, tmp_path, one):
    folder = Folder(spark, str(tmp_path), "shop")

    def parquet(path):
        folder._remove(path)
        one.write.parquet(path)

    mode = SimpleNamespace(mode=lambda _: SimpleNamespace(parquet=parquet))
    rows: Any = SimpleNamespace(write=SimpleNamespace(partitionBy=lambda: mode))
    with pytest.raises(PipelineFailed, match="was removed"):
        folder.add(rows, (), 0, "run")

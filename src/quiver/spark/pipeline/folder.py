"""A folder of Parquet files to which every batch is added once.

    orders/day=2026-11-15/part-00000-….parquet      what readers see
    orders/_quiver/shop/7.<driver>.writing/         batch 7, being written by a driver
    orders/_quiver/shop/7.<run>.complete/           its files are moved to where readers see them
    orders/_quiver/shop/7.<run>                     done
    orders/_quiver/shop/….dropped                   being removed

The step from the second to the third is a renaming: before it a batch is written again from the beginning,
after it only moved on, so that no row comes twice and none is missing, whenever the process ended. It
takes a file system that renames in one step, and not onto a folder that is there: a disk, a network disk,
HDFS. So of two drivers who do the same batch, one makes it complete, and both move the files of that one.
Names with _ first are left alone by Spark and by others who read such folders.
"""

from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from quiver import limits
from quiver.errors import InvalidRequest, PipelineFailed
from quiver.spark.pipeline.expressions import first_line

MARK: Final = "_ours"  # in what is written: nobody has removed it, and it is never empty


class Folder:
    """The files of an application. A `run` is a checkpoint: with another one batches begin again."""

    def __init__(self, spark: SparkSession, path: str, application: str) -> None:
        self._spark = spark
        self.path = path
        self._ours = f"{path}/_quiver/{application}"
        jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._hadoop = jvm.org.apache.hadoop.fs  # what Spark itself writes with
        self._path = self._hadoop.Path
        self._settings = spark._jsc.hadoopConfiguration()
        self._files = self._path(path).getFileSystem(self._settings)

    def demand_same_types(self, rows: DataFrame, partition_by: tuple[str, ...]) -> None:
        """Refuse rows that could not be read together with those that are there.

        What rows are partitioned by is in the names of folders, which have no types: Spark guesses.
        """
        if not self._has_files():
            return
        try:
            there = self._spark.read.parquet(self.path).schema
        except PySparkException as error:
            raise InvalidRequest(f"{self.path} cannot be added to: {first_line(error)}") from None
        for field in rows.schema.fields:
            if field.name not in there.names or field.name in partition_by:
                continue
            old, new = (kind.dataType.simpleString() for kind in (there[field.name], field))
            if old != new:
                raise InvalidRequest(
                    f"{self.path} has {field.name!r} as {old}, and it would be {new} now; "
                    "nobody could read both: choose another folder"
                )

    def add(self, rows: DataFrame, partition_by: tuple[str, ...], batch: int, run: str) -> None:
        """Add a batch, unless it was added before."""
        if self._last(run) >= batch:
            return
        done = f"{self._ours}/{batch}.{run}"
        complete = f"{done}.complete"
        if not self._exists(complete):
            self._write(rows, partition_by, batch, run)
        try:
            files = self._parquet_files(complete)
        except Py4JJavaError:
            if self._last(run) < batch:
                raise
            files = []  # another driver is done, and has removed it
        if self._last(run) < batch:  # asked after that: else they may be those of a zombie
            for file in files:
                self._move(file, f"{self.path}/{file.removeprefix(f'{complete}/')}")
            self._files.create(self._path(done), True).close()
        self._remove(complete)
        self._forget(batch)

    def _write(self, rows: DataFrame, partition_by: tuple[str, ...], batch: int, run: str) -> None:
        """Make a batch complete, unless another driver does meanwhile."""
        self._tidy()
        complete = f"{self._ours}/{batch}.{run}.complete"
        writing = f"{self._ours}/{batch}.{uuid4().hex}.writing"
        mark = f"{writing}/{MARK}"
        self._files.create(self._path(mark), False).close()
        rows.write.partitionBy(*partition_by).mode("append").parquet(writing)
        if not self._exists(mark):  # what Spark has written after that is not all
            raise PipelineFailed(f"{writing} was removed: too many drivers write to {self.path}")
        try:
            self._take(writing, complete)
        except Py4JJavaError:
            if not self._exists(complete) and self._last(run) < batch:
                raise
            self._remove(writing)

    def _last(self, run: str) -> int:
        """The last batch that was added; -1 if there is none."""
        last = -1
        for name in self._names():
            batch, by, *unfinished = name.split(".")
            if unfinished[:1] == ["writing"]:
                continue
            if by != run:
                raise InvalidRequest(
                    f"{self.path} was written from another checkpoint, so that its batches are others; "
                    "take that checkpoint, or choose another folder or name"
                )
            if not unfinished:
                last = max(last, int(batch))
        return last

    def _forget(self, batch: int) -> None:
        for name in self._names():
            if int(name.split(".", 1)[0]) < batch:
                self._remove(f"{self._ours}/{name}")

    def _tidy(self) -> None:
        """Remove what dead drivers have left. Who is alive and loses a folder by that notices it."""
        names = self._names()
        writing = [name for name in names if name.endswith(".writing")]
        for name in writing[: -limits.PIPELINE_DRIVERS_MAX]:
            self._remove(f"{self._ours}/{name}")
        for name in names:
            if name.endswith(".dropped"):
                self._files.delete(self._path(f"{self._ours}/{name}"), True)

    def _names(self) -> list[str]:
        """What there is, the oldest first."""
        if not self._exists(self._ours):
            return []
        found = self._files.listStatus(self._path(self._ours))
        oldest_first = sorted(found, key=lambda one: one.getModificationTime())
        return [one.getPath().getName() for one in oldest_first]

    def _parquet_files(self, folder: str) -> list[str]:
        files = []
        for found in self._files.listStatus(self._path(folder)):
            path = f"{folder}/{found.getPath().getName()}"
            if found.isDirectory():
                files += self._parquet_files(path)
            elif path.endswith(".parquet"):
                files.append(path)
        return sorted(files)

    def _has_files(self) -> bool:
        return self._exists(self.path) and any(
            not found.getPath().getName().startswith(("_", "."))
            for found in self._files.listStatus(self._path(self.path))
        )

    def _exists(self, path: str) -> bool:
        return bool(self._files.exists(self._path(path)))

    def _remove(self, path: str) -> None:
        """Remove something so that nobody ever sees half of it. Others may do the same meanwhile."""
        dropped = f"{path}.{uuid4().hex}.dropped"
        with suppress(Py4JJavaError):
            self._files.rename(self._path(path), self._path(dropped))
        self._files.delete(self._path(dropped), True)

    def _move(self, old: str, new: str) -> None:
        """Rename, unless another driver has done it already."""
        target = self._path(new)
        self._files.mkdirs(target.getParent())
        try:
            moved, reason = self._files.rename(self._path(old), target), None
        except Py4JJavaError as error:
            moved, reason = False, error
        if not moved and self._exists(old):
            raise OSError(f"{old} could not be renamed to {new}") from reason

    def _take(self, old: str, new: str) -> None:
        """Rename a folder, or fail if the name is taken; Hadoop's `rename` would move it into that."""
        places = [self._files.makeQualified(self._path(name)) for name in (old, new)]
        on_disk = places[0].toUri().getScheme() == "file"
        (self._take_on_disk if on_disk else self._take_elsewhere)(*places)

    def _take_on_disk(self, old: Any, new: Any) -> None:
        jvm: Any = self._spark._jvm
        java = jvm.java
        how = self._gateway.new_array(java.nio.file.CopyOption, 1)
        how[0] = java.nio.file.StandardCopyOption.ATOMIC_MOVE
        places = [java.io.File(place.toUri().getPath()).toPath() for place in (old, new)]
        java.nio.file.Files.move(*places, how)

    def _take_elsewhere(self, old: Any, new: Any) -> None:
        files = self._hadoop.FileContext.getFileContext(old.toUri(), self._settings)
        files.rename(old, new, self._gateway.new_array(self._hadoop.Options.Rename, 0))

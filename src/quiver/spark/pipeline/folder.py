"""A folder of Parquet files to which every batch is added once.

    orders/day=2026-11-15/part-00000-….parquet      what readers see
    orders/_quiver/shop/7.writing/                  batch 7, being written
    orders/_quiver/shop/7.<run>.complete/           its files are moved to where readers see them
    orders/_quiver/shop/7.<run>                     done

The step from the second to the third is a renaming: before it a batch is written again from the beginning,
after it only moved on, so that no row comes twice and none is missing, whenever the process ended. It
takes a file system that renames in one step: a disk, a network disk, HDFS. Names with _ first are left
alone by Spark and by others who read such folders.
"""

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from quiver.errors import InvalidRequest
from quiver.spark.pipeline.expressions import first_line


class Folder:
    """The files of an application. A `run` is a checkpoint: with another one batches begin again."""

    def __init__(self, spark: SparkSession, path: str, application: str) -> None:
        self._spark = spark
        self.path = path
        self._ours = f"{path}/_quiver/{application}"
        jvm: Any = spark._jvm  # the file systems that Spark itself writes to
        self._path = jvm.org.apache.hadoop.fs.Path
        self._files = self._path(path).getFileSystem(spark._jsc.hadoopConfiguration())

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
            writing = f"{self._ours}/{batch}.writing"
            rows.write.partitionBy(*partition_by).mode("overwrite").parquet(writing)
            self._rename(writing, complete)
        for file in self._parquet_files(complete):
            inside = file.removeprefix(f"{complete}/")
            self._rename(f"{complete}/{inside}", f"{self.path}/{inside}")
        self._files.create(self._path(done), True).close()
        self._delete(complete)
        self._forget(batch)

    def _last(self, run: str) -> int:
        """The last batch that was added; -1 if there is none."""
        last = -1
        for name in self._names():
            batch, by, *unfinished = name.split(".")
            if by == "writing":
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
                self._delete(f"{self._ours}/{name}")

    def _names(self) -> list[str]:
        if not self._exists(self._ours):
            return []
        return [
            found.getPath().getName() for found in self._files.listStatus(self._path(self._ours))
        ]

    def _parquet_files(self, folder: str) -> list[str]:
        root = self._files.makeQualified(self._path(folder)).toString()
        found = self._files.listFiles(self._path(folder), True)
        files = []
        while found.hasNext():
            path = found.next().getPath()
            if path.getName().endswith(".parquet"):
                files.append(folder + path.toString().removeprefix(root))
        return sorted(files)

    def _has_files(self) -> bool:
        return self._exists(self.path) and any(
            not found.getPath().getName().startswith(("_", "."))
            for found in self._files.listStatus(self._path(self.path))
        )

    def _exists(self, path: str) -> bool:
        return bool(self._files.exists(self._path(path)))

    def _delete(self, path: str) -> None:
        self._files.delete(self._path(path), True)

    def _rename(self, old: str, new: str) -> None:
        target = self._path(new)
        self._files.mkdirs(target.getParent())
        if not self._files.rename(self._path(old), target):
            raise OSError(f"{old} could not be renamed to {new}")

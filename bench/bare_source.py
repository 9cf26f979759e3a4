"""A data source that does nothing but hand Spark the Arrow batches of a file, from memory."""

from collections.abc import Iterator, Sequence
from functools import cache

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType


@cache  # for as long as a worker lives: Spark keeps them from job to job
def batches_of(path: str) -> list[pa.RecordBatch]:
    with pa.OSFile(path) as file:
        return list(pa.ipc.open_file(file).read_all().to_batches())


class BareSource(DataSource):
    """Options: the `path` of an Arrow file, and how many `tasks` shall share its batches."""

    @classmethod
    def name(cls) -> str:
        return "bare"

    def schema(self) -> StructType:
        with pa.OSFile(self.options["path"]) as file:
            return from_arrow_schema(pa.ipc.open_file(file).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BareReader(self.options["path"], int(self.options["tasks"]))


class BareReader(DataSourceReader):
    def __init__(self, path: str, tasks: int) -> None:
        self._path = path
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(batches_of(self._path)[partition.value :: self._tasks])

"""What Spark knows as the format "quiver": from options to a reader or a writer."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from quiver.errors import InvalidRequest
from quiver.spark import rows
from quiver.spark.leasing import LeasingReader
from quiver.spark.options import Options
from quiver.spark.reading import LedgerReader, MessagesReader
from quiver.spark.streaming import MessagesStream
from quiver.spark.writing import BatchWriter, StreamWriter


class QuiverSource(DataSource):
    """A topic of a queue, or its ledger."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = Options.of(options)

    @classmethod
    def name(cls) -> str:
        return "quiver"

    def schema(self) -> StructType:
        return rows.of_table(self._options.table)

    def reader(self, schema: StructType) -> DataSourceReader:
        kind = LedgerReader if self._options.table == "ledger" else MessagesReader
        return kind(self._options, rows.wanted(schema, self._options.table))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        if self._options.table == "ledger":
            raise InvalidRequest("the ledger is read in batches; read it with spark.read")
        kind = MessagesStream if self._options.group is None else LeasingReader
        return kind(self._options, rows.wanted(schema, "messages"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(self._options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamWriter(self._options, schema, overwrite=overwrite)

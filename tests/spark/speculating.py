"""A job with a task that hangs after it has staged rows, so that Spark starts another one like it."""

import sys
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from quiver.spark.session import start_session
from tests.spark.jobs import SETTINGS

TASKS = 4
ROWS = 24  # of a task
ROW_BYTES = 1_000_000  # so that a task stages more than once
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",  # each row is handed on before the next
}


def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row for each number, with padding; the first attempt at the first task never ends."""
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield pa.record_batch({"body": [f"{number} ".encode() + b"x" * ROW_BYTES]})
    if context.partitionId() == 0 and context.attemptNumber() == 0:
        time.sleep(600)


def main() -> None:
    master, url = sys.argv[1:]
    spark = start_session("speculating", SETTINGS | SPECULATION | {"spark.master": master})
    numbers = spark.range(0, TASKS * ROWS, 1, TASKS).mapInArrow(slow, "body binary")
    writer = numbers.write.format("quiver").mode("append").option("url", url)
    writer.option("topic", "slow").option("application", "slow").option("batch", 1).save()
    spark.stop()


if __name__ == "__main__":
    main()

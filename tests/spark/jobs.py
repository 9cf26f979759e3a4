"""A streaming job as a program, so that it can be killed: numbers from a topic, squared, into another."""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat_ws

from quiver.spark.session import start_session
from tests.spark.cluster import JVM
from tests.spark.dying import DyingSource

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": JVM,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JVM,
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "100",  # killing is what the tests are about
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.log.level": "WARN",
}


def session(master: str) -> SparkSession:
    made = start_session("squares", SETTINGS | {"spark.master": master})
    made.dataSource.register(DyingSource)
    return made


def squares(frame: DataFrame) -> DataFrame:
    """`7` becomes `7 49`."""
    number = col("body").cast("string").cast("bigint")
    return frame.select("key", concat_ws(" ", number, number * number).alias("body"))


def run(spark: SparkSession, given: argparse.Namespace) -> None:
    source = {"url": given.url, "topic": given.source, "start": "earliest"}
    sink = {"url": given.sink_url or given.url, "topic": given.sink, "application": "squares"}
    kind = "quiver"
    if given.order:
        kind, sink["path"] = "dying", given.order
    numbers = (
        spark.readStream.format("quiver")
        .options(**source)
        .option("maxRowsPerTrigger", given.rows)
        .load()
    )
    query = (
        squares(numbers)
        .writeStream.format(kind)
        .options(**sink)
        .option("checkpointLocation", given.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    print("started", flush=True)
    query.awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("master", "url", "source", "sink", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--sink-url", default="")
    parser.add_argument("--order", default="")
    parser.add_argument("--rows", type=int, default=10_000)
    given = parser.parse_args()
    run(session(given.master), given)


if __name__ == "__main__":
    main()

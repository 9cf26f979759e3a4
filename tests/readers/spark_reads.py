"""Reads segments with Spark, in a process of its own, and writes what it found as Arrow.

python -m tests.readers.spark_reads INTO PATTERN…    a file for each pattern: INTO/0.arrow, …
"""

import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession


def main(into: Path, patterns: list[str]) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    for number, pattern in enumerate(patterns):
        found = spark.read.parquet(pattern).toArrow()
        with (
            pa.OSFile(str(into / f"{number}.arrow"), "wb") as file,
            pa.ipc.new_file(file, found.schema) as writer,
        ):
            writer.write_table(found)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

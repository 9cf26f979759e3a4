"""Reads segments with Spark, in a process of its own, and writes what it found as Arrow.

python -m tests.readers.spark_reads INTO PATTERN…    a file for each pattern: INTO/0.arrow, …
"""

import sys
from pathlib import Path

import pyarrow as pa

from quiver.spark.session import start_session


def main(into: Path, patterns: list[str]) -> None:
    spark = start_session("readers")
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

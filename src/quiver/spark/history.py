"""A topic as one data frame: sealed history by Spark's own Parquet reader, the rest by the source.

One plan, made at one moment, says which offsets come from where, so there is no gap and no overlap.
Spark prunes columns and pushes conditions down into the files, as for any Parquet.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from quiver.client.remote.address import is_address, parse
from quiver.model.replies import Sealed, SealedFile
from quiver.spark import connections, rows
from quiver.spark.options import RANGES, Options, Spot
from quiver.spark.reading import bounded, found
from quiver.spark.spans import Bounds

MADE: Final = ("topic", "attempt", "id")  # not in the files, but made of what is
STORED: Final = StructType(
    [
        StructField("entry", LongType()),
        StructField("row", IntegerType()),
        *(field for field in rows.MESSAGES if field.name not in MADE),
    ]
)
PARTS: Final = StructType(
    [
        StructField("_of", StringType()),
        StructField("_start", LongType()),
        StructField("_end", LongType()),
    ]
)


def read(
    spark: SparkSession, url: str, topic: str, start: Spot | None, end: Spot | None
) -> DataFrame:
    """See `quiver.spark.read`."""
    said = {"start": start, "end": end}
    places = {name: _written(spot) for name, spot in said.items() if spot is not None}
    options = Options.of({"url": url, "topic": topic, **places})
    with connections.connected(options.url) as queue:
        known, held = found(queue, topic)
        bounds = bounded(queue, topic, options, held)
        sealed = queue.segments(topic) if _reachable(spark, options.url) else None
    if sealed is None or not all(Path(file.path).is_file() for file in sealed.files):
        sealed = Sealed((), {number: (held[number],) for number in held})
    rest = [
        (number, *part)
        for number, ranges in sealed.rest.items()
        for part in _within(ranges, bounds, number)
    ]
    frames = _files(spark, topic, sealed.files, bounds)
    if rest or not frames:  # the source costs a fifth of a second, even for nothing
        source = spark.read.format("quiver").options(url=url, topic=topic)
        frames.append(source.option(RANGES, json.dumps([known, rest])).load())
    return reduce(DataFrame.unionByName, frames)


def _written(spot: Spot) -> str:
    return json.dumps(spot) if isinstance(spot, dict) else str(spot)


def _reachable(spark: SparkSession, url: str) -> bool:
    """Whether tasks see the files: those who read a directory must, others if all is on this machine."""
    if not is_address(url):
        return True
    return parse(url).local and str(spark.conf.get("spark.master")).startswith("local")


def _within(
    ranges: Iterable[tuple[int, int]], bounds: Bounds, number: int
) -> list[tuple[int, int]]:
    """The parts of ranges that a read wants."""
    low, high = bounds.get(number, (0, 0))
    cut = [(max(start, low), min(end, high)) for start, end in ranges]
    return [(start, end) for start, end in cut if start < end]


def _files(
    spark: SparkSession, topic: str, files: Iterable[SealedFile], bounds: Bounds
) -> list[DataFrame]:
    """Files of which all rows are wanted, and those of which some are."""
    wanted = {file: _within(file.ranges, bounds, file.partition) for file in files}
    whole = [file for file, ranges in wanted.items() if _count(ranges) == file.rows]
    some = {file: ranges for file, ranges in wanted.items() if 0 < _count(ranges) < file.rows}
    made = [_parquet(spark, whole)] if whole else []
    if some:
        made.append(_chosen(spark, some))
    return [_columns(frame, topic) for frame in made]


def _count(ranges: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in ranges)


def _parquet(spark: SparkSession, files: Iterable[SealedFile]) -> DataFrame:
    paths = [re.sub(r"([\\*?{}\[\],])", r"\\\1", file.path) for file in files]  # not patterns
    return spark.read.schema(STORED).parquet(*paths)


def _chosen(spark: SparkSession, files: Mapping[SealedFile, list[tuple[int, int]]]) -> DataFrame:
    """The rows in the ranges of each file; a row is in one of them or in none."""
    ranges = [
        (Path(file.path).name, start, end) for file, parts in files.items() for start, end in parts
    ]
    frame = _parquet(spark, files).withColumn("_file", sql.col("_metadata.file_name"))
    inside = (sql.col("offset") >= sql.col("_start")) & (sql.col("offset") < sql.col("_end"))
    parts = sql.broadcast(spark.createDataFrame(ranges, PARTS))
    return frame.join(parts, (frame["_file"] == parts["_of"]) & inside, "left_semi")


def _columns(frame: DataFrame, topic: str) -> DataFrame:
    values = {
        "topic": sql.lit(topic),
        "attempt": sql.lit(0),
        "id": sql.concat_ws("-", "entry", "row"),
    }
    return frame.select(
        *(
            (values[name] if name in values else sql.col(name)).alias(name)
            for name in rows.MESSAGES.names
        )
    )

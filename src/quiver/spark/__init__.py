"""READS AND WRITES FROM SPARK: the data source `quiver`, and what is built on it.

    quiver.spark.register(spark)
    orders = spark.read.format("quiver").option("url", "data/").option("topic", "orders").load()

The columns of a row are in `rows`, and what can be said with `option` is in `options`. Importing this
package loads nothing of Spark.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quiver.spark.options import Spot

__all__ = ["read", "register"]


def register(spark: "SparkSession") -> None:
    """Teach a session the format "quiver"; the same call again changes nothing.

    Spark's Python workers must have Quiver, too. Where they would run the `python3` of the PATH and it
    has none, those of a local session are told to run the Python of this process; elsewhere it is
    ExtraMissing, which says what to set.

    Args:
        spark: A session.
    """
    from quiver.spark.source import QuiverSource  # noqa: PLC0415 - optional, and heavy
    from quiver.spark.workers import see_to_python  # noqa: PLC0415 - optional, and heavy

    see_to_python(spark)
    spark.dataSource.register(QuiverSource)


def read(
    spark: "SparkSession",
    url: str,
    topic: str,
    *,
    start: "Spot | None" = None,
    end: "Spot | None" = None,
) -> "DataFrame":
    """The messages of a topic as `format("quiver")` has them; sealed history by Spark's Parquet reader.

    That is faster, prunes columns and pushes conditions down. `start` and `end` are those of the source.
    It is for files that tasks can reach: of a directory, or of a node where all tasks run beside it. A
    file that the queue rewrites before it is read is an error of Spark: read again then.
    """
    from quiver.spark import history  # noqa: PLC0415 - optional, and heavy

    return history.read(spark, url, topic, start, end)

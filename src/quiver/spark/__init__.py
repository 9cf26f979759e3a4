"""READS AND WRITES FROM SPARK: the data source `quiver`, and what is built on it.

    quiver.spark.register(spark)
    orders = spark.read.format("quiver").option("url", "data/").option("topic", "orders").load()

The columns of a row are in `rows`, and what can be said with `option` is in `options`. Importing this
package loads nothing of Spark.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Teach a session the format "quiver"; the same call again changes nothing."""
    from quiver.spark.source import QuiverSource  # noqa: PLC0415 - optional, and heavy

    spark.dataSource.register(QuiverSource)

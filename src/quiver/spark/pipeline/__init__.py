"""Pipelines on Spark: topics are read, made good, enriched and loaded, every message once.

    from quiver.spark.pipeline import Pipeline, load

    for batch in Pipeline(spark, load(Path("pipeline.toml"))).run(once=True):
        print(batch.rows, batch.bad)

`transform` and `enrich` are stages on their own, for DataFrames in the columns of the source.
"""

from quiver.spark.pipeline.config import Config, load, make
from quiver.spark.pipeline.enriching import enrich
from quiver.spark.pipeline.figures import Batch, Stage
from quiver.spark.pipeline.run import Pipeline
from quiver.spark.pipeline.transforming import transform

__all__ = ["Batch", "Config", "Pipeline", "Stage", "enrich", "load", "make", "transform"]

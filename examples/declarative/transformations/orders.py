"""Orders become rows, good and bad ones; each kind has its table and its topic."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

import quiver.spark
from quiver.spark.pipeline import transform
from quiver.spark.pipeline.config import Transform, Version
from quiver.spark.pipeline.loading import dead_letters

URL = os.environ.get("QUIVER_URL", "quiver://127.0.0.1:7070")
ORDERS = Transform(
    versions={"1": Version(schema="id BIGINT NOT NULL, cents BIGINT NOT NULL")},
    checks={"cents is 0 or more": "cents >= 0"},
)

spark = SparkSession.active()
quiver.spark.register(spark)
MESSAGES = spark.readStream.format("quiver").option("url", URL).option("topic", "orders").load()
ROWS = transform(MESSAGES, ORDERS)  # here, because functions of tables may not look at columns


def sink(name: str, topic: str) -> None:
    options = {"url": URL, "topic": topic, "application": "shop"}
    dp.create_sink(name, "quiver", options)


@dp.table
def rows() -> DataFrame:
    """Every message, as a row, with the reason if it is bad."""
    return ROWS


@dp.table
def orders() -> DataFrame:
    """The good ones."""
    return spark.readStream.table("rows").filter("_reason IS NULL").select("id", "cents")


sink("results", "results")


@dp.append_flow(target="results")
def send_results() -> DataFrame:
    return spark.readStream.table("orders").selectExpr("to_json(struct(*)) AS body")


sink("dead", "shop.dead")


@dp.append_flow(target="dead")
def send_dead_letters() -> DataFrame:
    return dead_letters(spark.readStream.table("rows"), "shop")

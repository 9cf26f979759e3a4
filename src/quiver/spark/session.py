"""A Spark session for commands, and for programs that have none."""

import logging
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from quiver.errors import ExtraMissing
from quiver.spark import register
from quiver.spark.java import provide_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {  # unless the caller says otherwise
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
}
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
LOGGING: Final = Path(__file__).with_name("log4j2.properties")
SUBMITTED: Final = (
    "PYSPARK_GATEWAY_PORT"  # set by spark-submit, which has chosen master and Java by then
)


def start_session(
    name: str, settings: Mapping[str, str] | None = None, *, quiet: bool = False
) -> "SparkSession":
    """The session of this process, which knows the format "quiver"; a new one runs on all cores here.

    Args:
        name: The application's name.
        settings: Those of Spark, `spark.master` among them; under spark-submit its own count.
        quiet: Say nothing but errors, also while it starts: for commands.
    """
    demand_pyspark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - optional, and heavy

    chosen: dict[str, Any] = SETTINGS | dict(settings or {})
    if SUBMITTED not in os.environ:
        provide_java(quiet=quiet)
        if quiet:
            chosen |= _quieted(chosen)
        # Workers run our Python, and not the python3 of the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if chosen.setdefault("spark.master", "local[*]").startswith("local"):
            chosen.setdefault("spark.sql.shuffle.partitions", str(os.cpu_count()))  # not 200
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # nobody else has to reach it
    spark = SparkSession.builder.appName(name).config(map=chosen).getOrCreate()
    register(spark)
    return spark


def _quieted(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings with which Spark logs errors only, unless there is a configuration of somebody else's."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - optional, and heavy

    # It prints the plan and the trace of a query that Spark refuses; we tell the reason.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    given = settings.get(JAVA_OPTIONS, "")
    places = [os.environ.get("SPARK_CONF_DIR"), os.environ.get("SPARK_HOME", "") and
              f"{os.environ['SPARK_HOME']}/conf"]  # fmt: skip
    theirs = any(place and any(Path(place).glob("log4j2.*")) for place in places)
    if theirs or "log4j" in given:
        return {}
    return {JAVA_OPTIONS: f"{given} -Dlog4j2.configurationFile={LOGGING.as_uri()}".strip()}


def demand_pyspark() -> None:
    """Say how to get Spark if it is not installed."""
    if find_spec("pyspark") is None:
        raise ExtraMissing("this needs Spark: pip install '.[spark]' in a clone of Quiver")

"""Runs the declarative pipeline beside this file, in the folder in which it is started."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("SPARK_REMOTE", "local[*]")
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.pipelines import cli
from pyspark.sql.connect.client.core import SparkConnectClient

from quiver.spark.java import provide_java


def only_dictionaries(self: Any, command: Any, observations: Any = None) -> Iterator[dict]:
    """What a running pipeline tells, without the metrics that its reader takes for an error."""
    request = self._execute_plan_request_with_metadata()
    self._set_command_in_plan(request.plan, command)
    for told in self._execute_and_fetch_as_iterator(request, observations or {}):
        if isinstance(told, dict):
            yield told


if __name__ == "__main__":
    provide_java()
    setattr(SparkConnectClient, "execute_command_as_iterator", only_dictionaries)  # noqa: B010 - a method
    spec = Path(__file__).with_name("spark-pipeline.yml")
    cli.run(spec, full_refresh=[], full_refresh_all=False, refresh=[], dry=False)

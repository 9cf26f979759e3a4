"""Bodies in Avro. Spark's package for it comes from Maven Central, and a session of its own has it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.nodes import ROOT

PACKAGE = "org.apache.spark:spark-avro_2.13:4.0.1"  # the newest there; Spark 4.3 takes it
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"], "default": None},
        ],
    }
)
ORDERS = [(1, "a"), (2, None), (3, "ü")]
TORN = [b"\xff" * 30, b""]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("Maven, which fetches Spark's package for Avro, is not installed")
    fetch = ["dependency:copy", f"-Dartifact={PACKAGE}", f"-DoutputDirectory={tmp_path}"]
    done = subprocess.run([maven, "-q", "-B", *fetch], timeout=300, check=False)
    if done.returncode:
        pytest.skip("Maven Central, which has Spark's package for Avro, cannot be reached")
    (found,) = tmp_path.glob("*.jar")
    return found


@pytest.mark.slow
def test_avro_becomes_columns_and_what_is_none_is_kept_apart(package):
    job = [sys.executable, "-m", "tests.spark.test_avro", str(package)]
    done = subprocess.run(job, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == [list(order) for order in ORDERS]
    problem = "the body is not Avro of the schema"
    assert found["malformed"] == [[body.hex(), problem] for body in TORN]


def job(package: str) -> None:
    """What runs in the session that has the package."""
    from pyspark.sql import functions as sql
    from pyspark.sql.avro.functions import to_avro

    from quiver.spark import bodies
    from quiver.spark.session import start_session

    spark = start_session("avro", {"spark.master": "local[1]", "spark.jars": package})
    orders = spark.createDataFrame(ORDERS, "id long, name string")
    good = orders.select(to_avro(sql.struct("id", "name"), SCHEMA).alias("body"))
    bad = spark.createDataFrame([(bytearray(body),) for body in TORN], "body binary")
    parsed = bodies.from_avro(good.union(bad), SCHEMA)
    rows = [tuple(row) for row in parsed.rows.select("data.*").collect()]
    malformed = [(bytes(row.body).hex(), row.problem) for row in parsed.malformed.collect()]
    spark.stop()
    print(json.dumps({"rows": rows, "malformed": malformed}))


if __name__ == "__main__":
    job(sys.argv[1])

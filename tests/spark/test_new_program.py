"""What a person meets who has just installed Spark: a worker without Quiver, and what commands print."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import quiver
from quiver.errors import ExtraMissing
from quiver.spark.workers import fault
from tests.server.nodes import ROOT

SECONDS_MAX = 300
PROGRAM = """
from quiver.spark.java import provide_java
provide_java()
from pyspark.sql import SparkSession
import quiver.spark
spark = SparkSession.builder.master("local[1]").getOrCreate()
quiver.spark.register(spark)
print("rows:", spark.read.format("quiver").option("url", "data").option("topic", "orders").load().count())
"""
PIPELINE = """
name = "shop"
checkpoint = "checkpoint"
[extract]
url = "data"
topics = ["orders"]
[transform.versions.1]
schema = "id STRING NOT NULL, cents BIGINT"
[transform.checks]
"cents is 0 or more" = "cent >= 0"
[load.parquet]
path = "out"
[spark]
"spark.master" = "local[1]"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a queue, and a `python3` that has no packages at all."""
    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("orders", retention="forever")
        queue.send_batch("orders", [{"id": "a", "cents": 1}, {"id": "b", "cents": 2}])
    python3 = tmp_path / "bin" / "python3"
    python3.parent.mkdir()
    python3.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python3.chmod(0o755)
    return tmp_path


def ended(place: Path, *command: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """A Python of this environment that nobody has put on the PATH, or told Spark of."""
    without = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    path = f"{place / 'bin'}:/usr/bin:/bin"
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        cwd=place, env={**without, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", **more},
    )  # fmt: skip


@pytest.mark.check  # a Java of its own
def test_workers_of_a_program_that_did_not_choose_run_its_own_python(place):
    done = ended(place, "-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[-2] == "rows: 2"


@pytest.mark.check
def test_a_python_that_was_chosen_and_has_no_quiver_is_told_at_once(place):
    done = ended(place, "-c", PROGRAM, PYSPARK_PYTHON=str(place / "bin" / "python3"))
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"{ExtraMissing.__module__}.ExtraMissing: Spark's workers run ")
    assert "which has no Quiver" in last
    assert f"set PYSPARK_PYTHON to a Python that has Quiver, such as {sys.executable}" in last


@pytest.mark.check
def test_a_wrong_column_is_one_sentence_and_spark_says_nothing_else(place):
    (place / "pipeline.toml").write_text(PIPELINE)
    done = ended(place, "-m", "quiver.cli", "pipeline", "run", "pipeline.toml", "--once")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert line.startswith("quiver: transform.checks.'cents is 0 or more': [UNRESOLVED_COLUMN")
    assert "`cents`" in line
    assert not line.endswith(";.")


def test_what_is_wrong_with_a_python(place):
    assert fault(sys.executable) is None
    assert fault("python-that-is-only-on-other-machines") is None
    assert fault(str(place / "bin" / "python3")) == "which has no Quiver"
    old = place / "bin" / "python-old"
    old.write_text("#!/bin/sh\necho 3.8 quiver\n")
    old.chmod(0o755)
    assert "which is Python 3.8, and this is " in (fault(str(old)) or "")
    old.write_text("#!/bin/sh\nexit 1\n")
    assert fault(str(old)) == "which has no Quiver"


def test_a_python_that_finds_quiver_is_taken(place, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    assert fault(str(place / "bin" / "python3")) is None

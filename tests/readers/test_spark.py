"""Spark reads segments, and finds exactly the messages that were sent."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

from tests.readers import java
from tests.readers.archive import make
from tests.readers.test_readers import TOPICS, in_order

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 400

pytestmark = [pytest.mark.slow, pytest.mark.process]


def demand_spark() -> None:
    """Skip the test where Spark cannot run, and say why; in CI that is a failure."""
    lacks = [
        what
        for what, there in (
            ("pyspark (pip install -e '.[spark]')", find_spec("pyspark") is not None),
            ("a Java (install one, or pip install -e '.[java]')", java.is_there()),
        )
        if not there
    ]
    if lacks:
        reason = f"segments were not read with Spark: it needs {' and '.join(lacks)}"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


@pytest.mark.timeout(SECONDS_MAX + 60)
def test_spark_reads_exactly_the_messages(tmp_path):
    demand_spark()
    archive = make(tmp_path / "data")
    patterns = [archive.pattern(topic) for topic in TOPICS]
    done = subprocess.run(
        [sys.executable, "-m", "tests.readers.spark_reads", str(tmp_path), *patterns],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **java.environment(tmp_path)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    for number, topic in enumerate(TOPICS):
        with pa.OSFile(str(tmp_path / f"{number}.arrow")) as file:
            found = pa.ipc.open_file(file).read_all().to_pylist()
        assert in_order(found) == archive.rows[topic], topic

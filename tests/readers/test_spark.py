"""Spark reads segments, and finds exactly the messages that were sent."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.readers.archive import make
from tests.readers.test_readers import TOPICS, in_order

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 400

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.spark]


@pytest.mark.timeout(SECONDS_MAX + 60)
def test_spark_reads_exactly_the_messages(tmp_path):
    archive = make(tmp_path / "data")
    patterns = [archive.pattern(topic) for topic in TOPICS]
    done = subprocess.run(
        [sys.executable, "-m", "tests.readers.spark_reads", str(tmp_path), *patterns],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
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

"""The example with Spark Declarative Pipelines, as somebody runs it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.nodes import ROOT, start_node

EXAMPLE = ROOT / "examples" / "declarative"
SECONDS = 600


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
def test_declared_tables_and_sinks_have_every_message_once(tmp_path: Path):
    import quiver

    here = tmp_path / "declarative"
    shutil.copytree(EXAMPLE, here)
    spec = here / "spark-pipeline.yml"
    storage = (tmp_path / "storage").as_uri()
    spec.write_text(spec.read_text().replace("file:///tmp/quiver-declarative", storage))
    with start_node(tmp_path) as node:
        url = f"quiver://127.0.0.1:{node.port}"
        with quiver.connect(url) as queue:
            for topic in ("orders", "results", "shop.dead"):
                queue.create_topic(topic, retention="forever")
            queue.send_batch("orders", [{"id": n, "cents": n} for n in range(-3, 100)])
            done = subprocess.run(
                [sys.executable, "run.py"], cwd=here, capture_output=True, text=True,
                env={**os.environ, "QUIVER_URL": url, "SPARK_REMOTE": "local[2]"},
                timeout=SECONDS, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            results = sorted(json.loads(row.body)["id"] for row in queue.read("results"))
            assert results == list(range(100))
            dead = {json.loads(row.body)["id"]: row.headers["quiver.reason"]
                    for row in queue.read("shop.dead")}  # fmt: skip
            assert sorted(dead.items()) == [(n, "not so: cents is 0 or more") for n in (-3, -2, -1)]

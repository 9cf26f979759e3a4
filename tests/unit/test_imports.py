"""`import quiver` is light: what only some users need is loaded when they use it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from quiver.server.extra import PACKAGES

# What takes long to load, and what is not there for everybody.
HEAVY = {
    "asyncio",
    "boto3",
    "botocore",
    "confluent_kafka",
    "duckdb",
    "fcntl",
    "httptools",
    "matplotlib",
    "msgspec",
    "numpy",
    "opentelemetry",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "resource",
    "rich",
    "starlette",
    "typer",
    "uvloop",
}

pytestmark = pytest.mark.process


def packages_loaded_by(statement: str) -> set[str]:
    return {name.partition(".")[0] for name in modules_loaded_by(statement)}


def modules_loaded_by(statement: str) -> set[str]:
    script = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_quiver_loads_nothing_heavy():
    assert not packages_loaded_by("import quiver") & HEAVY


def test_connecting_loads_nothing_that_only_a_node_or_spark_needs():
    # pyarrow takes numpy along where there is one; that is its choice, not ours.
    needed = packages_loaded_by("import asyncio, pyarrow.parquet, pyarrow.compute")
    found = packages_loaded_by("import quiver, quiver.client.remote.broker; quiver.connect")
    assert found & HEAVY - needed <= {"fcntl", "msgspec"}


def test_a_client_of_nodes_loads_nothing_that_decides_or_keeps_messages():
    found = modules_loaded_by("import quiver, quiver.client.remote.broker; quiver.connect")
    ours = {".".join(name.split(".")[:3]) for name in found if name.startswith("quiver.")}
    assert not {name for name in ours if name.startswith("quiver.core")}
    assert not ours & {"quiver.node.engine", "quiver.node.shard", "quiver.storage.wal"}


def test_the_extra_of_a_node_is_what_it_demands():
    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = [re.split(r"[<>=\[;]", entry)[0].replace("-", "_") for entry in extras["server"]]
    assert sorted(names) == sorted(PACKAGES)
    assert all("quiver-mq[server]" in extras[extra] for extra in ("dev", "bench"))


def test_importing_quiver_starts_no_thread_and_says_nothing():
    script = "import quiver, threading; assert threading.active_count() == 1"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

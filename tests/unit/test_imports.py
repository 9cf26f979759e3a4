"""`import quiver` is light: what only some users need is loaded when they use it."""

import subprocess
import sys

import pytest

HEAVY = {
    "boto3",
    "botocore",
    "confluent_kafka",
    "duckdb",
    "matplotlib",
    "numpy",
    "pandas",
    "pyspark",
    "rich",
    "starlette",
    "typer",
    "uvicorn",
}

pytestmark = pytest.mark.process


def packages_loaded_by(statement: str) -> set[str]:
    script = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_quiver_loads_nothing_heavy():
    # pyarrow takes numpy along where there is one; that is its choice, not ours.
    assert packages_loaded_by("import quiver") & HEAVY <= packages_loaded_by("import pyarrow")


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

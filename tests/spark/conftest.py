"""One Spark session for all tests of this directory, tuned so that small jobs are quick."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import quiver
from tests.server.nodes import ROOT, Node, start_node

# Spark puts its own pyspark.zip, which has nothing compiled in it, before the installed package;
# without it, a Python worker starts three times as fast.
WORKER = """\
#!/bin/sh
kept=
IFS=:
for part in $PYTHONPATH; do
  case "$part" in */pyspark.zip) ;; *) kept="$kept${{kept:+:}}$part" ;; esac
done
unset IFS
PYTHONPATH=$kept exec "{python}" "$@"
"""
SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # jobs of seconds gain nothing from more


# What `make test` runs of the tests that need a session: one of each way in and out. Jobs take seconds, so
# another test belongs to `make check`, unless it is named here.
SMALLEST = {
    "test_every_cell_is_what_was_sent",
    "test_messages_that_cannot_be_read_end_the_job_and_do_not_just_lack",
    "test_history_and_the_rest_are_one_frame",
    "test_what_is_there_is_read_in_bounded_batches_and_once",
    "test_rows_are_acked_when_their_batch_is_committed",
    "test_what_is_written_is_what_is_read[node]",
    "test_nobody_sees_half_of_a_dataframe",
    "test_an_application_writes_a_batch_once[node]",
    "test_a_stream_goes_on_where_it_was[node]",
    "test_every_body_is_a_good_row_or_a_bad_one_with_a_reason",
    "test_good_rows_are_loaded_and_bad_ones_are_dead_letters_with_a_reason",
}


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.spark)
    if "spark" in getattr(item, "fixturenames", ()) and item.name not in SMALLEST:
        item.add_marker(pytest.mark.check)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, workplace: Path) -> Iterator:
    from quiver.spark.session import start_session

    scratch = tmp_path_factory.mktemp("spark")
    worker = scratch / "python"
    worker.write_text(WORKER.format(python=sys.executable))
    worker.chmod(0o755)
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("PYSPARK_PYTHON", str(worker))
    monkeypatch.setenv(
        "PYTHONPATH", str(ROOT), prepend=os.pathsep
    )  # workers may need what tests define
    monkeypatch.chdir(workplace)  # where Spark's processes will be, whatever we do later
    session = start_session(
        "tests",
        SETTINGS
        | {
            "spark.local.dir": str(scratch / "local"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.driver.extraJavaOptions": f"{JVM} -Djava.io.tmpdir={scratch}",
        },
    )
    monkeypatch.undo()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of Spark's processes: what a relative path means to them."""
    return tmp_path_factory.mktemp("workplace")


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node for all tests that do not stop it; each uses topics of its own."""
    with start_node(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture(scope="session")
def url(node: Node) -> str:
    return f"quiver://127.0.0.1:{node.port}"


@pytest.fixture
def queue(url: str) -> Iterator[quiver.Queue]:
    with quiver.connect(url) as opened:
        yield opened


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return request.node.name.replace("[", ".").replace("]", "").replace("/", "-")[:100]


@pytest.fixture
def here() -> Iterator[None]:
    """For tests that do themselves what Spark's processes do: what these keep open is closed."""
    from quiver.spark import connections

    yield
    connections.close()

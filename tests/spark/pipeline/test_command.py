"""`quiver pipeline run` as a process: it can be stopped in order, and killed at any time."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import quiver

SECONDS = 300
FILE = """
name = "shop"
checkpoint = "{here}/checkpoint"
every = "100ms"

[extract]
url = "{url}"
topics = ["{topic}"]
max_rows = {most}

[transform.versions.1]
schema = "id BIGINT NOT NULL"

[enrich.dedup]
by = ["id"]
within = "1d"

[load.parquet]
path = "{here}/out"

[load.topic]
topic = "{topic}.done"

[spark]
"spark.master" = "local[2]"
"spark.driver.memory" = "1g"
"spark.sql.shuffle.partitions" = 1
"spark.local.dir" = "{here}/spark"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={here}"
"""


class Command:
    """A running pipeline; `batches` has what it said so far."""

    def __init__(self, file: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "quiver.cli", "pipeline", "run", str(file), "--json", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def batch(self) -> dict[str, Any]:
        """The next batch that it is done with."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=SECONDS)[1]
        return json.loads(line)

    def end(self) -> tuple[int, list[dict[str, Any]], str]:
        """Exit code, further batches, and what it says besides."""
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, [json.loads(line) for line in out.splitlines()], err

    def kill(self) -> None:
        """All of its processes at once, as when a machine goes down."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=SECONDS)


def write(tmp_path: Path, url: str, topic: str, most: int) -> Path:
    file = tmp_path / "pipeline.toml"
    file.write_text(FILE.format(here=tmp_path, url=url, topic=topic, most=most))
    return file


def ids(first: int, last: int) -> list[dict[str, Any]]:
    return [{"id": number} for number in range(first, last)]


@pytest.mark.slow  # a Java of its own
def test_it_runs_until_it_is_told_to_stop(queue: quiver.Queue, url, topic, tmp_path):
    queue.create_topic(topic, retention="forever")
    queue.send_batch(topic, ids(0, 30))
    command = Command(write(tmp_path, url, topic, most=10))
    try:
        first = command.batch()
        assert first["stages"]["extract"]["rows_out"] == 10
        command.process.send_signal(signal.SIGTERM)
        code, more, said = command.end()
    finally:
        if command.process.poll() is None:
            command.kill()
    assert code == 0, said
    assert "src/quiver" not in said, said  # others are Spark's, whose processes it has ended
    done = 10 * (1 + len(more))
    assert len(list(queue.read(f"{topic}.done"))) == done, "a batch is done or not begun"
    assert ds.dataset(tmp_path / "out").count_rows() == done


@pytest.mark.slow
def test_when_its_java_is_told_as_well_it_says_what_became_of_the_batch(
    queue: quiver.Queue, url, topic, tmp_path
):
    queue.create_topic(topic, retention="forever")
    queue.send_batch(topic, ids(0, 1_000))
    command = Command(write(tmp_path, url, topic, most=10))
    try:
        command.batch()
        os.killpg(command.process.pid, signal.SIGTERM)
        code, _, said = command.end()
    finally:
        if command.process.poll() is None:
            command.kill()
    ends = code, "next run does again" in said
    assert ends in ((1, True), (0, False)), said  # or it was faster than its Java


def test_what_is_wrong_in_the_file_is_said_in_a_sentence(tmp_path):
    file = write(tmp_path, "quiver://127.0.0.1:1", "orders", most=10)
    file.write_text(file.read_text().replace("max_rows", "max_row"))
    done = subprocess.run(
        [sys.executable, "-m", "quiver.cli", "pipeline", "run", str(file)],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "there is no key 'max_row' in [extract]; did you mean 'max_rows'?" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, pytest.param(6, marks=pytest.mark.soak)])
def test_killed_at_any_time_every_message_has_its_effect_once(
    queue: quiver.Queue, url, topic, tmp_path, kills
):
    queue.create_topic(topic, partitions=3, retention="forever")
    total = 10_000
    for first in range(0, total, 1_000):
        queue.send_batch(topic, ids(first, first + 1_000))
    queue.send_batch(topic, [b"bad"] * 10)
    queue.send_batch(topic, ids(0, 500))  # a second time
    file = write(tmp_path, url, topic, most=300)
    dice = random.Random(5)
    for _ in range(kills):
        command = Command(file)
        command.batch()  # it runs
        time.sleep(dice.uniform(0, 1.5))
        command.kill()
    command = Command(file, "--once")
    code, _, said = command.end()
    assert code == 0, said
    wanted = list(range(total))
    assert sorted(json.loads(row.body)["id"] for row in queue.read(f"{topic}.done")) == wanted
    table = ds.dataset(tmp_path / "out").to_table()
    assert sorted(table["id"].to_pylist()) == wanted
    assert [bytes(row.body) for row in queue.read("shop.dead")] == [b"bad"] * 10

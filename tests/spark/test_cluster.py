"""Exactly once, from a topic through a standalone Spark into another topic, whoever is killed."""

import json
import random
import time
from collections import Counter
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import quiver
from tests.server.nodes import start_node
from tests.spark import speculating
from tests.spark.cluster import Cluster, Driver, driver, kill
from tests.spark.dying import STEPS, die, has_died

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]

JOB = "tests.spark.jobs"
KILLS = {"executor": 11, "python": 11, "driver": 4, "node": 6}
KILLS_FEW = {"executor": 2, "python": 2, "driver": 1, "node": 2}
BATCHES = 50
PARTITIONS = 4
PATIENCE = "?patience=120"
JOB_SECONDS = 600  # for a short job, on a machine that has other things to do


def fill(queue: quiver.Queue, topic: str, rows: int) -> None:
    queue.create_topic(topic, partitions=PARTITIONS, retention="forever")
    for start in range(0, rows, 50_000):
        numbers = pa.array(range(start, min(start + 50_000, rows)))
        texts = numbers.cast(pa.string())
        keys = pc.binary_join_element_wise("k", pc.utf8_slice_codeunits(texts, -2), "")
        queue.send_batch(topic, pa.table({"body": texts, "key": keys}))


def check(queue: quiver.Queue, topic: str, rows: int) -> None:
    """Every number has had its effect exactly once, and those of a key in the order they were sent."""
    found = pa.concat_tables(list(queue.read_arrow(topic)))
    found = found.sort_by([("partition", "ascending"), ("offset", "ascending")])
    words = pc.split_pattern(found["body"].cast(pa.string()), " ").combine_chunks()
    numbers, squares = (pc.list_element(words, at).cast(pa.int64()) for at in (0, 1))
    counts = Counter(numbers.to_pylist())
    doubled = {number: count for number, count in counts.items() if count > 1}
    missing = [number for number in range(rows) if number not in counts]
    assert not missing, f"{len(missing)} are missing, such as {missing[:10]}"
    assert not doubled, f"{len(doubled)} came more than once, such as {list(doubled.items())[:10]}"
    assert len(found) == rows
    assert pc.all(pc.equal(squares, pc.multiply(numbers, numbers))).as_py()
    last: dict[str, int] = {}
    for key, number in zip(found["key"].to_pylist(), numbers.to_pylist(), strict=True):
        assert last.get(key, -1) < number, f"{number} of {key} came after {last[key]}"
        last[key] = number


class Storm:
    """Runs a job to its end, and kills those who work for it on the way."""

    def __init__(
        self,
        cluster: Cluster,
        node,
        queue: quiver.Queue,
        path: Path,
        rows: int,
        kills: dict[str, int],
    ) -> None:
        self.cluster, self.node, self.queue, self.path = cluster, node, queue, path
        self.rows = rows
        self.random = random.Random(5)
        self.plan = [kind for kind, count in kills.items() for _ in range(count)]
        self.random.shuffle(self.plan)
        self.killed: Counter[str] = Counter()
        self.driver: Driver | None = None

    def run(self) -> None:
        try:
            while not self._finished():
                self._kill_when_due()
                time.sleep(0.1)
        finally:
            if self.driver is not None:
                self.driver.kill()

    def _finished(self) -> bool:
        """Whether the job has come to its end; one that was killed, or gave up, starts again."""
        if self.driver is not None and not self.driver.ended:
            return False
        if self.driver is not None and self.driver.wait() == 0:
            return True
        self.driver = Driver(
            self.path, JOB, "--master", self.cluster.url,
            "--url", f"quiver://127.0.0.1:{self.node.port}{PATIENCE}",
            "--source", "numbers", "--sink", "squares", "--rows", str(self.rows // BATCHES),
            "--checkpoint", str(self.path / "checkpoint"),
        )  # fmt: skip
        return False

    def _kill_when_due(self) -> None:
        """The next one is due when so much more is done; then at any moment of a batch."""
        killed = self.killed.total()
        share = 0.8 * (killed + 0.5) / (killed + len(self.plan) + 1)
        if not self.plan or self.queue.stats("squares").sent < share * self.rows:
            return
        time.sleep(self.random.uniform(0, 2))
        kind = self.plan[-1]
        if getattr(self, f"_kill_{kind}")():
            self.plan.pop()
            self.killed[kind] += 1

    def _kill_executor(self) -> bool:
        found = self.cluster.executors()
        return bool(found) and kill(self.random.choice(found))

    def _kill_python(self) -> bool:
        found = self.cluster.pythons()
        return bool(found) and kill(self.random.choice(found))

    def _kill_driver(self) -> bool:
        assert self.driver is not None
        if self.driver.ended or not self.driver.said("started"):
            return False
        self.driver.kill()
        return True

    def _kill_node(self) -> bool:
        self.node.kill()
        self.node.restart()
        return True


@pytest.mark.parametrize(
    ("rows", "kills"),
    [
        pytest.param(100_000, KILLS_FEW, id="7 kills"),
        pytest.param(1_000_000, KILLS, id="32 kills", marks=pytest.mark.soak),
    ],
)
def test_every_message_has_its_effect_once_whoever_is_killed(tmp_path, capsys, rows, kills):
    with start_node(tmp_path) as node, Cluster(tmp_path / "spark", workers=2) as cluster:
        address = f"quiver://127.0.0.1:{node.port}{PATIENCE}"
        with quiver.connect(address) as queue:
            fill(queue, "numbers", rows)
            queue.create_topic("squares", partitions=PARTITIONS, retention="forever")
            storm = Storm(cluster, node, queue, tmp_path, rows, kills)
            began = time.monotonic()
            storm.run()
            with capsys.disabled():
                print(f"\n{dict(storm.killed)} in {time.monotonic() - began:.0f} s")
            assert storm.killed == kills
            check(queue, "squares", rows)


def test_a_task_that_runs_twice_writes_its_rows_once(tmp_path):
    rows = speculating.TASKS * speculating.ROWS
    with start_node(tmp_path) as node, Cluster(tmp_path / "spark", workers=2) as cluster:
        url = f"quiver://127.0.0.1:{node.port}"
        with quiver.connect(url) as queue:
            queue.create_topic("slow", partitions=PARTITIONS)
            with driver(tmp_path, "tests.spark.speculating", cluster.url, url) as job:
                assert job.wait(JOB_SECONDS) == 0, job.log.read_text()[-5_000:]
            numbers = [int(row.body.split()[0]) for row in queue.read("slow")]
            assert sorted(numbers) == list(range(rows))
            told = queue.ledger().filter(pc.field("event") == "sent")
            assert pc.sum(told["count"]).as_py() > rows, "both have staged some"


def loaded(queue: quiver.Queue) -> int:
    return queue.stats("done").sent if "done" in queue.topics() else 0


def test_a_pipeline_on_a_cluster_whose_executors_die(tmp_path):
    total = 20_000
    with start_node(tmp_path) as node, Cluster(tmp_path / "spark", workers=2) as cluster:
        url = f"quiver://127.0.0.1:{node.port}{PATIENCE}"
        with quiver.connect(url) as queue:
            queue.create_topic("ids", partitions=PARTITIONS, retention="forever")
            for start in range(0, total, 1_000):
                queue.send_batch("ids", [{"id": at} for at in range(start, start + 1_000)])
            file = tmp_path / "pipeline.toml"
            file.write_text(PIPELINE.format(here=tmp_path, url=url, master=cluster.url))
            with driver(tmp_path, "quiver.cli", "pipeline", "run", str(file), "--once") as job:
                for enough in (total // 5, total * 2 // 5, total * 3 // 5):
                    while not job.ended and loaded(queue) < enough:
                        time.sleep(0.05)
                    assert not job.ended, job.log.read_text()[-5_000:]
                    assert kill(cluster.executors()[0])
                assert job.wait(JOB_SECONDS) == 0, job.log.read_text()[-5_000:]
            assert sorted(json.loads(row.body)["id"] for row in queue.read("done")) == [
                *range(total)
            ]
            written = ds.dataset(tmp_path / "out").to_table()
            assert sorted(written["id"].to_pylist()) == [*range(total)]


PIPELINE = """
name = "cluster"
checkpoint = "{here}/pipeline"
every = "100ms"

[extract]
url = "{url}"
topics = ["ids"]
max_rows = 2000

[transform.versions.1]
schema = "id BIGINT NOT NULL"

[load.parquet]
path = "{here}/out"

[load.topic]
topic = "done"

[spark]
"spark.master" = "{master}"
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.driver.memory" = "512m"
"spark.executor.memory" = "512m"
"spark.executor.cores" = 1
"spark.sql.shuffle.partitions" = 2
"spark.task.maxFailures" = 100
"""

often = pytest.mark.parametrize(
    "steps",
    [
        pytest.param(STEPS[::3], id="every third"),
        pytest.param(STEPS, id="all", marks=pytest.mark.soak),
    ],
)
ROWS_FEW = 400
BATCH_ROWS_FEW = 40


def words(path: Path, url: str) -> list[str]:
    """What starts the job on this machine, with somebody to die."""
    return ["--master", "local[2,4]", "--url", url, "--source", "numbers", "--sink", "squares",
            "--rows", str(BATCH_ROWS_FEW), "--checkpoint", str(path / "checkpoint"),
            "--order", str(path / "order")]  # fmt: skip


@often
def test_a_driver_killed_between_any_two_steps_writes_each_row_once(tmp_path, steps):
    """It dies at one step after the other; the next one finishes that batch, and dies at the next step."""
    with start_node(tmp_path) as node:
        url = f"quiver://127.0.0.1:{node.port}{PATIENCE}"
        with quiver.connect(url) as queue:
            fill(queue, "numbers", ROWS_FEW)
            queue.create_topic("squares", partitions=PARTITIONS, retention="forever")
            for step in steps:
                die(tmp_path / "order", step, "driver")
                with driver(tmp_path, JOB, *words(tmp_path, url)) as job:
                    assert job.wait(JOB_SECONDS) != 0
                assert has_died(tmp_path / "order"), job.log.read_text()[-5_000:]
            with driver(tmp_path, JOB, *words(tmp_path, url)) as job:
                assert job.wait(JOB_SECONDS) == 0, job.log.read_text()[-5_000:]
            check(queue, "squares", ROWS_FEW)


@often
def test_a_node_or_worker_killed_between_any_two_steps_costs_no_row(tmp_path, steps):
    """The job goes on when the node is there again, and starts again if it could not go on."""
    with start_node(tmp_path) as node, ExitStack() as jobs:
        url = f"quiver://127.0.0.1:{node.port}{PATIENCE}"
        queue = jobs.enter_context(quiver.connect(url))
        fill(queue, "numbers", ROWS_FEW)
        queue.create_topic("squares", partitions=PARTITIONS, retention="forever")
        job = jobs.enter_context(driver(tmp_path, JOB, *words(tmp_path, url)))
        for how, step in product(("node", "worker"), steps):
            die(tmp_path / "order", step, how, node.pid)
            while not has_died(tmp_path / "order"):
                if job.ended:
                    assert job.wait() != 0, f"it was over before anybody died {step}"
                    job = jobs.enter_context(driver(tmp_path, JOB, *words(tmp_path, url)))
                time.sleep(0.05)
            if how == "node":
                node.wait()
                node.restart()
        if job.wait(JOB_SECONDS) != 0:  # the last one killed was the one who had committed
            job = jobs.enter_context(driver(tmp_path, JOB, *words(tmp_path, url)))
            assert job.wait(JOB_SECONDS) == 0, job.log.read_text()[-5_000:]
        check(queue, "squares", ROWS_FEW)

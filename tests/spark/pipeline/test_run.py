"""A pipeline from topics to files and topics: every message once, bad ones with their reason."""

import json
import threading
from typing import Any

import pyarrow.dataset as ds
import pytest

from quiver import limits
from quiver.errors import InvalidRequest, PipelineFailed
from quiver.spark.pipeline import Pipeline, make

ORDERS: dict[str, dict[str, Any]] = {
    "1": {"schema": "id STRING NOT NULL, customer STRING, euros DOUBLE"},
    "2": {
        "schema": "id STRING NOT NULL, customer STRING, cents BIGINT NOT NULL",
        "migrate": {"cents": "CAST(round(euros * 100) AS BIGINT)"},
    },
}


@pytest.fixture
def told(url: str, topic: str, tmp_path) -> dict[str, Any]:
    """A pipeline that each test changes to its needs."""
    return {
        "name": topic,
        "checkpoint": str(tmp_path / "checkpoint"),
        "extract": {"url": url, "topics": [topic]},
        "transform": {"versions": ORDERS, "checks": {"cents is 0 or more": "cents >= 0"}},
        "load": {"parquet": {"path": str(tmp_path / "out")}},
    }


def run(spark, told: dict[str, Any]):
    return list(Pipeline(spark, make(told)).run(once=True))


def send(queue, topic: str, *bodies: dict[str, Any] | bytes, version: str = "2") -> None:
    for body in bodies:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        queue.send(topic, raw, key="ann", headers={"version": version, "traceparent": "t"})


def order(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"o{number}", "customer": f"c{number % 3}", "cents": number, **more}


def files(tmp_path) -> list[dict[str, Any]]:
    """What somebody who knows nothing of Spark reads."""
    return ds.dataset(tmp_path / "out", partitioning="hive").to_table().to_pylist()


def bodies(queue, topic: str) -> list[Any]:
    return [json.loads(row.body) for row in queue.read(topic)]


def test_good_rows_are_loaded_and_bad_ones_are_dead_letters_with_a_reason(
    spark, queue, url, topic, told, tmp_path
):
    queue.create_topic(topic, partitions=2, retention="forever")
    send(queue, topic, *(order(number) for number in range(20)))
    send(queue, topic, {"id": "old", "customer": "c1", "euros": 1.25}, version="1")
    queue.create_topic(f"{topic}.more", retention="forever")
    send(queue, f"{topic}.more", order(20))
    told["extract"]["topics"].append(f"{topic}.more")
    large = order(50, customer="x" * 2_000)
    send(queue, topic, order(-5), b"nope", large)
    told["load"]["topic"] = {"topic": f"{topic}.done", "key": "customer"}
    told["load"]["parquet"]["partition_by"] = ["customer"]
    (batch,) = run(spark, told)

    found = sorted(files(tmp_path), key=lambda row: row["id"])
    wanted = [order(number) for number in range(21)]
    wanted.append({"id": "old", "customer": "c1", "cents": 125})
    assert found == sorted(wanted, key=lambda row: row["id"])
    assert (tmp_path / "out" / "customer=c0").is_dir()
    done = list(queue.read(f"{topic}.done"))
    assert sorted((json.loads(row.body) for row in done), key=lambda row: row["id"]) == found
    assert {row.key for row in done} == {"c0", "c1", "c2"}
    assert {row.headers["traceparent"] for row in done} == {"t"}

    dead = {bytes(row.body): row for row in queue.read(f"{topic}.dead")}
    assert {body: row.headers["quiver.reason"] for body, row in dead.items()} == {
        json.dumps(order(-5)).encode(): "not so: cents is 0 or more",
        b"nope": "the body is not JSON",
        json.dumps(large).encode(): "the key of the result has more than 1,024 bytes",
    }
    origin = {bytes(row.body): row for row in queue.read(topic)}[b"nope"]
    assert dead[b"nope"].headers == {
        "version": "2", "traceparent": "t", "quiver.pipeline": topic, "quiver.stage": "transform",
        "quiver.reason": "the body is not JSON", "quiver.topic": topic,
        "quiver.partition": str(origin.partition), "quiver.offset": str(origin.offset),
    }  # fmt: skip
    assert dead[b"nope"].key == "ann"

    stages = {
        name: (stage.rows_in, stage.rows_out, stage.bad) for name, stage in batch.stages.items()
    }
    assert stages == {
        "extract": (25, 25, 0), "transform": (25, 23, 2), "enrich": (23, 23, 0), "load": (23, 22, 1),
    }  # fmt: skip
    assert batch.behind == 0
    assert set(batch.seconds) == {"compute", "parquet", "topic", "dead letters", "batch"}


def test_a_run_goes_on_where_the_last_one_ended(spark, queue, topic, told, tmp_path):
    queue.create_topic(topic, retention="forever")
    told["extract"]["max_rows"] = 4
    told["load"]["parquet"]["partition_by"] = ["cents"]  # of which the folders' names have no type
    send(queue, topic, *(order(number) for number in range(10)))
    assert [(batch.rows, batch.behind) for batch in run(spark, told)] == [(4, 6), (4, 2), (2, 0)]
    assert run(spark, told) == []
    send(queue, topic, order(10))
    assert [batch.number for batch in run(spark, told)] == [3]
    assert sorted(row["cents"] for row in files(tmp_path)) == list(range(11))


class Watched(Pipeline):
    """It asks itself to stop when batch 1 begins."""

    def _start(self, rows, *, once):
        self.begun = threading.Event()
        self.query = super()._start(rows, once=once)
        return self.query

    def _load(self, rows, number):
        if number == 1:
            self.stop()
            self.begun.set()
        super()._load(rows, number)


def test_a_batch_that_would_begin_while_it_stops_does_not_and_is_no_failure(
    spark, queue, topic, told, tmp_path
):
    queue.create_topic(topic, retention="forever")
    told["extract"]["max_rows"] = 4
    told["every"] = "10ms"
    send(queue, topic, *(order(number) for number in range(8)))
    pipeline = Watched(spark, make(told))
    running = pipeline.run()
    assert next(running).rows == 4
    assert pipeline.begun.wait(60)
    assert list(running) == []
    assert pipeline.query.exception() is None
    assert list(pipeline.run()) == [], "it runs again, and is asked again"
    assert [batch.number for batch in run(spark, told)] == [1], "it is done by another run"
    assert sorted(row["cents"] for row in files(tmp_path)) == list(range(8))


def test_it_can_be_stopped_while_it_waits_for_room(spark, queue, topic, told, monkeypatch):
    monkeypatch.setattr(limits, "PIPELINE_FULL_SECONDS", 0.1)
    queue.create_topic(topic, retention="forever")
    queue.create_topic(f"{topic}.done", max_backlog=3)
    queue.create_group(f"{topic}.done", "g")
    told["load"] = {"topic": {"topic": f"{topic}.done"}}
    send(queue, topic, *(order(number) for number in range(3)))
    waits = threading.Event()

    class Waiting(Pipeline):
        def _patiently(self, send):
            waits.set()
            super()._patiently(send)

    pipeline = Waiting(spark, make(told))
    queue.send(f"{topic}.done", b"in the way")

    def stop() -> None:
        waits.wait(60)
        pipeline.stop()

    threading.Thread(target=stop).start()
    assert list(pipeline.run()) == []
    assert waits.is_set()
    assert queue.purge(f"{topic}.done") == 1
    assert [batch.rows for batch in run(spark, told)] == [3]


def test_what_fails_while_it_stops_is_told_after_what_was_done(spark, queue, topic, told):
    queue.create_topic(topic, retention="forever")
    told["extract"]["max_rows"] = 2
    send(queue, topic, *(order(number) for number in range(6)))

    class Failing(Pipeline):
        def _loads(self, rows, number, counted):
            if number == 2:
                self.stop()
                raise RuntimeError("the disk is on fire")
            return super()._loads(rows, number, counted)

    running = Failing(spark, make(told)).run(once=True)
    assert [next(running).number for _ in range(2)] == [0, 1]
    with pytest.raises(PipelineFailed, match="the next run does again: the disk is on fire"):
        next(running)


def test_what_cannot_be_done_is_refused_before_anything_is_read(spark, queue, topic, told):
    queue.create_topic(topic)
    told["load"]["parquet"]["partition_by"] = ["id", "customer", "cents"]
    with pytest.raises(InvalidRequest, match="partition_by: leave a column for the files"):
        run(spark, told)
    told["transform"]["checks"] = {"it is paid": "cents + 1"}
    with pytest.raises(InvalidRequest, match=r"'it is paid': .*BOOLEAN"):
        run(spark, told)


@pytest.mark.parametrize("place", ["s3://nowhere", "/proc/nowhere"], ids=["s3", "proc"])
def test_what_spark_cannot_begin_is_said_in_a_sentence(spark, queue, topic, told, place):
    queue.create_topic(topic)
    told["checkpoint"] = place
    with pytest.raises(PipelineFailed, match="Spark cannot begin: ") as failed:
        run(spark, told)
    assert "Traceback" not in str(failed.value)
    assert "\n" not in str(failed.value)


@pytest.mark.slow
def test_it_may_end_after_any_step_of_a_batch(spark, queue, topic, told, tmp_path):
    queue.create_topic(topic, retention="forever")
    told["load"]["topic"] = {"topic": f"{topic}.done"}
    for number, last in enumerate(("compute", "parquet", "topic", "dead letters")):

        class Dying(Pipeline):
            @staticmethod
            def _timed(seconds, name, step, last=last):
                done = Pipeline._timed(seconds, name, step)
                if name == last:
                    raise RuntimeError(f"it ends after {name}")
                return done

        send(queue, topic, order(2 * number), order(2 * number + 1), b"bad")
        with pytest.raises(PipelineFailed, match="the next run does"):
            list(Dying(spark, make(told)).run(once=True))
        run(spark, told)
        wanted = list(range(2 * number + 2))
        assert sorted(row["cents"] for row in files(tmp_path)) == wanted
        assert sorted(row["cents"] for row in bodies(queue, f"{topic}.done")) == wanted
        assert len(list(queue.read(f"{topic}.dead"))) == number + 1


@pytest.mark.slow
def test_a_checkpoint_that_was_lost_is_noticed(spark, queue, topic, told, tmp_path):
    queue.create_topic(topic, retention="forever")
    send(queue, topic, order(1))
    run(spark, told)
    told["checkpoint"] = str(tmp_path / "another")
    with pytest.raises(InvalidRequest, match="another checkpoint"):
        run(spark, told)
    assert len(files(tmp_path)) == 1


@pytest.mark.slow
def test_files_keep_their_types(spark, queue, topic, told, tmp_path):
    queue.create_topic(topic, retention="forever")
    send(queue, topic, order(1))
    run(spark, told)
    told["transform"]["versions"] = {
        "2": ORDERS["2"] | {"migrate": {}},
        "3": {"schema": "id STRING, cents DOUBLE", "migrate": {"cents": "cents / 100"}},
    }
    with pytest.raises(InvalidRequest, match="has 'cents' as bigint, and it would be double now"):
        run(spark, told)
    told["transform"]["versions"]["3"] = {"schema": "id STRING, cents BIGINT, vip BOOLEAN"}
    send(queue, topic, order(2, vip=True), version="3")
    run(spark, told)
    rows = sorted(spark.read.option("mergeSchema", "true").parquet(told["load"]["parquet"]["path"])
                  .select("id", "cents", "vip").collect())  # fmt: skip
    assert [tuple(row) for row in rows] == [("o1", 1, None), ("o2", 2, True)]

"""Rows get what others know about them, each row stays one, and none is lost for being late."""

import json
import time

import pytest

from quiver.errors import InvalidRequest, PipelineFailed
from quiver.spark.pipeline.clock import Checkpoint
from tests.spark.pipeline.test_run import bodies, order, run, send, told

__all__ = ["told"]  # a fixture

pytestmark = pytest.mark.slow  # several queries each


def reasons(queue, topic: str) -> dict[str, str]:
    return {
        bytes(row.body).decode(): row.headers["quiver.reason"]
        for row in queue.read(f"{topic}.dead")
    }


def test_a_row_comes_once_through_restarts_and_bad_ones_as_often_as_they_came(
    spark, queue, topic, told
):
    queue.create_topic(topic, partitions=3, retention="forever")
    told["enrich"] = {"dedup": {"by": ["id"], "within": "1h"}}
    told["load"] = {"topic": {"topic": f"{topic}.done"}}
    send(queue, topic, order(1), order(2), order(1), b"bad", b"bad")
    (first,) = run(spark, told)
    assert first.stages["enrich"].duplicates == 1
    send(queue, topic, order(2), order(3), b"bad")
    run(spark, told)
    assert sorted(row["id"] for row in bodies(queue, f"{topic}.done")) == ["o1", "o2", "o3"]
    assert len(list(queue.read(f"{topic}.dead"))) == 3


def test_rows_whose_times_differ_by_a_microsecond_are_different(spark, queue, topic, told):
    queue.create_topic(topic, retention="forever")
    told["transform"] = {"versions": {"2": {"schema": "at TIMESTAMP, local TIMESTAMP_NTZ"}}}
    told["enrich"] = {"dedup": {"by": ["at", "local"], "within": "1h"}}
    told["load"] = {"topic": {"topic": f"{topic}.done"}}
    times = [f"2026-01-01T00:00:00.00000{micros}" for micros in (1, 2)]
    rows = [{"at": f"{at}Z", "local": local} for at in times for local in times]
    same = {"at": f"{times[0].replace('T00', 'T01')}+01:00", "local": times[0]}
    send(queue, topic, *rows, same, {}, {})
    run(spark, told)
    nothing = {"at": None, "local": None}
    assert sorted(bodies(queue, f"{topic}.done"), key=str) == sorted([*rows, nothing], key=str)
    told["transform"] = {"versions": {"2": {"schema": "at MAP<STRING, INT>, local INT"}}}
    with pytest.raises(InvalidRequest, match=r"enrich.dedup.by: .*\"MAP"):
        run(spark, told)


def test_no_row_is_dropped_because_the_clock_went_back(
    spark, queue, topic, told, tmp_path, monkeypatch
):
    queue.create_topic(topic, retention="forever")
    told["enrich"] = {"dedup": {"by": ["id"], "within": "1h"}}
    told["load"] = {"topic": {"topic": f"{topic}.done"}}
    send(queue, topic, order(1))
    run(spark, told)
    commits = (tmp_path / "checkpoint" / "commits").glob("[0-9]*")
    last = max(commits, key=lambda file: int(file.name))
    tomorrow = time.time_ns() // 1_000_000 + 86_400_000
    last.write_text(f'v1\n{{"nextBatchWatermarkMs": {tomorrow}}}')
    send(queue, topic, order(2))
    with monkeypatch.context() as during_the_run:
        during_the_run.setattr(Checkpoint, "behind_ms", lambda *_: 0)
        with pytest.raises(PipelineFailed, match=r"the clock went back, 86,[34]"):
            run(spark, told)
    for number in (2, 3):
        run(spark, told)
        assert {row["id"] for row in bodies(queue, f"{topic}.done")} >= {f"o{number}"}
        send(queue, topic, order(2), order(3))
    assert sorted(row["id"] for row in bodies(queue, f"{topic}.done")) == ["o1", "o2", "o3"]


def test_reference_data_is_joined_and_what_must_be_there_is_missed(
    spark, queue, topic, told, tmp_path
):
    queue.create_topic(topic, retention="forever")
    (tmp_path / "customers.csv").write_text("customer,name\nc0,Ann\nc1,Bo\n")
    (tmp_path / "vip.json").write_text('{"name": "Bo", "discount": 5}\n')
    customers = {"name": "customers", "path": str(tmp_path / "customers.csv"), "format": "csv",
                 "on": ["customer"], "required": True}  # fmt: skip
    vip = {"name": "vip", "path": str(tmp_path / "vip.json"), "format": "json", "on": ["name"]}
    told["enrich"] = {
        "reference": [customers, vip],
        "columns": {"due": "cents - coalesce(discount, 0)", "day": "date(_message.created_at)"},
    }
    told["load"] = {"topic": {"topic": f"{topic}.done", "key": "name"}}
    send(queue, topic, order(3), order(4), order(5))
    (batch,) = run(spark, told)
    found = {row["id"]: (row["name"], row["due"]) for row in bodies(queue, f"{topic}.done")}
    assert found == {"o3": ("Ann", 3), "o4": ("Bo", -1)}
    assert reasons(queue, topic) == {
        json.dumps(order(5)): 'there is no customers for {"customer":"c2"}'
    }
    assert (batch.stages["enrich"].bad, batch.stages["load"].rows_out) == (1, 2)


def test_reference_data_that_would_make_two_rows_of_one_is_refused(
    spark, queue, topic, told, tmp_path
):
    queue.create_topic(topic)
    told["load"] = {"topic": {"topic": f"{topic}.done"}}
    for text, refusal in {
        "customer,name\nc0,Ann\nc0,Bo\n": "has 2 rows for customer = c0",
        "customer,cents\nc0,Ann\n": "has a column 'cents', and the rows have one already",
        "who,name\nc0,Ann\n": "there is no column 'customer', only who, name",
        "cents,name\n1,Ann\n01,Bo\n": "has 2 rows for cents = 1",
        "cents,name\n1.5,Ann\n": "has cents = 1.5, and the rows have it as bigint",
    }.items():
        (tmp_path / "customers.csv").write_text(text)
        on = "cents" if text.startswith("cents") else "customer"
        told["enrich"] = {"reference": [{"name": "customers", "path": str(tmp_path / "customers.csv"),
                                         "format": "csv", "on": [on]}]}  # fmt: skip
        with pytest.raises(InvalidRequest, match=refusal):
            run(spark, told)


def with_payments(told, topic: str, within: str) -> str:
    """The pipeline waits for payments; their topic."""
    told["enrich"] = {"stream": {"topic": f"{topic}.payments", "on": ["id"], "within": within,
                                 "schema": "id STRING NOT NULL, paid TIMESTAMP",
                                 "required": True}}  # fmt: skip
    told["load"] = {"topic": {"topic": f"{topic}.done"}}
    return f"{topic}.payments"


def test_another_stream_is_waited_for(spark, queue, topic, told):
    payments = with_payments(told, topic, "1h")
    queue.create_topic(topic, retention="forever")
    queue.create_topic(payments, retention="forever")
    paid = "2026-01-01T00:00:00.000000Z"
    send(queue, topic, order(1), order(2), order(3), b"bad order")
    send(queue, payments, {"id": "o1", "paid": paid}, {"id": "o1", "paid": None}, b"bad payment")
    run(spark, told)
    assert bodies(queue, f"{topic}.done") == [order(1, paid=paid)]
    assert reasons(queue, topic).keys() == {"bad order", "bad payment"}

    send(queue, payments, {"id": "o2", "paid": paid}, {"id": "of nobody"})
    run(spark, told)
    assert bodies(queue, f"{topic}.done") == [order(1, paid=paid), order(2, paid=paid)]
    assert reasons(queue, topic).keys() == {"bad order", "bad payment"}


def test_another_stream_is_not_waited_for_for_ever(spark, queue, topic, told):
    payments = with_payments(told, topic, "10ms")
    queue.create_topic(topic, retention="forever")
    queue.create_topic(payments, retention="forever")
    for number in range(1, 5):  # time passes from batch to batch
        send(queue, topic, order(number))
        send(queue, payments, {"id": f"of nobody {number}"})
        run(spark, told)
        if reasons(queue, topic):
            break
    assert (
        reasons(queue, topic)[json.dumps(order(1))] == f'there is no {payments} for {{"id":"o1"}}'
    )
    assert bodies(queue, f"{topic}.done") == []

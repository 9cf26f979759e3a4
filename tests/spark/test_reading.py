"""Spark reads a topic as it is, once, in as many tasks as its size asks for."""

import pytest
from pyspark.errors import AnalysisException, PySparkException

import quiver
from quiver.spark import rows
from quiver.spark.options import Options
from quiver.spark.reading import MessagesReader, replay
from quiver.spark.spans import Share, Span
from tests.server.nodes import start_node
from tests.spark.frames import assert_same, expected, load, moment, varied


def test_every_cell_is_what_was_sent(spark, queue, url, topic):
    queue.create_topic(topic, retention="forever", partitions=3)
    queue.send_batch(topic, varied(500))
    queue.send(topic, b"m" * 1_000_000, key="big")
    found = load(spark, url, topic).toArrow()
    assert_same(found, expected(queue, topic))
    assert found.num_rows == 501


def test_a_directory_is_read_while_somebody_owns_it_and_afterwards(spark, tmp_path, topic):
    with quiver.connect(tmp_path / "data") as owner:
        owner.create_topic(topic, retention="forever", partitions=3)
        owner.send_batch(topic, varied(300))
        owner.seal()
        owner.send_batch(topic, varied(200, first=300))
        wanted = expected(owner, topic)
        assert_same(load(spark, str(tmp_path / "data"), topic).toArrow(), wanted)
        owner.send(topic, b"later")
        later = expected(owner, topic)
        assert_same(load(spark, str(tmp_path / "data"), topic).toArrow(), later)
    assert_same(load(spark, str(tmp_path / "data"), topic).toArrow(), later)


def test_an_empty_topic_is_an_empty_frame(spark, queue, url, topic):
    queue.create_topic(topic)
    assert load(spark, url, topic).collect() == []


def test_starts_and_ends_are_offsets_times_or_maps(spark, queue, url, topic):
    queue.create_topic(topic, retention="forever", partitions=2)
    for part in range(4):
        queue.send_batch(topic, varied(20)[part * 5 : part * 5 + 5])
    whole = expected(queue, topic)
    times = sorted({moment(whole, row) for row in range(whole.num_rows)})

    def count(**options):
        return load(spark, url, topic, **options).count()

    assert count(start=0, end="latest") == 20
    assert count(start=2, end=4) == len([at for at in whole["offset"].to_pylist() if 2 <= at < 4])
    assert count(start='{"0": 1000}', end='{"1": 0}') == 0
    assert count(start=times[-1].isoformat()) == len(
        [row for row in range(20) if moment(whole, row) >= times[-1]]
    )
    assert count(start="latest") == 0


def test_a_schema_with_fewer_columns_is_read_alone(spark, queue, url, topic):
    queue.create_topic(topic, retention="forever")
    queue.send_batch(topic, ["a", "b"])
    reader = spark.read.format("quiver").options(url=url, topic=topic)
    found = reader.schema("offset bigint, body binary").load().collect()
    assert [(row.offset, bytes(row.body)) for row in found] == [(0, b"a"), (1, b"b")]
    with pytest.raises(PySparkException, match="no column 'body' of type string; the columns are"):
        reader.schema("body string").load().collect()


def test_sql_knows_the_format_too(spark, queue, url, topic):
    queue.create_topic(topic, retention="forever")
    queue.send_batch(topic, ["a", "b"])
    options = f"OPTIONS (url '{url}', topic '{topic}', start 'earliest')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW in_sql USING quiver {options}")
    found = spark.sql("SELECT offset, cast(body AS string) AS body FROM in_sql ORDER BY offset")
    assert [tuple(row) for row in found.collect()] == [(0, "a"), (1, "b")]


def test_conditions_on_one_frame_do_not_disturb_each_other(spark, queue, url, topic):
    queue.create_topic(topic, retention="forever")
    queue.send_batch(topic, varied(20))
    frame = load(spark, url, topic)
    few, many = frame.where("offset < 3"), frame.where("offset >= 12")
    assert sorted(row.offset for row in few.union(many).collect()) == [0, 1, 2, *range(12, 20)]
    assert frame.count() == 20


def test_dead_letters_say_where_they_come_from(spark, queue, url, topic):
    queue.create_topic(topic, dead_letter=f"{topic}.dlq")
    queue.send_batch(topic, varied(5))
    queue.dead_letter(queue.receive(topic, "g", max_messages=2), reason="torn")
    found = load(spark, url, f"{topic}.dlq").toArrow()
    assert_same(found, expected(queue, f"{topic}.dlq"))
    assert {row["reason"] for row in found["origin"].to_pylist()} == {"torn"}


def test_the_ledger_is_a_table(spark, queue, url, topic):
    queue.create_topic(topic)
    queue.send_batch(topic, ["a", "b", "c"])
    queue.ack(queue.receive(topic, "g", max_messages=2))
    found = load(spark, url, topic, table="ledger").toArrow()
    wanted = queue.ledger(topic)
    assert found.to_pylist() == wanted.to_pylist()
    last = wanted["time"][-1].as_py().isoformat()
    assert load(spark, url, topic, table="ledger", end=last).count() < wanted.num_rows
    with pytest.raises(AnalysisException, match="start of the ledger is 'earliest' or a time"):
        load(spark, url, topic, table="ledger", start=5).collect()
    every = spark.read.format("quiver").options(url=url, table="ledger").load()
    assert every.where(f"topic = '{topic}'").count() == wanted.num_rows


def test_messages_that_cannot_be_read_end_the_job_and_do_not_just_lack(tmp_path, here):
    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("t", retention="forever")
        for body in (b"a", b"b", b"c"):
            queue.send("t", body)
            queue.seal()
    damaged = sorted(tmp_path.glob("data/t@*.parquet"))[1]
    damaged.write_bytes(b"PAR1" + bytes(len(damaged.read_bytes()) - 4))
    share = Share(1, (Span(0, 0, 3),))
    with start_node(tmp_path) as node:
        for url in (str(tmp_path / "data"), f"quiver://127.0.0.1:{node.port}"):
            options = Options.of({"url": url, "topic": "t"})
            with pytest.raises(quiver.CorruptSegment, match="1 messages were left out"):
                list(replay(options, rows.wanted(rows.MESSAGES, "messages"), share))


def test_what_retention_takes_between_plan_and_task_ends_the_job(tmp_path, queue, url, topic, here):
    queue.create_topic(topic, retention="forever")
    queue.send_batch(topic, [b"x" * 10_000] * 500)  # more than a page
    options = Options.of({"url": url, "topic": topic})
    schema = rows.wanted(rows.MESSAGES, "messages")
    (share,) = MessagesReader(options, schema).partitions()
    assert isinstance(share, Share)
    begun = replay(options, schema, share)
    next(begun)
    queue.alter_topic(topic, retention="2MB")
    queue.send(topic, b"y")
    with pytest.raises(quiver.InvalidRequest, match="retention was faster"):
        list(begun)
    with pytest.raises(quiver.InvalidRequest, match="retention was faster"):
        list(replay(options, schema, share))


def test_a_topic_made_anew_between_plan_and_task_is_not_taken_for_the_other(
    queue, url, topic, here
):
    options = Options.of({"url": url, "topic": topic})
    schema = rows.wanted(rows.MESSAGES, "messages")
    queue.create_topic(topic, retention="forever")
    queue.send_batch(topic, [b"x"] * 5)
    (share,) = MessagesReader(options, schema).partitions()
    assert isinstance(share, Share)
    queue.delete_topic(topic)
    queue.create_topic(topic, retention="forever")
    for _ in range(2):  # shorter, and longer
        with pytest.raises(quiver.InvalidRequest, match="made anew"):
            list(replay(options, schema, share))
        queue.send_batch(topic, [b"y"] * 9)


def test_what_is_wrong_is_said_in_words(spark, url):
    with pytest.raises(AnalysisException, match=r"no option 'sart'; there are url, topic"):
        load(spark, url, "t", sart=1)
    with pytest.raises(AnalysisException, match=r"no\.such\.topic"):
        load(spark, url, "no.such.topic").collect()

"""Asking with SQL: conditions on dead letters, and questions about whole topics."""

import sys
from itertools import pairwise

import pyarrow as pa
import pytest

import quiver
from quiver import limits
from tests.contract.verbs import bodies, drain, take


@pytest.fixture
def failing(queue):
    """Topic "d" has nine dead letters of two reasons: orders with an amount and a customer."""
    queue.create_topic("d", max_attempts=1, retention="forever")
    queue.send_batch("d", [{"amount": n, "customer": {"name": f"c{n % 2}"}} for n in range(9)])
    for delivery in queue.receive("d", "g", max_messages=9):
        delivery.nack(reason="Timeout: slow" if delivery.offset % 3 else "bug")
    return queue


def amounts(queue, topic="d"):
    return [message.json()["amount"] for message in queue.receive(topic, "g", max_messages=99)]


# -- conditions ------------------------------------------------------------------------------------


def test_a_condition_moves_exactly_what_it_is_true_for(failing):
    where = "reason like 'Timeout%'"
    assert failing.redrive("d.dlq", where=where, rate=100, dry_run=True) == 6
    assert failing.stats("d.dlq").depth == 9
    assert failing.redrive("d.dlq", where=where) == 6
    assert amounts(failing) == [1, 2, 4, 5, 7, 8]
    assert amounts(failing, "d.dlq") == [0, 3, 6]
    assert failing.redrive("d.dlq", where=where) == 0


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ("json.amount > 6", [7, 8]),
        ("json->>'$.customer.name' = 'c1'", [1, 3, 5, 7]),
        ("(json->>'$.amount')::int % 4 = 0 and reason = 'bug'", [0]),
        ("text like '%\"amount\":3,%'", [3]),
        ("body = encode('x')", []),
        ('"offset" between 2 and 3', [2, 3]),
        ("origin_topic = 'd' and origin_group = 'g' and origin_offset = 5 and attempts = 1", [5]),
        ("headers['content-type'] = 'application/json' and json.amount = 2", [2]),
        ("dead_at <= now() and created_at <= dead_at and json.amount = 1", [1]),
        ("key is null and priority = 0 and pending and json.amount = 4", [4]),
        ("id in ['nobody']", []),
        ("json.amount = 6 -- the sixth", [6]),
        ("null", []),
    ],
)
def test_a_condition_sees(failing, where, chosen):
    assert failing.discard("d.dlq", where=where, dry_run=True) == len(chosen)
    failing.redrive("d.dlq", where=where)
    assert amounts(failing) == chosen


def test_text_and_json_are_null_where_the_body_is_neither(queue):
    queue.send_batch("t", [b"\xff\xfe", "plain", '{"a": 1}', ""])
    assert queue.discard("t", where="text is null", dry_run=True) == 1
    assert queue.discard("t", where="json is null", dry_run=True) == 3
    assert queue.discard("t", where="json.a = 1") == 1
    assert drain(queue) == [b"\xff\xfe", b"plain", b""]


@pytest.mark.parametrize(
    "where",
    [
        "reason like",
        "1=1) or (true",
        "true; drop table messages",
        "true) union select (1",
        "select 1",
        "true order by 1",
        "true, true",
        "no_such_column = 1",
        "reason = $1",
        "count(*) > 0",
        "row_number() over () = 1",
        "id in (select 'x')",
        "exists (from given)",
        "(select count(*) from read_text('/etc/passwd')) > 0",
        "reason + 1",
        "*",
        "columns(*)",
        "json.amount",
        "attempts",
        "'true'",
        "",
        "not " * 20_000 + "true",
        "\ud800",
        "x" * (limits.SQL_CHARS_MAX + 1),
        "json" + ".a" * limits.SQL_PATH_NAMES_MAX + " = 1",
        "(" * 101 + "true" + ")" * 101,
    ],
)
def test_what_is_not_one_condition_is_refused_before_anything_moves(failing, where):
    with pytest.raises(quiver.InvalidRequest):
        failing.redrive("d.dlq", where=where)
    with pytest.raises(quiver.InvalidRequest):
        failing.discard("d.dlq", where=where, dry_run=True)
    assert failing.stats("d.dlq").depth == 9


def test_a_refusal_says_what_duckdb_says_and_which_columns_there_are(failing):
    with pytest.raises(quiver.InvalidRequest, match=r'"raeson" not found.*reason, dead_at'):
        failing.redrive("d.dlq", where="raeson = 'x'")


def test_a_value_is_no_condition_and_is_told_from_one(failing):
    said = r"it is JSON, neither true nor false.*quotes around the whole"
    with pytest.raises(quiver.InvalidRequest, match=said):
        failing.redrive("d.dlq", where="json.amount")  # what a shell leaves of json.amount > 5
    assert failing.redrive("d.dlq", where="json.amount::bool", dry_run=True) == 8


def test_who_compares_json_with_text_is_told_how(failing):
    for ask in (
        lambda: failing.redrive("d.dlq", where="json.customer.name = 'c1'"),
        lambda: failing.sql("select * from d where json.customer.name in ('c1', 'c2')"),
    ):
        with pytest.raises(quiver.InvalidRequest, match=r"as text.*json->>'\$\.name'"):
            ask()
    assert failing.stats("d.dlq").depth == 9


def test_where_is_a_condition_or_a_function(failing):
    with pytest.raises(quiver.InvalidRequest, match="condition in SQL"):
        failing.redrive("d.dlq", where=5)


def test_a_condition_that_fails_for_a_message_says_what_was_moved_before(queue, monkeypatch):
    monkeypatch.setattr(limits, "PAGE_MESSAGES_FIRST", 2)
    queue.send_batch("t", ["1", "2", "three"])
    with pytest.raises(quiver.InvalidRequest, match=r"'three'.*try_cast.*2 messages were moved"):
        queue.discard("t", where="cast(text as int) > 0")
    assert queue.discard("t", where="try_cast(text as int) > 0") == 0
    assert drain(queue) == [b"three"]


def test_a_dry_run_counts_what_nobody_holds(failing):
    held = take(failing, "d.dlq", "looking")
    assert failing.redrive("d.dlq", where="true", dry_run=True) == 8
    assert failing.redrive("d.dlq", where="true") == 8
    held.ack()


def test_limit_stops_a_condition_after_so_many(failing):
    assert failing.redrive("d.dlq", where="json.amount > 2", limit=2, dry_run=True) == 2
    assert failing.redrive("d.dlq", where="json.amount > 2", limit=2) == 2
    assert amounts(failing) == [3, 4]


def test_progress_is_told_how_many_were_moved(failing, monkeypatch):
    monkeypatch.setattr(limits, "REDRIVE_MESSAGES", 4)
    told: list[int] = []
    assert failing.redrive("d.dlq", where="true", progress=told.append) == 9
    assert told == [4, 8, 9]


@pytest.mark.parametrize("where", [None, "true", lambda m: True], ids=["all", "sql", "function"])
def test_many_are_moved_in_large_steps(queue, where):
    queue.send_batch("t", [b"x"] * 5_000)
    told: list[int] = []
    assert queue.discard("t", where=where, progress=told.append) == 5_000
    steps = [after - before for before, after in pairwise([0, *told])]
    assert sum(steps) == 5_000
    assert max(steps) == 1_000
    assert len(steps) <= 6, "a first page may have few"


def test_what_comes_back_meanwhile_is_not_moved_again(failing, monkeypatch):
    monkeypatch.setattr(limits, "REDRIVE_MESSAGES", 1)
    monkeypatch.setattr(limits, "PAGE_MESSAGES_FIRST", 1)
    assert failing.redrive("d.dlq", where="true", to="d.dlq") == 9
    assert failing.stats("d.dlq").depth == 9


def test_all_partitions_are_searched(queue):
    queue.create_topic("p", partitions=3, partition_by="round-robin")
    queue.send_batch("p", [str(n) for n in range(30)])
    assert queue.discard("p", where="text::int % 2 = 0") == 15
    assert sorted(map(int, drain(queue, "p"))) == list(range(1, 30, 2))


def test_sealed_messages_are_searched_as_well(failing):
    failing.seal()
    assert failing.sql("select count(*) as n from d.dlq where pending").to_pylist() == [{"n": 9}]
    assert failing.redrive("d.dlq", where="json.amount > 6") == 2
    assert amounts(failing) == [7, 8]
    assert failing.sql("select min(json.amount::int) as a from d.dlq").to_pylist() == [{"a": 0}]


# -- questions -------------------------------------------------------------------------------------


def test_a_question_counts_dead_letters_by_reason(failing):
    answer = failing.sql('select reason, count(*) as n from "d.dlq" group by reason order by n')
    assert isinstance(answer, pa.Table)
    assert answer.to_pylist() == [{"reason": "bug", "n": 3}, {"reason": "Timeout: slow", "n": 6}]


def test_a_name_with_a_dot_needs_no_quotes(failing):
    assert failing.sql("select count(*) as n from d.dlq").to_pylist() == [{"n": 9}]


def test_no_name_of_a_topic_is_in_the_way(queue):
    for topic in ("given", "stored.t0", "main", "pg_catalog.x", "Other"):
        queue.create_topic(topic)
        queue.send(topic, topic)
    query = "select a.text || b.text || c.text || d.text || e.text || f.text as all from {}"
    tables = 'given a, stored.t0 b, main c, "pg_catalog.x" d, "Other" e, "stored.t0" f'
    (row,) = queue.sql(query.format(tables)).to_pylist()
    assert row["all"] == "givenstored.t0mainpg_catalog.xOtherstored.t0"


def test_topics_can_be_joined(failing):
    query = """
        with early as (select * from "d.dlq" where json.amount < 2)
        select d.id = early.id as same, early.json->>'$.amount' as amount
        from d join early on d."offset" = early.origin_offset order by amount
    """
    assert failing.sql(query).to_pylist() == [
        {"same": True, "amount": "0"},
        {"same": True, "amount": "1"},
    ]


def test_a_topic_has_every_field_of_its_messages(queue, clock):
    sent = queue.send("t", "é", key="k", headers={"v": "1"}, priority=4, delay=60, ttl=120,
                      dedup_id="once")  # fmt: skip
    (row,) = queue.sql("select * from t").to_pylist()
    seconds = clock.now_ms() // 1000
    assert row.pop("created_at").timestamp() == seconds
    assert row.pop("deliver_at").timestamp() == seconds + 60
    assert row.pop("expires_at").timestamp() == seconds + 120
    assert {name: value for name, value in row.items() if value is not None} == {
        "id": sent.id, "partition": 0, "offset": 0, "key": "k", "body": "é".encode(), "text": "é",
        "headers": [("v", "1")], "priority": 4, "dedup_id": "once", "pending": True,
    }  # fmt: skip


def test_pending_says_what_some_group_has_before_it(queue):
    queue.create_topic("kept", retention="forever", partitions=2, partition_by="round-robin")
    queue.send_batch("kept", ["a", "b", "c", "d"])
    pending = "select string_agg(text, '' order by text) as found from kept where pending"
    assert queue.sql(pending).to_pylist() == [{"found": "abcd"}]
    for delivery in queue.receive("kept", "g", max_messages=9):
        if delivery.body in (b"b", b"c"):
            delivery.ack()
    assert queue.sql(pending).to_pylist() == [{"found": "ad"}]
    assert queue.sql("select count(*) as n from kept").to_pylist() == [{"n": 4}]


def test_the_ledger_is_a_table_and_can_be_joined(failing):
    counts = "select event, sum(count)::int as n from ledger where topic = 'd' group by event"
    assert {row["event"]: row["n"] for row in failing.sql(counts).to_pylist()} == {
        "sent": 9, "leased": 9, "nacked": 9, "dead_lettered": 9,
    }  # fmt: skip
    query = """
        select distinct l."group" as who, l.reason from ledger l
        join d.dlq on d.dlq.origin_offset = l."offset" and l.event = 'dead_lettered'
        where json.amount = 4
    """
    assert failing.sql(query).to_pylist() == [{"who": "g", "reason": "Timeout: slow"}]
    failing.create_topic("ledger")
    assert failing.sql("select * from ledger").num_rows == 0, "a topic of that name comes first"


def test_a_question_about_an_empty_topic_or_none_at_all(queue):
    assert queue.sql("select * from t").num_rows == 0
    assert queue.sql("select 1 as one").to_pylist() == [{"one": 1}]


def test_a_common_table_may_have_the_name_of_its_topic(failing):
    query = "with d as (select * from d where json.amount = 3) select json.amount::int as a from d"
    assert failing.sql(query).to_pylist() == [{"a": 3}]


def test_large_topics_are_loaded_in_many_pages(queue, monkeypatch):
    monkeypatch.setattr(limits, "PAGE_BYTES", 1_000)
    queue.send_batch("t", [f"{n:050}" for n in range(700)])
    (row,) = queue.sql("select count(distinct text) as n, sum(text::int) as s from t").to_pylist()
    assert (row["n"], int(row["s"])) == (700, sum(range(700)))


@pytest.mark.parametrize(
    "query",
    [
        "drop table t",
        "insert into t values (1)",
        "select 1; select 2",
        "copy (select 1) to 'stolen'",
        "attach 'x.db'",
        "set memory_limit = '1GB'",
        "install httpfs",
        "pragma database_list",
        "select * from read_csv('/etc/passwd')",
        "select * from glob('/*')",
        "select * from '/etc/passwd'",
        "with x as (delete from t returning *) select * from x",
        "selct",
        "",
        "select no_such_column from t",
    ],
)
def test_a_question_can_only_read_topics(queue, query):
    queue.send("t", "stays")
    with pytest.raises(quiver.RequestError) as refused:
        queue.sql(query)
    assert isinstance(refused.value, quiver.InvalidRequest | quiver.TopicNotFound)
    assert drain(queue) == [b"stays"]


def test_a_topic_that_is_not_there_is_named(queue):
    with pytest.raises(quiver.TopicNotFound, match=r"'nobody'.*double quotes"):
        queue.sql("select * from nobody")
    with pytest.raises(quiver.InvalidRequest, match="str"):
        queue.sql(None)


def test_an_answer_has_a_bound(queue, monkeypatch):
    monkeypatch.setattr(limits, "SQL_RESULT_BYTES_MAX", 1_000)
    monkeypatch.setattr(limits, "SQL_ANSWER_BYTES_MAX", 1_000)
    with pytest.raises(quiver.LimitExceeded, match="fewer columns or rows"):
        queue.sql("select range from range(1000)")


def test_without_duckdb_it_says_what_to_install(failing, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    for ask in (
        lambda: failing.sql("select 1"),
        lambda: failing.redrive("d.dlq", where="true"),
    ):
        with pytest.raises(quiver.ExtraMissing, match=r'pip install "\.\[sql\]" in a clone'):
            ask()
    assert failing.redrive("d.dlq", where=lambda m: True, dry_run=True) == 9


# -- tables and many batches -----------------------------------------------------------------------


def test_messages_that_came_one_by_one_are_read_in_smaller_pages(queue, monkeypatch):
    monkeypatch.setattr(limits, "BROWSED_SLICES_MAX", 3)
    queue.create_topic("p", partitions=2)
    for at in range(20):
        queue.send("p", str(at))
    tables = list(queue.read_arrow("p"))
    assert {table.num_rows for table in tables} <= {1, 2, 3}
    found = pa.concat_tables(tables)["body"].to_pylist()
    assert sorted(found, key=int) == [b"%d" % at for at in range(20)]


def test_what_is_pending_is_found_in_however_many_pieces_it_is(queue, monkeypatch):
    monkeypatch.setattr(limits, "BROWSED_SLICES_MAX", 3)
    queue.create_topic("p", partitions=2)
    queue.create_group("p", "g")
    queue.send_batch("p", [quiver.Message(str(at), key=str(at % 7)) for at in range(40)])
    taken = queue.receive("p", "g", max_messages=40)
    queue.ack([message for message in taken if int(message.body) % 2])
    waiting = queue.sql("select body from p where pending")["body"].to_pylist()
    assert sorted(waiting, key=int) == [b"%d" % at for at in range(0, 40, 2)]
    assert queue.sql("select count(*) as n from p")["n"].to_pylist() == [40]


def test_a_page_is_no_larger_than_it_should_be_whatever_came_before(queue, monkeypatch):
    monkeypatch.setattr(limits, "PAGE_BYTES", 10_000)
    queue.send_batch("t", [b"x"] * 3_000)
    queue.send_batch("t", [b"y" * 1_000] * 50)
    tables = list(queue.read_arrow("t"))
    assert max(table["body"].nbytes for table in tables[-3:]) < 20_000
    assert sum(table.num_rows for table in tables) == 3_050


def test_read_arrow_is_read_as_tables(queue, monkeypatch):
    monkeypatch.setattr(limits, "PAGE_MESSAGES_FIRST", 2)
    monkeypatch.setattr(limits, "PAGE_BYTES", 1)
    queue.send_batch("t", [str(n) for n in range(5)])
    tables = list(queue.read_arrow("t", offset=1, end=4))
    assert pa.concat_tables(tables)["body"].to_pylist() == bodies(queue.read("t", offset=1, end=4))
    assert pa.concat_tables(tables)["id"].to_pylist() == [
        message.id for message in queue.read("t", offset=1, end=4)
    ]
    assert len(tables) > 1
    assert list(queue.read_arrow("t", offset=5)) == []


def test_offsets_are_where_a_read_begins_and_ends(queue):
    queue.send_batch("t", [str(n) for n in range(5)])
    assert queue.offsets("t") == {0: (0, 5)}
    assert queue.offsets("t", offset=2, end=4, partition=0) == {0: (2, 4)}
    assert queue.offsets("t", start="latest") == {0: (5, 5)}


def test_batches_under_a_name_are_stored_once(queue):
    first = queue.send_batches("t", [["a", "b"], ["c"]], name="load")
    assert (first.count, first.skipped) == (3, 0)
    again = queue.send_batches("t", [["a", "b"], ["c"], ["d"]], name="load")
    assert (again.count, again.skipped) == (1, 3)
    other = queue.send_batches("t", [["a", "b", "c", "d", "e"]], name="load")  # cut differently
    assert (other.count, other.skipped) == (1, 4)
    assert drain(queue) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_refused_batch_leaves_those_before_it_and_can_be_sent_again(queue):
    bad = pa.table({"body": ["b"], "no such column": [1]})
    with pytest.raises(quiver.InvalidBatch):
        queue.send_batches("t", [["a"], bad], name="load")
    assert queue.send_batches("t", [["a"], ["b"]], name="load").skipped == 1
    assert drain(queue) == [b"a", b"b"]


def test_the_ledger_is_a_table(failing):
    query = "select event, sum(count)::int as n from ledger where topic = 'd' group by 1 order by 1"
    found = {row["event"]: row["n"] for row in failing.sql(query).to_pylist()}
    assert found == {"sent": 9, "leased": 9, "nacked": 9, "dead_lettered": 9}


@pytest.mark.parametrize(
    "query",
    [
        "with x as (copy (select 1) to 'a.csv') select * from x",
        "with x as (insert into d select * from d returning *) select * from x",
        "with x as (delete from d returning *) select count(*) from x",
    ],
)
def test_a_select_with_something_inside_that_writes_is_refused(failing, query):
    with pytest.raises(quiver.InvalidRequest):
        failing.sql(query)
    assert failing.sql("select count(*) as n from d").to_pylist() == [{"n": 9}]

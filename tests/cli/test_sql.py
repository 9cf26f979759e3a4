"""`quiver sql`, and conditions for `quiver dlq`."""

import json
import sys

import pyarrow.parquet as pq
import pytest

from tests.cli.program import Cli

SLOW = "reason like 'Timeout%'"


@pytest.fixture
def cli(tmp_path):
    """Sixty dead letters of `jobs`, forty of them timeouts, and one that was sent there directly."""
    made = Cli(tmp_path)
    with made.queue() as queue:
        queue.create_topic("jobs", max_attempts=1)
        queue.send_batch("jobs", [{"job": n, "for": f"c{n % 2}"} for n in range(60)])
        for got in queue.receive("jobs", "worker", max_messages=60):
            got.nack(reason="Timeout: slow" if got.offset % 3 else "\x1b[31mbad")
        queue.send("jobs.dlq", b"\xff\x00direct")
    yield made
    made.close()


def test_an_answer_is_a_table_lines_or_a_file(cli):
    query = "select reason, count(*) as n from jobs.dlq group by reason order by n"
    text = cli("sql", query).decode()
    assert [line.split() for line in text.splitlines()[2:]] == [
        ["-", "1"],
        [r"\x1b[31mbad", "20"],
        ["Timeout:", "slow", "40"],
    ]
    assert [row["n"] for row in cli.lines("sql", query)] == [1, 20, 40]
    out = cli.directory / "answer.parquet"
    assert b"Wrote 3 rows" in cli("sql", query, "--out", out)
    assert pq.read_table(out)["n"].to_pylist() == [1, 20, 40]
    cli("sql", query, "--out", out, code=2)
    assert "--yes" in cli.error
    cli("sql", "select 1", "--out", out, "--yes")
    assert pq.read_table(out).num_rows == 1
    assert sorted(path.name for path in cli.directory.iterdir()) == ["answer.parquet", "data"]


def test_an_answer_is_written_only_as_what_its_name_says(cli):
    for name in ("answer.csv", "answer", "parquet"):
        cli("sql", "select 1", "--out", name, code=2)
        assert "end the name" in cli.error
    cli("sql", "select 1", "--out", "answer.PARQUET")
    assert sorted(path.name for path in cli.directory.iterdir()) == ["answer.PARQUET", "data"]


def test_a_table_shows_some_rows_and_says_how_many_there_are(cli):
    assert len(cli("sql", "select * from jobs.dlq").splitlines()) == 52
    assert "61 rows, the first 50 shown" in cli.error
    assert len(cli.lines("sql", "select * from jobs.dlq")) == 61
    cli("sql", "select 1 where false")
    assert cli.error == "No rows.\n"


def test_values_of_all_kinds_can_be_printed(cli):
    (row,) = cli.lines(
        "sql",
        "select body, {'a': [1, null]} as s, 1.50::decimal(9, 2) as d, 7::hugeint as h, true as b, "
        "timestamptz '2026-01-02 03:04:05Z' as t, date '2026-01-02' as day, null as n, 1 as x, 2 as x, "
        "map {'k': 'v'} as m from jobs.dlq where text is null",
    )
    assert row == {
        "body_base64": "/wBkaXJlY3Q=", "s": {"a": [1, None]}, "d": 1.5, "h": 7, "b": True,
        "t": "2026-01-02T03:04:05.000+00:00", "day": "2026-01-02", "n": None, "x": 1, "x_1": 2,
        "m": {"k": "v"},
    }  # fmt: skip
    assert r"\xff\x00direct" in cli("sql", "from jobs.dlq where text is null").decode()


def test_a_bad_question_is_one_sentence(cli):
    for query, said in [
        ("selct 1", "syntax error"),
        ("select * from nobody", "there is no topic 'nobody'"),
        ("select offset from jobs", 'the column is "offset"'),
        ("copy jobs to 'x'", "not one SELECT"),
    ]:
        assert said in cli.json("sql", query, code=2)["error"]["message"].replace("There", "there")


def test_dead_letters_are_listed_by_condition(cli):
    found = cli.json("dlq", "list", "jobs", "--where", "json->>'$.for' = 'c1'", "--limit", 2)
    assert (found["pending"], len(found["letters"])) == (30, 2)
    assert sum(found["reasons"].values()) == 30
    both = cli.json("dlq", "list", "jobs", "-w", "json.job < 6", "--reason-like", "timeout")
    assert [json.loads(letter["body"])["job"] for letter in both["letters"]] == [1, 2, 4, 5]
    cli("dlq", "list", "jobs", "--where", "json.job > 100")
    assert "no dead letters like that" in cli.error
    cli("dlq", "list", "jobs", "--where", "1=1) or (true", code=2)


def test_a_choice_of_letters_needs_a_topic(cli):
    for choice in (["--where", SLOW], ["--reason-like", "Timeout"]):
        assert "name it" in cli.json("dlq", "list", *choice, code=2)["error"]["message"]
    assert cli.json("dlq", "list")[0]["pending"] == 61


def test_dead_letters_are_redriven_and_discarded_by_condition(cli):
    assert cli.json("dlq", "redrive", "jobs", "--where", SLOW, "--dry-run")["redriven"] == 40
    done = cli.json("dlq", "redrive", "jobs", "--where", SLOW, "--rate", 1000)
    assert done["redriven"] == 40
    assert b"Redrove 0 messages" in cli("dlq", "redrive", "jobs", "--where", "text is null")
    assert "say --to TOPIC" in cli.error
    assert (
        cli.json("dlq", "discard", "jobs", "--where", "json.job >= 0", "--yes")["discarded"] == 20
    )
    with cli.queue() as queue:
        assert queue.stats("jobs.dlq").depth == 1
        assert queue.stats("jobs").depth == 40


def test_without_duckdb_everything_else_works(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert cli.json("dlq", "list", "jobs")["pending"] == 61
    assert "pip install" in cli.json("sql", "select 1", code=2)["error"]["message"]

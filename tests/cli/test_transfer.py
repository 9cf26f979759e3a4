"""Messages into files and out of them again."""

import json
import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quiver
from tests.cli.program import Cli

MESSAGES: list[dict[str, Any]] = [
    {"body": "plain"},
    {"body": "", "key": "k"},
    {"body": 'naïve ☃ \x00 \u2028 "quoted"\n', "key": "ключ", "headers": {"ñ": "ü", "a": ""}},
    {"body": bytes(range(256)), "priority": 9},
    {"body": b"\xc3\x28", "dedup_id": "once", "delay": "1d", "ttl": "2d"},
    {"body": {"json": [1, None]}},
]
EVERYTHING = """
    select body, key, headers, priority, created_at, deliver_at, expires_at, dedup_id
    from {} order by "offset"
"""

each_format = pytest.mark.parametrize("file", ["messages.jsonl", "messages.parquet"])


@pytest.fixture
def cli(tmp_path):
    made = Cli(tmp_path)
    with made.queue() as queue:
        queue.create_topic("orders", retention="forever")
        for message in MESSAGES:
            queue.send("orders", **message)
        queue.create_topic("copy", retention="forever")
    yield made
    made.close()


@each_format
def test_every_field_of_a_message_comes_back(cli, file):
    assert cli.json("export", "orders", file)["exported"] == len(MESSAGES)
    assert cli.json("import", "copy", file)["imported"] == len(MESSAGES)
    with cli.queue() as queue:
        first, second = (queue.sql(EVERYTHING.format(topic)) for topic in ("orders", "copy"))
        assert first.to_pylist() == second.to_pylist()
        assert {name for name in first.column_names if first[name].null_count < len(first)} == {
            *first.column_names
        }, "each column has a value to lose"


@each_format
def test_a_file_is_imported_once(cli, file):
    cli("export", "orders", file)
    assert cli.json("import", "copy", file)["imported"] == 6
    again = cli.json("import", "copy", file)
    assert (again["imported"], again["skipped"]) == (0, 6)
    twice = cli.json("import", "copy", file, "--name", "on-purpose")
    assert (twice["imported"], twice["duplicates"]) == (5, 1)  # a dedup id is remembered
    assert cli.json("import", "new", file, "--create")["imported"] == 6


@each_format
def test_an_empty_topic_makes_a_file_of_nothing(cli, file):
    assert cli.json("export", "copy", file)["exported"] == 0
    assert (cli.directory / file).exists()
    assert cli.json("import", "orders", file)["imported"] == 0


@each_format
def test_a_part_of_a_topic(cli, file):
    cli("export", "orders", file, "--offset", 1, "--end", 5, "--max", 3)
    cli("import", "copy", file)
    with cli.queue() as queue:
        assert [record.key for record in queue.read("copy")] == ["k", "ключ", None]


@each_format
def test_dead_letters_are_exported_with_their_origin(cli, file):
    with cli.queue() as queue:
        queue.create_topic("jobs", max_attempts=1)
        queue.send("jobs", "x")
        queue.receive("jobs")[0].nack(reason="bug")
    cli("export", "jobs.dlq", file)
    path = cli.directory / file
    if file.endswith("parquet"):
        (row,) = pq.read_table(path).to_pylist()
    else:
        row = json.loads(path.read_text())
        assert [row] == cli.lines("read", "jobs.dlq"), "one format"
    assert (row["origin"]["reason"], row["origin"]["topic"]) == ("bug", "jobs")
    assert cli.json("import", "copy", file)["imported"] == 1


def test_what_read_and_receive_print_can_be_imported(cli):
    lines = cli("read", "orders", "--json")
    done = cli.json("import", "copy", "-", given=lines)
    assert done["imported"] == 6
    assert cli.json("import", "copy", "-", given=cli("export", "orders", "-"))["imported"] == 6
    received = cli("receive", "orders", "--json", "--max", 2)
    assert cli.json("import", "copy", "-", given=received)["imported"] == 2


def test_lines_as_send_takes_them_can_be_imported(cli):
    given = b'{"body": "a", "delay": "1h", "ttl": "2h"}\n{"body": [1], "key": "k"}\n'
    assert cli.json("import", "copy", "-", given=given)["imported"] == 2
    with cli.queue() as queue:
        rows = queue.sql("select text, deliver_at > now() as later from copy").to_pylist()
    assert rows == [{"text": "a", "later": True}, {"text": "[1]", "later": None}]


def test_a_wrong_line_of_a_file_is_named_and_nothing_is_stored(cli):
    path = cli.directory / "bad.jsonl"
    good = b'{"body": "x"}\n' * 25_000
    for bad, said in [
        (b"{", "is not JSON"),
        (b'{"body": "x", "key": 5}', "key must be a str"),
        (b'{"body": "x", "expires_at": "soon"}', "expires_at"),
        (b'{"body": "x", "what": 1}', "has a field 'what'"),
        (b'{"key": "x"}', "must be an object"),
    ]:
        path.write_bytes(good + bad + b"\n" + good)
        error = cli.json("import", "copy", path, code=2)["error"]["message"]
        assert "ine 25,001 of" in error
        assert said in error
    with cli.queue() as queue:
        assert queue.stats("copy").sent == 0


def test_a_wrong_line_of_a_pipe_leaves_those_before_it_and_a_name_goes_on(cli):
    good, bad = b'{"body": "x"}\n', b'{"body": 1, "key": 1}\n'
    error = cli.json("import", "copy", "-", "--name", "n", given=good * 3 + bad + good, code=2)
    assert "line 4 of stdin" in error["error"]["message"]
    assert "at least 3 messages are stored" in error["error"]["message"]
    done = cli.json("import", "copy", "-", "--name", "n", given=good * 5)
    assert (done["imported"], done["skipped"]) == (2, 3)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pa.table({"text": ["x"]}), "no column 'text'"),
        (pa.table({"key": ["x"]}), "needs a column body"),
        (pa.table({"body": [b"x", None]}), "row 1 is null"),
        (pa.table({"body": [b"x"], "priority": [10]}), "priority"),
        (pa.table({"body": [1.5]}), "must be binary"),
    ],
)
def test_a_parquet_file_of_something_else_is_refused(cli, table, said):
    pq.write_table(table, cli.directory / "bad.parquet")
    assert said in cli.json("import", "copy", "bad.parquet", code=2)["error"]["message"]
    with cli.queue() as queue:
        assert queue.stats("copy").sent == 0


def test_a_segment_can_be_imported_as_it_is(cli):
    with cli.queue() as queue:
        queue.seal()
    (segment,) = cli.data.rglob("orders@*.parquet")
    assert cli.json("import", "copy", segment)["imported"] == len(MESSAGES)
    with cli.queue() as queue:
        first, second = (queue.sql(EVERYTHING.format(topic)) for topic in ("orders", "copy"))
        assert first.to_pylist() == second.to_pylist()


def test_mistakes_are_one_sentence(cli):
    (cli.directory / "not.parquet").write_bytes(b"PAR1 not at all")
    for command, said in [
        (["import", "copy", "not.parquet"], "Parquet"),
        (["import", "copy", "nobody.jsonl"], "annot read nobody.jsonl"),
        (["import", "copy", "x.txt"], "--format"),
        (["import", "copy", "-", "--format", "parquet"], "pipe"),
        (["import", "nobody", "not.parquet"], "Parquet"),
        (["export", "orders", "x.txt"], "--format"),
        (["export", "nobody", "x.jsonl"], "no topic"),
        (["export", "orders", "nowhere/x.jsonl"], "no directory"),
        (["export", "orders", "x", "--format", "csv"], "parquet or json"),
        (["export", "orders", "-"], "need a file"),
    ]:
        assert said in cli.json(*command, code=2)["error"]["message"], command
    assert sorted(path.name for path in cli.directory.iterdir()) == ["data", "not.parquet"]


def test_a_file_is_replaced_only_if_that_is_said(cli):
    cli("export", "orders", "x.jsonl")
    cli("export", "copy", "x.jsonl", code=2)
    assert cli("export", "copy", "x.jsonl", "--yes")
    assert (cli.directory / "x.jsonl").read_bytes() == b""


def test_nothing_is_written_among_the_files_of_the_queue(cli):
    with cli.queue() as queue:
        queue.seal()
    (segment,) = cli.data.rglob("orders@*.parquet")
    log = max(cli.data.glob("wal-*"))
    (cli.directory / "link").symlink_to(cli.data)

    def files():
        return {path: (path.stat().st_ino, path.read_bytes()) for path in cli.data.rglob("*.*")}

    before = files()
    for command in [
        ["export", "orders", log, "--format", "json"],
        ["export", "orders", segment],
        ["export", "orders", "link/new.jsonl"],
        ["sql", "select 1", "--out", segment],
        ["sql", "select 1", "--out", f"../{cli.directory.name}/link/new.parquet"],
    ]:
        cli(*command, "--yes", code=2)
        assert "directory of the queue" in cli.error, command
    assert files() == before


@each_format
def test_an_export_that_leaves_something_out_says_what_and_ends_with_a_code(cli, file):
    with cli.queue() as queue:
        queue.seal()
    (segment,) = cli.data.rglob("orders@*.parquet")
    content = bytearray(segment.read_bytes())
    content[4:44] = bytes(40)
    segment.write_bytes(content)
    cli("export", "orders", file, code=4)
    assert "6 messages were left out" in cli.error
    assert "is damaged" in cli.error
    assert len(cli.error.splitlines()) == 2, cli.error


def test_a_large_body_does_not_make_large_batches(cli):
    with cli.queue() as queue:
        queue.create_topic("large")
        for n in range(20):
            queue.send("large", os.urandom(1_000_000) + b"%d" % n)
    for file in ("large.parquet", "large.jsonl"):
        assert cli.json("export", "large", file)["exported"] == 20
        assert cli.json("import", "copy", file)["imported"] == 20
    with cli.queue() as queue:
        found = [record.body for record in queue.read("copy")]
        assert found[:20] == found[20:] == [record.body for record in queue.read("large")]


def test_both_faces_can_do_it_from_python(cli):
    with cli.queue() as queue:
        tables = [table.drop_columns(["id", "partition", "offset", "attempt", "origin"])
                  for table in queue.read_arrow("orders")]  # fmt: skip
        assert queue.send_batches("copy", tables, name="x") == quiver.SentBatches(6, 0, 0, "disk")

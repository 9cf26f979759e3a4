"""What each command prints, leaves on the disk, and ends with."""

import json
import os
import re

import pyarrow.parquet as pq
import pytest

import quiver
from quiver import limits
from quiver.cli import checkup
from quiver.client.flows import Flows
from quiver.client.local import LocalBroker
from quiver.model.commands import Raise
from quiver.node.clock import SystemClock
from quiver.node.engine import Proposal
from quiver.node.peer import Peer
from quiver.node.shard import Shard
from quiver.storage.files import DiskFiles
from quiver.storage.logfile import name_of
from tests.bounds import add_level

FIRST_LOG = name_of(1)
BINARY = bytes(range(256)).replace(b"\n", b"")


# -- the command itself ----------------------------------------------------------------------------


def test_version_and_help(cli):
    assert cli("--version").decode() == f"quiver {quiver.__version__}\n"
    text = cli("--help").decode()
    commands = re.findall(r"^│ (\w+) ", text, re.MULTILINE)
    assert " ".join(commands) == (
        "topics send receive read groups seek dlq sql export import trace ledger audit report pipeline "
        "seal backup restore serve access top doctor bench demo"
    )
    assert "Exit codes" in text


def test_a_mistake_is_one_sentence_and_makes_nothing(cli):
    for command in (
        ["topics", "delte"],
        ["receive", "orders"],
        ["send", "no/good", "x", "--create"],
    ):
        error = cli.json(*command, code=2)["error"]
        assert cli.error == f"quiver: {error['message']}\n"
    assert not cli.data.exists()


def test_the_directory_can_come_from_the_environment(orders):
    orders.environment["QUIVER_DATA"] = str(orders.data)
    orders.directory /= "elsewhere"
    orders.directory.mkdir()
    assert [topic["topic"] for topic in orders.json("topics")] == ["orders"]


# -- topics ----------------------------------------------------------------------------------------


def test_topics_from_birth_to_death(cli):
    options = ["--partitions", 4, "--order", "key", "--retention", "7d", "--max-attempts", 3,
               "--retry", "linear", "--retry-base", "2s", "--dedup-window", "1h",
               "--max-backlog", 100, "--compression", "zstd", "--fair"]  # fmt: skip
    made = cli.json("topics", "create", "orders", *options)
    assert made["created"]
    assert made["policy"]["retry"]["base_ms"] == 2_000
    assert made["policy"]["dead_letter"] == "orders.dlq"
    assert b"already" in cli("topics", "create", "orders", *options)
    assert b"2 partitions" in cli(
        "topics", "create", "ranges", "--partitions", 2, "--split-key", "m"
    )
    cli("topics", "create", "orders", code=2)
    with cli.queue() as queue:
        assert queue.policy("orders").order == "key"
        assert queue.policy("ranges").split_keys == ("m",)
        queue.send("orders", "x")
    table = cli("topics").decode()
    assert re.search(r"^orders +4 +key +1 ", table, re.MULTILINE)
    assert cli.json("topics", "show", "orders")["depth"] == 1
    assert "7d" in cli("topics", "show", "orders").decode()
    cli("topics", "purge", "orders", code=2)
    assert "say --yes" in cli.error
    assert cli.json("topics", "purge", "orders", "--yes") == {"topic": "orders", "dropped": 1}
    assert cli.json("topics", "delete", "orders", "--yes")["deleted"]
    assert [topic["topic"] for topic in cli.json("topics", "list")] == ["orders.dlq", "ranges"]


def test_a_topic_is_altered_and_compacted_from_the_shell(cli):
    cli("topics", "create", "prices", "--retention", "compact, 7d")
    with cli.queue() as queue:
        queue.send_batch("prices", [quiver.Message(f"{n}", key="k") for n in range(5)])
    assert cli.json("topics", "compact", "prices") == {"topic": "prices", "dropped": 4}
    assert cli("topics", "compact", "prices") == b"Compacted prices: 0 messages dropped.\n"
    shown = cli("topics", "show", "prices").decode()
    assert "compact and 7d" in shown
    assert "4 by compaction" in shown
    altered = cli.json("topics", "alter", "prices", "--retention", "1h, 1MB", "--drop-unsettled",
                       "--max-attempts", 3, "--max-backlog", 9)["policy"]  # fmt: skip
    assert altered["retention"]["size_bytes"] == 1_000_000
    assert (altered["keep_unsettled"], altered["max_attempts"]) == (False, 3)
    assert altered["dead_letter"] == "prices.dlq"
    again = cli.json("topics", "alter", "prices", "--max-backlog", "none", "--keep-unsettled")
    assert (again["policy"]["max_backlog"], again["policy"]["keep_unsettled"]) == (None, True)
    assert again["policy"]["max_attempts"] == 3
    cli("topics", "alter", "prices", "--max-backlog", "many", code=2)


def test_what_a_topic_needs_is_said_in_words_of_the_shell(cli):
    cli("topics", "create", "users")
    cli("topics", "alter", "users", code=2)
    assert cli.error == "quiver: say what shall change, such as --retention 7d.\n"
    cli("topics", "compact", "users", code=2)
    command = cli.error.rstrip(".\n").partition("to change that: quiver ")[2]
    cli(*command.split())
    cli("topics", "compact", "users")


def test_the_shell_is_told_what_retention_has_taken(cli):
    cli("topics", "create", "ticks", "--retention", "100B", "--drop-unsettled")
    cli("groups", "create", "ticks", "slow")
    for n in range(3):
        cli("send", "ticks", f"tick {n} ".ljust(60))
    assert cli("receive", "ticks", "--group", "slow").startswith(b"tick 2 ")
    assert "has lost messages that it had not settled: 2." in cli.error
    assert re.search(r"^slow .* 2 +active", cli("groups", "ticks").decode(), re.MULTILINE)
    assert cli("read", "ticks", "--offset", 0).startswith(b"tick 2 ")
    assert "Reading topic 'ticks' starts at offset 2 of partition 0" in cli.error


def test_a_group_starts_at_a_time(orders):
    orders("groups", "create", "orders", "all", "--start", "2026-01-01T00:00:00Z")
    orders("groups", "create", "orders", "none", "--start", "9000-01-01T00:00:00Z")
    groups = {group["group"]: group["lag"] for group in orders.json("groups", "orders")}
    assert groups == {"all": 5, "none": 0}


def test_a_missing_topic_suggests_names_that_are_near(orders):
    assert orders.json("receive", "ordrs", code=2)["error"]["code"] == "topic_not_found"
    assert "Did you mean 'orders'?" in orders.error
    orders("send", "xyz", "body", code=2)
    assert "`quiver topics` lists" in orders.error


# -- send and receive ------------------------------------------------------------------------------


def test_ten_thousand_lines_from_stdin_and_back(cli):
    lines = [f"line {n} · grüße 🏹" for n in range(9_998)] + ["", "tab\there"]
    text = "\n".join(lines).encode()  # the last line has no end, and counts
    summary = cli.json("send", "lines", "--create", given=text)
    assert (summary["sent"], summary["bytes"]) == (10_000, len(text))
    assert summary["rate"] > 0
    assert cli("receive", "lines") == text + b"\n"
    assert cli("receive", "lines") == b""
    assert "No messages" in cli.error


def test_one_body_with_everything(cli):
    cli("topics", "create", "orders")
    sent = cli.json("send", "orders", "héllo", "--key", "k", "-H", "a=b=c", "--header", "d=",
                    "--priority", 7, "--ttl", "1h", "--dedup-id", "x")  # fmt: skip
    assert (sent["sent"], sent["offset"], sent["durability"]) == (1, 0, "disk")
    again = cli.json("send", "orders", "héllo", "--dedup-id", "x")
    assert (again["sent"], again["duplicates"], again["id"]) == (0, 1, sent["id"])
    cli("send", "orders", "later", "--delay", "1h")
    (got,) = cli.lines("receive", "orders", "--group", "g")
    assert got["id"] == sent["id"]
    assert (got["body"], got["key"], got["priority"]) == ("héllo", "k", 7)
    assert (got["headers"], got["attempt"], got["group"]) == ({"a": "b=c", "d": ""}, 1, "g")
    with cli.queue() as queue:
        assert queue.groups("orders")["g"].acked == 1


def test_binary_is_shown_safely_and_goes_through_unchanged(cli):
    (cli.directory / "binary").write_bytes(BINARY)
    cli("send", "files", "--create", "--whole", "-f", "binary", "--file", "binary", "--file", "-",
        given=b"\n\n")  # fmt: skip
    assert cli("read", "files", "--max", 1, "--raw") == BINARY
    shown = cli("read", "files", "--max", 1).decode()  # it is text
    assert r"\xff" in shown
    assert cli.lines("receive", "files", "--max", 1)[0]["body_base64"]
    assert cli("receive", "files", "--raw") == BINARY + b"\n\n"


def test_json_lines_are_what_json_output_is(cli):
    lines = [
        {"body": "text", "key": "k", "headers": {"a": "b"}, "priority": 3},
        {"body": {"n": [1, None]}},
        {"body_base64": "AP8="},
    ]
    given = b"\n".join(json.dumps(line).encode() for line in lines)
    cli("send", "one", "--create", "--json-lines", "--header", "from=test", given=given)
    read = cli("read", "one", "--json")
    cli("send", "two", "--create", "--json-lines", given=read)
    first, second, third = cli.lines("receive", "two")
    assert (first["body"], first["key"], first["priority"]) == ("text", "k", 3)
    assert first["headers"] == {"a": "b", "from": "test"}
    assert json.loads(second["body"]) == {"n": [1, None]}
    assert third["body_base64"] == "AP8="
    for bad in (
        b"nope",
        b"[]",
        b'{"key": "k"}',
        b'{"body": "x", "colour": 1}',
        b'{"body_base64": "?"}',
    ):
        cli("send", "one", "--json-lines", given=b'{"body": 1}\n' + bad, code=2)
        assert cli.error.startswith("quiver: line 2 of stdin")
        assert "1 message is stored" in cli.error


def test_a_named_send_goes_on_where_it_ended(cli):
    (cli.directory / "lines").write_text("".join(f"{n}\n" for n in range(2_500)))
    cli("topics", "create", "small", "--max-backlog", 1_500)
    send = ["send", "small", "--file", "lines", "--name", "import"]
    error = cli.json(*send, code=3)["error"]
    assert error["code"] == "producer_failed"
    received = cli("receive", "small").splitlines()
    assert f"Of this input {len(received):,} messages are stored" in error["message"]
    while b"Skipped" not in (ended := cli.run(*send)).out:
        assert ended.code == 3, ended
        received += cli("receive", "small").splitlines()
    assert ended.code == 0, ended
    received += cli("receive", "small").splitlines()
    assert received == [b"%d" % n for n in range(2_500)]
    assert cli.json(*send)["skipped"] == 2_500


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--file", "missing"], "cannot read missing: no such file"),
        (["--whole", "--file", "large"], "large has more than 16,777,216 bytes"),
        (["--file", "large"], "line 1 of large has more than"),
    ],
)
def test_what_cannot_be_sent(orders, args, text):
    with (orders.directory / "large").open("wb") as large:
        large.truncate(17 * 2**20)
    orders("send", "orders", *args, code=2)
    assert text.lower() in orders.error.lower()
    with orders.queue() as queue:
        assert queue.stats("orders").depth == 5


def test_what_is_not_acked_comes_again(orders):
    first = orders.lines("receive", "orders", "--no-ack", "--lease", "1s", "--max", 2)
    assert [got["attempt"] for got in first] == [1, 1]
    assert first[0]["receipt"]
    again = orders("receive", "orders", "--wait", 10, "--max", 5, "--verbose").decode()
    assert sorted(re.findall(r"^order \d", again, re.MULTILINE)) == [f"order {n}" for n in range(5)]
    assert again.count("attempt 2 · key k") == 2


def test_read_replays_and_changes_nothing(orders):
    assert orders("read", "orders", "--offset", 1, "--end", 3) == b"order 1\norder 2\n"
    assert len(orders.lines("read", "orders", "--start", "2020-01-01", "-n", 4)) == 4
    assert orders("read", "orders", "--start", "2999-01-01") == b""
    orders("read", "orders", "--partition", 7, code=2)
    orders("read", "orders", "--start", "soon", code=2)
    with orders.queue() as queue:
        assert queue.groups("orders") == {}


# -- groups ----------------------------------------------------------------------------------------


def test_groups_in_either_order_of_words(orders):
    assert orders.json("groups", "create", "orders", "late", "--start", "latest")["created"]
    orders("groups", "orders", "create", "once", "--guarantee", "at-most-once")
    assert orders("receive", "orders", "-g", "late") == b""
    orders("groups", "seek", "orders", "late", 3)
    assert orders("receive", "orders", "-g", "late") == b"order 3\norder 4\n"
    orders("groups", "-d", orders.data, "orders", "pause", "late")
    orders("groups", "orders", "seek", "late", "earliest")
    assert orders("receive", "orders", "-g", "late") == b""
    assert {group["group"]: group["paused"] for group in orders.json("groups", "orders")} == {
        "late": True, "once": False,
    }  # fmt: skip
    assert re.search(r"^late .* paused", orders("groups", "orders").decode(), re.MULTILINE)
    orders("groups", "resume", "orders", "late")
    assert orders("receive", "orders", "-g", "late").count(b"\n") == 5
    orders("groups", "resume", "orders", "lat", code=2)
    assert "Did you mean 'late'?" in orders.error
    assert orders.json("groups", "delete", "orders", "late", "--yes")["deleted"]
    assert len(orders.json("groups", "list", "orders")) == 1


# -- dead letters ----------------------------------------------------------------------------------


def test_dead_letters_are_listed_with_reasons(letters):
    assert [(row["topic"], row["of"], row["pending"]) for row in letters.json("dlq")] == [
        ("jobs.dlq", ["jobs"], 7)
    ]
    found = letters.json("dlq", "list", "jobs", "--limit", 2)
    assert (found["topic"], found["pending"], len(found["letters"])) == ("jobs.dlq", 7, 2)
    assert list(found["reasons"].values()) == [4, 2, 1]
    text = letters("dlq", "list", "jobs.dlq", "--reason-like", "valueerror").decode()
    assert "2 dead letters in jobs.dlq." in text
    assert r"\x1b[31mbad" in text
    assert "\x1b" not in text
    message = found["letters"][0]
    assert letters.json("dlq", "show", "jobs", message["id"]) == message
    assert message["origin"]["attempts"] == 1
    assert "jobs, partition 0, offset 0" in letters("dlq", "show", "jobs", message["id"]).decode()
    letters("dlq", "show", "jobs", "99-99", code=2)


def test_dead_letters_are_redriven_and_discarded(letters):
    dry = letters.json("dlq", "redrive", "jobs", "--reason-like", "Timeout", "--dry-run")
    assert (dry["redriven"], dry["dry_run"]) == (4, True)
    one = letters.json("dlq", "redrive", "jobs", "--reason-like", "Timeout", "--limit", 1)
    assert one["redriven"] == 1
    assert b"Redrove 5 messages" in letters("dlq", "redrive", "jobs", "--rate", 1_000)
    assert "say --to" in letters.error
    assert letters("receive", "jobs", "-g", "worker").count(b"\n") == 6
    letters("dlq", "discard", "jobs", code=2)
    assert letters.json("dlq", "discard", "jobs", "--dry-run")["discarded"] == 1
    assert letters.json("dlq", "discard", "jobs", "--yes")["discarded"] == 1
    assert letters.json("dlq", "list", "jobs")["pending"] == 0


# -- doctor, and directories that are not well -----------------------------------------------------


def test_the_doctor_finds_a_healthy_directory_healthy(orders):
    before = contents(orders.data)
    found = orders.json("doctor", orders.data)
    assert (found["status"], found["owner"], found["problems"]) == ("healthy", None, [])
    log = next(file for file in found["files"] if file["kind"] == "log")
    assert (log["name"], log["first"], log["last"]) == (FIRST_LOG, 1, found["confirmed"])
    assert orders("doctor").startswith(b"data is healthy.")
    assert contents(orders.data) == before


def test_who_cannot_look_does_not_say_that_there_is_nothing(orders):
    with orders.queue():
        error = orders.json("receive", "orders", code=4)["error"]
    assert error["code"] == "directory_in_use"
    assert "quiver://" in error["message"]


@pytest.mark.parametrize("command", [["topics"], ["access", "list"], ["serve"]])
def test_an_address_of_another_kind_is_no_directory(cli, command):
    cli(*command, "-d", "ftp://127.0.0.1:1", code=2)
    assert "quiver://host:port" in cli.error
    assert list(cli.directory.iterdir()) == []


def test_the_doctor_looks_at_a_directory_in_use_and_others_are_told_who_has_it(orders):
    with orders.queue() as queue:
        queue.send("orders", "x")
        found = orders.json("doctor")
        assert found["status"] == "healthy"
        assert f"process {os.getpid()} on " in found["owner"]
        error = orders.json("topics", "purge", "orders", "--yes", code=4)["error"]
        assert error["code"] == "directory_in_use"
        assert f"process {os.getpid()} on " in error["message"]
        assert queue.stats("orders").depth == 6


def test_commands_that_only_look_do_so_while_somebody_has_the_directory(orders):
    with orders.queue() as queue:
        queue.create_topic("letters", max_attempts=1)
        sent = queue.send("letters", "x")
        queue.receive("letters", "workers")[0].dead_letter(reason="no")
        assert [found["topic"] for found in orders.json("topics")] == queue.topics()
        assert orders.json("topics", "show", "orders")["depth"] == 5
        assert len(orders.json("groups", "letters")) == 1
        assert len(orders.lines("read", "orders")) == 5
        assert orders.lines("sql", "select count(*) as n from orders") == [{"n": 5}]
        assert len(orders.lines("ledger", "letters")) == 3
        assert len(orders.json("trace", sent.id)) == 3
        assert orders.json("dlq", "list", "letters")["pending"] == 1
        assert orders.json("dlq", "show", "letters", sent.id)["id"] == sent.id
        assert orders.json("export", "letters.dlq", "out.parquet")["exported"] == 1
        assert orders.json("top", "--once")["topics"]["orders"]["depth"] == 5


def test_the_doctor_explains_what_is_harmless(orders):
    with (orders.data / FIRST_LOG).open("ab") as log:
        log.write(b"half a frame")
    (orders.data / "wal-00000000000000000009.log.tmp").write_bytes(b"")
    (orders.data / "notes.txt").write_bytes(b"hello")
    before = contents(orders.data)
    found = orders.json("doctor")
    assert found["status"] == "warnings"
    assert [problem["file"] for problem in found["problems"]] == [
        "wal-00000000000000000009.log.tmp", FIRST_LOG, "notes.txt",
    ]  # fmt: skip
    assert "sound" in orders("doctor").decode()
    assert contents(orders.data) == before
    orders("send", "orders", "x")  # opens it, and does not only look
    assert [problem["file"] for problem in orders.json("doctor")["problems"]] == ["notes.txt"]


def test_damage_is_found_explained_and_never_opened(orders):
    log = orders.data / FIRST_LOG
    content = bytearray(log.read_bytes())
    at = content.index(b"order 2")
    content[at] ^= 1
    log.write_bytes(content)
    before = contents(orders.data)
    found = orders.json("doctor", code=1)
    (problem,) = found["problems"]
    assert (found["status"], problem["severity"], problem["file"]) == (
        "damaged",
        "error",
        FIRST_LOG,
    )
    assert 0 < problem["offset"] <= at
    text = orders("doctor", code=1).decode()
    assert "data is damaged." in text
    assert "backup" in text
    for command in (["receive", "orders"], ["send", "orders", "x"]):
        assert orders.json(*command, code=4)["error"]["code"] == "corrupt_log"
    after = contents(orders.data)
    assert {**after, "quiver.lock": b""} == {**before, "quiver.lock": b""}


@pytest.mark.parametrize("saved", [False, True], ids=["in the log", "in a snapshot"])
def test_a_directory_of_a_newer_level_is_explained_and_never_opened(orders, monkeypatch, saved):
    now_ms = SystemClock().now_ms()
    with monkeypatch.context() as newer:
        peer = Peer.open(DiskFiles(orders.data), now_ms=now_ms, secret=b"")
        peer.commit([Proposal(Raise(add_level(newer)))], now_ms=now_ms)
        if saved:
            made = peer.begin_snapshot(now_ms)
            made.save()
            peer.engine.snapshots.finish(made)
        peer.engine.close()
    before = contents(orders.data)
    found = orders.json("doctor", code=1)
    (problem,) = found["problems"]
    assert problem["what"].startswith("Level 2 of the log is not known to this Quiver")
    assert "too old to read it" in problem["means"]
    for command in (["receive", "orders"], ["send", "orders", "x"]):
        error = orders.json(*command, code=4)["error"]
        assert (error["code"], error["message"][:7]) == ("unsupported_format", "Level 2")
    after = contents(orders.data)
    assert {**after, "quiver.lock": b""} == {**before, "quiver.lock": b""}


def test_the_doctor_misses_what_only_the_snapshot_knows_of(cli, monkeypatch):
    monkeypatch.setattr(limits, "SNAPSHOT_LOG_ENTRIES", 20)
    cli.data.mkdir()
    peer = Peer.open(DiskFiles(cli.data), now_ms=1, secret=bytes(32), file_bytes=2_000)
    shard = Shard(peer, SystemClock())
    with quiver.Queue(Flows(LocalBroker(shard), "disk"), shard.close) as queue:
        queue.create_topic("old")
        for n in range(60):
            queue.send("old", b"%0200d" % n)
    log = cli.data / name_of(min(checkup._needed(DiskFiles(cli.data))))
    content = log.read_bytes()
    assert cli.json("doctor")["status"] == "healthy"
    log.write_bytes(content[:32])
    assert "cannot be read from here" in cli.json("doctor", code=1)["problems"][0]["what"]
    log.unlink()
    (problem,) = cli.json("doctor", code=1)["problems"]
    assert (problem["file"], problem["what"].split(":")[1]) == (log.name, " the file is missing")
    cli("topics", code=4)
    log.write_bytes(content)
    assert cli.json("topics")[0]["depth"] == 60


def test_seal_says_what_it_wrote(orders):
    written = orders.json("seal")
    (file,) = written["files"]
    path = orders.data / file["file"]
    assert path.match("orders@*.parquet")
    assert pq.read_table(path)["body"].to_pylist() == [b"order %d" % n for n in range(5)]
    assert file == {"file": path.name, "messages": 5, "bytes": path.stat().st_size}
    assert (written["messages"], written["bytes"]) == (5, path.stat().st_size)
    assert orders.json("seal") == {"files": [], "messages": 0, "bytes": 0}
    assert "Nothing to write" in orders("seal").decode()
    orders("send", "orders", "one more")
    said = orders("seal").decode()
    assert "Wrote 1 message into 1 file" in said
    assert [name for name in contents(orders.data) if name in said] != [path.name]


def test_the_doctor_explains_segments_that_are_damaged_missing_or_left_over(orders):
    (file,) = orders.json("seal")["files"]
    path = orders.data / file["file"]
    content = bytearray(path.read_bytes())
    assert orders.json("doctor")["status"] == "healthy"
    where = "5 messages of partition 0 of orders, offsets 0 to 4, cannot be read"

    path.write_bytes(content[:100] + b"?" + content[101:])
    (problem,) = orders.json("doctor", code=1)["problems"]
    assert (problem["severity"], problem["file"]) == ("error", path.name)
    assert problem["what"] == (
        "damaged: 5 of its 5 messages cannot be read: partition 0 of orders, offsets 0 to 4"
    )
    assert "the queue works" in problem["means"]
    assert orders.json("read", "orders", code=4)["error"]["code"] == "corrupt_segment"

    path.unlink()
    (problem,) = orders.json("doctor", code=1)["problems"]
    assert problem["what"] == f"the file is missing: {where}"

    path.write_bytes(content)
    spare = orders.data / path.name.replace("-0.parquet", "-7.parquet")
    spare.write_bytes(content)
    (problem,) = orders.json("doctor")["problems"]
    assert (problem["severity"], problem["file"]) == ("warning", spare.name)
    assert len(orders.lines("read", "orders")) == 5
    orders("receive", "orders")
    assert not spare.exists(), "the next opening removes it"


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


# -- bench -----------------------------------------------------------------------------------------


def test_bench_measures_and_leaves_nothing_behind(cli):
    found = cli.json("bench", "--seconds", 1, "--data", ".", "--batch", 100)
    assert [result["messages"] > 0 for result in found["results"]] == [True] * 5
    assert found["machine"]["quiver"] == quiver.__version__
    assert list(cli.directory.iterdir()) == []
    assert "messages/s" in cli("bench", "--seconds", 1).decode()
    cli("bench", "--data", "nowhere", code=2)


# -- the ledger ------------------------------------------------------------------------------------


@pytest.fixture
def story(cli):
    """A message that was given up by its first consumer, and another one that waits."""
    with cli.queue() as queue:
        queue.create_topic("jobs", max_attempts=1)
        cli.sent = queue.send("jobs", b"it").id
        queue.receive("jobs", "g", consumer="w1")[0].nack(reason="no\x1b[2J luck")
        queue.send("jobs", b"another")
    return cli


def test_trace_tells_the_story_in_plain_words(story):
    title, *lines = story("trace", story.sent).decode().splitlines()
    assert title.startswith(f"Message {story.sent}, sent on 20")
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} {12}sent to jobs, partition 0, offset 0", lines[0])
    assert " leased by group g (consumer w1), attempt 1, until " in lines[1]
    assert lines[2].endswith("nacked by group g (consumer w1), attempt 1: no\\x1b[2J luck")
    assert lines[3].endswith("no\\x1b[2J luck; moved to jobs.dlq, partition 0, offset 0")
    assert re.match(r"[\d:.]{12}  \+\S+ ", lines[3])
    assert len(lines) == 4


def test_trace_as_json_has_every_row(story):
    rows = story.json("trace", story.sent)
    assert [row["event"] for row in rows] == ["sent", "leased", "nacked", "dead_lettered"]
    assert rows[3]["to_topic"] == "jobs.dlq"
    assert rows[2]["reason"] == "no\x1b[2J luck"


def test_trace_of_nothing_is_a_mistake(story):
    story("trace", "999-0", code=2)
    assert "no message 999-0" in story.error
    story("trace", "it", code=2)
    assert "message id" in story.error


def test_ledger_lists_and_chooses(story):
    assert len(story("ledger").splitlines()) == 5
    lines = story("ledger", "jobs", "--event", "sent").decode().splitlines()
    assert [line.split()[2] for line in lines] == ["jobs/0/0", "jobs/0/1"]
    assert len(story.lines("ledger", "--group", "g")) == 3
    assert len(story.lines("ledger", "--max", 2)) == 2
    (moved,) = story.lines("ledger", "jobs.dlq")
    assert moved["event"] == "dead_lettered"
    assert story.lines("ledger", "--start", moved["time"])[-1]["event"] == "sent"
    assert story.lines("ledger", "--end", "2020-01-01") == []
    assert "nothing of that" in story.error
    story("ledger", "--event", "eaten", code=2)
    assert "dead_lettered" in story.error


def test_the_doctor_and_later_commands_know_the_files_of_the_ledger(story):
    files = DiskFiles(story.data)
    peer = Peer.open(files, now_ms=0, secret=b"")
    engine = peer.engine
    made = peer.begin_snapshot(0)
    made.save()
    engine.snapshots.finish(made)
    engine.close()
    report = story.json("doctor")
    assert [x["kind"] for x in report["files"] if x["name"].startswith("ledger-")] == ["ledger"]
    assert report["status"] == "healthy"
    assert len(story.lines("ledger")) == 5

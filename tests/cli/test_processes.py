"""What only processes of their own show: signals, pipes that are closed, and sharing a directory.

Everything else of the command line is tried in the process of the test: see `program.py`.
"""

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

import quiver
from quiver.storage.logfile import name_of
from tests.cli.program import SECONDS_MAX

pytestmark = pytest.mark.process

FIRST_LOG = name_of(1)


# -- a start and its end ---------------------------------------------------------------------------


def test_the_script_and_the_module_are_the_command(cli):
    said = f"quiver {quiver.__version__}\n".encode()
    assert cli.process("--version") == said
    module = [sys.executable, "-m", "quiver.cli", "--version"]
    assert subprocess.run(module, capture_output=True, check=True).stdout == said


def test_stdin_and_stdout_are_bytes_that_a_command_passes_on(cli):
    cli("send", "t", "--create", given="grüße 🏹\n".encode())
    assert cli.process("receive", "t") == "grüße 🏹\n".encode()
    error = json.loads(cli.process("send", "t", "--json-lines", "--json", given=b"[]", code=2))
    assert cli.error == f"quiver: {error['error']['message']}\n"
    assert "line 1 of stdin" in cli.error


def test_another_process_that_has_the_directory_is_named(cli):
    follower = cli.start("send", "live", "--create", stdin=subprocess.PIPE)
    follower.stdin.write(b"one\n")
    follower.stdin.flush()
    until(lambda: stored(cli) == 1)
    until(lambda: cli.json("topics", "show", "live")["depth"] == 1)  # looking does not need it
    error = cli.json("topics", "purge", "live", "--yes", code=4)["error"]
    assert error["code"] == "directory_in_use"
    assert f"process {follower.pid} on " in error["message"]
    assert cli.json("topics", "show", "live")["depth"] == 1


# -- following, pipes and signals ------------------------------------------------------------------


def send_patiently(cli, *args):
    """Send, again while somebody else has the directory for too long."""
    for _ in range(10):
        with suppress(AssertionError):
            cli("send", *args)
            return
        assert "is in use" in cli.error
    raise AssertionError(cli.error)


def test_follow_shares_the_directory_and_ends_at_ctrl_c(cli):
    cli("topics", "create", "live")
    follower = cli.start("receive", "live", "--follow", "--json")
    bodies = []
    for body in ("one", "two"):
        send_patiently(cli, "live", body)  # while the other waits
        bodies.append(json.loads(follower.stdout.readline())["body"])
    send_patiently(cli, "live", "three", "--delay", "1s")
    bodies.append(json.loads(follower.stdout.readline())["body"])
    follower.send_signal(signal.SIGINT)
    rest, error = follower.communicate(timeout=SECONDS_MAX)
    assert (follower.returncode, rest, bodies) == (130, b"", ["one", "two", "three"])
    notes = [line for line in error.decode().splitlines() if not line.startswith("Waiting: ")]
    assert notes == ["Group default is new: it starts with the oldest message."]
    with cli.queue() as queue:
        group = queue.groups("live")["default"]
        assert (group.acked, group.lag) == (3, 0)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.check)]
)
def test_what_was_printed_is_acked_and_the_rest_is_not_when_interrupted(cli, number):
    with cli.queue() as queue:
        queue.create_topic("many")
        queue.send_batch("many", [b"%050d" % n for n in range(20_000)])
    receiver = cli.start("receive", "many")
    printed = [receiver.stdout.readline() for _ in range(3_000)]
    receiver.send_signal(number)
    printed += receiver.stdout.readlines()
    assert receiver.wait(SECONDS_MAX) == 128 + number
    assert b"Traceback" not in receiver.stderr.read()
    assert [int(line) for line in printed] == list(range(len(printed)))
    with cli.queue() as queue:
        group = queue.groups("many")["default"]
        assert (group.acked, group.in_flight, group.lag) == (len(printed), 0, 20_000 - len(printed))


def test_a_broken_pipe_ends_quietly_and_gives_back_the_rest(cli):
    with cli.queue() as queue:
        queue.create_topic("many")
        queue.send_batch("many", [b"%0500d" % n for n in range(20_000)])
    for command in ("receive", "read"):
        receiver = cli.start(command, "many")
        assert int(receiver.stdout.readline()) == 0
        receiver.stdout.close()
        assert receiver.wait(SECONDS_MAX) == 141
        assert b"Traceback" not in receiver.stderr.read()
    with cli.queue() as queue:
        group = queue.groups("many")["default"]
        assert group.in_flight == 0
        assert group.acked + group.ready == 20_000
        assert 1 <= group.acked < 2_000  # what a pipe can hold


def test_a_send_that_is_interrupted_has_stored_what_it_read(cli):
    cli("topics", "create", "live")
    sender = cli.start("send", "live", "--json", stdin=subprocess.PIPE)
    sender.stdin.write(b"one\ntwo\nthr")
    sender.stdin.flush()
    until(lambda: stored(cli) >= 2)
    sender.send_signal(signal.SIGINT)
    out, _ = sender.communicate(timeout=SECONDS_MAX)
    assert (sender.returncode, json.loads(out)["sent"]) == (130, 2)
    assert cli("receive", "live") == b"one\ntwo\n"


# -- long work ------------------------------------------------------------------------------------


def test_a_redrive_that_is_interrupted_says_how_far_it_got_and_goes_on(cli):
    where = "reason like 'Timeout%'"
    with cli.queue() as queue:
        queue.create_topic("jobs", max_attempts=1)
        queue.send_batch("jobs", [f"job {n}" for n in range(40)])
        for got in queue.receive("jobs", "worker", max_messages=40):
            got.nack(reason="Timeout: slow")
    log = max((cli.data).glob("wal-*"))
    before = log.read_bytes().rstrip(b"\x00")
    run = cli.start("dlq", "redrive", "jobs", "--where", where, "--rate", 2)
    until(lambda: len(log.read_bytes().rstrip(b"\x00")) > len(before) + 200)
    run.send_signal(signal.SIGINT)
    _, error = run.communicate(timeout=SECONDS_MAX)
    assert run.returncode == 130
    assert b"goes on with the rest" in error
    with cli.queue() as queue:
        moved = queue.stats("jobs").depth
        assert 0 < moved < 40
    assert cli.json("dlq", "redrive", "jobs", "--where", where)["redriven"] == 40 - moved


def test_a_question_that_takes_for_ever_ends_at_ctrl_c(cli):
    cli("topics", "create", "jobs")
    room = cli.directory / "tmp"
    room.mkdir()
    cli.environment["TMPDIR"] = str(room)
    query = "select count(*) from range(1000000000000000) as r(i) where i % 7 = 3"
    run = cli.start("sql", query)
    until(lambda: any(room.iterdir()))
    run.send_signal(signal.SIGINT)
    out, error = run.communicate(timeout=SECONDS_MAX)
    assert (run.returncode, out, error) == (130, b"", b"")
    assert not any(room.iterdir())


SLOWLY = """
import os, sys
from quiver.cli import formats, main
formats.BATCH_MESSAGES = 100
batches = formats.batches
def slowly(*args, **options):
    for at, batch in enumerate(batches(*args, **options)):
        yield batch
        if options.get("now_ms") != 0:
            os.write(2, b"stored".ljust(8191) + b"\\n")  # a pipe has room for eight of them
formats.batches = slowly
main()
"""


def stopped(cli, path, batches, by):
    """Import until some batches are stored, then stop it by a signal; what else it said."""
    run = subprocess.Popen(
        [sys.executable, "-c", SLOWLY, "import", "copy", str(path)], cwd=cli.directory,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert run.stderr is not None
    with run:
        for _ in range(batches):
            assert run.stderr.readline().strip() == b"stored"
        run.send_signal(by)
        return run.stderr.read().decode()


def many(cli):
    cli("topics", "create", "copy")
    path = cli.directory / "many.jsonl"
    path.write_text("".join(f'{{"body": "{n}"}}\n' for n in range(20_000)))
    return path


def test_an_import_that_is_interrupted_says_how_much_is_stored_at_least(cli):
    said = stopped(cli, many(cli), 5, signal.SIGINT)
    found = re.search(r"Interrupted: of this input at least ([\d,]+) messages are stored", said)
    assert found, said
    with cli.queue() as queue:
        assert 400 <= int(found[1].replace(",", "")) <= queue.stats("copy").sent < 20_000


@pytest.mark.parametrize("batches", [[5], pytest.param([5, 20, 60], marks=pytest.mark.check)])
def test_an_import_that_is_killed_goes_on_without_duplicates(cli, batches):
    path = many(cli)
    for stored_before in batches:
        stopped(cli, path, stored_before, signal.SIGKILL)
    done = cli.json("import", "copy", path)
    assert 0 < done["skipped"] < 20_000
    assert done["skipped"] + done["imported"] == 20_000
    with cli.queue() as queue:
        assert [int(record.body) for record in queue.read("copy")] == list(range(20_000))


def stored(cli):
    """How many bodies are in the log of a directory that somebody else has open."""
    log = cli.data / FIRST_LOG
    data = log.read_bytes() if log.exists() else b""
    return (b"one" in data) + (b"two" in data)


def until(condition, seconds=SECONDS_MAX):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)

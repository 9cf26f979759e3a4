"""Every mistake on the command line is one sentence, also as JSON, and makes nothing."""

import json
import sys

import pytest

from quiver.cli.output import sentence
from quiver.cli.run import exit_code, run
from quiver.errors import (
    CorruptLog,
    DirectoryInUse,
    DiskFull,
    InvalidRequest,
    ProducerFailed,
    QueueFull,
    TopicNotFound,
)


@pytest.fixture
def quiver(monkeypatch, tmp_path):
    """Runs a command line in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("QUIVER_DATA", raising=False)

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["quiver", *args])
        return run(as_json="--json" in args)

    return call


@pytest.mark.parametrize(
    "command",
    ["topics", "topics list", "topics create", "topics show", "topics purge", "topics delete",
     "send", "receive", "read", "groups", "groups list", "groups create", "groups seek",
     "groups pause", "groups resume", "groups delete", "dlq", "dlq list", "dlq show",
     "dlq redrive", "dlq discard", "access", "access list", "access add",
     "access remove", "access token", "access key", "doctor", "bench", "demo"],
)  # fmt: skip
def test_every_command_has_help_with_an_example(quiver, capsys, command):
    assert quiver(*command.split(), "--help") == 0
    text = capsys.readouterr().out
    assert "Examples" in text
    assert f"quiver {command.split()[0]}" in text
    assert "--json" in text or command in ("topics", "groups", "dlq", "access")


@pytest.mark.parametrize("command", ["doctor", "serve", "access list", "access add"])
def test_what_is_done_to_a_directory_offers_no_address(quiver, capsys, command):
    assert quiver(*command.split(), "--help") == 0
    assert "URL" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["nope"], "usage", "No such command 'nope'. See: quiver --help"),
        (["topics", "delte", "x"], "usage", "Did you mean 'delete'"),
        (["groups", "a", "b", "c"], "usage", "No such command 'a'"),
        (["receive"], "usage", "Missing argument"),
        (["receive", "x", "--max", "0"], "usage", "--max"),
        (["receive", "x", "--raw", "--verbose"], "usage", "exclude each other"),
        (["receive", "x", "--lease", "0"], "invalid_request", "Lease must be more than 0"),
        (["receive", "x", "--wait", "soon"], "invalid_request", "Wait must be"),
        (["topics"], "invalid_request", "There is no queue in data: it is not there."),
        (["doctor", "-d", "quiver://host"], "invalid_request", "looks at files"),
        (["receive", "orders"], "invalid_request", "There is no queue"),
        (["read", "orders"], "invalid_request", "There is no queue"),
        (["groups", "orders"], "invalid_request", "There is no queue"),
        (["groups", "orders", "pause", "g"], "invalid_request", "There is no queue"),
        (["dlq"], "invalid_request", "There is no queue"),
        (["dlq", "list", "orders"], "invalid_request", "There is no queue"),
        (["doctor", "elsewhere"], "invalid_request", "There is no queue in elsewhere"),
        (["send", "orders", "x"], "invalid_request", "There is no queue"),
        (["send", "orders", "x", "--file", "-"], "invalid_request", "not both"),
        (["send", "orders", "x", "--priority", "10"], "invalid_request", "between 0 and 9, not 10"),
        (["send", "orders", "x", "--delay", "nan"], "invalid_request", "Delay must be"),
        (["send", "orders", "x", "--ttl", "0"], "invalid_request", "Ttl must be more than 0"),
        (["send", "orders", "x", "-H", "nonsense"], "invalid_request", "a header is NAME=VALUE"),
        (["send", "orders", "x", "y", "--dedup-id", "i"], "invalid_request", "names one message"),
        (["send", "no/good", "x", "--create"], "invalid_request", "Topic must be"),
        (["topics", "create", "x" * 256], "invalid_request", "Topic must be 1 to 255"),
        (["topics", "create", "x", "--order", "best"], "invalid_request", "order must be one of"),
        (["topics", "create", "x", "--partitions", "0"], "invalid_request", "between 1 and 1,024"),
        (["topics", "create", "x", "--drop-unsettled"], "invalid_request", "a time or a size"),
        (
            ["topics", "create", "x", "--retry", "5s", "--retry-cap", "1m"],
            "invalid_request",
            "--retry",
        ),
        (["bench", "--data", "nowhere"], "invalid_request", "nowhere is not a directory"),
    ],
)
def test_a_mistake_is_one_sentence_and_makes_nothing(quiver, capsys, tmp_path, args, code, text):
    assert quiver(*args, "--json") == 2
    shown = capsys.readouterr()
    error = json.loads(shown.out)["error"]
    assert error["code"] == code
    assert text.lower() in error["message"].lower()
    assert shown.err == f"quiver: {error['message']}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_a_directory(quiver, capsys, tmp_path):
    (tmp_path / "data").write_text("hello")
    assert quiver("topics") == 2
    assert "it is a file" in capsys.readouterr().err
    assert quiver("topics", "create", "x") == 2
    assert "is a file, or lies in one" in capsys.readouterr().err


def test_an_empty_directory_has_no_queue(quiver, capsys, tmp_path):
    (tmp_path / "data").mkdir()
    assert quiver("topics") == 2
    assert "there is no queue in data: it is empty." in capsys.readouterr().err
    (tmp_path / "data" / "other").touch()
    assert quiver("topics") == 2
    assert "it has other files" in capsys.readouterr().err


def test_words_without_a_command_are_help(quiver, capsys):
    assert quiver() == 2
    shown = capsys.readouterr()
    assert "Usage: quiver" in shown.out
    assert shown.err == ""


def test_exit_codes_say_who_must_act():
    failed = ProducerFailed("1 message was not stored")
    failed.__cause__ = QueueFull("full")
    errors = [InvalidRequest("a"), TopicNotFound("b"), QueueFull("c"), DiskFull("d"),
              DirectoryInUse("e"), CorruptLog("f"), failed]  # fmt: skip
    assert [exit_code(error) for error in errors] == [2, 2, 3, 3, 4, 4, 3]


def test_messages_end_as_sentences_and_begin_as_they_are():
    assert sentence(InvalidRequest("lease must be more")) == "lease must be more."
    assert sentence(CorruptLog("wal-1.log is bad.")) == "wal-1.log is bad."
    assert sentence(DirectoryInUse("data is in use")) == "data is in use."
    assert sentence(InvalidRequest("did you mean it?")) == "did you mean it?"

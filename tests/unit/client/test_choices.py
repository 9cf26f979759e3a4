"""A word that is not known is answered with those that are, and with the one that may have been meant."""

import sys

import pytest

import quiver
from quiver.cli.run import run
from quiver.client import arguments
from quiver.errors import InvalidRequest
from quiver.model.topic import Compression, Guarantee, Order, RetryKind


@pytest.mark.parametrize(
    ("call", "words", "meant"),
    [
        (lambda: arguments.retry("exponental"),
         ['"fixed"', '"linear"', '"exponential"', "None", "'exponental'"], "'exponential'"),
        (lambda: arguments.retry("Linear"), ['"linear"'], "'linear'"),
        (lambda: quiver.retry("expo-nential"),  # type: ignore[arg-type]  # the mistake
         ["'fixed'", "'linear'"], "'exponential'"),
        (lambda: arguments.choice("kye", "order", Order), ["'none'", "'key'"], "'key'"),
        (lambda: arguments.choice("at-least-one", "guarantee", Guarantee),
         ["'at-least-once'", "'at-most-once'"], "'at-least-once'"),
        (lambda: arguments.choice("ztsd", "compression", Compression), ["'lz4'"], "'zstd'"),
        (lambda: arguments.retention("setled"),
         ['"settled"', '"forever"', '"compact"', '"7d"', '"10GB"'], "'settled'"),
        (lambda: arguments.retention("7d, compct"), ['"compact"'], "'compact'"),
        (lambda: arguments.position("latets"), ['"earliest"', '"latest"'], "'latest'"),
        (lambda: quiver.connect("x", durability="disc"),  # type: ignore[arg-type]  # the mistake
         ["'memory'", "'disk'"], "'disk'"),
    ],
)  # fmt: skip
def test_the_error_names_the_words_and_the_near_one(call, words, meant):
    with pytest.raises(InvalidRequest) as error:
        call()
    text = str(error.value)
    assert all(word in text for word in words), text
    assert text.partition(": did you mean ")[2].startswith(meant), text


@pytest.mark.parametrize(
    "call",
    [
        lambda: arguments.retry("soon"),
        lambda: arguments.retry("5 lightyears"),
        lambda: arguments.choice(7, "order", Order),
        lambda: arguments.choice("", "kind", RetryKind),
        lambda: arguments.position("tomorrow"),
        lambda: arguments.retention("7 dogs"),
    ],
)
def test_nothing_is_suggested_where_nothing_is_near(call):
    with pytest.raises(InvalidRequest) as error:
        call()
    assert "did you mean" not in str(error.value)


def test_a_setting_of_a_topic_that_is_not_known(tmp_path):
    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("t")
        with pytest.raises(InvalidRequest, match="did you mean 'max_attempts'"):
            queue.alter_topic("t", max_atempts=3)  # type: ignore[call-arg]  # the mistake


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (["topics", "create", "x", "--retry", "exponental"], "did you mean 'exponential'?"),
        (["topics", "create", "x", "--retry", "exponental", "--retry-base", "1s"],
         "did you mean 'exponential'?"),
        (["topics", "create", "x", "--order", "kye"], "did you mean 'key'?"),
        (["groups", "create", "t", "g", "--guarantee", "atmost-once"], "'at-most-once'"),
        (["top", "--sort", "lags"], "did you mean 'lag'?"),
        (["ledger", "--event", "snt"], "did you mean 'sent'?"),
        (["topics", "create", "x", "--partitons", "3"], "--partitions"),
        (["topcis"], "'topics'"),
    ],
)  # fmt: skip
def test_the_command_line_says_so_too(monkeypatch, tmp_path, capfd, args, meant):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["quiver", *args])
    assert run(as_json=False) == 2
    assert meant in capfd.readouterr().err

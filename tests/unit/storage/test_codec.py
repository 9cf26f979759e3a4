"""Commands and state are the same after their way through bytes."""

from typing import get_args

import msgspec
import pytest

from quiver.errors import CorruptLog, UnsupportedFormat
from quiver.model import commands
from quiver.model.commands import Attributes, Held, ProducerStamp, Run, Send, Settle, Tick, Transact
from quiver.model.topic import Retention, Retry, TopicPolicy
from quiver.storage import codec

SEND = Send(
    topic=3,
    runs=(Run(0, 2, 100), Run(5, 1, 7)),
    requests=(1, 1),
    attributes=Attributes(keys=bytes(24), dedup_ids=("a", None, "c")),
    producer=ProducerStamp("p", 2, 40),
)
SETTLE = Settle(3, 1, "nack", (Held(0, 9, ((1, 5), (7, 8))),), reason="läuft nicht", seed=2**64 - 1)
POLICY = TopicPolicy(order="key", retry=Retry("exponential", 10), retention=Retention(time_ms=5))


def test_every_command_has_a_number_and_no_two_have_one():
    assert set(codec.KINDS.values()) == set(get_args(commands.Command))
    assert len(set(codec.KINDS.values())) == len(codec.KINDS)
    assert all(0 < kind < 256 for kind in codec.KINDS)


def test_numbers_never_change():
    """Append to this list; never edit it."""
    assert " ".join(codec.KINDS[kind].__name__ for kind in range(1, 21)) == (
        "Found CreateTopic DeleteTopic Send OpenProducer Receive Settle Transact CreateGroup "
        "DeleteGroup Seek PauseGroup Purge Discard Redrive Join Heartbeat Commit Leave Tick"
    )


@pytest.mark.parametrize(
    "command",
    [
        commands.Found(b"secret", 5),
        commands.CreateTopic("orders", POLICY),
        SEND,
        SETTLE,
        Transact((SETTLE,), (SEND, SEND)),
        commands.Seek(1, "g", commands.Position("time", -5, None)),
        commands.Redrive(1, (commands.Pick(0, ((0, 4),)),), None),
        commands.Commit(1, "g", "m", ((0, 5), (1, 6))),
        Tick(sweep=True),
    ],
)
def test_a_command_comes_back(command):
    kind, data = codec.encode(command)
    assert codec.decode(kind, data) == command


def test_a_field_with_a_default_may_be_added_later():
    data = msgspec.msgpack.encode({})
    assert codec.decode(20, data) == Tick(sweep=False)


def test_an_unknown_kind_is_of_a_newer_quiver():
    with pytest.raises(UnsupportedFormat, match="kind 255"):
        codec.decode(255, b"")


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93", msgspec.msgpack.encode({"topic": "text"})])
def test_what_cannot_be_read_is_corrupt(data):
    with pytest.raises(CorruptLog, match="Purge that cannot be read"):
        codec.decode(13, data)


def test_state_keeps_its_keys_and_numbers():
    state = {1: {"a": [1, None, True]}, "b": {-5: b"bytes", 2**64 - 1: 1.5}, b"c": {}}
    assert codec.decode_state(codec.encode_state(state)) == state
    with pytest.raises(CorruptLog):
        codec.decode_state(codec.encode_state(state)[:-1])

"""Commands and state are the same after their way through bytes."""

from typing import Any, get_args

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
    others = {
        21: "AlterTopic",
        22: "Compact",
        23: "Publish",
        30: "SetTime",
        31: "Raise",
        32: "SetPeers",
    }
    assert {kind: codec.KINDS[kind].__name__ for kind in codec.KINDS if kind > 20} == others


@pytest.mark.parametrize(
    "command",
    [
        commands.Found(b"secret", 5),
        commands.Found(b"secret", 5, 3),
        commands.Raise(1),
        commands.SetPeers(b"\x00peers"),
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


def test_a_first_entry_of_an_older_quiver_is_of_the_first_shard():
    data = msgspec.msgpack.encode({"secret": b"secret", "created_ms": 5})
    assert codec.decode(1, data) == commands.Found(b"secret", 5, shard=0)


def plain(command: commands.Command) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.msgpack.decode(codec.encode(command)[1])
    return made


@pytest.mark.parametrize(
    ("kind", "fields", "unknown"),
    [
        (20, {"sweep": True, "gently": True}, "gently"),
        (4, plain(SEND) | {"a": None}, "a"),
        (4, plain(SEND) | {"attributes": {"keys": b"", "weights": b"12"}}, "weights"),
        (7, plain(SETTLE) | {"held": [{**held, "by": 1} for held in plain(SETTLE)["held"]]}, "by"),
        (2, {"name": "t", "policy": {"order": "key", "retry": {"after": 5}}}, "after"),
    ],
)
def test_an_unknown_field_is_of_a_newer_quiver(kind, fields, unknown):
    """Left out, it would make this Quiver do something else than those that know it."""
    name = codec.KINDS[kind].__name__
    with pytest.raises(UnsupportedFormat, match=f"has a {name} with a field '{unknown}', which"):
        codec.decode(kind, msgspec.msgpack.encode(fields))


def test_a_command_with_fewer_fields_and_shorter_rows_is_of_an_older_quiver():
    fields = {"topic": 3, "runs": [[0, 2, 100]], "requests": [1], "producer": None}
    command = codec.decode(4, msgspec.msgpack.encode(fields))
    assert command == Send(3, (Run(0, 2, 100),), (1,))
    labels = {"name": "t", "policy": {"labels": {"any": "name"}}}
    policy = TopicPolicy(labels={"any": "name"})
    assert codec.decode(2, msgspec.msgpack.encode(labels)) == commands.CreateTopic("t", policy)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93", msgspec.msgpack.encode({"topic": "text"})])
def test_what_cannot_be_read_is_corrupt(data):
    with pytest.raises(CorruptLog, match="Purge that cannot be read"):
        codec.decode(13, data)


def test_state_keeps_its_keys_and_numbers():
    state = {1: {"a": [1, None, True]}, "b": {-5: b"bytes", 2**64 - 1: 1.5}, b"c": {}}
    assert codec.decode_state(codec.encode_state(state)) == state
    with pytest.raises(CorruptLog):
        codec.decode_state(codec.encode_state(state)[:-1])

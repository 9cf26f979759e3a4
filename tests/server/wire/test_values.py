"""What strangers may say: each value that the core would trust is checked before, and refused by name."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from quiver import limits
from quiver.batches.codec import encode_whole
from quiver.batches.rows import make_row, pack
from quiver.errors import InvalidBatch, QuiverError
from quiver.model import commands, errands, queries
from quiver.model.commands import Pick, Position
from quiver.model.replies import Settled, Staged
from quiver.model.topic import Retention, Retry, TopicPolicy
from quiver.server.wire import rights
from quiver.wire.frames import Flag, Verb
from quiver.wire.values import (
    BatchHead,
    HeldHead,
    NamedHead,
    ReceiveHead,
    SendHead,
    SettleHead,
    encode,
    named,
)
from tests.server.wire.frames_client import Wire

pytestmark = pytest.mark.process

HUGE = 2**63
REFUSED = {"invalid_request", "protocol_error", "receipt_invalid", "limit_exceeded",
           "message_too_large", "invalid_batch", "topic_not_found", "group_not_found",
           "member_fenced", "topic_exists"}  # fmt: skip
BAD_NAMES = ("", ".", "..", "a/b", "a b", "\u00e9", "x" * 256, "a~staged", "*")


def refused(wire: Wire, verb: Verb, head: bytes, payload: bytes = b"") -> str:
    """The code of the error, which is no failure of the node."""
    with pytest.raises(QuiverError) as caught:
        wire.value(wire.send_frame(verb, head, payload), msgspec.Raw)
    assert caught.value.code in REFUSED, repr(caught.value)
    return caught.value.code


@pytest.mark.parametrize(
    "fields",
    [
        {"key": ""}, {"key": "x" * 1_025}, {"headers": {str(at): "" for at in range(65)}},
        {"headers": {"a": "x" * (limits.HEADERS_BYTES_MAX + 1)}}, {"priority": -1},
        {"priority": 10}, {"delay_ms": -1}, {"delay_ms": HUGE}, {"ttl_ms": -1}, {"ttl_ms": HUGE},
        {"dedup_id": ""}, {"dedup_id": "x" * 257},
    ],
    ids="-".join,
)  # fmt: skip
def test_a_message(wire: Wire, topic: int, fields: dict[str, Any]):
    assert refused(wire, Verb.SEND, encode(SendHead(topic, **fields)), b"x") == "invalid_request"


@pytest.mark.parametrize("name", ["delay", "ttl"])
def test_a_moment_later_than_any(wire: Wire, topic: int, name: str):
    row = make_row(b"x", delay=1) if name == "delay" else make_row(b"x", ttl=1)
    batch = pack([row], 0)
    (place,) = {"deliver_at", "expires_at"} & set(batch.schema.names)
    at = batch.schema.get_field_index(place)
    moments = pa.array([limits.TIME_MS_MAX], pa.int64()).view(batch.schema.field(at).type)
    batch = batch.set_column(at, batch.schema.field(at), moments)
    head, data = encode(BatchHead(topic)), encode_whole(batch)
    number = wire.send_frame(Verb.BATCH, head, data, Flag.RELATIVE)
    with pytest.raises(InvalidBatch, match="later than any time"):
        wire.value(number, msgspec.Raw)


def test_a_body_that_is_too_large(wire: Wire, topic: int):
    body = bytes(limits.BODY_BYTES_MAX + 1)
    assert refused(wire, Verb.SEND, encode(SendHead(topic)), body) == "message_too_large"


@pytest.mark.parametrize(
    "producer", [("", 0, 0), ("a b", 0, 0), ("p", -1, 0), ("p", 0, -1), ("p", HUGE, 0)]
)
def test_a_producer(wire: Wire, topic: int, producer: tuple[str, int, int]):
    assert refused(wire, Verb.BATCH, encode(BatchHead(topic, producer)), b"") == "invalid_request"


@pytest.mark.parametrize(
    "fields",
    [
        *({"group": name} for name in BAD_NAMES), {"max_messages": 0}, {"max_messages": -1},
        {"max_messages": limits.RECEIVE_MESSAGES_MAX + 1}, {"max_messages": HUGE},
        {"lease_ms": 0}, {"lease_ms": -5}, {"lease_ms": 8 * 86_400_000}, {"wait_ms": -1},
        {"wait_ms": 3_600_001}, {"per_key": 0}, {"per_key": HUGE}, {"per_key": -1},
        {"begin": -1}, {"begin": HUGE}, {"begin": 0, "wait_ms": 1}, {"per_key": 2, "begin": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_receive(wire: Wire, topic: int, fields: dict[str, Any]):
    given = {"topic": topic, "group": "g", "max_messages": 1, "lease_ms": 1_000, **fields}
    assert refused(wire, Verb.RECEIVE, encode(ReceiveHead(**given))) == "invalid_request"


@pytest.mark.parametrize("number", [-1, 0, 2**31, 2**32, 2**62, HUGE, 2**64 - 1])
def test_numbers_of_topics(wire: Wire, number: int):
    for verb, head in (
        (Verb.SEND, SendHead(number)), (Verb.BATCH, BatchHead(number)),
        (Verb.RECEIVE, ReceiveHead(number, "g", 1, 1_000)),
    ):  # fmt: skip
        assert refused(wire, verb, encode(head)) == "topic_not_found"
    for kind in (commands.Purge, commands.DeleteTopic):
        assert refused(wire, Verb.PROPOSE, named(kind(number))) == "topic_not_found"


@pytest.mark.parametrize(
    "fields",
    [
        {"partition": -1}, {"partition": 2**32}, {"partition": HUGE}, {"epoch": -1},
        {"epoch": HUGE}, {"tag": b""}, {"tag": b"x" * 1_000}, {"ranges": ()},
        {"ranges": ((1, 1),)}, {"ranges": ((2, 1),)}, {"ranges": ((-1, 1),)},
        {"ranges": ((0, HUGE),)}, {"ranges": ((0, limits.RECEIVE_MESSAGES_MAX + 1),)},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_settled(wire: Wire, topic: int, fields: dict[str, Any]):
    wire.send(topic, b"x")
    got, _ = wire.receive(topic)
    given = {"partition": 0, "epoch": got.epoch, "tag": got.tag, "ranges": ((0, 1),), **fields}
    head = SettleHead(got.topic, got.group, "ack", (HeldHead(**given),))
    refused(wire, Verb.SETTLE, encode(head))
    for more in ({"delay_ms": -1}, {"delay_ms": HUGE}, {"action": "extend"},
                 {"action": "extend", "lease_ms": HUGE}, {"action": "begin", "lease_ms": -1}):  # fmt: skip
        held = HeldHead(0, got.epoch, got.tag, ((0, 1),))
        settle = {"topic": got.topic, "group": got.group, "action": "ack", "held": (held,), **more}
        assert refused(wire, Verb.SETTLE, encode(SettleHead(**settle))) == "invalid_request"
    for action in ("dismiss", "nonsense"):
        data = msgspec.msgpack.encode([got.topic, got.group, action, []])
        assert refused(wire, Verb.SETTLE, data) == "protocol_error"
    owners: list[tuple[int, int]] = [
        (got.topic, 99), (2**40, got.group), (got.topic, 2**40), (-1, -1),
    ]  # fmt: skip
    for topic_, group in owners:
        head = SettleHead(topic_, group, "ack", (HeldHead(0, got.epoch, got.tag, ((0, 1),)),))
        code = refused(wire, Verb.SETTLE, encode(head))
        assert code == "receipt_invalid"
    assert wire.settle(got).count == 1


def test_ranges_that_overlap_are_one(wire: Wire, topic: int):
    wire.send_batch(topic, [b"x"] * 10)
    got, _ = wire.receive(topic)
    ranges = ((0, 5), (3, 8), (8, 10), (0, 1))
    held = (HeldHead(0, got.epoch, got.tag, ranges), HeldHead(0, got.epoch, got.tag, ((9, 10),)))
    head = SettleHead(got.topic, got.group, "ack", held)
    settled, _ = wire.value(wire.send_frame(Verb.SETTLE, encode(head)), Settled)
    assert (settled.count, settled.refused) == (10, ())


POLICIES = [
    TopicPolicy(partitions=0), TopicPolicy(partitions=1_025), TopicPolicy(partitions=HUGE),
    TopicPolicy(order="partition", fair=True), TopicPolicy(order="key", partition_by="round-robin"),
    TopicPolicy(partition_by="range"), TopicPolicy(partition_by="range", partitions=2),
    TopicPolicy(split_keys=("a",), partitions=2, partition_by="hash"),
    TopicPolicy(split_keys=("b", "a"), partitions=3, partition_by="range"),
    TopicPolicy(retention=Retention(time_ms=-1)), TopicPolicy(retention=Retention(size_bytes=HUGE)),
    TopicPolicy(retention=Retention(forever=True, compact=True)),
    TopicPolicy(keep_unsettled=False), TopicPolicy(max_attempts=0), TopicPolicy(max_attempts=3),
    TopicPolicy(max_attempts=3, dead_letter="a b"), TopicPolicy(dead_letter="bad"),
    TopicPolicy(dead_letter="bad~staged"), TopicPolicy(retry=Retry(base_ms=-1)),
    TopicPolicy(retry=Retry(cap_ms=HUGE)), TopicPolicy(dedup_window_ms=-1),
    TopicPolicy(dedup_window_ms=HUGE), TopicPolicy(max_backlog=0), TopicPolicy(max_backlog=HUGE),
    TopicPolicy(labels={"a": "x" * (limits.LABELS_BYTES_MAX + 1)}),
]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES, ids=range(len(POLICIES)))
def test_a_policy_that_create_topic_could_not_make(wire: Wire, topic: int, policy: TopicPolicy):
    refused(wire, Verb.PROPOSE, named(commands.CreateTopic("bad", policy)))
    assert "bad" not in wire.ask(queries.ListTopics())


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names(wire: Wire, topic: int, name: str):
    for given in (
        commands.CreateTopic(name, TopicPolicy()), commands.OpenProducer(topic, name),
        commands.CreateGroup(topic, name), commands.DeleteGroup(topic, name),
        commands.Seek(topic, name, Position()), commands.PauseGroup(topic, name, paused=True),
        commands.Join(topic, name, "m", 1_000), commands.Join(topic, "g", name, 1_000),
        commands.Heartbeat(topic, "g", name), commands.Commit(topic, name, "m", ()),
        commands.Leave(topic, "g", name), queries.FindTopic(name), queries.ReadStats(name),
        queries.FindSegments(name), queries.FindPublished(name, "a"),
        queries.FindAssigned(topic, name, "m"), queries.LocateReplay(name, Position(), Position()),
        queries.ReadLedger(name), queries.FindPicks(name, topic, ()),
        queries.FetchPage(topic, "g", name, {}, 1), queries.CountInFlight(topic, name, 1),
        errands.Unstage(name, ()), errands.StageBatch(name), errands.CompactTopic(name),
        errands.PublishStaged(name, (), "a", 0, ""), errands.DemandOrigins(name, 1, {}, {}),
    ):  # fmt: skip
        verb = rights.NAMED[type(given)].verb
        assert refused(wire, verb, named(given)) == "invalid_request", given


def values_of(topic: int) -> list[Any]:
    """One wrong value in each."""
    nothing, pick = Position(), (Pick(0, ((0, 1),)),)
    return [
        commands.CreateGroup(topic, "new", Position("offset", -1)),
        commands.CreateGroup(topic, "new", Position("time", HUGE)),
        commands.CreateGroup(topic, "new", Position("time", 0, -1)),
        commands.Seek(topic, "g", Position("offset", HUGE)),
        commands.Seek(topic, "g", Position("earliest", 0, 5)),
        commands.Seek(topic, "g", Position("earliest", 0, 5_000)),
        commands.Join(topic, "g", "m", 0), commands.Join(topic, "g", "m", HUGE),
        commands.Heartbeat(topic, "g", "m", (-1,)), commands.Heartbeat(topic, "g", "m", (HUGE,)),
        commands.Commit(topic, "g", "m", ((-1, 0),)), commands.Commit(topic, "g", "m", ((0, -1),)),
        commands.Commit(topic, "g", "m", ((0, HUGE),)),
        commands.AlterTopic(topic, TopicPolicy(), ()),
        commands.AlterTopic(topic, TopicPolicy(partitions=2), ("partitions",)),
        commands.AlterTopic(topic, TopicPolicy(), ("nonsense",)),
        commands.AlterTopic(topic, TopicPolicy(max_backlog=0), ("max_backlog",)),
        commands.AlterTopic(topic, TopicPolicy(keep_unsettled=False), ("keep_unsettled",)),
        *(
            kind(topic, (Pick(at, ranges),))
            for kind in (commands.Discard, commands.Redrive)
            for at, ranges in ((-1, ((0, 1),)), (HUGE, ((0, 1),)), (0, ((1, 0),)), (0, ((0, HUGE),)))
        ),
        commands.Discard(topic, (Pick(0, ((0, 60_000),)), Pick(0, ((60_000, 120_000),)))),
        commands.Redrive(topic, pick, 2**40),
        queries.LocateReplay("values", Position("offset", HUGE), nothing),
        queries.LocateReplay("values", nothing, nothing, -1),
        queries.LocateReplay("values", nothing, nothing, 7),
        queries.ReadPage(topic, {0: 0}, {}, 1), queries.ReadPage(topic, {7: 0}, {7: 1}, 1),
        queries.ReadPage(topic, {-1: 0}, {-1: 1}, 1), queries.ReadPage(topic, {0: -1}, {0: 1}, 1),
        queries.ReadPage(topic, {0: 0}, {0: HUGE}, 1), queries.ReadPage(topic, {0: 0}, {0: 1}, 0),
        queries.ReadPage(topic, {0: 0}, {0: 1}, limits.PAGE_MESSAGES_MAX + 1),
        queries.FindPicks("values", topic, (Pick(-1, ((0, 1),)),)),
        queries.FindPublished("values", "a b"),
        queries.ReadLedger("values", -1), queries.ReadLedger("values", 0, HUGE),
        queries.ReadLedger("values", 0, 0, -1), queries.FindHolding(topic, 1, 7, 0),
        queries.FindHolding(topic, 1, -1, 0), queries.FetchPage(topic, "g", "m", {7: 0}, 1),
        queries.FetchPage(topic, "g", "m", {0: 0}, 0), queries.FetchPage(topic, "g", "m", {0: -1}, 1),
        queries.ReadFigures(("x",) * (limits.TOPICS_MAX + 1)),
        queries.ListTopics((1,) * (limits.TOPICS_MAX + 1)),
        errands.PublishStaged("values", (), "a b", 0, ""),
        errands.PublishStaged("values", (), "a", -1, ""),
        errands.PublishStaged("values", (), "a", 0, "x" * 1_001),
        errands.PublishStaged("values", (Staged("values", ((0, 1, 0),), 1, 1, 1),), "a", 0, ""),
        errands.PublishStaged("values", (Staged("values", ((0, 0, 1),), 1, HUGE, 1),), "a", 0, ""),
        errands.Unstage("values", (Staged("other", ((0, 0, 1),), 1, 1, 1),)),
        errands.Choose("values", topic, {0: 0}, {0: 1}, "("),
        errands.Choose("values", topic, {0: 0}, {0: 1}, "x" * (limits.SQL_CHARS_MAX + 1)),
        errands.Choose("values", topic + 1, {0: 0}, {0: 1}, "true"),
        errands.DemandOrigins("values", topic, {9: 0}, {9: 1}),
        errands.Trace("nonsense"), errands.Trace("1-" + "9" * 30),
        errands.AskSql(""), errands.AskSql("x" * (limits.SQL_CHARS_MAX + 1)),
    ]  # fmt: skip


def test_every_other_value(wire: Wire):
    topic = wire.topic("values")
    wire.propose(commands.CreateGroup(topic, "g"))
    for given in values_of(topic):
        refused(wire, rights.NAMED[type(given)].verb, named(given))
    wire.send(topic, b"x")


def test_waits_of_watches(wire: Wire, topic: int):
    query = queries.CountInFlight(topic, "g", 0)
    for wait_ms in (-1, 3_600_001, HUGE):
        assert refused(wire, Verb.WATCH, named(query, wait_ms)) == "invalid_request"


@pytest.mark.parametrize(
    "head",
    [
        b"", b"\xc1", b"\x90", b"\x93", b"\x91\xc0", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff",
        b"\x91" * 5_000, b"\x92\xa4Ping" + b"\x91" * 5_000, encode(["Ping", 5]), encode(["Ping"]),
        encode({"name": "Ping"}), encode(["Ping", {}, "x"]), encode([b"Ping", {}]),
        b"\x92\xa1\xff\x80", encode(NamedHead("FindTopic", msgspec.Raw(b"\x81\xa4name\xa1\xff"))),
    ],
    ids=lambda head: head[:12].hex(),
)  # fmt: skip
def test_heads_that_are_none(wire: Wire, topic: int, head: bytes):
    for verb in (Verb.SEND, Verb.BATCH, Verb.RECEIVE, Verb.SETTLE, Verb.TRANSACT, Verb.PROPOSE,
                 Verb.ASK, Verb.WATCH, Verb.ERRAND):  # fmt: skip
        assert refused(wire, verb, head) == "protocol_error", verb

"""What cannot be done is refused with a typed error and a sentence, and nothing has changed."""

import math
import os
import signal
import subprocess
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import quiver
from quiver import InvalidRequest, Message, MessageTooLarge, limits
from quiver.testing import VirtualClock
from tests.contract.doors import DOORS
from tests.contract.verbs import bodies, drain, take
from tests.inside import Inside

NAN, INF = math.nan, math.inf


@pytest.fixture
def unchanged(world, queue):
    """The state of the whole queue; what a test does must leave it as it was."""
    queue.create_topic("d", max_attempts=3, partitions=2, max_backlog=100, retention="forever")
    queue.create_group("t", "g")
    queue.send("t", b"waiting")
    queue.send("d", b"waiting")

    def state():
        def without_time(engine):
            _index, _now_ms, *rest = engine.core.dump()
            return rest

        return world.door.shard.ask(Inside(without_time)).wait()

    before = state()
    yield queue
    assert state() == before


def refused(kind, words, call, *args, **options):
    """It raises exactly this kind of error, with these words in a sentence for people."""
    with pytest.raises(quiver.QuiverError, match=words) as error:
        call(*args, **options)
    assert type(error.value) is kind, repr(error.value)
    text = str(error.value)
    assert len(text) < 1_000, "an error must not repeat megabytes of input"
    return text


# -- sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"x", "x", bytearray(b"x")], ids=["bytes", "text", "bytearray"])
def test_a_body_over_its_limit(unchanged, body):
    large = body * (limits.BODY_BYTES_MAX + 1)
    refused(MessageTooLarge, "16,777,216 bytes.*file store", unchanged.send, "t", large)
    refused(MessageTooLarge, "16,777,216 bytes", unchanged.send_batch, "t", [b"fine", large])


def test_a_json_body_over_its_limit(unchanged):
    large = ["x" * (limits.BODY_BYTES_MAX - 3)]
    refused(MessageTooLarge, "at most", unchanged.send, "t", large)


def test_a_batch_of_too_many_bytes(unchanged):
    body = bytes(limits.BODY_BYTES_MAX)
    text = refused(MessageTooLarge, "batch", unchanged.send_batch, "t", [body] * 5)
    assert "67,108,864" in text
    table = pa.table({"body": pa.array([body] * 5)})
    refused(MessageTooLarge, "batch", unchanged.send_batch, "t", table)


def test_a_batch_of_too_many_rows(unchanged, monkeypatch):
    table = pa.table({"body": pa.array([b""] * (limits.BATCH_ROWS_MAX + 1))})
    refused(MessageTooLarge, "1,000,000", unchanged.send_batch, "t", table)
    monkeypatch.setattr(limits, "BATCH_ROWS_MAX", 10)
    refused(MessageTooLarge, "10", unchanged.send_batch, "t", [b""] * 11)


def test_an_arrow_batch_that_claims_more_than_it_has(unchanged):
    nulls = pa.RecordBatch.from_arrays(
        [pa.nulls(2_000_000, pa.binary()), pa.nulls(2_000_000)], names=["body", "key"]
    )
    refused(MessageTooLarge, "1,000,000", unchanged.send_batch, "t", nulls)


def test_too_many_or_too_large_headers(unchanged):
    many = {str(at): "x" for at in range(limits.HEADERS_MAX + 1)}
    refused(InvalidRequest, "64 headers", unchanged.send, "t", b"x", headers=many)
    large = {"h": "x" * limits.HEADERS_BYTES_MAX}
    refused(InvalidRequest, "2,097,152 bytes", unchanged.send, "t", b"x", headers=large)
    refused(InvalidRequest, "headers", unchanged.send_batch, "t", [Message(b"x", headers=many)])


@pytest.mark.parametrize("headers", [["a"], "a", 5, {"a": 1}, {1: "a"}, {"a": None}, {"a": b"b"}])
def test_headers_of_the_wrong_kind(unchanged, headers):
    refused(InvalidRequest, "headers must be", unchanged.send, "t", b"x", headers=headers)


@pytest.mark.parametrize("key", ["k" * 1025, "é" * 513, "", 5, b"k", True, ["k"]])
def test_a_bad_key(unchanged, key):
    refused(InvalidRequest, "key must", unchanged.send, "t", b"x", key=key)
    refused(InvalidRequest, "key must", unchanged.send_batch, "t", [Message(b"x", key=key)])


@pytest.mark.parametrize("dedup_id", ["k" * 257, "", 5, True])
def test_a_bad_dedup_id(unchanged, dedup_id):
    refused(InvalidRequest, "dedup_id must", unchanged.send, "t", b"x", dedup_id=dedup_id)


def test_text_that_is_not_text(unchanged):
    lone = "a\ud800"
    refused(InvalidRequest, "surrogate", unchanged.send, "t", lone)
    refused(InvalidRequest, "surrogate", unchanged.send, "t", b"x", key=lone)
    refused(InvalidRequest, "surrogate", unchanged.send, "t", b"x", headers={"h": lone})
    refused(InvalidRequest, "surrogate", unchanged.send, "t", b"x", headers={lone: "h"})
    refused(InvalidRequest, "surrogate", unchanged.send, "t", b"x", dedup_id=lone)
    refused(InvalidRequest, "split keys", unchanged.create_topic, "x", partitions=2,
            partition_by=[lone])  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [object(), {1, object()}, {"a": object()}, lambda: 1, 1j],
    ids=["object", "set", "dict", "function", "complex"],
)
def test_a_body_that_is_neither_bytes_nor_text_nor_json(unchanged, body):
    refused(InvalidRequest, "cannot be sent as JSON", unchanged.send, "t", body)


def test_a_body_that_contains_itself(unchanged):
    body: list = []
    body.append(body)
    refused(InvalidRequest, "cannot be sent as JSON", unchanged.send, "t", body)


# -- names -----------------------------------------------------------------------------------------

BAD_NAMES = [
    "", ".", "..", "a/b", "../x", "/", "a\x00b", "ü", "日本", "a b", "a\n", "a" * 256, "a\\b", "a:b",
    "\ud800", 5, None, b"t", True, ["t"],
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_a_bad_name_of_a_topic(unchanged, name):
    for verb in (
        unchanged.create_topic, unchanged.delete_topic, unchanged.policy, unchanged.stats,
        unchanged.purge, unchanged.receive, unchanged.redrive, unchanged.discard,
    ):  # fmt: skip
        refused(InvalidRequest, "topic must be", verb, name)
    refused(InvalidRequest, "topic must be", unchanged.send, name, b"x")
    refused(InvalidRequest, "topic must be", unchanged.send_batch, name, [b"x"])
    refused(InvalidRequest, "topic must be", lambda: list(unchanged.read(name)))


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_a_bad_name_of_anything_else(unchanged, name):
    for verb in (unchanged.receive, unchanged.create_group, unchanged.delete_group,
                 unchanged.pause, unchanged.resume, unchanged.receive_arrow):  # fmt: skip
        refused(InvalidRequest, "group must be", verb, "t", name)
    refused(InvalidRequest, "group must be", unchanged.seek, "t", name, "earliest")
    refused(InvalidRequest, "group must be", unchanged.join, "t", name, "m")
    refused(InvalidRequest, "member must be", unchanged.join, "t", "g", name)
    if name is not None:
        refused(InvalidRequest, "dead_letter must be", unchanged.create_topic, "x",
                dead_letter=name)  # fmt: skip
        refused(InvalidRequest, "name must be", produce, unchanged, name=name)


def produce(queue, **options):
    with queue.producer("t", **options) as out:
        out.send(b"x")


@pytest.mark.parametrize("name", ["a" * 255, "A.b-c_9", "-", "_", "...", "t.dlq"])
def test_a_good_name(queue, name):
    queue.create_topic(name)
    queue.send(name, b"x")
    assert bodies(queue.receive(name, name)) == [b"x"]


# -- numbers ---------------------------------------------------------------------------------------

BAD_DURATIONS = [-1, -0.001, NAN, INF, -INF, 1e300, 2**63, 10**400, True, False, "", "soon", "-5s",
                 "5 weeks", "1e9", "nan", [5], {}, b"5s", timedelta(seconds=-1), 1j]  # fmt: skip
BAD_COUNTS = [0, -1, 2**63, 10**30, 1.0, 1.5, NAN, INF, True, False, "5", None, [1]]


def shown(value):
    return repr(value)[:20]


@pytest.mark.parametrize("value", BAD_DURATIONS, ids=shown)
def test_a_bad_duration(unchanged, value):
    queue = unchanged
    refused(InvalidRequest, "delay must be", queue.send, "t", b"x", delay=value)
    refused(InvalidRequest, "ttl must be", queue.send, "t", b"x", ttl=value)
    refused(InvalidRequest, "delay must be", queue.send_batch, "t", [Message(b"x", delay=value)])
    refused(InvalidRequest, "ttl must be", queue.send_batch, "t", [Message(b"x", ttl=value)])
    for receive in (queue.receive, queue.receive_arrow):
        refused(InvalidRequest, "lease must be", receive, "t", "g", lease=value)
        refused(InvalidRequest, "wait must be", receive, "t", "g", wait=value)
    refused(InvalidRequest, "session must be", queue.join, "t", "g", "m", session=value)
    refused(InvalidRequest, "linger must be", produce, queue, linger=value)
    refused(InvalidRequest, "dedup_window must be", queue.create_topic, "x", dedup_window=value)
    refused(InvalidRequest, "retention must be", queue.create_topic, "x", retention=value)
    refused(InvalidRequest, "retry must be", queue.create_topic, "x", retry=value)
    refused(InvalidRequest, "base must be", quiver.retry, "fixed", value)
    refused(InvalidRequest, "cap must be", quiver.retry, "fixed", 1, value)


@pytest.mark.parametrize("value", BAD_DURATIONS, ids=shown)
def test_a_bad_duration_when_settling(queue, value):
    queue.send("t", b"x")
    got = take(queue)
    refused(InvalidRequest, "lease must be", got.extend, value)
    refused(InvalidRequest, "delay must be", got.nack, delay=value)
    with queue.transaction() as transaction:
        refused(InvalidRequest, "delay must be", transaction.nack, got, delay=value)
    got.ack()


def test_durations_that_are_too_short_or_too_long_for_their_use(unchanged):
    refused(InvalidRequest, "more than 0.*nack", unchanged.receive, "t", "g", lease=0)
    refused(InvalidRequest, "between 0 and 604,800", unchanged.receive, "t", "g", lease="8d")
    refused(InvalidRequest, "between 0 and 3,600", unchanged.receive, "t", "g", wait="2h")
    refused(InvalidRequest, "more than 0", unchanged.send, "t", b"x", ttl=0)
    refused(InvalidRequest, "more than 0", unchanged.join, "t", "g", "m", session=0)
    refused(InvalidRequest, "between 0 and 60", produce, unchanged, linger=61)


@pytest.mark.parametrize("value", BAD_COUNTS, ids=shown)
def test_a_bad_count(unchanged, value):
    queue = unchanged
    for receive in (queue.receive, queue.receive_arrow):
        refused(InvalidRequest, "max_messages must be", receive, "t", "g", max_messages=value)
    refused(InvalidRequest, "max_messages must be", produce, queue, max_messages=value)
    refused(InvalidRequest, "max_bytes must be", produce, queue, max_bytes=value)
    refused(InvalidRequest, "partitions must be", queue.create_topic, "x", partitions=value)
    if value is not None:
        refused(InvalidRequest, "max_attempts must be", queue.create_topic, "x", max_attempts=value)
        refused(InvalidRequest, "max_backlog must be", queue.create_topic, "x", max_backlog=value)
        refused(InvalidRequest, "limit must be", queue.redrive, "d", limit=value)
        refused(InvalidRequest, "limit must be", queue.discard, "d", limit=value)


def test_a_member_asks_for_a_bad_count(queue):
    with queue.join("t", "g", "m") as member:
        for value in BAD_COUNTS:
            refused(InvalidRequest, "max_messages must be", member.fetch, max_messages=value)
        refused(InvalidRequest, "wait must be", member.fetch, wait=-1)


@pytest.mark.parametrize("value", [-1, 10, 2**63, True, False, 1.0, NAN, "5", None, [1]], ids=shown)
def test_a_bad_priority(unchanged, value):
    refused(InvalidRequest, "priority must be", unchanged.send, "t", b"x", priority=value)
    refused(InvalidRequest, "priority must be", unchanged.send_batch, "t",
            [Message(b"x", priority=value)])  # fmt: skip


@pytest.mark.parametrize("value", [0, -1, NAN, INF, -INF, True, "10", [1], 1j], ids=shown)
def test_a_bad_rate(unchanged, value):
    refused(InvalidRequest, "rate must be", unchanged.redrive, "d", rate=value)


@pytest.mark.parametrize("value", [-1, 2**63, True, False, 1.5, NAN, [1], {}], ids=shown)
def test_a_bad_offset(unchanged, value):
    words = "offset must be|a position is"
    refused(InvalidRequest, words, unchanged.seek, "t", "g", value)
    refused(InvalidRequest, words, unchanged.create_group, "t", "new", start=value)
    refused(InvalidRequest, words, lambda: list(unchanged.read("t", offset=value)))
    refused(InvalidRequest, words, lambda: list(unchanged.read("t", end=value)))


@pytest.mark.parametrize("value", ["yesterday", "", "2026-13-01", "1969-12-31T00:00:00Z", "9" * 99])
def test_a_bad_time(unchanged, value):
    words = "ISO 8601|1970"
    refused(InvalidRequest, words, unchanged.seek, "t", "g", value)
    refused(InvalidRequest, words, unchanged.create_group, "t", "new", start=value)
    refused(InvalidRequest, words, lambda: list(unchanged.read("t", start=value)))


@pytest.mark.parametrize("value", [-1, 2, 2**63, True, 1.0, "0"], ids=shown)
def test_a_bad_partition(unchanged, value):
    words = "partition"
    refused(InvalidRequest, words, lambda: list(unchanged.read("d", partition=value)))
    refused(InvalidRequest, words, unchanged.seek, "t", "g", 0, partition=value)


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": "random"}, "order must be one of 'none', 'key', 'partition'"),
        ({"order": None}, "order must be one of"),
        ({"order": ["key"]}, "order must be one of"),
        ({"fair": 1}, "fair must be True or False"),
        ({"fair": "yes"}, "fair must be True or False"),
        ({"partition_by": "magic"}, "partition_by must be one of"),
        ({"partition_by": "range", "partitions": 3}, "give the 2 keys"),
        ({"partition_by": ["a", "b"], "partitions": 2}, "need 1 split keys, not 2"),
        ({"partition_by": ["b", "a"], "partitions": 3}, "in order"),
        ({"partition_by": ["a", "a"], "partitions": 3}, "different"),
        ({"partition_by": [1], "partitions": 2}, "strings"),
        ({"partition_by": "round-robin", "order": "key"}, "one partition"),
        ({"partitions": 1025}, "between 1 and 1,024"),
        ({"retention": "compacted"}, "retention must be"),
        ({"retention": "10XB"}, "retention must be"),
        ({"retention": "-1GB"}, "retention must be"),
        ({"compression": "gzip"}, "compression must be one of 'lz4', 'zstd'"),
        ({"compression": 1}, "compression must be one of"),
        ({"retry": "sometimes"}, "retry must be"),
        ({"retry": quiver.Retry("sometimes")}, "retry"),  # type: ignore[arg-type]
        ({"retry": quiver.Retry("fixed", base_ms=-1)}, "retry"),
        ({"retry": quiver.Retry("fixed", base_ms=1.5)}, "retry"),  # type: ignore[arg-type]
        ({"retry": quiver.Retry("fixed", cap_ms=2**80)}, "retry"),
        ({"retry": quiver.Retry("fixed", jitter="no")}, "retry"),  # type: ignore[arg-type]
        ({"max_attempts": 1_000_001}, "max_attempts must be between"),
        ({"max_attempts": 3, "dead_letter": "x"}, "its own dead-letter topic"),
    ],
)  # fmt: skip
def test_a_bad_policy(world, unchanged, options, words):
    refused(InvalidRequest, words, unchanged.create_topic, "x", **options)
    assert world.reopen().topics() == ["d", "d.dlq", "t"]


def test_other_bad_options(unchanged):
    refused(
        InvalidRequest, "durability must be one of", unchanged.send, "t", b"x", durability="hope"
    )
    refused(InvalidRequest, "durability must be", unchanged.send_batch, "t", [b"x"], durability=1)
    refused(InvalidRequest, "guarantee must be one of", unchanged.create_group, "t", "new",
            guarantee="exactly-once")  # fmt: skip
    refused(InvalidRequest, "consumer must be a str", unchanged.receive, "t", "g", consumer=5)
    refused(InvalidRequest, "where must be a condition", unchanged.redrive, "d", where=1)
    refused(InvalidRequest, "where is not a cond", unchanged.redrive, "d", where="reason = ")
    refused(InvalidRequest, "name must be a str", unchanged.send_batches, "t", [[b"x"]], name=1)
    refused(
        InvalidRequest, "start= or offset=", lambda: list(unchanged.read("t", start=1, offset=1))
    )
    refused(InvalidRequest, "kind must be one of", quiver.retry, "often")
    refused(InvalidRequest, "jitter", lambda: quiver.retry(jitter=1))  # type: ignore[arg-type]


def test_a_refused_producer_does_not_fence_the_one_before(queue):
    with queue.producer("t", name="one") as out:
        refused(InvalidRequest, "linger", produce, queue, name="one", linger=-1)
        refused(InvalidRequest, "max_bytes", produce, queue, name="one", max_bytes=0)
        refused(InvalidRequest, "durability", produce, queue, name="one", durability="hope")
        out.send(b"x")
    assert drain(queue) == [b"x"]


@pytest.mark.parametrize("messages", [b"x", "x", {"a": 1}, 5, None, Message(b"x")], ids=shown)
def test_a_batch_that_is_no_batch(unchanged, messages):
    refused(InvalidRequest, "list of messages.*use send", unchanged.send_batch, "t", messages)


def test_an_empty_batch(unchanged):
    refused(InvalidRequest, "empty", unchanged.send_batch, "t", [])
    refused(quiver.InvalidBatch, "empty|no rows|at least one", unchanged.send_batch, "t",
            pa.table({"body": pa.array([], pa.binary())}))  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"body": [b"x"], "colour": ["red"]}, "no column 'colour'"),
        ({"key": ["k"]}, "needs a column body"),
        ({"body": [1]}, "body must be"),
        ({"body": [None]}, "body"),
        ({"body": [b"x"], "priority": ["high"]}, "priority must be"),
        ({"body": [b"x"], "priority": [10]}, "priority"),
        ({"body": [b"x"], "priority": [-1]}, "priority"),
        ({"body": [b"x"], "key": [5]}, "key must be"),
        ({"body": [b"x"], "key": [""]}, "key"),
        ({"body": [b"x"], "key": ["k" * 1025]}, "key"),
        ({"body": [b"x"], "dedup_id": ["k" * 257]}, "dedup_id"),
        ({"body": [b"x"], "deliver_at": [5]}, "deliver_at must be"),
        ({"body": [b"x"], "headers": ["a"]}, "headers must be"),
    ],
)
def test_an_arrow_batch_that_is_not_one_of_messages(unchanged, columns, words):
    refused(quiver.InvalidBatch, words, unchanged.send_batch, "t", pa.table(columns))


def test_one_bad_message_refuses_the_batch(unchanged):
    refused(
        InvalidRequest, "priority", unchanged.send_batch, "t", [b"x", Message(b"y", priority=99)]
    )


def test_a_bad_part_leaves_a_transaction_as_it_was(queue):
    with queue.transaction() as transaction:
        transaction.send("t", b"good")
        refused(InvalidRequest, "priority", transaction.send, "t", b"x", priority=99)
        refused(InvalidRequest, "topic must be", transaction.send, "..", b"x")
        refused(InvalidRequest, "empty", transaction.send_batch, "t", [])
        refused(quiver.ReceiptInvalid, "not a receipt", transaction.ack, "nonsense")
    assert drain(queue) == [b"good"]


def test_a_transaction_of_too_many_parts(unchanged):
    def many():
        with unchanged.transaction() as transaction:
            for _ in range(limits.TRANSACTION_COMMANDS_MAX + 1):
                transaction.send("t", b"x")

    refused(quiver.LimitExceeded, "at most 1,?000 parts", many)


# -- what is not there -----------------------------------------------------------------------------


def test_a_topic_that_is_not_there(unchanged):
    queue, missing = unchanged, "nowhere"
    for verb in (
        queue.delete_topic, queue.policy, queue.stats, queue.purge, queue.receive, queue.redrive,
        queue.discard, queue.receive_arrow, queue.groups,
    ):  # fmt: skip
        refused(quiver.TopicNotFound, "no topic 'nowhere'.*create_topic", verb, missing)
    words = "no topic 'nowhere'"
    refused(quiver.TopicNotFound, words, queue.send, missing, b"x")
    refused(quiver.TopicNotFound, words, queue.send_batch, missing, [b"x"])
    refused(quiver.TopicNotFound, words, lambda: list(queue.read(missing)))
    refused(quiver.TopicNotFound, words, queue.create_group, missing, "g")
    refused(quiver.TopicNotFound, words, queue.delete_group, missing, "g")
    refused(quiver.TopicNotFound, words, queue.seek, missing, "g", 0)
    refused(quiver.TopicNotFound, words, queue.pause, missing, "g")
    refused(quiver.TopicNotFound, words, queue.resume, missing, "g")
    refused(quiver.TopicNotFound, words, queue.join, missing, "g", "m")
    refused(quiver.TopicNotFound, words, queue.redrive, "d", to=missing)
    refused(quiver.TopicNotFound, words, lambda: queue.producer(missing).__enter__())
    refused(quiver.TopicNotFound, words, lambda: queue.producer(missing, name="a").__enter__())


def test_a_group_that_is_not_there(unchanged):
    words = "no group 'nobody'.*create_group"
    for verb in (unchanged.delete_group, unchanged.pause, unchanged.resume):
        refused(quiver.GroupNotFound, words, verb, "t", "nobody")
    refused(quiver.GroupNotFound, words, unchanged.seek, "t", "nobody", "earliest")


# -- receipts --------------------------------------------------------------------------------------


def settle_verbs(queue):
    return (
        queue.ack,
        queue.nack,
        lambda receipt: queue.extend(receipt, 60),
        queue.dead_letter,
    )


@pytest.mark.parametrize("receipt", ["", "x", "=" * 60, "A" * 60, "ü", "a\x00", "A" * 10_000])
def test_a_receipt_that_is_none(unchanged, receipt):
    for verb in settle_verbs(unchanged):
        refused(quiver.ReceiptInvalid, "not a receipt of this queue", verb, receipt)
        refused(quiver.ReceiptInvalid, "not a receipt of this queue", verb, [receipt])


@pytest.mark.parametrize("items", [5, None, 1.5, object()], ids=shown)
def test_what_cannot_be_settled(unchanged, items):
    for verb in settle_verbs(unchanged):
        refused(InvalidRequest, "can be settled", verb, items)
        refused(InvalidRequest, "can be settled", verb, [items])


def test_a_forged_receipt(queue):
    """Every bit of a receipt matters, and so does its length: none of them settles anything."""
    queue.send("t", b"x")
    got = take(queue)
    raw = urlsafe_b64decode(got.receipt)
    forged = [
        bytes(byte ^ (1 << bit) if at == place else byte for at, byte in enumerate(raw))
        for place in range(len(raw))
        for bit in range(8)
    ]
    forged += [raw[:length] for length in range(len(raw))] + [raw + b"\x00", raw + raw]
    place = range(17, 29)  # partition and offset: not what was leased, and not signed
    for receipt in forged:
        changed = [
            at for at, pair in enumerate(zip(raw, receipt, strict=False)) if len(set(pair)) > 1
        ]
        elsewhere = len(receipt) == len(raw) and changed[0] in place
        with pytest.raises(quiver.ReceiptError if elsewhere else quiver.ReceiptInvalid):
            queue.ack(urlsafe_b64encode(receipt).decode())
    assert queue.groups("t")["g"].acked == 0
    got.ack()


@pytest.fixture
def other(request, world, tmp_path):
    """Another queue, made in the same way, so that all its numbers are the same."""
    door = DOORS["async" if "async" in request.node.name else "sync"]()
    opened = door.open(tmp_path / "other", VirtualClock())
    opened.create_topic("t")
    yield opened
    opened.close()
    door.end()


def test_a_receipt_of_another_queue(queue, other):
    for one in (queue, other):
        one.send("t", b"x")
    mine, foreign = take(queue), take(other)
    assert (mine.offset, mine.epoch) == (foreign.offset, foreign.epoch)
    refused(quiver.ReceiptInvalid, "this queue", queue.ack, foreign.receipt)
    refused(quiver.ReceiptInvalid, "this queue", queue.ack, foreign)
    refused(quiver.ReceiptInvalid, "this queue", queue.ack, [foreign])

    def transact():
        with queue.transaction() as transaction:
            transaction.ack(foreign)

    refused(quiver.ReceiptInvalid, "this queue", transact)
    assert queue.groups("t")["g"].acked == 0
    mine.ack()
    foreign.ack()


def test_a_receipt_of_another_group_settles_only_there(queue):
    queue.create_group("t", "h")
    queue.send("t", b"x")
    mine, theirs = take(queue), take(queue, "t", "h")
    mine.ack()
    refused(quiver.ReceiptExpired, "settled already", mine.nack)
    assert queue.groups("t")["h"].in_flight == 1
    theirs.ack()


@pytest.mark.parametrize("how", ["acked", "nacked", "expired", "buried", "purged", "sought"])
def test_a_receipt_that_was_used_or_has_expired(queue, clock, how):
    queue.create_topic("d", max_attempts=9)
    queue.send("d", b"x")
    got = take(queue, "d", lease=10)
    match how:
        case "acked":
            got.ack()
        case "nacked":
            got.nack()
        case "expired":
            clock.advance(10)
        case "buried":
            got.dead_letter()
        case "purged":
            queue.purge("d")
        case "sought":
            queue.seek("d", "g", "earliest")
    before = queue.stats("d")
    for verb in settle_verbs(queue):
        for item in (got, got.receipt):
            refused(quiver.ReceiptExpired, "no longer hold", verb, item)
    assert queue.stats("d") == before


def test_settling_in_an_at_most_once_group(queue):
    queue.create_topic("d", max_attempts=2)
    queue.create_group("d", "g", guarantee="at-most-once")
    queue.send_batch("d", [b"x", b"y"])
    got = take(queue, "d", max_messages=1)
    got.ack()
    queue.ack([got])
    refused(InvalidRequest, "at-most-once.*cannot be given back", got.nack)
    refused(InvalidRequest, "at-most-once", got.dead_letter)
    refused(InvalidRequest, "at-most-once", got.extend, 60)
    batch = queue.receive_arrow("d", "g")
    batch.ack()
    refused(InvalidRequest, "at-most-once", batch.nack)
    with pytest.raises(quiver.ReceiptExpired):
        queue.ack(got.receipt)


@pytest.mark.parametrize(
    "mask",
    [[True], [True] * 3, [1, 0], ["a", "b"], [None, True], 5, "ab", [True, 5], pa.array([1, 0]),
     pa.array([True, None])],
    ids=shown,
)  # fmt: skip
def test_a_wrong_mask(queue, mask):
    queue.send_batch("t", [b"a", b"b"])
    batch = queue.receive_arrow("t", "g")
    for settle in (batch.ack, batch.nack):
        refused(InvalidRequest, "mask must be", settle, mask)
    refused(InvalidRequest, "mask must be", batch.extend, 60, mask)
    assert queue.groups("t")["g"].in_flight == 2
    batch.ack()


# -- queues that cannot be used --------------------------------------------------------------------


def test_every_verb_of_a_closed_queue(queue):
    queue.create_topic("d", max_attempts=2)
    queue.send_batch("t", [b"x", b"y", b"z"])
    got = take(queue, max_messages=1)
    batch = queue.receive_arrow("t", "g", max_messages=1)
    member = queue.join("d", "g", "m")
    records = queue.read("t")
    queue.policy("t")
    queue.close()
    queue.close()

    def transact():
        with queue.transaction() as transaction:
            transaction.send("t", b"x")

    verbs = {
        "policy": lambda: queue.policy("t"),
        "producer": lambda: queue.producer("t").__enter__(),
        "create_topic": lambda: queue.create_topic("new"),
        "topics": queue.topics,
        "stats": lambda: queue.stats("t"),
        "groups": lambda: queue.groups("t"),
        "purge": lambda: queue.purge("t"),
        "send": lambda: queue.send("t", b"x"),
        "send_batch": lambda: queue.send_batch("t", [b"x"]),
        "named producer": lambda: queue.producer("t", name="one").__enter__(),
        "receive": lambda: queue.receive("t", "g"),
        "receive_arrow": lambda: queue.receive_arrow("t", "g"),
        "ack": lambda: queue.ack(got),
        "nack": lambda: queue.nack(got),
        "extend": lambda: queue.extend(got, 60),
        "dead_letter": lambda: queue.dead_letter(got),
        "delivery": got.ack,
        "receipt": lambda: queue.ack(got.receipt),
        "table": batch.ack,
        "transaction": transact,
        "read": lambda: list(queue.read("t")),
        "reading": lambda: list(records),
        "create_group": lambda: queue.create_group("t", "new"),
        "delete_group": lambda: queue.delete_group("t", "g"),
        "seek": lambda: queue.seek("t", "g", 0),
        "pause": lambda: queue.pause("t", "g"),
        "resume": lambda: queue.resume("t", "g"),
        "join": lambda: queue.join("t", "g", "m"),
        "fetch": member.fetch,
        "commit": lambda: (member.heartbeat(), member.commit()),
        "leave": member.leave,
        "redrive": lambda: queue.redrive("d"),
        "discard": lambda: queue.discard("t"),
        "delete_topic": lambda: queue.delete_topic("t"),
    }
    wrong = {}
    for name, verb in verbs.items():
        try:
            verb()
        except quiver.QueueClosed as closed:
            if "closed" not in str(closed):
                wrong[name] = str(closed)
        except Exception as error:  # noqa: BLE001
            wrong[name] = repr(error)
        else:
            wrong[name] = "no error"
    assert wrong == {}


def test_a_directory_that_this_process_has_open(world, queue):
    text = refused(quiver.DirectoryInUse, "in use by process", quiver.connect, world.path)
    assert str(os.getpid()) in text
    text = refused(quiver.DirectoryInUse, "in use by", world.door.open, world.path, VirtualClock())
    assert str(os.getpid()) in text
    queue.send("t", b"x")


def test_a_directory_that_another_process_has_open(tmp_path):
    script = (
        "import sys, quiver; queue = quiver.connect(sys.argv[1]); print('open', flush=True); "
        "sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == b"open\n"
            text = refused(
                quiver.DirectoryInUse, "in use by process", quiver.connect, tmp_path / "data"
            )
            assert str(owner.pid) in text
            assert "close it there" in text
        finally:
            owner.send_signal(signal.SIGKILL)
            owner.wait(30)
    with quiver.connect(tmp_path / "data") as queue:
        assert queue.topics() == []


def test_a_path_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("x")
    refused(InvalidRequest, "is a file", quiver.connect, tmp_path / "file")
    refused(InvalidRequest, "is a file", quiver.connect, tmp_path / "file" / "data")
    assert (tmp_path / "file").read_text() == "x"


def test_a_directory_that_cannot_be_read(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root can read every directory")
    locked = tmp_path / "locked"
    locked.mkdir(mode=0)
    try:
        refused(quiver.StorageFailed, "read and write access", quiver.connect, locked)
    finally:
        locked.chmod(0o700)


def test_something_else_in_the_place_of_the_lock(tmp_path):
    (tmp_path / "quiver.lock").mkdir()
    refused(quiver.StorageFailed, "quiver.lock", quiver.connect, tmp_path)


@pytest.mark.parametrize("url", ["", "kafka://host", 5, None, b"data", "a\x00b"])
def test_an_address_that_is_no_directory(url):
    for connect in (quiver.connect, quiver.connect_async):
        refused(InvalidRequest, "directory", connect, url)


def test_a_bad_durability_opens_nothing(tmp_path):
    for connect in (quiver.connect, quiver.connect_async):
        refused(InvalidRequest, "durability must be one of", connect, tmp_path / "x",
                durability="hope")  # fmt: skip
    assert not (tmp_path / "x").exists()


def test_an_async_queue_that_was_never_opened(tmp_path):
    import asyncio

    queue = quiver.connect_async(tmp_path / "x")
    with pytest.raises(quiver.QueueClosed, match="async with"):
        asyncio.run(queue.send("t", b"x"))
    assert not Path(tmp_path / "x").exists()


def test_a_forked_child_may_not_use_the_queue_and_the_parent_is_unharmed(tmp_path):
    with quiver.connect(tmp_path / "data") as queue:
        queue.create_topic("t")
        queue.send("t", b"before")
        (got,) = queue.receive("t", "g")
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:  # nothing here may reach pytest
            answer = b"nothing was raised"
            try:
                for verb in (
                    lambda: queue.send("t", b"child"),
                    lambda: queue.receive("t", "g"),
                    got.ack,
                    queue.topics,
                    lambda: queue.stats("t"),
                ):
                    try:
                        verb()
                        break
                    except quiver.QueueClosed as closed:
                        answer = b"fork" if "fork" in str(closed) else str(closed).encode()
                queue.close()
                os.write(theirs, answer)
            finally:
                os._exit(0)
        os.close(theirs)
        with open(ours, "rb") as pipe:  # noqa: PTH123
            assert pipe.read() == b"fork"
        os.waitpid(child, 0)
        got.ack()
        queue.send("t", b"after")
        assert bodies(queue.receive("t", "g")) == [b"after"]
        refused(quiver.DirectoryInUse, "in use", quiver.connect, tmp_path / "data")
    with quiver.connect(tmp_path / "data") as queue:
        assert queue.stats("t").sent == 2


def test_a_directory_with_other_files_is_not_taken(tmp_path):
    (tmp_path / "todo.txt").write_text("mine")
    with pytest.raises(quiver.InvalidRequest, match=r"has other files \(todo.txt\) and no queue"):
        quiver.connect(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["todo.txt"]


@pytest.mark.parametrize("labels", ["x", {"a": 1}, {1: "a"}, {"a": "\ud800"}, {"a": "x" * 300_000}])
def test_labels_that_are_none(queue, labels):
    with pytest.raises(quiver.InvalidRequest, match="labels"):
        queue.create_topic("labelled", labels=labels)
    assert "labelled" not in queue.topics()

"""What messages may carry, and how it comes back: bodies, Arrow, compression, numbers."""

import pyarrow as pa
import pytest

import quiver
from quiver import Message
from tests.contract.verbs import bodies, drain, nothing, take


@pytest.mark.parametrize(
    "body",
    [b"", b"\x00\xff\x00", bytes(range(256)), b"x" * 1_048_576, bytearray(b"ab"), memoryview(b"c")],
    ids=["empty", "zeros", "all-bytes", "megabyte", "bytearray", "memoryview"],
)
def test_bytes_come_back_as_they_were(queue, body):
    queue.send("t", body)
    got = take(queue)
    assert got.body == bytes(body)
    assert got.headers == {}


@pytest.mark.parametrize("text", ["", "größer", "日本語", "🏹 quiver", "a\x00b", "\u202eabc"])
def test_text_comes_back_as_it_was(queue, text):
    queue.send("t", text, key=text or None, headers={"h": text})
    got = take(queue)
    assert (got.text, got.body, got.headers["h"]) == (text, text.encode(), text)
    assert got.key == (text or None)


@pytest.mark.parametrize(
    "value", [{"a": [1, 2.5, None, True, "ü"]}, [], {}, 17, None, True, ["x"], {"n": 2**53}]
)
def test_anything_else_travels_as_json(queue, value):
    queue.send("t", value)
    got = take(queue)
    assert got.json() == value
    assert got.headers == {"content-type": "application/json"}


def test_a_content_type_of_ones_own_is_kept(queue):
    queue.send("t", {"a": 1}, headers={"Content-Type": "application/vnd.order+json"})
    assert take(queue).headers == {"Content-Type": "application/vnd.order+json"}


def test_a_body_that_is_not_json_says_so(queue):
    queue.send("t", b"{oops")
    with pytest.raises(quiver.InvalidRequest, match="not JSON"):
        take(queue).json()


def test_bodies_of_a_megabyte_go_in_batches_too(queue):
    queue.send_batch("t", [bytes([at]) * 1_048_576 for at in range(8)])
    got = queue.receive("t", "g", max_messages=8)
    assert [(len(x.body), x.body[0]) for x in got] == [(1_048_576, at) for at in range(8)]


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compression_is_invisible_and_survives_a_restart(world, compression):
    world.queue.create_topic("c", compression=compression)
    world.queue.send("c", b"a" * 100_000, key="k")
    world.queue.send_batch("c", [b"b" * 100_000, b""])
    queue = world.reopen()
    assert drain(queue, "c") == [b"a" * 100_000, b"b" * 100_000, b""]
    assert queue.policy("c").compression == compression
    log = sum(path.stat().st_blocks for path in world.path.iterdir())
    assert log > 0


def test_arrow_batches_and_tables_are_messages(queue):
    batch = pa.RecordBatch.from_pydict(
        {
            "body": pa.array([b"a", b"b"]),
            "key": ["k1", None],
            "headers": pa.array([[("v", "1")], None], pa.map_(pa.string(), pa.string())),
            "priority": pa.array([1, None], pa.int8()),
        }
    )
    queue.send_batch("t", batch)
    queue.send_batch("t", pa.table({"body": ["c", "d"]}))
    got = queue.receive("t", "g", max_messages=4)
    assert bodies(got) == [b"a", b"b", b"c", b"d"]
    assert [(x.key, x.headers, x.priority) for x in got[:2]] == [
        ("k1", {"v": "1"}, 1),
        (None, {}, 0),
    ]


def test_a_received_table_has_everything_about_its_messages(queue):
    queue.send_batch("t", [Message(b"a", key="k", priority=1), Message(b"b")])
    batch = queue.receive_arrow("t", "g")
    assert len(batch) == batch.table.num_rows == 2
    rows = batch.table.to_pylist()
    assert [(x["body"], x["key"], x["priority"]) for x in rows] == [(b"a", "k", 1), (b"b", None, 0)]
    assert [(x["partition"], x["offset"], x["attempt"]) for x in rows] == [(0, 0, 1), (0, 1, 1)]


def test_an_empty_receive_is_a_table_without_rows(queue):
    batch = queue.receive_arrow("t", "g")
    assert len(batch) == 0
    assert "body" in batch.table.column_names
    batch.ack()
    batch.ack([])
    batch.nack([])


@pytest.mark.parametrize("kind", [list, tuple, pa.array, lambda mask: pa.chunked_array([mask])])
def test_a_mask_settles_the_rows_it_chooses(queue, kind):
    queue.send_batch("t", [b"0", b"1", b"2", b"3"])
    batch = queue.receive_arrow("t", "g")
    batch.ack(kind([True, False, True, False]))
    batch.nack(kind([False, True, False, False]))
    assert take(queue).body == b"1"
    stats = queue.groups("t")["g"]
    assert (stats.acked, stats.nacked, stats.in_flight) == (2, 1, 2)


def test_a_table_is_acked_whole_extended_and_buried_by_mask(queue, clock):
    queue.create_topic("d", max_attempts=9, partitions=2, partition_by="round-robin")
    for at in range(6):
        queue.send("d", str(at))
    batch = queue.receive_arrow("d", "g", lease=10)
    first = [body == b"0" for body in batch.table["body"].to_pylist()]
    batch.dead_letter(first, reason="bad")
    rest = [not chosen for chosen in first]
    batch.extend(100, rest)
    clock.advance(50)
    assert nothing(queue, "d")
    batch.ack(rest)
    assert drain(queue, "d.dlq") == [b"0"]
    assert queue.stats("d").depth == 0


def test_a_table_whose_rows_are_settled_already_is_refused(queue):
    queue.send_batch("t", [b"0", b"1"])
    batch = queue.receive_arrow("t", "g")
    batch.ack([True, False])
    with pytest.raises(quiver.ReceiptExpired, match=r"1 of 2 .* other 1 were settled"):
        batch.ack()
    assert queue.stats("t").depth == 0


@pytest.mark.parametrize("durability", ["disk", "memory"])
def test_a_confirmation_says_how_safe_it_is(queue, durability):
    assert queue.send("t", b"x", durability=durability).durability == durability
    assert queue.send_batch("t", [b"x"], durability=durability).durability == durability


def test_a_queue_of_memory_durability_says_so_and_keeps_what_it_closed_with(world):
    queue = world.reopen(durability="memory")
    queue.create_topic("t")
    assert queue.send("t", b"x").durability == "memory"
    assert queue.send("t", b"y", durability="disk").durability == "disk"
    assert drain(world.reopen()) == [b"x", b"y"]


def test_stats_count_what_happened(queue, clock):
    queue.create_topic("s", partitions=2, partition_by=["m"], max_attempts=2)
    queue.create_group("s", "slow")
    for at in range(8):
        queue.send("s", b"12345", key="az"[at % 2], dedup_id=str(at))
    queue.send("s", b"again", dedup_id="0")
    queue.send("s", b"later", key="a", delay=100)
    queue.send("s", b"short", key="a", ttl=5)
    clock.advance(10)
    got = queue.receive("s", "g", max_messages=6, lease=10)
    queue.ack(got[:2])
    got[2].nack(delay=50)
    got[3].dead_letter()
    stats = queue.stats("s")
    assert (stats.topic, stats.partitions) == ("s", 2)
    assert (stats.sent, stats.duplicates, stats.depth, stats.delayed) == (10, 1, 9, 2)
    assert (stats.in_flight, stats.stored, stats.oldest_age) == (2, 9, 10.0)
    assert stats.stored_bytes > 0
    mine, slow = stats.groups["g"], stats.groups["slow"]
    assert (mine.lag, mine.ready, mine.in_flight, mine.delayed) == (6, 2, 2, 2)
    assert (mine.delivered, mine.acked, mine.nacked, mine.dead_lettered) == (6, 2, 1, 1)
    assert (mine.timed_out, mine.members, mine.paused) == (0, 0, False)
    assert mine.guarantee == "at-least-once"
    assert (slow.lag, slow.ready, slow.delayed, slow.expired) == (9, 8, 1, 1)
    clock.advance(10)
    after = queue.groups("s")["g"]
    assert (after.timed_out, after.in_flight, after.ready) == (2, 0, 4)
    assert queue.stats("s.dlq").depth == 1


def test_stats_of_an_empty_topic_are_zero(queue):
    stats = queue.stats("t")
    assert (stats.depth, stats.in_flight, stats.delayed, stats.oldest_age) == (0, 0, 0, 0.0)
    assert (stats.stored, stats.stored_bytes, stats.sent, stats.groups) == (0, 0, 0, {})


def test_a_sender_may_use_the_memory_of_his_batch_again(queue):
    memory = bytearray(b"first message")
    offsets = pa.array([0, 13], pa.int32()).buffers()[1]
    body = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(memory)])
    queue.send_batch("t", pa.record_batch({"body": body}))
    memory[:] = b"other message"
    assert bodies(queue.receive("t", "g")) == [b"first message"]

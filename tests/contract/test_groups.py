"""Groups and the log behind them: pause, seek, read, purge, delete."""

from datetime import UTC, datetime

import pytest

import quiver
from quiver import Message
from tests.contract.verbs import bodies, drain, nothing, take


def moment(clock):
    return datetime.fromtimestamp(clock.now_ms() / 1000, UTC)


@pytest.fixture
def history(queue, clock):
    """Topic "h" keeps everything: 0 to 4 a minute apart; returns the queue."""
    queue.create_topic("h", retention="forever")
    for at in range(5):
        queue.send("h", str(at))
        clock.advance(60)
    return queue


def test_a_paused_group_gets_nothing_and_may_settle(queue):
    queue.create_group("t", "other")
    queue.send_batch("t", [b"a", b"b"])
    got = take(queue, max_messages=1)
    queue.pause("t", "g")
    assert nothing(queue)
    assert queue.groups("t")["g"].paused
    got.ack()
    assert take(queue, "t", "other", max_messages=1).body == b"a"
    queue.resume("t", "g")
    assert take(queue).body == b"b"


def test_a_new_group_starts_where_it_is_told(history, clock):
    history.create_group("h", "all")
    history.create_group("h", "new", start="latest")
    history.create_group("h", "third", start=3)
    history.create_group("h", "recent", start=moment(clock).replace(microsecond=0).isoformat())
    history.send("h", b"5")
    assert len(drain(history, "h", "all")) == 6
    assert drain(history, "h", "new") == [b"5"]
    assert drain(history, "h", "third") == [b"3", b"4", b"5"]
    assert drain(history, "h", "recent") == [b"5"]


def test_seeking_back_delivers_again_and_forward_skips(history):
    assert len(drain(history, "h")) == 5
    history.seek("h", "g", "earliest")
    assert len(drain(history, "h")) == 5
    history.seek("h", "g", 3)
    assert drain(history, "h") == [b"3", b"4"]
    history.seek("h", "g", "earliest")
    history.seek("h", "g", "latest")
    assert nothing(history, "h")


def test_seeking_to_a_time_finds_the_first_message_stored_then_or_later(history, clock):
    history.create_group("h", "g", start="latest")
    start = moment(clock).timestamp() - 5 * 60
    history.seek("h", "g", datetime.fromtimestamp(start + 119, UTC))
    assert drain(history, "h") == [b"2", b"3", b"4"]
    history.seek("h", "g", datetime.fromtimestamp(start + 120, UTC))
    assert drain(history, "h") == [b"2", b"3", b"4"]


def test_seeking_ends_the_leases_of_the_group(history):
    held = take(history, "h", max_messages=1)
    history.seek("h", "g", "earliest")
    with pytest.raises(quiver.ReceiptExpired):
        held.ack()
    assert take(history, "h", max_messages=1).attempt == 1


def test_one_partition_of_a_group_can_be_sought(queue):
    queue.create_topic("p", partitions=2, partition_by=["m"], retention="forever")
    queue.send_batch("p", [Message(b"a", key="a"), Message(b"z", key="z")])
    assert len(drain(queue, "p")) == 2
    queue.seek("p", "g", "earliest", partition=1)
    assert drain(queue, "p") == [b"z"]


def test_what_is_settled_by_all_and_not_retained_cannot_be_sought(queue):
    queue.send("t", b"x")
    drain(queue)
    queue.seek("t", "g", "earliest")
    assert nothing(queue)


def test_reading_needs_no_group_and_leaves_no_trace(history):
    assert bodies(history.read("h")) == [b"0", b"1", b"2", b"3", b"4"]
    assert history.groups("h") == {}
    assert history.stats("h").depth == 5


def test_reading_from_and_to_offsets(history):
    assert bodies(history.read("h", offset=3)) == [b"3", b"4"]
    assert bodies(history.read("h", offset=1, end=3)) == [b"1", b"2"]
    assert bodies(history.read("h", start="latest")) == []
    assert bodies(history.read("h", offset=99)) == []


def test_reading_from_and_to_times(history, clock):
    start = datetime.fromtimestamp(clock.now_ms() / 1000 - 5 * 60, UTC)
    two, four = (start.replace(minute=start.minute + at) for at in (2, 4))
    assert bodies(history.read("h", start=two)) == [b"2", b"3", b"4"]
    assert bodies(history.read("h", start=two, end=four)) == [b"2", b"3"]
    assert bodies(history.read("h", start=two.isoformat())) == [b"2", b"3", b"4"]
    assert next(iter(history.read("h"))).created_at == start


def test_reading_goes_through_partitions_by_time(queue, clock):
    queue.create_topic("p", partitions=2, partition_by=["m"], retention="forever")
    for at, key in enumerate("azza"):
        queue.send("p", str(at), key=key)
        clock.advance(1)
    assert bodies(queue.read("p")) == [b"0", b"1", b"2", b"3"]
    assert bodies(queue.read("p", partition=1)) == [b"1", b"2"]


def test_a_long_read_comes_in_pages_and_ends_where_it_began_to_end(queue):
    queue.create_topic("h", retention="forever")
    queue.send_batch("h", [str(at) for at in range(25_000)])
    records = queue.read("h")
    first = next(records)
    queue.send("h", b"later")
    rest = bodies(records)
    assert (first.body, len(rest), rest[-1]) == (b"0", 24_999, b"24999")


def test_purge_drops_everything_and_says_how_much(queue):
    queue.send_batch("t", [b"x"] * 10)
    held = queue.receive("t", "g", max_messages=3)
    held[0].ack()
    assert queue.purge("t") == 9
    assert nothing(queue)
    stats = queue.stats("t")
    assert (stats.depth, stats.stored, stats.in_flight) == (0, 0, 0)
    with pytest.raises(quiver.ReceiptExpired):
        held[1].ack()
    queue.send("t", b"new")
    assert drain(queue) == [b"new"]


def test_offsets_go_on_after_a_purge(queue):
    queue.send_batch("t", [b"x"] * 10)
    queue.purge("t")
    assert queue.send("t", b"y").offset == 10


def test_a_deleted_topic_is_gone(queue):
    queue.send("t", b"x")
    queue.delete_topic("t")
    assert queue.topics() == []
    with pytest.raises(quiver.TopicNotFound, match="create_topic"):
        queue.send("t", b"x")
    with pytest.raises(quiver.TopicNotFound):
        queue.receive("t", "g")


def test_a_topic_made_again_starts_anew_and_old_receipts_are_invalid(queue):
    queue.send("t", b"old", dedup_id="a")
    old = take(queue)
    queue.delete_topic("t")
    queue.create_topic("t")
    assert not queue.send("t", b"new", dedup_id="a").duplicate
    new = take(queue)
    for receipt in (old, old.receipt):
        with pytest.raises(quiver.ReceiptInvalid, match="deleted"):
            queue.ack(receipt)
    assert (new.body, new.offset) == (b"new", 0)
    new.ack()


def test_a_group_made_again_starts_anew_and_old_receipts_are_invalid(queue):
    queue.send_batch("t", [b"a", b"b"])
    queue.create_group("t", "keeper")
    old = take(queue, max_messages=1)
    queue.delete_group("t", "g")
    assert "g" not in queue.groups("t")
    with pytest.raises(quiver.ReceiptInvalid, match="deleted"):
        old.ack()
    assert bodies(queue.receive("t", "g", max_messages=9)) == [b"a", b"b"]


def test_making_a_group_again_changes_nothing_and_another_guarantee_is_refused(history):
    history.create_group("h", "g", start=3)
    history.create_group("h", "g", start=0)
    assert drain(history, "h") == [b"3", b"4"]
    with pytest.raises(quiver.InvalidRequest, match="at-least-once"):
        history.create_group("h", "g", guarantee="at-most-once")


def test_retention_by_time_keeps_settled_messages_that_long(queue, world, clock):
    queue.create_topic("h", retention="1h")
    queue.send("h", b"x")
    drain(queue, "h")
    clock.advance(3599)
    assert bodies(queue.read("h")) == [b"x"]
    clock.advance(1)
    queue.send("h", b"y")
    drain(queue, "h")
    assert bodies(queue.read("h")) == [b"y"]


def test_a_backlog_limit_refuses_retryably_and_clears_with_acks(queue):
    queue.create_topic("b", max_backlog=3)
    queue.send_batch("b", [b"1", b"2", b"3"])
    for refused in (lambda: queue.send("b", b"4"), lambda: queue.send_batch("b", [b"4"])):
        with pytest.raises(quiver.QueueFull, match=r"may hold 3 .* has 3") as full:
            refused()
        assert full.value.retryable
    assert queue.stats("b").sent == 3
    got = queue.receive("b", "g", max_messages=2)
    with pytest.raises(quiver.QueueFull):
        queue.send("b", b"4")
    queue.ack(got)
    queue.send("b", b"4")
    assert drain(queue, "b") == [b"3", b"4"]


def test_a_batch_that_does_not_fit_as_a_whole_is_refused_as_a_whole(queue):
    queue.create_topic("b", max_backlog=3)
    queue.send("b", b"1")
    with pytest.raises(quiver.QueueFull):
        queue.send_batch("b", [b"2", b"3", b"4"])
    assert queue.stats("b").depth == 1

"""Priority, order by key and by partition, fairness, and which partition a message goes to."""

import pytest

import quiver
from quiver import Message
from tests.contract.verbs import bodies, drain, nothing, take


def test_higher_priorities_go_first_and_equal_ones_in_order(queue):
    for at, priority in enumerate((0, 9, 5, 9, 0, 5)):
        queue.send("t", str(at), priority=priority)
    assert drain(queue) == [b"1", b"3", b"2", b"5", b"0", b"4"]


def test_a_message_that_came_back_keeps_its_priority(queue):
    queue.send("t", b"urgent", priority=9)
    take(queue).nack()
    queue.send("t", b"plain")
    assert drain(queue) == [b"urgent", b"plain"]


@pytest.fixture
def by_key(queue):
    queue.create_topic("k", order="key")
    return queue


def test_of_a_key_only_one_message_is_out_at_a_time(by_key):
    for body in ("a1", "a2", "b1", "a3"):
        by_key.send("k", body, key=body[0])
    got = by_key.receive("k", "g", max_messages=9)
    assert sorted(bodies(got)) == [b"a1", b"b1"]
    assert nothing(by_key, "k")
    by_key.ack(got)
    assert bodies(by_key.receive("k", "g", max_messages=9)) == [b"a2"]


def test_a_failed_message_holds_its_key_back_and_no_other(by_key, clock):
    for body in ("a1", "a2", "b1"):
        by_key.send("k", body, key=body[0])
    first = take(by_key, "k", max_messages=1)
    first.nack(delay=10)
    assert drain(by_key, "k") == [b"b1"]
    clock.advance(10)
    assert drain(by_key, "k") == [b"a1", b"a2"]


def test_a_delayed_message_holds_back_later_ones_of_its_key(by_key, clock):
    by_key.send("k", "a1", key="a", delay=10)
    by_key.send("k", "a2", key="a")
    assert nothing(by_key, "k")
    clock.advance(10)
    assert drain(by_key, "k") == [b"a1", b"a2"]


def test_an_expired_lease_keeps_the_order_of_its_key(by_key, clock):
    by_key.send("k", "a1", key="a")
    by_key.send("k", "a2", key="a")
    take(by_key, "k", lease=5)
    clock.advance(5)
    assert drain(by_key, "k") == [b"a1", b"a2"]


def test_a_dead_letter_lets_its_key_go_on(queue):
    queue.create_topic("k", order="key", max_attempts=1)
    queue.send("k", "a1", key="a")
    queue.send("k", "a2", key="a")
    take(queue, "k").nack()
    assert drain(queue, "k") == [b"a2"]
    assert drain(queue, "k.dlq") == [b"a1"]


def test_messages_without_a_key_do_not_wait_for_each_other(by_key):
    by_key.send_batch("k", [b"1", b"2", b"3"])
    assert len(by_key.receive("k", "g", max_messages=9)) == 3


def test_order_by_key_with_priority_takes_the_head_of_each_key(by_key):
    by_key.send("k", "a-low", key="a", priority=1)
    by_key.send("k", "a-high", key="a", priority=9)
    by_key.send("k", "b-mid", key="b", priority=5)
    assert drain(by_key, "k") == [b"b-mid", b"a-low", b"a-high"]


@pytest.fixture
def by_partition(queue):
    queue.create_topic("p", order="partition", partitions=2, partition_by=["m"])
    return queue


def test_a_partition_has_one_receive_out_at_a_time(by_partition):
    by_partition.send_batch("p", [Message(b"a1", key="a"), Message(b"a2", key="b")])
    by_partition.send("p", b"z1", key="z")
    got = by_partition.receive("p", "g", max_messages=2)
    if len({x.partition for x in got}) == 1:
        got += by_partition.receive("p", "g", max_messages=2)
    by_partition.send("p", b"a3", key="a")
    held = [x for x in got if x.partition == 0]
    assert bodies(held)[0] == b"a1"
    assert b"a3" not in bodies(by_partition.receive("p", "g", max_messages=9))
    by_partition.ack(held)
    rest = by_partition.receive("p", "g", max_messages=9)
    assert bodies([x for x in rest if x.partition == 0])[-1] == b"a3"


def test_in_a_partition_a_failed_message_stops_all_behind_it(queue, clock):
    queue.create_topic("s", order="partition")
    queue.send_batch("s", [b"1", b"2", b"3"])
    take(queue, "s", max_messages=1).nack(delay=10)
    assert nothing(queue, "s")
    clock.advance(10)
    assert drain(queue, "s") == [b"1", b"2", b"3"]


def test_in_a_partition_a_delayed_message_stops_all_behind_it(queue, clock):
    queue.create_topic("s", order="partition")
    queue.send("s", b"1", delay=10)
    queue.send("s", b"2", priority=9)
    assert nothing(queue, "s")
    clock.advance(10)
    assert drain(queue, "s") == [b"1", b"2"]


@pytest.mark.parametrize("order", ["none", "key"])
def test_a_busy_key_does_not_starve_the_others(queue, order):
    queue.create_topic("f", order=order, fair=True)
    queue.send_batch("f", [Message(f"busy{at}", key="busy") for at in range(100)])
    queue.send("f", b"small", key="small")
    first = [take(queue, "f", max_messages=1) for _ in range(2)]
    assert b"small" in bodies(first)


def test_a_tenant_with_many_keys_does_not_starve_the_others(queue):
    queue.create_topic("f", fair=True)
    queue.send_batch("f", [Message(b"big", key=f"acme/{at}") for at in range(100)])
    queue.send_batch("f", [Message(b"small", key=f"tiny/{at}") for at in range(3)])
    first = [take(queue, "f", max_messages=1).body for _ in range(6)]
    assert first.count(b"small") == 3


def test_an_urgent_message_goes_first_once_nothing_of_its_key_is_before_it(queue, clock):
    queue.create_topic("f", fair=True)
    queue.send("f", b"old", key="b", ttl=1)
    queue.send("f", b"urgent", key="b", priority=9)
    queue.send("f", b"last", key="b")
    queue.send("f", b"other", key="a")
    out = [take(queue, "f", max_messages=1) for _ in range(2)]
    assert bodies(out) == [b"old", b"urgent"]
    for delivery in out:
        delivery.nack(delay=0)
    clock.advance(2)
    assert drain(queue, "f") == [b"urgent", b"other", b"last"]


def test_without_fairness_messages_come_as_they_were_sent(queue):
    queue.send_batch("t", [Message(b"busy", key="busy")] * 5)
    queue.send("t", b"small", key="small")
    assert drain(queue) == [b"busy"] * 5 + [b"small"]


def test_hashing_keeps_a_key_in_one_partition_and_uses_them_all(queue):
    queue.create_topic("h", partitions=4)
    where = {f"key-{at}": queue.send("h", b"x", key=f"key-{at}").partition for at in range(64)}
    assert set(where.values()) == {0, 1, 2, 3}
    batch = queue.send_batch("h", [Message(b"y", key=key) for key in where])
    assert batch.count == 64
    for record in queue.read("h"):
        assert record.partition == where[record.key]


def test_ranges_split_by_key(queue):
    queue.create_topic("r", partitions=3, partition_by=["h", "p"])
    where = [queue.send("r", b"x", key=key).partition for key in ("a", "gz", "h", "o", "p", "z")]
    assert where == [0, 0, 1, 1, 2, 2]


def test_round_robin_takes_turns_whatever_the_key(queue):
    queue.create_topic("rr", partitions=3, partition_by="round-robin")
    where = [queue.send("rr", b"x", key="same").partition for _ in range(6)]
    assert sorted(where) == [0, 0, 1, 1, 2, 2]


def test_key_order_holds_over_many_rounds_and_partitions(queue, clock):
    queue.create_topic("k", order="key", partitions=3, retry=1)
    sent: dict[str, list[int]] = {f"k{at}": [] for at in range(7)}
    for at in range(70):
        key = f"k{at % 7}"
        sent[key].append(at)
        queue.send("k", str(at), key=key, priority=at % 3)
    seen: dict[str, list[int]] = {key: [] for key in sent}
    turns = 0
    while queue.stats("k").depth:
        turns += 1
        assert turns < 1_000
        for delivery in queue.receive("k", "g", max_messages=5):
            if (int(delivery.body) + delivery.attempt) % 5 == 0:
                delivery.nack()
            else:
                seen[delivery.key].append(int(delivery.body))
                delivery.ack()
        clock.advance(1)
    assert seen == sent


def test_a_policy_that_contradicts_itself_is_refused(queue):
    with pytest.raises(quiver.InvalidRequest, match="one partition"):
        queue.create_topic("x", order="key", partition_by="round-robin", partitions=2)


@pytest.mark.python
def test_a_key_whose_next_message_is_not_due_yet_keeps_no_turn_of_the_one_before(queue, clock):
    queue.create_topic("o", order="key")
    queue.create_group("o", "g")
    queue.send("o", b"low", key="a")
    queue.send("o", b"high, later", key="a", priority=9, delay=60)
    queue.send("o", b"middle", key="b", priority=5)
    assert queue.discard("o", where=lambda record: record.body == b"low") == 1
    clock.advance(60)
    assert drain(queue, "o") == [b"high, later", b"middle"]

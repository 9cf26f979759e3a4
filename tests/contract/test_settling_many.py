"""Many deliveries settled at once: whatever their order, it is as if each had been settled alone."""

from random import Random

import pytest

import quiver

BATCHES = (7, 1, 1, 1, 12, 3, 1)
COUNT = sum(BATCHES)


@pytest.fixture
def filled(queue):
    """A topic of several partitions, with big batches and small ones, and two groups that get all of it."""
    queue.create_topic("p", partitions=2)
    for group in ("many", "each"):
        queue.create_group("p", group)
    for number, size in enumerate(BATCHES):
        queue.send_batch(
            "p", [quiver.Message(b"%d" % at, key=f"{number}-{at}") for at in range(size)]
        )
    return queue


def place(one):
    return one.partition, one.offset


@pytest.mark.parametrize("seed", range(4))
def test_any_order_with_receipts_and_duplicates(filled, seed):
    chance = Random(seed)
    many, each = (filled.receive("p", group, max_messages=COUNT) for group in ("many", "each"))
    assert sorted(map(place, many)) == sorted(map(place, each))
    chosen = chance.sample(range(COUNT), chance.randrange(1, COUNT))
    given = [many[at] for at in chance.choices(chosen, k=2 * COUNT)]
    filled.ack([one.receipt if chance.random() < 0.3 else one for one in given])
    settled = {place(one) for one in given}
    for one in each:
        if place(one) in settled:
            one.ack()
    for got in (many, each):
        for one in got:
            if place(one) in settled:
                with pytest.raises(quiver.ReceiptExpired):
                    one.ack()
            else:
                one.ack()
    stats = filled.groups("p")
    for group in ("many", "each"):
        assert (stats[group].in_flight, stats[group].lag) == (0, 0)


def test_what_is_refused_is_named_as_it_was_given(filled):
    got = filled.receive("p", "many", max_messages=COUNT)
    late = [got[at] for at in (0, 4, 9, COUNT - 1)]
    filled.ack(late)
    text = got[2].receipt
    given = [*got[5:], text, *got[:5], got[4]]
    with pytest.raises(quiver.ReceiptExpired) as raised:
        filled.ack(given)
    refused = [one if isinstance(one, str) else one.receipt for one in raised.value.refused]
    gone = {one.receipt for one in late}
    assert refused == [one.receipt for one in given if one is not text and one.receipt in gone]
    assert filled.groups("p")["many"].in_flight == 0


def test_several_topics_and_leases_at_once(filled):
    filled.create_topic("other")
    filled.send_batch("other", ["0", "1"])
    first = filled.receive("p", "many", max_messages=5)
    second = filled.receive("p", "many", max_messages=COUNT)
    others = filled.receive("other", "g", max_messages=2)
    filled.ack([second[0], others[1], *first[::-1], *second[1:], others[0].receipt])
    assert filled.groups("p")["many"].in_flight == 0
    assert filled.groups("other")["g"].in_flight == 0


def test_what_was_settled_when_it_was_delivered_is_left_out(filled):
    filled.create_group("p", "once", guarantee="at-most-once")
    once = filled.receive("p", "once", max_messages=COUNT, begin=5)
    many = filled.receive("p", "many", max_messages=COUNT)
    filled.ack([*many[:9], *once, *many[9:]])
    stats = filled.groups("p")
    assert stats["many"].in_flight == stats["once"].in_flight == 0


def test_only_deliveries_and_receipts_are_settled(filled):
    got = filled.receive("p", "many", max_messages=2)
    with pytest.raises(quiver.InvalidRequest):
        filled.ack([got[0], 7])
    assert filled.groups("p")["many"].in_flight == 2

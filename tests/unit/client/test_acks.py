"""Acks that are collected, on clocks of the test's."""

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest

import quiver
from quiver import limits
from quiver.client.acks import AckBatch, Acks
from quiver.client.prefetch import Ask, Keep, PrefetchBuffer, Rest, SendAcks
from quiver.client.steps import Course, done
from quiver.node.tickets import Ticket

LEASE = 30
LINGER = limits.CONSUMER_ACK_LINGER_SECONDS


class Clocks:
    """Seconds of the consumer's clock, and milliseconds of the queue's."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.ms = 0

    def now(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def got(tmp_path: Path, clocks: Clocks) -> Iterator[list[quiver.Delivery]]:
    with quiver.connect(tmp_path / "q") as queue:
        queue.create_topic("t")
        queue.send_batch("t", [str(at) for at in range(10)])
        found = queue.receive("t", max_messages=10, lease=LEASE)
        clocks.ms = found[0].lease.deadline_ms - LEASE * 1000
        yield found


@pytest.fixture
def acks(clocks: Clocks) -> Acks[Any]:
    return made(clocks)


def made(clocks: Clocks, ahead: int = 10, lease: float = LEASE, *, open_: bool = True) -> Acks[Any]:
    return Acks(ahead, lease, open_=open_, now_ms=clocks.now_ms, clock=clocks.now)


def sent(acks: Acks[Any]) -> list[AckBatch[Any]]:
    """What is to be sent, and then waits for its answer."""
    batches = acks.to_send()
    for batch in batches:
        batch.course = Course(done(Ticket()))
        assert not batch.course.go()
    return batches


def taken(acks: Acks[Any]) -> list[list[Any]]:
    """The acks that are to be sent, in their batches."""
    return [batch.items for batch in sent(acks)]


def test_they_wait_for_others_from_the_first_on(acks, got, clocks):
    assert acks.due_at == inf
    assert acks.add(got[0]) == "look"
    clocks.seconds += LINGER / 2
    assert acks.add(got[1]) == "collected"
    assert acks.due_at == 100 + LINGER
    assert taken(acks) == [got[:2]]
    assert acks.due_at == inf
    assert taken(acks) == []


def test_one_ack_is_one(acks, got):
    acks.add(got[0])
    assert acks.add(got[0]) == "collected"
    assert taken(acks) == [got[:1]]
    assert acks.add(got[0]) == "collected"
    assert taken(acks) == []


def test_nothing_is_collected_when_that_is_not_wanted_or_it_is_closed(got, clocks):
    acks = made(clocks, open_=False)
    assert acks.add(got[0]) == ""
    assert not got[0].acked
    assert taken(acks) == []


def test_they_do_not_wait_when_a_third_of_the_lease_is_used(acks, got, clocks):
    clocks.ms += LEASE * 1000 // 3
    acks.add(got[0])
    assert acks.due_at == 100 + LINGER
    taken(acks)
    clocks.ms += 1
    assert acks.add(got[1]) == "look"
    assert acks.due_at <= 100


def test_a_short_lease_makes_them_wait_less(got, clocks):
    lease = LINGER  # seconds
    acks = made(clocks, lease=lease)
    acks.add(got[0])
    assert acks.due_at == 100 + lease / 3


def test_somebody_who_waits_for_them_does_not_wait_long(acks, got):
    acks.add(got[0])
    assert acks.add(got[1], hurry=True) == "look"
    assert acks.due_at <= 100


@pytest.mark.parametrize("ahead", [1, 7])
def test_no_more_are_collected_than_there_may_be(got, clocks, monkeypatch, ahead):
    monkeypatch.setattr(limits, "CONSUMER_ACKS_MIN", 3)
    acks = made(clocks, ahead)
    most = max(ahead, 3)
    for one in got[:most]:
        acks.add(one)
        assert not acks.enough
    assert acks.add(got[most]) == "look"
    assert acks.enough


def test_what_failed_counts_among_those_that_there_may_be(got, clocks, monkeypatch):
    monkeypatch.setattr(limits, "CONSUMER_ACKS_MIN", 3)
    acks = made(clocks, 3)
    for one in got[:2]:
        acks.add(one)
    acks.failed(sent(acks)[0])
    acks.add(got[2])
    assert not acks.enough
    acks.add(got[3])
    assert acks.enough
    sent(acks)
    acks.add(got[4])
    assert not acks.enough


def test_what_was_refused_is_told_once_and_together(acks, got):
    for part, wrong in ((got[:3], got[1:2]), (got[3:5], got[3:5])):
        for one in part:
            acks.add(one)
        acks.settled(sent(acks)[0], wrong)
    refusal = acks.refusal()
    assert refusal is not None
    assert refusal.refused == (got[1], got[3], got[4])
    assert "3 of 5 acks" in str(refusal)
    assert acks.refusal() is None


def test_what_may_have_been_done_before_is_not_refused_while_its_lease_holds(acks, got, clocks):
    acks.add(got[0])
    acks.failed(sent(acks)[0])
    assert acks.due_at == 100 + LINGER
    again = sent(acks)[0]
    assert again.items == got[:1]
    acks.settled(again, got[:1])
    assert acks.refusal() is None

    acks.add(got[1])
    acks.failed(sent(acks)[0])
    clocks.ms = got[1].lease.deadline_ms  # then somebody else may have it
    acks.settled(sent(acks)[0], got[1:2])
    assert acks.refusal() is not None

    acks.add(got[2])
    acks.settled(sent(acks)[0], got[2:3])  # was not sent before
    assert acks.refusal() is not None


def test_what_failed_goes_before_what_came_since(acks, got):
    acks.add(got[0])
    batch = sent(acks)[0]
    acks.add(got[1])
    acks.failed(batch)
    assert taken(acks) == [got[:1], got[1:2]]


def test_what_is_under_way_is_not_sent_again(acks, got):
    acks.add(got[0])
    batch = sent(acks)[0]
    assert not batch.lost
    assert sent(acks) == []
    assert acks.sent == [batch]


def test_what_was_interrupted_is_sent_again(acks, got):
    acks.add(got[0])
    batch = sent(acks)[0]
    assert batch.course is not None
    batch.course.close()
    assert batch.lost
    assert acks.to_send() == [batch]


# -- in a stock ------------------------------------------------------------------------------------


def stock_of(clocks: Clocks, *, keep: bool = False, ahead: int = 10) -> PrefetchBuffer[Any]:
    return PrefetchBuffer(
        ahead, LEASE, keep=keep, acks="background", now_ms=clocks.now_ms, clock=clocks.now
    )


def test_a_stock_that_is_full_rests_until_they_are_due(got, clocks):
    stock = stock_of(clocks)
    stock.add(got, 100.0, Ask(10, 10, waits=True), 100.0)
    first = stock.take(100.0)
    stock.acks.add(first)
    rest = stock.next(100.0)
    assert isinstance(rest, Rest)
    assert rest.seconds == pytest.approx(LINGER)
    assert isinstance(stock.next(100.0 + LINGER), SendAcks)


def test_what_is_acked_is_kept_until_that_is_confirmed(got, clocks):
    stock = stock_of(clocks, keep=True)
    stock.add(got[:2], 100.0, Ask(2, 2, waits=True), 100.0)
    first, second = stock.take(100.0), stock.take(100.0)
    assert stock.take(100.0) is None
    stock.acks.add(first)
    batch = sent(stock.acks)[0]

    def kept(now: float) -> list[Any]:
        step = stock.next(now)
        assert isinstance(step, Keep)
        return [one for _, due in step.due for one in due]

    assert kept(100.0 + LEASE / 3) == [first, second]
    stock.were_acked(batch, [])
    assert kept(100.0 + 2 * LEASE / 3) == [second]


def test_a_closed_stock_collects_nothing_and_gives_back_what_comes(got, clocks):
    stock = stock_of(clocks)
    stock.close()
    assert stock.acks.add(got[0]) == ""
    stock.add(got, 100.0, Ask(10, 10, waits=True), 100.0)
    assert stock.take(100.0) is None
    assert isinstance(stock.next(100.0), Rest)
    assert stock.emptied() == got


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (0.001, 5),  # the answer comes before half of them are used up
        (0.5, 0),  # they are used up long before
    ],
)
def test_who_uses_all_up_before_an_answer_asks_when_nothing_is_left(got, clocks, answer, left):
    """Half of them as soon as half is left, or all when none is: whichever has to wait less."""
    stock = stock_of(clocks)
    now = 100.0
    stock.add(got, now, Ask(10, 10, waits=True), now)
    for _ in range(5):
        stock.take(now)
        now += 0.01  # of work for each
    asked = stock.next(now)
    assert isinstance(asked, Ask)
    assert (asked.room, asked.waits) == (5, False)
    came = now + answer
    while stock.take(now) is not None:
        now += 0.01
    came = max(came, now)
    stock.add(got[:5], came - answer, asked, came)
    for one in range(5):
        assert stock.has_work is (5 - one <= left), one
        stock.take(came)

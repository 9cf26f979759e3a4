"""What a client remembers of leases that it made longer or shorter, and what it does not know any more."""

import pytest

from quiver import limits
from quiver.batches.output import NONE
from quiver.client.deadlines import Deadlines
from quiver.client.results import Delivery, GrantedLease, MessagePage
from quiver.model.replies import Slice
from quiver.node.receipts import Receipt, text

TAG = bytes(16)


def delivery(epoch: int = 5, offset: int = 0, lease: GrantedLease | None = None) -> Delivery:
    lease = lease or GrantedLease("t", 1, "g", 2, epoch, 1_000, False, TAG)
    page = MessagePage("t", Slice(0, offset, 1, epoch, 0, 0, 1), 0, NONE, None)
    return Delivery(page, 0, b"", lease, False)


def test_a_delivery_has_the_deadline_of_its_receive_and_then_the_newest():
    known, one = Deadlines(), delivery()
    assert known.until(one) == 1_000
    for deadline_ms in (5_000, 500, 2_000):
        known.learn([one], deadline_ms)
        assert known.until(one) == one.lease.deadline_ms == deadline_ms


def test_while_an_answer_is_missing_the_sooner_counts():
    known, one = Deadlines(), delivery()
    known.doubt([one], 5_000)
    assert known.until(one) == 1_000
    known.doubt([one, one.receipt], 300)
    assert known.until(one) == 0  # of the text alone nothing was known
    known.learn([one.receipt], 700)
    assert known.until(one) == known.until(one.receipt) == 700


def test_those_that_share_a_lease_and_a_deadline_go_on_sharing():
    known, lease = Deadlines(), delivery().lease
    some = [delivery(offset=at, lease=lease) for at in range(3)]
    known.learn(some[:2], 2_000)
    assert some[0].lease is some[1].lease
    assert known.until(some[2]) == 1_000


def test_the_last_word_counts_whether_of_the_delivery_or_of_its_text():
    known, one = Deadlines(), delivery()
    known.learn([one.receipt], 400)
    assert known.until(one) == 400
    known.learn([one], 3_000)
    assert known.until(one) == 3_000


def test_only_so_many_texts_are_remembered_and_of_what_is_forgotten_nothing_is_assumed(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(limits, "EXTENDED_RECEIPTS_MAX", 3)
    known = Deadlines()
    some = [delivery(epoch) for epoch in range(1, 7)]
    for one in some[:5]:
        known.learn([one.receipt], 9_000)
    assert len(known._told) == 3
    assert [known.until(one) for one in some] == [0, 0, 9_000, 9_000, 9_000, 1_000]
    assert known.until(text(Receipt(1, 2, 0, 0, 77), TAG)) == 0

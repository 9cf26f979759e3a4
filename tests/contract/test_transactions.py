"""Acks and sends over several topics, all or nothing."""

# ruff: noqa: PT012, SIM117  # what raises here is the end of a block

import pytest

import quiver
from tests.contract.verbs import bodies, drain, nothing, take


@pytest.fixture
def shop(queue):
    for topic in ("orders", "invoices", "mails"):
        queue.create_topic(topic)
    queue.create_topic("small", max_backlog=1)
    queue.send("orders", b"order")
    return queue


def test_a_transaction_settles_and_sends_together(shop):
    got = take(shop, "orders")
    with shop.transaction() as transaction:
        transaction.ack(got)
        transaction.send("invoices", b"invoice", key="k", headers={"a": "b"}, priority=2)
        transaction.send_batch("mails", [b"mail 1", b"mail 2"])
        assert shop.stats("invoices").depth == 0
    assert [sent.count for sent in transaction.sent] == [1, 2]
    assert shop.stats("orders").depth == 0
    invoice = take(shop, "invoices")
    assert (invoice.key, invoice.headers, invoice.priority) == ("k", {"a": "b"}, 2)
    assert drain(shop, "mails") == [b"mail 1", b"mail 2"]


def test_an_error_in_the_block_means_that_nothing_was_done(shop):
    got = take(shop, "orders")
    with pytest.raises(ZeroDivisionError), shop.transaction() as transaction:
        transaction.ack(got)
        transaction.send("invoices", b"invoice")
        _ = 1 / 0
    assert shop.stats("invoices").sent == 0
    got.ack()


def test_an_ended_lease_undoes_the_whole_transaction(shop, clock):
    got = take(shop, "orders", lease=1)
    clock.advance(1)
    with pytest.raises(quiver.ReceiptExpired, match="nothing of it was done"):
        with shop.transaction() as transaction:
            transaction.send("invoices", b"invoice")
            transaction.ack(got)
    assert shop.stats("invoices").sent == 0
    assert take(shop, "orders").attempt == 2


def test_a_full_topic_undoes_the_whole_transaction(shop):
    shop.send("small", b"x")
    got = take(shop, "orders")
    with pytest.raises(quiver.QueueFull, match="nothing of the transaction"):
        with shop.transaction() as transaction:
            transaction.ack(got)
            transaction.send("invoices", b"invoice")
            transaction.send("small", b"y")
    assert shop.stats("invoices").sent == 0
    got.ack()


def test_two_sends_that_fill_a_topic_together_are_refused_together(shop):
    with pytest.raises(quiver.QueueFull), shop.transaction() as transaction:
        transaction.send("small", b"1")
        transaction.send("small", b"2")
    assert shop.stats("small").sent == 0


def test_an_unknown_topic_undoes_the_whole_transaction(shop):
    got = take(shop, "orders")
    with pytest.raises(quiver.TopicNotFound, match="nowhere"), shop.transaction() as transaction:
        transaction.ack(got)
        transaction.send("invoices", b"invoice")
        transaction.send("nowhere", b"x")
    assert shop.stats("invoices").sent == 0
    got.ack()


def test_settling_one_message_twice_in_a_transaction_is_refused(shop):
    got = take(shop, "orders")
    with pytest.raises(quiver.InvalidRequest, match="twice"), shop.transaction() as transaction:
        transaction.ack(got)
        transaction.nack(got)
    got.ack()


def test_a_transaction_may_nack_and_bury(queue, clock):
    queue.create_topic("d", max_attempts=5)
    queue.send_batch("d", [b"later", b"never"])
    later, never = queue.receive("d", "g", max_messages=2)
    with queue.transaction() as transaction:
        transaction.nack(later, delay=10, reason="busy")
        transaction.dead_letter(never, reason="bad")
    assert nothing(queue, "d")
    assert take(queue, "d.dlq").origin.reason == "bad"
    clock.advance(10)
    assert take(queue, "d").body == b"later"


def test_an_empty_transaction_does_nothing(shop):
    with shop.transaction() as transaction:
        pass
    assert transaction.sent == []


def test_dedup_ids_hold_in_transactions(shop):
    answers = []
    for _ in range(2):
        with shop.transaction() as transaction:
            transaction.send("invoices", b"x", dedup_id="a")
        answers += transaction.sent
    assert [(sent.count, sent.duplicates) for sent in answers] == [(1, 0), (0, 1)]
    assert drain(shop, "invoices") == [b"x"]


def test_messages_of_a_transaction_keep_their_delay_and_life(shop, clock):
    with shop.transaction() as transaction:
        transaction.send("mails", b"later", delay=10)
        transaction.send("mails", b"now")
        transaction.send("invoices", b"short", ttl=5)
    assert drain(shop, "mails") == [b"now"]
    clock.advance(10)
    assert bodies(shop.receive("mails", "g")) == [b"later"]
    assert nothing(shop, "invoices")


def test_so_do_those_of_a_batch(shop, clock):
    with shop.transaction() as transaction:
        transaction.send_batch("mails", [quiver.Message(b"later", delay=10), b"now"])
        transaction.send_batch("invoices", [quiver.Message(b"short", ttl=5)])
        transaction.send_batch("invoices", [quiver.Message(b"long", ttl=60)])
    assert drain(shop, "mails") == [b"now"]
    clock.advance(10)
    assert bodies(shop.receive("mails", "g")) == [b"later"]
    assert drain(shop, "invoices") == [b"long"]


def test_receipts_as_text_work_in_a_transaction(shop):
    receipt = take(shop, "orders").receipt
    with shop.transaction() as transaction:
        transaction.ack(receipt)
        transaction.send("mails", b"x")
    assert shop.stats("orders").depth == 0

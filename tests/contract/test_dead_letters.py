"""Giving up: attempts, the dead-letter topic, and the way back."""

import pytest

import quiver
from tests.contract.verbs import bodies, drain, nothing, take


@pytest.fixture
def failing(queue):
    """Topic "d" gives up after two attempts."""
    queue.create_topic("d", max_attempts=2)
    return queue


def bury(queue, *contents, reason="broken", **options):
    for content in contents:
        queue.send("d", content, **options)
    for delivery in queue.receive("d", "g", max_messages=len(contents)):
        delivery.dead_letter(reason=reason)


def test_the_last_attempt_moves_a_message_to_the_dead_letter_topic(failing, clock):
    sent = failing.send("d", b"poison", key="k", headers={"v": "1"}, priority=4)
    take(failing, "d").nack(reason="first")
    clock.advance(7)
    take(failing, "d").nack(reason="second")
    assert nothing(failing, "d")
    dead = take(failing, "d.dlq")
    assert (dead.body, dead.key, dead.headers, dead.priority) == (b"poison", "k", {"v": "1"}, 4)
    assert dead.id == sent.id
    assert dead.origin == quiver.Origin("d", 0, 0, "g", 2, "second", clock.now_ms())
    assert failing.groups("d")["g"].dead_lettered == 1
    assert failing.stats("d").depth == 0


def test_an_expired_lease_counts_as_a_failed_attempt(failing, clock):
    failing.send("d", b"x")
    for _ in range(2):
        take(failing, "d", lease=1)
        clock.advance(1)
    assert nothing(failing, "d")
    assert take(failing, "d.dlq").origin.reason == "lease expired"


def test_a_consumer_may_give_up_at_once(failing):
    failing.send("d", b"x")
    take(failing, "d").dead_letter(reason="no such customer")
    origin = take(failing, "d.dlq").origin
    assert (origin.attempts, origin.reason) == (1, "no such customer")


def test_a_named_dead_letter_topic_is_made_and_shared(queue):
    queue.create_topic("one", dead_letter="graveyard")
    queue.create_topic("two", dead_letter="graveyard")
    for topic in ("one", "two"):
        queue.send(topic, topic)
        take(queue, topic).dead_letter()
    got = queue.receive("graveyard", "g", max_messages=9)
    assert [delivery.origin.topic for delivery in got] == ["one", "two"]


def test_each_dead_letter_knows_its_own_partition_and_offset(queue):
    queue.create_topic("d", partitions=2, max_attempts=1, partition_by="round-robin")
    for at in range(6):
        queue.send("d", str(at))
    got = queue.receive("d", "g", max_messages=6)
    places = sorted((delivery.partition, delivery.offset) for delivery in got)
    queue.nack(got)
    dead = queue.receive("d.dlq", "g", max_messages=6)
    assert sorted((x.origin.partition, x.origin.offset) for x in dead) == places
    assert {x.body for x in dead} == {b"0", b"1", b"2", b"3", b"4", b"5"}


def test_one_group_gives_up_and_the_other_goes_on(failing):
    failing.create_group("d", "strong")
    failing.send("d", b"x")
    take(failing, "d", "weak").dead_letter()
    assert take(failing, "d", "strong").attempt == 1


def test_a_long_reason_is_cut_and_not_refused(failing):
    failing.send("d", b"x")
    take(failing, "d").dead_letter(reason="é" * 5_000)
    assert take(failing, "d.dlq").origin.reason == "é" * 1_000


def test_a_topic_without_dead_letters_refuses_to_bury(queue):
    queue.send("t", b"x")
    got = take(queue)
    with pytest.raises(quiver.InvalidRequest, match="no dead-letter topic"):
        got.dead_letter()
    got.ack()


def test_redriven_messages_go_back_where_they_came_from(failing):
    bury(failing, b"a", b"b", key="k")
    assert failing.redrive("d.dlq") == 2
    again = failing.receive("d", "g", max_messages=9)
    assert bodies(again) == [b"a", b"b"]
    assert {(x.attempt, x.key, x.origin.reason) for x in again} == {(1, "k", "broken")}
    assert failing.stats("d.dlq").depth == 0


@pytest.mark.python
def test_redrive_chooses_counts_and_stops(failing):
    bury(failing, b"a", b"b", b"c", reason="Timeout: slow")
    bury(failing, b"d", reason="bug")

    def timeouts(message):
        return message.origin.reason.startswith("Timeout")

    assert failing.redrive("d.dlq", where=timeouts, dry_run=True) == 3
    assert failing.stats("d.dlq").depth == 4
    assert failing.redrive("d.dlq", where=timeouts, limit=2) == 2
    assert drain(failing, "d") == [b"a", b"b"]
    assert failing.redrive("d.dlq", where=timeouts, rate=10_000) == 1
    assert drain(failing, "d") == [b"c"]
    assert drain(failing, "d.dlq") == [b"d"]


def test_redrive_to_another_topic(failing):
    bury(failing, b"a")
    failing.create_topic("repair")
    assert failing.redrive("d.dlq", to="repair") == 1
    assert drain(failing, "repair") == [b"a"]


def test_redrive_leaves_what_somebody_is_looking_at(failing):
    bury(failing, b"a", b"b")
    held = take(failing, "d.dlq", max_messages=1)
    assert failing.redrive("d.dlq") == 1
    held.ack()
    assert drain(failing, "d") == [b"b"]


def test_redrive_of_what_is_no_dead_letter_asks_where_to(queue):
    queue.send("t", b"x")
    with pytest.raises(quiver.InvalidRequest, match="to=<topic>"):
        queue.redrive("t")
    assert queue.stats("t").depth == 1


@pytest.mark.python
def test_discard_drops_the_chosen_ones(failing):
    bury(failing, b"a", b"b", b"c")
    assert failing.discard("d.dlq", where=lambda m: m.body != b"b", dry_run=True) == 2
    assert failing.discard("d.dlq", where=lambda m: m.body != b"b", limit=1) == 1
    assert drain(failing, "d.dlq") == [b"b", b"c"]


def test_discard_is_for_all_groups(queue):
    queue.create_group("t", "one")
    queue.create_group("t", "two")
    queue.send_batch("t", [b"a", b"b"])
    assert queue.discard("t", limit=1) == 1
    assert drain(queue, "t", "one") == drain(queue, "t", "two") == [b"b"]

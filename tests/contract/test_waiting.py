"""Long polls: what wakes a receive that waits, and that nothing else does."""

import pytest

import quiver
from tests.contract.verbs import bodies, drain, nothing, take
from tests.inside import Inside


def receive(world, topic="t", **options):
    """A receive that is waiting now."""
    return world.in_background(world.queue.receive, topic, "g", wait=600, **options)


def test_a_send_wakes_a_waiting_receive(world, queue):
    waiting = receive(world)
    queue.send("t", b"x")
    assert bodies(waiting.result()) == [b"x"]


def test_a_batch_wakes_a_waiting_receive(world, queue):
    waiting = receive(world, max_messages=2)
    queue.send_batch("t", [b"a", b"b", b"c"])
    assert bodies(waiting.result()) == [b"a", b"b"]


def test_one_message_goes_to_one_of_many_who_wait(world, queue):
    first = receive(world)
    others = [world.in_background(queue.receive, "t", "g", wait=30) for _ in range(2)]
    queue.send("t", b"x")
    everybody = [first, *others]
    while not any(waiting.future.done() for waiting in everybody):
        pass
    world.clock.advance(30)
    world.clock.advance(570)
    assert sorted(len(waiting.result()) for waiting in everybody) == [0, 0, 1]


def test_a_delay_that_is_over_wakes_a_waiting_receive(world, queue, clock):
    queue.send("t", b"x", delay=10)
    waiting = receive(world)
    clock.advance(9.999)
    assert not waiting.future.done()
    clock.advance(0.001)
    assert bodies(waiting.result()) == [b"x"]


def test_a_nack_wakes_a_waiting_receive(world, queue):
    queue.send("t", b"x")
    got = take(queue)
    waiting = receive(world)
    got.nack()
    assert waiting.result()[0].attempt == 2


def test_a_nack_with_a_delay_wakes_a_waiting_receive_when_it_is_due(world, queue, clock):
    queue.send("t", b"x")
    take(queue).nack(delay=10)
    waiting = receive(world)
    clock.advance(10)
    assert waiting.result()[0].attempt == 2


def test_the_end_of_a_lease_wakes_a_waiting_receive(world, queue, clock):
    queue.send("t", b"x")
    take(queue, lease=10)
    waiting = receive(world)
    clock.advance(10)
    assert waiting.result()[0].attempt == 2


def test_a_transaction_wakes_a_waiting_receive(world, queue):
    waiting = receive(world)
    with queue.transaction() as transaction:
        transaction.send("t", b"x")
    assert bodies(waiting.result()) == [b"x"]


@pytest.mark.parametrize("order", ["key", "partition"])
def test_an_ack_wakes_who_waits_for_the_next_in_order(world, queue, order):
    queue.create_topic("o", order=order)
    queue.send("o", b"1", key="k")
    queue.send("o", b"2", key="k")
    first = take(queue, "o")
    waiting = receive(world, "o")
    first.ack()
    assert bodies(waiting.result()) == [b"2"]


def test_resuming_a_group_wakes_a_waiting_receive(world, queue):
    queue.create_group("t", "g")
    queue.pause("t", "g")
    queue.send("t", b"x")
    waiting = receive(world)
    queue.resume("t", "g")
    assert bodies(waiting.result()) == [b"x"]


def test_seeking_back_wakes_a_waiting_receive(world, queue):
    queue.create_topic("h", retention="forever")
    queue.send("h", b"x")
    drain(queue, "h")
    waiting = receive(world, "h")
    queue.seek("h", "g", "earliest")
    assert bodies(waiting.result()) == [b"x"]


def test_a_redrive_wakes_a_waiting_receive(world, queue):
    queue.create_topic("d", max_attempts=1)
    queue.send("d", b"x")
    take(queue, "d").nack()
    waiting = receive(world, "d")
    queue.redrive("d.dlq")
    assert bodies(waiting.result()) == [b"x"]


def test_a_dead_letter_wakes_who_waits_for_dead_letters(world, queue):
    queue.create_topic("d", max_attempts=1)
    queue.send("d", b"x")
    got = take(queue, "d")
    waiting = receive(world, "d.dlq")
    got.nack()
    assert bodies(waiting.result()) == [b"x"]


def test_deleting_the_topic_ends_the_waiting(world, queue):
    waiting = receive(world)
    queue.delete_topic("t")
    with pytest.raises(quiver.TopicNotFound):
        waiting.result()


def test_closing_the_queue_ends_the_waiting(world, queue):
    waiting = receive(world)
    queue.close()
    with pytest.raises(quiver.QueueClosed, match="closed while"):
        waiting.result()


def test_a_receive_that_waited_long_enough_comes_back_empty(world, queue, clock):
    waiting = receive(world)
    clock.advance(599.999)
    assert not waiting.future.done()
    clock.advance(0.001)
    assert waiting.result() == []


@pytest.mark.python
def test_a_receive_of_a_table_waits_too(world, queue):
    waiting = world.in_background(queue.receive_arrow, "t", "g", wait=600)
    queue.send("t", b"x")
    assert len(waiting.result()) == 1


def test_what_happens_elsewhere_wakes_nobody(world, queue):
    queue.create_topic("u")
    waiting = receive(world)
    queue.send("u", b"x")
    assert nothing(queue, "t", "other")
    assert not waiting.future.done()
    queue.send("t", b"y")
    assert bodies(waiting.result()) == [b"y"]


def quiet(world):
    """Whether the queue sleeps: its thread asks for the time only when it has something to do."""
    shard = world.door.shard
    for _ in range(2):
        shard.ask(Inside(lambda _: None)).wait()
    before = world.clock.readings
    shard._thread.join(0.2)  # a moment in which nothing is asked of it
    return world.clock.readings - before < 20


def test_waiting_costs_nothing(world, queue, clock):
    queue.send("t", b"x", delay=1000)
    waiting = receive(world)
    assert quiet(world)
    queue.send("t", b"y")
    waiting.result()


def test_waiting_behind_a_leased_message_costs_nothing_when_a_later_one_is_due(world, queue, clock):
    queue.create_topic("o", order="partition")
    queue.send("o", b"1")
    queue.send("o", b"2", delay=10)
    first = take(queue, "o", lease=1000)
    waiting = receive(world, "o")
    clock.advance(20)
    assert quiet(world)
    first.ack()
    assert bodies(waiting.result()) == [b"2"]


def test_waiting_behind_a_leased_message_costs_nothing_when_a_failed_one_is_due(
    world, queue, clock
):
    queue.create_topic("o", order="partition")
    queue.send_batch("o", [b"1", b"2", b"3"])
    got = queue.receive("o", "g", max_messages=3, lease=1000)
    got[0].nack(delay=10)
    waiting = receive(world, "o")
    clock.advance(20)
    assert quiet(world)
    queue.ack(got[1:])
    assert bodies(waiting.result()) == [b"1"]


def test_waiting_behind_a_failed_message_costs_nothing_when_a_later_one_is_due(world, queue, clock):
    queue.create_topic("o", order="partition")
    queue.send("o", b"1")
    take(queue, "o").nack(delay=100)
    queue.send("o", b"2", delay=10)
    waiting = receive(world, "o")
    clock.advance(20)
    assert quiet(world)
    clock.advance(80)
    assert bodies(waiting.result()) == [b"1"]


def test_waiting_on_a_paused_group_costs_nothing(world, queue, clock):
    queue.send("t", b"x", delay=10)
    assert nothing(queue)
    queue.pause("t", "g")
    waiting = receive(world)
    clock.advance(20)
    assert quiet(world)
    queue.resume("t", "g")
    assert bodies(waiting.result()) == [b"x"]


@pytest.mark.python
def test_a_delay_that_is_over_wakes_a_waiting_member(world, queue, clock):
    with queue.join("t", "g", "m1", session="1h") as member:
        queue.send("t", b"x", delay=10)
        waiting = world.in_background(member.fetch, wait=600)
        clock.advance(9.999)
        assert not waiting.future.done()
        clock.advance(0.001)
        assert bodies(waiting.result()) == [b"x"]


def test_a_full_disk_with_something_due_costs_nothing(world, queue, clock, monkeypatch):
    """The end of a lease is an entry of the log; while there is no room for it, it must wait."""
    queue.send("t", b"x")
    take(queue, lease=10)
    refusals = []

    def append(*_, **__):
        refusals.append(1)
        raise quiver.DiskFull("no room")

    with monkeypatch.context() as full:
        full.setattr(world.door.shard._engine.wal, "append", append)
        clock.advance(20)
        assert quiet(world)
        assert refusals
    clock.advance(20)
    assert take(queue).attempt == 2


@pytest.mark.filterwarnings("ignore::quiver.BehindRetention")
def test_what_a_snapshot_sweeps_away_wakes_who_waited_behind_it(world, queue, clock):
    queue.create_topic("h", order="partition", retention="1h", keep_unsettled=False)
    queue.send("h", b"old")
    assert queue.receive("h", "g", lease="12h")
    clock.advance(3500)
    queue.send("h", b"new")
    waiting = receive(world, "h", lease="1h")
    shard = world.door.shard

    def idle(_: object) -> None:
        shard._chores_ms = clock.now_ms() * 2  # else they would sweep before the snapshot does

    shard.ask(Inside(idle)).wait()
    clock.advance(101)
    assert not waiting.future.done()
    shard.seal().wait()
    assert bodies(waiting.result()) == [b"new"]

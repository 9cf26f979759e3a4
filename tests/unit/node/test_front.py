"""The front, stepped by hand: packing, parking, waking, answering, and what is due when."""

import pytest

from quiver import limits
from quiver.batches.output import Piece
from quiver.errors import DiskFull, InvalidRequest, QueueFull, TopicNotFound
from quiver.model.commands import CreateGroup, DeleteTopic, Receive, Send, Tick
from quiver.model.replies import Outcome, Received
from quiver.node.front import AskRequest
from quiver.node.tickets import Ticket
from tests.bounds import set_bounds
from tests.inside import Inside
from tests.stepped import LEASE_MS, Stepped, offsets

WAIT_MS = 60_000


@pytest.fixture
def node() -> Stepped:
    return Stepped()


@pytest.fixture
def topic(node):
    made = node.topic()
    node.do(CreateGroup(made.number, "g"))
    return made


def bodies(node, request) -> list[bytes]:
    def read(piece: Piece) -> list[bytes]:
        column = piece.batch.column("body").slice(piece.at, piece.part.count)
        return column.to_pylist()

    return [body for piece in request.ticket.get().source.pieces() for body in read(piece)]


# -- packing -------------------------------------------------------------------------------------------


def test_messages_that_arrive_together_are_one_entry(node, topic):
    sends = [node.send(topic, b"%d" % at) for at in range(5)]
    [pending] = node.take(*sends)
    assert pending.proposal.command == Send(topic.number, pending.proposal.command.runs, (1,))
    assert not any(send.done for send in sends)
    node.commit([pending])
    placed = [send.get() for send in sends]
    assert [one.offset + at for one, at in placed] == list(range(5))
    got = node.receive(topic, 9)
    node.run(got)
    assert bodies(node, got) == [b"0", b"1", b"2", b"3", b"4"]


def test_each_topic_has_an_entry_of_its_own(node, topic):
    other = node.topic("other")
    assert len(node.take(node.send(topic), node.send(other), node.send(topic))) == 2


def test_inside_a_partition_messages_keep_their_order(node):
    topic = node.topic(partitions=4)
    sends = [node.send(topic, b"%d" % at, key=f"k{at % 7}") for at in range(50)]
    assert node.run(*sends) == 1
    places: dict[int, list[int]] = {}
    for send in sends:
        placed, at = send.get()
        places.setdefault(placed.partition, []).append(placed.offset + at)
    assert len(places) > 1
    assert all(found == list(range(len(found))) for found in places.values())


def test_a_dedup_id_makes_each_message_a_request_of_its_own(node, topic):
    first, other, again = [node.send(topic, dedup_id=name) for name in ("a", "b", "a")]
    assert node.run(first, other, again) == 1
    assert [send.get()[0].duplicate for send in (first, other, again)] == [False, False, True]
    assert again.get()[0].offset == first.get()[0].offset


def test_a_backlog_refuses_only_what_does_not_fit(node):
    topic = node.topic(max_backlog=2)
    node.do(CreateGroup(topic.number, "g"))
    sends = [node.send(topic) for _ in range(4)]
    node.run(*sends)
    assert [type(send.error) for send in sends] == [type(None)] * 2 + [QueueFull] * 2


def test_what_cannot_be_packed_fails_alone(node, topic):
    other = node.topic("other", partitions=2)
    bad, good = node.send(topic), node.send(other)
    bad.row.body = 7
    node.run(bad, good)
    assert isinstance(bad.error, Exception)
    assert good.get()


def test_it_is_synced_if_one_of_them_wants_that(node, topic):
    one, other = node.send(topic), node.send(topic)
    one.sync = False
    assert [pending.sync for pending in node.take(one)] == [False]
    assert [pending.sync for pending in node.take(one, other)] == [True]


# -- proposing and answering ---------------------------------------------------------------------------


def test_a_refused_command_fails_only_its_own_request(node, topic):
    bad, good = node.command(DeleteTopic(99)), node.command(CreateGroup(topic.number, "h"))
    send = node.send(topic)
    assert node.run(bad, good, send) == 3
    assert isinstance(bad.ticket.error, TopicNotFound)
    assert good.ticket.error is send.error is None


def test_a_proposal_that_never_becomes_an_entry_fails_only_its_own_requests(node, topic):
    """What a full disk refuses, or what a log of several voters has lost."""
    send, receive = node.send(topic), node.receive(topic, wait_ms=WAIT_MS, group="new")
    mine, other = node.take(receive, send)
    node.front.answered([(other, Outcome(DiskFull("no room")))], node.now_ms)
    assert isinstance(send.error, DiskFull)
    assert not receive.ticket.done
    node.commit([mine])
    assert list(node.front.waiters) == [receive]


def test_outcomes_belong_to_proposals_and_not_to_positions(node, topic):
    first, second = node.take(node.send(topic)), node.take(node.command(Tick()))
    assert node.commit(first + second) == []
    first, second = node.send(topic), node.send(topic)
    rounds = node.take(first), node.take(second)
    outcomes = node.peer.commit([one[0].proposal for one in rounds], now_ms=node.now_ms)
    node.front.answered([(rounds[1][0], outcomes[1]), (rounds[0][0], outcomes[0])], node.now_ms)
    assert first.get()[0].offset < second.get()[0].offset


def test_a_question_is_answered_at_once_and_its_error_is_the_askers(node, topic):
    index = AskRequest(Inside(lambda engine: engine.core.index), Ticket())
    wrong = AskRequest(Inside(lambda engine: engine.core.topics[99]), Ticket())
    assert node.take(wrong, index) == []
    assert index.ticket.get() == node.engine.core.index
    assert isinstance(wrong.ticket.error, KeyError)


def test_what_has_no_answer_is_known_when_all_ends(node, topic):
    parked, proposed = node.receive(topic, wait_ms=WAIT_MS), node.command(Tick())
    send, answered = node.send(topic), node.receive(topic)
    node.take(parked)
    node.take(proposed, send, answered)
    assert {id(one) for one in node.front.unanswered()} >= {id(parked), id(proposed), id(send)}
    assert node.front.unanswered() == []


# -- parking and waking --------------------------------------------------------------------------------


def test_a_receive_that_would_find_nothing_is_no_entry(node, topic):
    now, later = node.receive(topic), node.receive(topic, wait_ms=WAIT_MS)
    assert node.run(now, later) == 0
    assert offsets(now) == []
    assert not later.ticket.done


def test_who_waits_first_is_served_first(node, topic):
    waiting = [node.receive(topic, wait_ms=WAIT_MS) for _ in range(3)]
    node.run(*waiting)
    assert node.run(node.send(topic), node.send(topic)) == 1 + 2
    assert [offsets(one) for one in waiting[:2]] == [[0], [1]]
    assert not waiting[2].ticket.done
    node.run(node.send(topic))
    assert offsets(waiting[2]) == [2]


def test_what_is_not_ready_yet_changes_no_order(node, topic):
    first, second = [node.receive(topic, wait_ms=WAIT_MS) for _ in range(2)]
    node.run(first, second)
    node.run(node.send(topic, delay="5s"))
    node.run(node.send(topic))
    assert offsets(first) == [1]


def test_only_so_many_are_woken_as_there_are_messages(node, topic):
    waiting = [node.receive(topic, 10, wait_ms=WAIT_MS) for _ in range(50)]
    node.run(*waiting)
    assert node.run(node.send(topic)) == 2


def test_groups_are_woken_apart(node, topic):
    node.do(CreateGroup(topic.number, "h"))
    one, other = [node.receive(topic, wait_ms=WAIT_MS, group=name) for name in "gh"]
    node.run(one, other)
    node.run(node.send(topic))
    assert offsets(one) == offsets(other) == [0]


def test_an_empty_answer_comes_at_the_deadline_and_not_before(node, topic):
    waiting = node.receive(topic, wait_ms=WAIT_MS)
    node.run(waiting)
    assert node.front.next_due_ms() == node.now_ms + WAIT_MS
    node.now_ms += WAIT_MS - 1
    assert node.run() == 0
    assert not waiting.ticket.done
    node.now_ms += 1
    assert node.run() == 0
    assert offsets(waiting) == []
    assert node.front.next_due_ms() is None


def test_a_delayed_message_wakes_who_waits_when_it_is_due(node, topic):
    waiting = node.receive(topic, wait_ms=WAIT_MS)
    node.run(waiting, node.send(topic, delay="5s"))
    assert node.front.next_due_ms() == node.now_ms + 5_000
    node.now_ms += 5_000
    node.run()
    assert offsets(waiting) == [0]


def test_a_lease_that_ends_is_a_tick_and_wakes_who_waits(node, topic):
    first, second = node.receive(topic), node.receive(topic, wait_ms=2 * LEASE_MS)
    node.run(node.send(topic))
    node.run(first)
    node.run(second)
    assert node.front.tick(node.now_ms) == []
    node.now_ms += LEASE_MS
    assert node.front.next_due_ms() == node.now_ms
    node.run()
    assert offsets(second) == [0]


def test_a_tick_is_proposed_once_and_later_if_there_is_no_room(node, topic):
    node.run(node.send(topic))
    node.run(node.receive(topic))
    node.now_ms += LEASE_MS
    [tick] = node.front.tick(node.now_ms)
    assert node.front.tick(node.now_ms) == []
    node.front.answered([(tick, Outcome(DiskFull("no room")))], node.now_ms)
    assert node.front.tick(node.now_ms) == []
    assert node.front.next_due_ms() == node.now_ms + limits.FULL_DISK_PAUSE_MS
    node.now_ms += limits.FULL_DISK_PAUSE_MS
    assert node.run() == 1
    assert node.front.next_due_ms() is None


def test_no_message_is_leased_for_an_abandoned_ticket(node, topic):
    gone, here = [node.receive(topic, wait_ms=WAIT_MS) for _ in range(2)]
    node.run(gone, here)
    gone.ticket.abandoned = True
    assert node.run(node.send(topic)) == 2
    assert offsets(here) == [0]


def test_what_was_granted_to_an_abandoned_ticket_goes_to_the_next(node, topic):
    gone, here = node.receive(topic), node.receive(topic, wait_ms=WAIT_MS)
    node.run(node.send(topic))
    pending = node.take(gone)
    gone.ticket.abandoned = True
    node.take(here)
    while pending:
        pending = node.commit(pending)
    assert offsets(here) == [0]
    assert here.ticket.get().received.slices[0].attempt == 1


def test_what_is_abandoned_after_the_answer_is_given_back_by_its_ticket(node, topic):
    receive = node.receive(topic)
    given_back: list[Received] = []
    receive.ticket._give_back = given_back.append
    node.run(node.send(topic))
    node.run(receive)
    receive.ticket.abandoned = True
    assert given_back == [receive.ticket.get().received]


def test_nothing_waits_any_more_after_stop_waiting(node, topic):
    parked, proposed = [node.receive(topic, wait_ms=WAIT_MS, group=name) for name in ("g", "new")]
    node.run(parked)
    pending = node.take(proposed)
    node.front.stop_waiting()
    node.commit(pending)
    assert offsets(proposed) == []
    late = node.receive(topic, wait_ms=WAIT_MS)
    node.run(late)
    assert offsets(parked) == offsets(late) == []


# -- watching ------------------------------------------------------------------------------------------


def test_a_watch_is_asked_again_when_its_topic_wakes(node, topic):
    asked = []

    def question(engine, now_ms):
        asked.append(now_ms)
        return (engine.core.topics[topic.number].partitions[0].end or None), None

    watch = node.watch(topic, question, WAIT_MS)
    node.run(watch)
    node.run(node.command(Tick()))
    assert len(asked) == 1
    node.run(node.send(topic))
    assert watch.ticket.get() == 1


def test_a_watch_is_asked_again_when_it_said_so_and_at_its_deadline(node, topic):
    due_ms = node.now_ms + 7_000
    watch = node.watch(topic, lambda engine, now_ms: (None, due_ms), WAIT_MS)
    node.run(watch)
    assert node.front.next_due_ms() == due_ms
    node.now_ms = due_ms
    due_ms = None  # from now on it does not know
    node.run()
    assert node.front.next_due_ms() == node.now_ms + WAIT_MS - 7_000
    node.now_ms += WAIT_MS
    node.run()
    assert watch.ticket.done
    assert watch.ticket.get() is None


# -- receives in flight --------------------------------------------------------------------------------


def receives(pending) -> int:
    return sum(isinstance(one.proposal.command, Receive) for one in pending)


def test_no_second_receive_is_proposed_for_messages_that_the_first_is_about_to_get(node, topic):
    node.run(node.send(topic))
    first, second = [node.receive(topic, wait_ms=WAIT_MS) for _ in range(2)]
    pending = node.take(first)
    assert receives(pending) == 1
    assert node.take(second) == []
    assert node.commit(pending) == []
    assert offsets(first) == [0]
    assert not second.ticket.done


def test_nor_is_a_waiter_woken_for_them(node, topic):
    first, second = [node.receive(topic, wait_ms=WAIT_MS) for _ in range(2)]
    node.run(first, second)
    woken = node.commit(node.take(node.send(topic)))
    assert receives(woken) == 1
    assert receives(node.front.woken([topic.number], node.now_ms)) == 0
    assert node.commit(woken) == []


def test_and_nothing_is_due_for_it_until_the_first_is_answered(node, topic):
    """A driver that slept until something is due would otherwise not sleep."""
    first, second = [node.receive(topic, wait_ms=WAIT_MS) for _ in range(2)]
    node.run(first, second, node.send(topic, delay="5s"))
    node.now_ms += 5_000
    woken = node.take()
    assert receives(woken) == 1
    assert node.front.next_due_ms() == node.now_ms - 5_000 + WAIT_MS
    assert node.take() == []
    node.commit(woken)
    assert offsets(first) == [0]


def test_but_one_that_does_not_wait_is_always_an_entry(node, topic):
    node.run(node.send(topic))
    first, second = [node.receive(topic) for _ in range(2)]
    assert receives(node.take(first) + node.take(second)) == 2


@pytest.fixture
def few_bytes(monkeypatch):
    set_bounds(monkeypatch, receive_bytes_max=100)


@pytest.mark.usefixtures("few_bytes")  # before there is a core
def test_who_was_passed_over_gets_what_the_first_has_left(node, topic):
    """It was to get ten, and the bytes of a receive were full before."""
    node.run(*[node.send(topic, b"x" * 60) for _ in range(3)])
    waiting = [node.receive(topic, 10, wait_ms=WAIT_MS) for _ in range(4)]
    assert node.run(*waiting) == 3
    assert [offsets(one) for one in waiting[:3]] == [[0], [1], [2]]
    assert not waiting[3].ticket.done


def test_who_waits_has_a_turn_after_one_whose_time_was_up_when_messages_came(node, topic):
    first, second = [node.receive(topic, wait_ms=wait_ms) for wait_ms in (2_000, WAIT_MS)]
    node.run(first, second, *[node.send(topic, delay="1s") for _ in range(2)])
    node.now_ms += 2_000
    node.run()
    assert [offsets(first), offsets(second)] == [[0], [1]]


def test_who_was_passed_over_has_a_turn_when_the_first_is_refused(node, topic):
    first = node.receive(topic, wait_ms=WAIT_MS)
    first.command = Receive(topic.number, "g", 1, LEASE_MS, per_key=2, begin=1)
    first.proposal = node.command(first.command).proposal
    second = node.receive(topic, wait_ms=WAIT_MS)
    node.run(node.send(topic))
    node.run(first, second)
    assert isinstance(first.ticket.error, InvalidRequest)
    assert offsets(second) == [0]

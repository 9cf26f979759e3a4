"""Lines of waiters: first come first, deadlines found, those who have gone forgotten."""

from dataclasses import dataclass, field
from random import Random

from quiver.node.tickets import Ticket
from quiver.node.waiting import TIDY_MIN, WaitingRoom


@dataclass(eq=False)
class Someone:
    until_ms: int
    line: tuple[int, str | None] = (1, "g")
    ticket: Ticket[None] = field(default_factory=Ticket)


def room_of(*waiters: Someone) -> WaitingRoom[Someone]:
    room: WaitingRoom[Someone] = WaitingRoom()
    for waiter in waiters:
        room.add(waiter)
    return room


def test_first_come_first():
    waiters = [Someone(9 - at) for at in range(3)]
    room = room_of(*waiters)
    assert room.line(1, "g") == waiters
    assert [room.take(1, "g") for _ in range(3)] == waiters
    assert not room
    assert room.topics() == []


def test_lines_are_apart():
    waiters = [Someone(9, (1, "a")), Someone(9, (1, None)), Someone(9, (2, "a"))]
    room = room_of(*waiters)
    assert room.topics() == [1, 2]
    assert room.groups(1) == ["a", None]
    assert room.groups(3) == []
    assert room.take(2, "a") is waiters[2]
    assert room.length(2, "a") == 0
    assert list(room) == waiters[:2]


def test_those_whose_time_is_up_leave():
    early, late, latest = Someone(10), Someone(20), Someone(30)
    room = room_of(latest, late, early)
    assert room.next_ms() == 10
    assert room.overdue(9) == []
    assert room.overdue(20) == [early, late]
    assert room.next_ms() == 30
    assert room.line(1, "g") == [latest]


def test_who_was_taken_has_no_deadline_any_more():
    early, late = Someone(10), Someone(20)
    room = room_of(early, late)
    assert room.take(1, "g") is early
    assert room.next_ms() == 20
    assert room.overdue(15) == []


def test_one_who_comes_back_is_at_the_end_of_the_line():
    first, second = Someone(10), Someone(20)
    room = room_of(first, second)
    room.add(room.take(1, "g"))
    assert room.line(1, "g") == [second, first]
    assert room.overdue(10) == [first]
    assert room.overdue(10) == []


def test_deadlines_may_change_before_tidying():
    room = room_of(Someone(10), Someone(20))
    for waiter in room:
        waiter.until_ms = 0
    room.tidy()
    assert len(room.overdue(0)) == 2


def test_who_has_gone_is_not_kept():
    room = room_of()
    for _ in range(100 * TIDY_MIN):
        waiter = Someone(1_000_000)
        room.add(waiter)
        waiter.ticket.abandoned = True
    assert not room
    assert len(list(room)) <= TIDY_MIN + 1
    assert len(room._deadlines) <= TIDY_MIN + 1


def test_nor_the_deadlines_of_those_who_were_served():
    room = room_of(*(Someone(1_000_000) for _ in range(500)))
    for _ in range(20_000):
        room.take(1, "g")
        room.add(Someone(1_000_000))
    assert len(room._deadlines) <= 1_100


def test_it_is_what_a_list_would_be():
    chance = Random(7)
    room, naive = room_of(), list[Someone]()
    for now_ms in range(2_000):
        match chance.randrange(3):
            case 0 | 1:
                waiter = Someone(now_ms + chance.randrange(200), (chance.randrange(3), "g"))
                room.add(waiter)
                naive.append(waiter)
            case 2:
                topic = chance.randrange(3)
                mine = [waiter for waiter in naive if waiter.line[0] == topic]
                assert room.line(topic, "g") == mine
                if mine:
                    assert room.take(topic, "g") is mine[0]
                    naive.remove(mine[0])
        due = [waiter for waiter in naive if waiter.until_ms <= now_ms]
        assert sorted(room.overdue(now_ms), key=id) == sorted(due, key=id)
        naive = [waiter for waiter in naive if waiter.until_ms > now_ms]
        assert room.next_ms() == min((waiter.until_ms for waiter in naive), default=None)

"""Tickets: who is woken, by whom, and that nobody keeps the baton."""

import time
from threading import Thread
from typing import Any

import pytest

from quiver.node.tickets import Ticket


class Asked(Ticket[int]):
    """A ticket whose request is made by the wait; `interrupt` stops it there."""

    __slots__ = ("interrupt", "submitted")

    def __init__(self, interrupt: BaseException | None = None) -> None:
        super().__init__()
        self.interrupt = interrupt
        self.submitted = 0

    def submit(self) -> None:
        self.submitted += 1
        if self.interrupt is not None:
            raise self.interrupt


def waiting(tickets: list[Asked]) -> list[Thread]:
    threads = [Thread(target=ticket.wait, daemon=True) for ticket in tickets]
    for thread in threads:
        thread.start()
    return threads


def all_end(threads: list[Thread]) -> bool:
    for thread in threads:
        thread.join(10)
    return not any(thread.is_alive() for thread in threads)


def answer(tickets: list[Asked]) -> None:
    for number, ticket in enumerate(tickets):
        ticket.value = number
    Ticket.wake(tickets)


def test_each_that_is_woken_wakes_the_next():
    tickets = [Asked() for _ in range(50)]
    threads = waiting(tickets)
    answer(tickets)
    assert all_end(threads)
    assert [ticket.get() for ticket in tickets] == list(range(50))
    assert all(ticket.submitted == 1 for ticket in tickets)


def test_one_that_waits_late_is_not_missed():
    tickets = [Asked() for _ in range(3)]
    threads = waiting([tickets[0], tickets[2]])
    answer(tickets)
    assert tickets[1].wait() == 1
    assert all_end(threads)


@pytest.mark.parametrize("before", [True, False], ids=["before the answer", "after the answer"])
def test_one_that_was_interrupted_passes_the_baton_on(before):
    tickets = [Asked(), Asked(KeyboardInterrupt()), Asked()]
    threads = waiting([tickets[0], tickets[2]])
    if not before:
        answer(tickets)
    with pytest.raises(KeyboardInterrupt):
        tickets[1].wait()
    assert tickets[1].abandoned
    if before:
        answer(tickets)
    assert all_end(threads)


@pytest.mark.parametrize("before", [True, False], ids=["before the answer", "after the answer"])
def test_one_that_is_called_back_passes_the_baton_on(before):
    tickets = [Asked(), Asked(), Asked()]
    threads = waiting([tickets[0], tickets[2]])
    calls = []
    if not before:
        answer(tickets)
    tickets[1].when_done(lambda: calls.append(tickets[1].get()))
    if before:
        answer(tickets)
    assert all_end(threads)
    assert calls == [1]


def test_one_that_is_nudged_before_it_is_set_sleeps_on():
    """`nudge` is for `wait_for`: who waits for the answer must neither miss it nor look all the time."""

    class Counting:
        def __init__(self, lock: Any) -> None:
            self._lock = lock
            self.taken = 0

        def acquire(self, *args: Any, **options: Any) -> bool:
            self.taken += 1
            return self._lock.acquire(*args, **options)

        def __enter__(self) -> None:
            self.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._lock, name)

    ticket: Ticket[str] = Ticket()
    lock = Counting(ticket._done)
    ticket._done = lock  # type: ignore[assignment]
    ticket.nudge()
    found: list[str] = []
    thread = Thread(target=lambda: found.append(ticket.wait()), daemon=True)
    thread.start()
    while lock.taken < 2:
        time.sleep(0.001)
    ticket.resolve("answer")
    thread.join(60)
    assert found == ["answer"]
    assert lock.taken <= 3

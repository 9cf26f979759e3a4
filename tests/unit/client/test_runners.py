"""What drives flows until it is stopped: a stop at any moment, in threads and in event loops."""

import asyncio
import gc
import sys
import time
from threading import Thread
from weakref import ref

import pytest

from quiver.client import aio, sync
from quiver.client.steps import Stopped
from quiver.client.tasks import finished
from quiver.node.tickets import Ticket

PATIENCE_SECONDS = 60


def asking(ticket):
    return (yield ticket)


@pytest.mark.parametrize("ticks", range(6))
def test_an_answer_is_taken_or_given_back_and_never_both(ticks):
    """Of a ticket that is abandoned, what was received is given back: the caller must not have it."""

    async def stopped_just_before_the_answer() -> tuple[object, bool]:
        runner = aio.TaskRunner()
        ticket: Ticket[str] = Ticket()
        task = asyncio.ensure_future(runner.run(asking(ticket)))
        for _ in range(5):
            await asyncio.sleep(0)
        runner.stop()
        for _ in range(ticks):
            await asyncio.sleep(0)
        ticket.resolve("message")
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        return outcome, ticket.abandoned

    outcome, abandoned = asyncio.run(stopped_just_before_the_answer())
    assert (outcome == "message") is not abandoned
    assert abandoned is isinstance(outcome, Stopped)


@pytest.mark.parametrize("ticks", range(6))
def test_who_is_cancelled_gives_back_what_was_just_answered(ticks):
    async def cancelled_just_after_the_answer() -> bool:
        ticket: Ticket[str] = Ticket()
        task = asyncio.ensure_future(aio.TaskRunner().run(asking(ticket)))
        for _ in range(6):
            await asyncio.sleep(0)
        ticket.resolve("message")
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        return ticket.abandoned is (outcome != "message")

    assert asyncio.run(cancelled_just_after_the_answer())


def test_loops_that_have_ended_are_not_kept():
    async def waits() -> "ref[asyncio.AbstractEventLoop]":
        ticket: Ticket[str] = Ticket()
        loop = asyncio.get_running_loop()
        loop.call_soon(ticket.resolve, "message")
        await finished(ticket)
        return ref(loop)

    loops = [asyncio.run(waits()) for _ in range(5)]
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 1  # the last, until there is another


def test_a_stop_lets_go_of_all_who_wait_for_the_same(monkeypatch):
    runner, ticket, ended = sync.ThreadRunner(), Ticket[None](), []

    def wait() -> None:
        try:
            runner.wait(ticket, None)
        except Stopped:
            ended.append("stopped")

    threads = [Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    while runner._waiting[ticket] < len(threads):
        time.sleep(0.001)
    runner.stop()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert ended == ["stopped"] * 3
    assert not runner._waiting


def test_a_signal_handler_may_stop_it_at_any_moment():
    """A handler runs in the thread that waits, between any two steps of it."""

    def stop_at(step, outcomes):
        runner = sync.ThreadRunner()
        steps = 0

        def trace(frame, event, arg):
            nonlocal steps
            steps += 1
            if steps == step:
                sys.settrace(None)
                runner.stop()
            return trace

        sys.settrace(trace)
        try:
            runner.run(asking(Ticket()), 0.001)
        except Stopped:
            outcomes.append((step, steps >= step))
        finally:
            sys.settrace(None)

    step, reached = 0, True
    while reached:  # until it is over before the stop
        step += 1
        outcomes: list[tuple[int, bool]] = []
        thread = Thread(target=stop_at, args=(step, outcomes), daemon=True)
        thread.start()
        thread.join(PATIENCE_SECONDS)
        assert outcomes, f"it hangs when it is stopped at step {step}"
        ((_, reached),) = outcomes
    assert step > 20

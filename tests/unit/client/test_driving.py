"""Whoever calls `get` drives: an interrupt or a signal handler may come between any two steps of it."""

import faulthandler
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import quiver
from quiver import limits
from quiver.client.sync import Keeper, flows_of

PATIENCE_SECONDS = 15
OURS = ("sync.py", "prefetch.py", "consuming.py", "steps.py", "acks.py", "keeping.py")


class Interrupted(BaseException):
    """As Ctrl-C is one."""


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[quiver.Queue]:
    with quiver.connect(tmp_path / "q", durability="memory") as made:
        made.create_topic("t")
        made.create_group("t", "g")
        yield made


def at_step(
    step: int, do: Callable[[], Any], then: Callable[[], Any], ours: tuple[str, ...] = OURS
) -> bool:
    """Do something, and something else in the middle of it, after so many steps; whether there were.

    A step is where Python lets signal handlers run: a function of ours begins, or one in C has returned.
    """
    steps = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal steps
        if event in ("call", "c_return") and frame.f_code.co_filename.endswith(ours):
            steps += 1
            if steps == step:
                sys.setprofile(None)
                then()

    sys.setprofile(profile)
    try:
        do()
    finally:
        sys.setprofile(None)
    return steps >= step


def in_a_thread(do: Callable[[], Any]) -> Any:
    """What it returns, in time."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(do())
        except BaseException as error:  # noqa: BLE001  # raised below
            found.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    if not found:
        faulthandler.dump_traceback()
    assert found, "it hangs"
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


STEPS = [29, pytest.param(7, marks=pytest.mark.check), pytest.param(1, marks=pytest.mark.slow)]


def every_step(do: Callable[[int], bool], every: int) -> None:
    """Do it for one step after the other, until it is over before the step comes."""
    step = 1
    while in_a_thread(lambda at=step: do(at)):  # type: ignore[misc]
        step += every
    assert step > 20


@pytest.mark.parametrize("filled", [True, False])
@pytest.mark.parametrize("every", STEPS)
@pytest.mark.parametrize("acks", ["wait", "background"])
def test_an_interrupt_at_any_step_loses_nothing(queue, monkeypatch, filled, every, acks):
    """What was just being taken or stored comes again when its lease has ended, and nothing hangs."""
    monkeypatch.setattr(limits, "CONSUMER_WAIT_SECONDS", 0.05)

    def interrupted(step: int) -> bool:
        def interrupt() -> None:
            raise Interrupted

        queue.send_batch("t", ["0", "1", "2"])
        found = set()
        with queue.consumer("t", "g", prefetch=2, lease=0.5, acks=acks) as inbox:

            def take() -> None:
                one = inbox.get(wait=0.1)
                if one is not None:
                    found.add(one.text)
                    one.ack()

            def some() -> None:
                for _ in range(1 if filled else 4):
                    take()

            try:
                reached = at_step(step, some, interrupt)
            except Interrupted:
                reached = True
            while queue.groups("t")["g"].lag:
                with suppress(quiver.ReceiptExpired):  # it took longer than its lease
                    take()
                    inbox.flush()
        assert found == {"0", "1", "2"}
        return reached

    every_step(interrupted, every)


@pytest.mark.parametrize("filled", [True, False])
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("acks", ["wait", "background"])
def test_a_signal_handler_may_close_it_at_any_step(queue, filled, every, acks):
    """Acks are stored, and what was not handed out is given back: as if nobody had ever had it."""

    def closed(step: int) -> bool:
        texts = ["0", "1", "2", "3"] if filled else ["0"]
        queue.send_batch("t", texts)
        inbox = queue.consumer("t", "g", prefetch=2, lease=600, acks=acks)
        first = inbox.get(wait=PATIENCE_SECONDS)
        assert first is not None
        found: list[Any] = []

        def more() -> None:
            first.ack()
            found.extend(one.text for one in iter(lambda: inbox.get(wait=0.01), None))

        reached = at_step(step, more, inbox.close)
        inbox.close()
        stats = queue.groups("t")["g"]
        assert (stats.lag, stats.in_flight) == (len(texts) - 1, len(found))
        queue.seek("t", "g", "latest")
        return reached

    every_step(closed, every)


# An interrupt while a generator is let go of is ignored by Python, with a warning.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("every", STEPS)
def test_acks_are_stored_whatever_was_interrupted(queue, every):
    """Nothing comes again to hide it: the lease is longer than the test."""

    def interrupted(step: int) -> bool:
        def interrupt() -> None:
            raise Interrupted

        queue.send_batch("t", ["0", "1", "2", "3"])
        acked = []
        with queue.consumer("t", "g", prefetch=2, lease=600, acks="background") as inbox:

            def some() -> None:
                for _ in range(3):
                    one = inbox.get(wait=PATIENCE_SECONDS)
                    one.ack()
                    acked.append(one.text)
                inbox.flush()

            try:
                reached = at_step(step, some, interrupt, (*OURS, "flows.py"))
            except Interrupted:
                reached = True
            inbox.flush()
            assert queue.groups("t")["g"].lag <= 4 - len(acked)
        queue.seek("t", "g", "latest")
        return reached

    every_step(interrupted, every)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_signal_handler_may_close_a_producer_at_any_step(queue, every):
    def closed(step: int) -> bool:
        sent = 0
        before = queue.stats("t").depth
        out = queue.producer("t", linger=0)

        def more() -> None:
            nonlocal sent
            with suppress(quiver.QueueClosed):
                for _ in range(3):
                    out.send("x", key="k")
                    sent += 1

        reached = at_step(step, more, out.close, (*OURS, "send_buffer.py"))
        out.close()
        assert queue.stats("t").depth - before in (sent, sent + 1)
        return reached

    every_step(closed, every)


def test_a_signal_handler_may_end_the_keeping_of_leases_at_any_step(queue):
    def closed(step: int) -> bool:
        queue.send("t", "x")
        got = queue.receive("t", "g", lease=600)
        keeper = Keeper(flows_of(queue))
        keeper.add(got, 600, 0)

        def more() -> None:
            for _ in range(3):
                keeper.add(got, 600, 0)
                keeper.settled(got)

        reached = at_step(step, more, keeper.close)
        keeper.close()
        queue.ack(got)
        return reached

    every_step(closed, 1)

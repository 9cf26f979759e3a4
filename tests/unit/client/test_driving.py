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

PATIENCE_SECONDS = 15
OURS = ("sync.py", "stock.py", "consuming.py", "steps.py", "acks.py", "keeping.py")


class Interrupted(BaseException):
    """As Ctrl-C is one."""


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[quiver.Queue]:
    with quiver.connect(tmp_path / "q", durability="memory") as made:
        made.create_topic("t")
        made.create_group("t", "g")
        yield made


def at_step(step: int, do: Callable[[], Any], then: Callable[[], Any]) -> bool:
    """Do something, and something else in the middle of it, after so many steps; whether there were.

    A step is where Python lets signal handlers run: a function of ours begins, or one in C has returned.
    """
    steps = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal steps
        if event in ("call", "c_return") and frame.f_code.co_filename.endswith(OURS):
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


def every_step(do: Callable[[int], bool], every: int) -> None:
    """Do it for one step after the other, until it is over before the step comes."""
    step = 1
    while in_a_thread(lambda at=step: do(at)):  # type: ignore[misc]
        step += every
    assert step > 20


@pytest.mark.parametrize("filled", [True, False])
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
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

"""Drives flows in the caller's thread, in whose midst a signal handler may ask for more."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from quiver.client.steps import Flow, Pause, Work
from quiver.node.tickets import Ticket

T = TypeVar("T")


def is_held(lock: Any) -> bool:
    """Whether this thread has the lock, which it may take twice: then it is a signal handler that asks."""
    held: bool = lock._is_owned()  # what `threading.Condition` asks of it, too
    return held


def run(flow: Flow[T], wait: Callable[[Ticket[Any]], Any] = Ticket.wait) -> T:
    """Drive a flow in this thread."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = flow.throw(error) if error is not None else flow.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer, error = None, None
        try:
            match step:
                case Ticket():
                    answer = wait(step)
                case Pause():
                    time.sleep(step.seconds)
                case Work():
                    answer = step.do()
        except Exception as problem:  # noqa: BLE001  # the flow decides what to do about it
            error = problem
        except BaseException:  # nobody waits any more
            flow.close()
            raise

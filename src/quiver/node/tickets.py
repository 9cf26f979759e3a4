"""The answer that a request waits for, in a thread or in an event loop."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from threading import Lock
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Ticket(Generic[T]):
    """Set once, by `resolve` or `fail`; `abandoned` says that nobody wants it any more.

    A bare lock is the cheapest thing that a thread can wait for: a thousand sends a second or a
    hundred thousand make the difference.
    """

    __slots__ = ("_callback", "_done", "_next", "abandoned", "done", "error", "shared", "value")

    def __init__(self) -> None:
        self._done = Lock()
        self._done.acquire()
        self._callback: Callable[[], Any] | None = None
        self._next: Ticket[T] | None = None  # whom to wake, once awake
        self.abandoned = False
        self.shared = False  # others want it, too: who does not wait any more has not given it up
        self.done = False
        self.value: T | None = None
        self.error: BaseException | None = None

    @property
    def stuck(self) -> bool:
        """Whether a signal handler asks, and it is set by what that has interrupted: not before it ends."""
        return False

    def submit(self) -> None:
        """Make the request, if it is not made before there is a ticket for it."""

    def resolve(self, value: T) -> None:
        """Here is the answer."""
        self.value = value
        self._finish()

    def fail(self, error: BaseException) -> None:
        """There is no answer, because of `error`."""
        self.error = error
        self._finish()

    @staticmethod
    def wake(tickets: "Sequence[Ticket[T]]") -> None:
        """Those who wait for these tickets have their answers: each that is woken wakes the next.

        Only one thread of Python runs at a time. If all were woken at once they would fight for
        their turn, and each would be woken twice; like this one wakes up while the one before it
        finishes (64 threads: a quarter more sends). Nobody may keep the baton: these are tickets
        whose request is made by the wait itself, and who is interrupted there passes it on.
        """
        for ticket, following in pairwise(tickets):
            ticket._next = following
        for ticket in tickets:
            ticket.done = True
            if ticket._callback is not None:
                ticket.call_back()
                ticket._pass_on()
            elif ticket.abandoned:
                ticket._pass_on()
        tickets[0]._done.release()

    def wait(self) -> T:
        """Block this thread until it is set; the answer, or the error raised."""
        self.wait_done()
        return self.get()

    def wait_done(self) -> None:
        """Block this thread until it is set; an interrupt (Ctrl-C) abandons it."""
        try:
            self.submit()
            while not self.done:
                self._done.acquire()
        except BaseException:
            self.give_up()
            raise
        finally:
            if self.done:
                self._release()  # others may wait for it, too
            if self._next is not None:
                self._pass_on()

    def give_up(self) -> None:
        """Whoever waited does not want it any more."""
        if not self.shared:
            self.abandoned = True

    def wait_for(self, seconds: float | None) -> bool:
        """Block this thread until it is set, `nudge` is called, or the time is over; whether it is set.

        An interrupt leaves it as it is: it can be waited for again.
        """
        self.submit()
        try:
            if not self.done:
                self._done.acquire(timeout=-1 if seconds is None else max(seconds, 0))
        finally:
            if self.done:
                self._release()  # others may wait for it, too
        return self.done

    def nudge(self) -> None:
        """Let go of a thread that is in `wait_for`, or of the next one."""
        self._release()

    def get(self) -> T:
        """The answer of a ticket that is set, or its error raised."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # resolved with a T

    def when_done(self, callback: Callable[[], Any]) -> None:
        """Call back when it is set, from whichever thread sets it; at once if it is set already.

        If it is set just now the call may come twice: the callback must not mind. Several may wait,
        as long as they are of one thread.
        """
        before = self._callback
        self._callback = callback if before is None else lambda: (before(), callback())
        self.submit()
        if self.done:
            callback()
            self._pass_on()

    def _finish(self) -> None:
        self.done = True
        self._release()
        self.call_back()

    def _release(self) -> None:
        if self._done.locked():
            with suppress(RuntimeError):  # it was done just now: somebody was nudged
                self._done.release()

    def call_back(self) -> None:
        """Call back, perhaps once more: who set it may have been interrupted before."""
        if self._callback is None:
            return
        with suppress(Exception):  # an event loop that is gone is not our trouble
            self._callback()

    def _pass_on(self) -> None:
        following = self._next
        if following is not None:
            with suppress(RuntimeError):  # it was done already, here or by another thread
                following._done.release()
            self._next = None  # afterwards: an interrupt in between must not lose it

"""The answer that a request waits for, in a thread or in an event loop."""

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Ticket(Generic[T]):
    """Set once, by `resolve` or `fail`; `abandoned` says that nobody wants it any more.

    A bare lock is the cheapest thing that a thread can wait for: a thousand sends a second or a
    hundred thousand make the difference.
    """

    __slots__ = ("_callback", "_done", "abandoned", "done", "error", "value")

    def __init__(self) -> None:
        self._done = Lock()
        self._done.acquire()
        self._callback: Callable[[], Any] | None = None
        self.abandoned = False
        self.done = False
        self.value: T | None = None
        self.error: BaseException | None = None

    def resolve(self, value: T) -> None:
        """Here is the answer."""
        self.value = value
        self._finish()

    def fail(self, error: BaseException) -> None:
        """There is no answer, because of `error`."""
        self.error = error
        self._finish()

    def _finish(self) -> None:
        self.done = True
        self._done.release()
        if self._callback is not None:
            with suppress(Exception):  # an event loop that is gone is not our trouble
                self._callback()

    def wait(self) -> T:
        """Block this thread until it is set; the answer, or the error raised."""
        self.wait_done()
        return self.get()

    def wait_done(self) -> None:
        """Block this thread until it is set; an interrupt (Ctrl-C) abandons it."""
        try:
            while not self.done:
                with self._done:
                    pass
        except BaseException:
            self.abandoned = True
            raise

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
        if self.done:
            callback()

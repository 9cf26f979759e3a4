"""Going through what a topic holds, page by page, in bounded memory."""

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from quiver import limits
from quiver.client.flows import Flows, Page, Place
from quiver.client.steps import Flow, Work, done

T = TypeVar("T")


class Scan:
    """A topic from its first to its last message of now, oldest first.

    Bodies may be empty or many mebibytes, so a scan begins with few messages and lets the size of
    each page say how many the next one has.
    """

    def __init__(
        self, flows: Flows, number: int, positions: dict[int, int], ends: dict[int, int],
        *, pending: bool = False,
    ) -> None:  # fmt: skip
        self._flows = flows
        self._number = number
        self._positions = positions
        self._ends = ends
        self._pending = pending
        self._messages = limits.PAGE_MESSAGES_FIRST

    @property
    def positions(self) -> dict[int, int]:
        """Where the next page begins, by partition."""
        return self._positions

    @property
    def more(self) -> bool:
        """Whether there may be another page."""
        return any(at < self._ends[part] for part, at in self._positions.items())

    def page(self) -> Flow[Page]:
        """The next messages; there may be none left."""
        page = yield from self._flows.read_page(
            self._number, self._positions, self._ends, pending=self._pending, limit=self._messages
        )
        self._positions = {**self._positions, **page.ahead}
        return page

    def chosen(self, topic: str, condition: str) -> Flow[list[Place]]:
        """Those of the next messages for which a condition holds, if it is asked elsewhere than here."""
        places, self._positions = yield from self._flows.choose(
            topic, self._number, self._positions, self._ends, condition
        )
        return places

    def marked(self) -> Flow[tuple[Page, set[Place]]]:
        """The next messages, and where the pending ones are: those that some group has not settled."""

        page, pending = yield from self._flows.read_marked(
            self._number, self._positions, self._ends, self._messages
        )
        self._positions = {**self._positions, **page.ahead}
        return page, pending

    def table(self, page: Page) -> Flow[pa.Table]:
        """A page as Arrow, with ids."""
        return (yield from self.given(page, lambda table: table))

    def given(self, page: Page, take: Callable[[pa.Table], T]) -> Flow[T]:
        """What `take` makes of a page as Arrow, in the same piece of work: no page waits for its turn."""

        def work() -> tuple[int, int, T]:
            made: pa.Table = page.table()
            return made.num_rows, made.nbytes, take(made)

        messages, nbytes, found = yield from done(Work(work))
        self.saw(messages, nbytes)
        return found

    def saw(self, messages: int, nbytes: int) -> None:
        """How large messages are; a page that only counted them has no bytes at all."""
        fit = limits.PAGE_BYTES * messages // max(nbytes, 1)
        grown = min(fit, 10 * self._messages, limits.PAGE_MESSAGES_MAX)
        self._messages = max(grown, 1) if messages else self._messages

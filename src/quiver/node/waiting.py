"""Parked requests: by topic and group, in the order they came, with their deadlines.

To park one, to take the first of a line and to find those past their deadline costs the same for ten
as for ten thousand. Deadlines are a heap in which requests that have left stay until the next tidying;
that happens after as many arrivals as there were waiters, so it costs each arrival a constant. When
messages become ready by themselves is remembered (`Dues`), and asked again only for topics to which
something has happened.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Generic, Protocol, TypeVar

from quiver.node.tickets import Ticket

TIDY_MIN: Final = 64


class Waiter(Protocol):
    """A request with a deadline, which may be given up before (`ticket.abandoned`)."""

    until_ms: int

    @property
    def ticket(self) -> Ticket: ...  # type: ignore[type-arg]  # of whatever
    @property
    def line(self) -> tuple[int, str | None]:
        """The topic, and the group; a request without a group watches the topic."""


W = TypeVar("W", bound=Waiter)


class WaitingRoom(Generic[W]):
    """Lines of waiters."""

    def __init__(self) -> None:
        self._lines: dict[int, dict[str | None, OrderedDict[int, W]]] = {}
        self._deadlines: list[tuple[int, int, W]] = []  # the numbers tell equal deadlines apart
        self._numbers = count()
        self._arrivals = 0  # since the last tidying
        self._tidy_after = TIDY_MIN

    def __iter__(self) -> Iterator[W]:
        for lines in self._lines.values():
            for line in lines.values():
                yield from line.values()

    def __bool__(self) -> bool:
        return any(not waiter.ticket.abandoned for waiter in self)

    def add(self, waiter: W) -> None:
        """Park one at the end of its line."""
        topic, group = waiter.line
        number = next(self._numbers)
        self._lines.setdefault(topic, {}).setdefault(group, OrderedDict())[number] = waiter
        heappush(self._deadlines, (waiter.until_ms, number, waiter))
        self._arrivals += 1
        if self._arrivals > self._tidy_after:
            self.tidy()

    def topics(self) -> list[int]:
        """Those that have a line."""
        return list(self._lines)

    def groups(self, topic: int) -> list[str | None]:
        """Those that have a line for this topic; None stands for requests that watch it."""
        return list(self._lines.get(topic, ()))

    def line(self, topic: int, group: str | None) -> list[W]:
        """All of a line, in order of arrival."""
        return list(self._lines.get(topic, {}).get(group, {}).values())

    def length(self, topic: int, group: str | None) -> int:
        """How many are in a line."""
        return len(self._lines.get(topic, {}).get(group, ()))

    def take(self, topic: int, group: str | None) -> W:
        """Take the first out of a line, which must not be empty."""
        line = self._lines[topic][group]
        _, waiter = line.popitem(last=False)
        self._forget_if_empty(topic, group)
        return waiter

    def overdue(self, now_ms: int) -> list[W]:
        """Take out those past their deadline."""
        found = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, number, waiter = heappop(self._deadlines)
            if self._leave(number, waiter):
                found.append(waiter)
        return found

    def next_ms(self) -> int | None:
        """The next deadline."""
        while self._deadlines and not self._is_here(*self._deadlines[0][1:]):
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def tidy(self) -> None:
        """Forget abandoned requests and the deadlines of those that left; read deadlines anew."""
        staying = [
            (number, waiter)
            for lines in self._lines.values()
            for line in lines.values()
            for number, waiter in line.items()
            if not waiter.ticket.abandoned
        ]
        self._lines = {}
        for number, waiter in staying:
            topic, group = waiter.line
            self._lines.setdefault(topic, {}).setdefault(group, OrderedDict())[number] = waiter
        self._deadlines = [(waiter.until_ms, number, waiter) for number, waiter in staying]
        heapify(self._deadlines)
        self._arrivals = 0
        self._tidy_after = max(TIDY_MIN, len(staying))

    def _is_here(self, number: int, waiter: W) -> bool:
        topic, group = waiter.line
        return number in self._lines.get(topic, {}).get(group, ())

    def _leave(self, number: int, waiter: W) -> bool:
        if not self._is_here(number, waiter):
            return False
        topic, group = waiter.line
        del self._lines[topic][group][number]
        self._forget_if_empty(topic, group)
        return True

    def _forget_if_empty(self, topic: int, group: str | None) -> None:
        lines = self._lines[topic]
        if not lines[group]:
            del lines[group]
            if not lines:
                del self._lines[topic]


class Dues:
    """When something becomes ready by itself for parked requests, by topic."""

    def __init__(self, ask: Callable[[int], int | None]) -> None:
        self._ask = ask
        self._known: dict[int, int] = {}
        self._changed: dict[int, None] = {}
        self._all_changed = False

    def changed(self, topics: Iterable[int]) -> None:
        """Ask again for these topics."""
        self._changed |= dict.fromkeys(topics)

    def all_changed(self) -> None:
        """Ask again for every topic."""
        self._all_changed = True

    def by_topic(self, waited_for: Callable[[], list[int]]) -> dict[int, int]:
        """The time for each topic that has a line, where there is one."""
        if self._all_changed:
            self._known = {}
            self._changed = dict.fromkeys(waited_for())
            self._all_changed = False
        for topic in self._changed:
            due_ms = self._ask(topic)
            if due_ms is not None:
                self._known[topic] = due_ms
            else:
                self._known.pop(topic, None)
        self._changed = {}
        return self._known

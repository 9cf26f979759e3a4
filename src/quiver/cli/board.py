"""What `quiver top` shows: topics and their groups, as many lines and columns as there is room for."""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from quiver.cli import output
from quiver.model.stats import GroupStats, Overview, StorageStats, TopicStats

NAME_CHARS_MIN: Final = 20
NAME_CHARS_MAX: Final = 50
AROUND: Final = 4  # lines that are not rows: two above, the headings, one below


@dataclass(frozen=True, slots=True)
class Look:
    """What was found at a time of the monotonic clock; the looks before it say how fast it goes."""

    overview: Overview
    seconds: float


class Rates:
    """How fast counters grow between two looks."""

    def __init__(self, now: Look, before: Look | None) -> None:
        self._before = before.overview.topics if before is not None else {}
        self._seconds = now.seconds - before.seconds if before is not None else 0.0

    def of_topic(self, stats: TopicStats) -> float | None:
        """Messages that arrive a second, in whatever way; None if that cannot be known."""
        before = self._before.get(stats.topic)
        return self._rate(stats.arrived, None if before is None else before.arrived)

    def of_group(self, topic: str, stats: GroupStats, field: str) -> float | None:
        """Messages delivered (acked, …) a second."""
        there = self._before.get(topic)
        before = None if there is None else there.groups.get(stats.group)
        return self._rate(getattr(stats, field), None if before is None else getattr(before, field))

    def _rate(self, now: int, before: int | None) -> float | None:
        if before is None or now < before or self._seconds <= 0:  # made again meanwhile
            return None
        return (now - before) / self._seconds


@dataclass(frozen=True, slots=True)
class BoardRow:
    """A topic, or one of its groups."""

    name: str
    lag: int
    ready: int | None
    leased: int
    delayed: int
    oldest: float
    arrived: float | None
    delivered: float | None
    acked: float | None
    failed: float | None
    dead: int
    state: str
    is_group: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, its width, how urgently it is wanted (0 first), and what a row has there."""

    heading: str
    chars: int
    urgency: int
    shown: Callable[[BoardRow], str]


COLUMNS: Final = (
    Column("lag", 9, 0, lambda row: f"{row.lag:,}"),
    Column("ready", 9, 6, lambda row: "" if row.ready is None else f"{row.ready:,}"),
    Column("leased", 7, 2, lambda row: f"{row.leased:,}"),
    Column("delayed", 7, 7, lambda row: f"{row.delayed:,}"),
    Column("oldest", 7, 3, lambda row: output.age(row.oldest)),
    Column("in/s", 8, 1, lambda row: "" if row.is_group else _rate(row.arrived)),
    Column("out/s", 8, 1, lambda row: _rate(row.delivered)),
    Column("acked/s", 8, 8, lambda row: _rate(row.acked)),
    Column("failed/s", 8, 5, lambda row: _rate(row.failed)),
    Column("dead", 7, 4, lambda row: f"{row.dead:,}"),
    Column("state", 12, 9, lambda row: row.state),
)
SORTS: Final[dict[str, Callable[[list[BoardRow]], Any]]] = {  # by the rows of a topic, itself first
    "lag": lambda rows: (-rows[0].lag, rows[0].name),
    "rate": lambda rows: (-(rows[0].arrived or 0) - (rows[0].delivered or 0), rows[0].name),
    "oldest": lambda rows: (-rows[0].oldest, rows[0].name),
    "dead": lambda rows: (-rows[0].dead, rows[0].name),
    "name": lambda rows: rows[0].name,
}


class Board:
    """A look as text. It measures its room when it is drawn, so it may be drawn again after a resize."""

    def __init__(
        self, where: str, now: Look | None, before: Look | None = None, *, sort: str = "lag",
        pattern: str = "*", clock: str = "", trouble: str = "", foot: str = "", fits: bool = False,
    ) -> None:  # fmt: skip
        self._where = where
        self._now = now
        self._before = before
        self._sort = sort
        self._pattern = pattern
        self._clock = clock
        self._trouble = trouble
        self._foot = foot
        self._fits = fits  # no more lines than the terminal has

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it."""
        width = options.max_width
        height = console.size.height if self._fits else None
        yield self._title(width)
        if self._now is None:
            return
        yield _cut(self._summary(self._now.overview), width, "dim")
        topics = self._topics(self._now)
        rows = [row for topic in topics for row in topic]
        room = len(rows) if height is None else max(height - AROUND, 1)
        yield self._table(rows[:room], width)
        left = len(rows) - room
        more = f"{output.count(left, 'more line')}; --topic 'a*' shows fewer" if left > 0 else ""
        if said := " · ".join(filter(None, [more, self._foot])):
            yield _cut(said, width, "dim")

    def _title(self, width: int) -> Text:
        if self._trouble:
            return _cut(f"{self._where}  {self._trouble}", width, "bold red")
        return _cut(f"{self._where}  {self._clock}".rstrip(), width, "bold")

    def _summary(self, overview: Overview) -> str:
        letters = sum(overview.topics[name].depth for name in overview.dead_letter_topics)
        return " · ".join([
            output.count(len(overview.topics), "topic"),
            f"{sum(stats.depth for stats in overview.topics.values()):,} unsettled",
            f"{sum(stats.in_flight for stats in overview.topics.values()):,} leased",
            output.count(letters, "dead letter"),
            *_files(overview.storage),
        ])  # fmt: skip

    def _topics(self, now: Look) -> list[list[BoardRow]]:
        """The rows of each topic that is wanted, in order: its own, then its groups'."""
        rates = Rates(now, self._before)
        letters = frozenset(now.overview.dead_letter_topics)
        found = [
            _rows(stats, rates, is_letters=name in letters)
            for name, stats in now.overview.topics.items()
            if fnmatchcase(name, self._pattern)
        ]
        return sorted(found, key=SORTS[self._sort])

    def _table(self, rows: list[BoardRow], width: int) -> Table:
        columns, left = _fitting(width)
        names = max((len(row.name) + 2 * row.is_group for row in rows), default=0)
        chars = min(max(names, NAME_CHARS_MIN), NAME_CHARS_MAX, left)
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="reverse")
        table.add_column("topic / group", width=chars, no_wrap=True, overflow="ellipsis")
        for column in columns:
            justify: Any = "left" if column.heading == "state" else "right"
            table.add_column(column.heading, width=column.chars, justify=justify, no_wrap=True)
        for row in rows:
            name = f"  {row.name}" if row.is_group else row.name
            style = "" if row.is_group else "bold"
            table.add_row(Text(name, style), *(Text(column.shown(row)) for column in columns))
        return table


def _rows(stats: TopicStats, rates: Rates, *, is_letters: bool) -> list[BoardRow]:
    groups = [_group_row(stats.topic, group, rates) for group in stats.groups.values()]
    topic = BoardRow(
        name=stats.topic,
        lag=stats.depth,
        ready=None,
        leased=stats.in_flight,
        delayed=stats.delayed,
        oldest=stats.oldest_age,
        arrived=rates.of_topic(stats),
        delivered=_sum([group.delivered for group in groups]),
        acked=_sum([group.acked for group in groups]),
        failed=_sum([group.failed for group in groups]),
        dead=sum(group.dead for group in groups),
        state="dead letters" if is_letters else "",
    )
    return [topic, *sorted(groups, key=lambda row: (-row.lag, row.name))]


def _group_row(topic: str, stats: GroupStats, rates: Rates) -> BoardRow:
    failed = [rates.of_group(topic, stats, field) for field in ("nacked", "timed_out")]
    members = output.count(stats.members, "member") if stats.members else ""
    return BoardRow(
        name=stats.group,
        lag=stats.lag,
        ready=stats.ready,
        leased=stats.in_flight,
        delayed=stats.delayed,
        oldest=stats.oldest_age,
        arrived=None,
        delivered=rates.of_group(topic, stats, "delivered"),
        acked=rates.of_group(topic, stats, "acked"),
        failed=_sum(failed),
        dead=stats.dead_lettered,
        state="paused" if stats.paused else members,
        is_group=True,
    )


def _sum(rates: list[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _fitting(width: int) -> tuple[list[Column], int]:
    """The columns there is room for beside a name, in their order; and the room for the name."""
    left, chosen = width, []
    for column in sorted(COLUMNS, key=lambda column: column.urgency):
        if left - column.chars - 1 < NAME_CHARS_MIN:
            break
        left -= column.chars + 1
        chosen.append(column)
    return [column for column in COLUMNS if column in chosen], max(left - 1, 1)


def _rate(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 100 or rate == 0 else f"{rate:.1f}"


def _cut(text: str, width: int, style: str) -> Text:
    made = Text(text, style, no_wrap=True)
    made.truncate(width, overflow="ellipsis")
    return made


def _files(storage: StorageStats | None) -> list[str]:
    if storage is None:  # for those who may observe every topic
        return []
    used = 1 - storage.disk_free_bytes / max(storage.disk_bytes, 1)
    return [
        f"log {output.size(storage.log_bytes)}",
        f"segments {output.size(storage.segment_bytes)}",
        f"disk {used:.0%} full",
    ]

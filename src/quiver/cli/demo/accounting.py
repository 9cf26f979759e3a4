"""The count at the end: what was sent against what the services have on record.

Nothing here is assumed. What was sent is what producers had confirmed; what was done is read from
the effect records; how it came to that is what the queue's statistics and the couriers counted.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import quiver
from quiver.cli.demo.couriers import Tally
from quiver.cli.demo.orders import Order


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """One service: what it did, what happened on the way, and what is wrong."""

    service: str
    sent: int
    processed: int
    retried: int
    timed_out: int
    dead_lettered: int
    redriven: int
    absorbed: int
    lost: list[str]  # orders without an effect
    duplicated: list[str]  # orders with more than one
    unknown: list[str]  # effects without an order


@dataclass(slots=True)
class Crash:
    """A worker that was killed."""

    worker: str
    pid: int
    exit_code: int
    held: int  # messages it had leased
    charged: int  # of these, effects it had done, without an ack


@dataclass(slots=True)
class Restart:
    """The queue was closed and opened: what the groups had before them."""

    waiting_before: dict[str, int]
    waiting_after: dict[str, int]
    seconds: float


@dataclass(slots=True)
class Express:
    """An order with priority: as how many-th it was sent, and delivered to billing."""

    sent_as: int
    delivered_as: int
    overtook: int  # orders that were sent before it and delivered after it


@dataclass(slots=True)
class Reminder:
    """A delayed message: after how many seconds it was due, and came."""

    due: float
    came: float

    @property
    def early(self) -> bool:
        """Whether it came too early; the queue's clock counts whole milliseconds."""
        return self.came < self.due - 0.001


@dataclass(slots=True)
class Analysis:
    """What Spark made of the orders; `skipped` says why there is nothing."""

    skipped: str = ""
    seconds: float = 0.0
    messages: int = 0  # that were read
    parquet: int = 0  # orders in files
    topic: int = 0  # orders in the topic of results
    refused: int = 0  # orders among the pipeline's dead letters
    report: str = ""  # its page
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Account:
    """Everything that the demo found out."""

    data: str = ""
    seconds: float = 0.0
    orders: int = 0
    services: list[ServiceAccount] = field(default_factory=list)
    crash: Crash | None = None
    restart: Restart | None = None
    express: Express | None = None
    reminder: Reminder | None = None
    dead_letters: dict[str, int] = field(default_factory=dict)  # by reason, before the redrive
    redriven: int = 0
    dead_letters_left: int = 0
    cents_ordered: int = 0
    cents_charged: int = 0
    out_of_order: int = 0  # charges before an earlier order of the same customer was charged
    analysis: Analysis | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """How many orders lack an effect, over all services."""
        return sum(len(service.lost) for service in self.services)

    @property
    def duplicated(self) -> int:
        """How many orders have an effect twice, over all services."""
        return sum(len(service.duplicated) for service in self.services)


def account_for(
    stats: quiver.GroupStats,
    tally: Tally,
    sent: Iterable[str],
    effects: Iterable[str],
    redriven: int,
) -> ServiceAccount:
    """Compare the orders that were sent with those that have an effect, by order id."""
    wanted, times = set(sent), Counter(effects)
    return ServiceAccount(
        service=stats.group,
        sent=len(wanted),
        processed=len(wanted & times.keys()),
        retried=tally.retried,
        timed_out=stats.timed_out,
        dead_lettered=stats.dead_lettered,
        redriven=redriven,
        absorbed=tally.absorbed,
        lost=sorted(wanted - times.keys()),
        duplicated=sorted(order for order, count in times.items() if count > 1),
        unknown=sorted(times.keys() - wanted),
    )


def count_out_of_order(charged: Iterable[str], orders: dict[str, Order]) -> int:
    """How many orders were charged after a later one of the same customer; ids grow with time."""
    latest: dict[str, str] = {}
    late = 0
    for order_id in charged:
        if order_id not in orders:
            continue  # counted as unknown already
        customer = orders[order_id].customer
        late += order_id < latest.get(customer, "")
        latest[customer] = max(order_id, latest.get(customer, ""))
    return late


def count_overtaken(late: str, before: Iterable[str], turn: dict[str, int]) -> int:
    """How many orders that were sent before the order `late` had their turn after it."""
    return sum(turn[order_id] > turn[late] for order_id in before)


def find_problems(account: Account) -> list[str]:
    """Whatever is not as it must be, as sentences."""
    found: list[str] = []
    for each in account.services:
        for what in ("lost", "duplicated", "unknown"):
            orders: list[str] = getattr(each, what)
            if orders:
                found.append(f"{each.service}: {what} {len(orders)}: {_some(orders)}")
    if account.cents_charged != account.cents_ordered:
        found.append(f"charged {account.cents_charged} of {account.cents_ordered} cents")
    if account.reminder is not None and account.reminder.early:
        found.append(f"the reminder came after {account.reminder.came:.3f} s, too early")
    if account.dead_letters_left:
        found.append(f"{account.dead_letters_left} dead letters are left after the redrive")
    return found


def _some(orders: list[str]) -> str:
    shown = ", ".join(orders[:5])
    return shown if len(orders) <= 5 else f"{shown} and {len(orders) - 5} more"

"""The story, a method a chapter. This is the part that shows how the queue is used."""

import time
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final, Self, TypeVar

import quiver
from quiver.cli.demo.accounting import (
    Account,
    Crash,
    Express,
    Reminder,
    Restart,
    account_for,
    count_out_of_order,
    count_overtaken,
    find_problems,
)
from quiver.cli.demo.couriers import LEASE_SECONDS
from quiver.cli.demo.crew import Crew
from quiver.cli.demo.effects import EffectBook, read_effects
from quiver.cli.demo.orders import Order, make_express_order, make_orders
from quiver.cli.demo.screen import Screen
from quiver.cli.demo.services import SERVICES, ServiceName, book_path

T = TypeVar("T")

SEED: Final = 2026
ORDERS_BEFORE_OPENING: Final = 2_000
ORDERS_WHILE_OPEN: Final = 1_000
PRODUCERS: Final = 2
WORKERS: Final[dict[ServiceName, int]] = {"billing": 2, "inventory": 1, "notifications": 2}
REMINDER_SECONDS: Final = 2.0
PATIENCE_SECONDS: Final = 90.0  # for anything that is waited for; it takes a few seconds
LOOK_SECONDS: Final = 0.1  # between two looks at what is waited for


class Stuck(Exception):
    """Something that must happen did not, in a time that is ample."""


class DemoStory:
    """An order system on a queue in a folder, from the first order to the last mail."""

    def __init__(self, folder: Path, screen: Screen) -> None:
        self._folder = folder
        self._screen = screen
        self._directory = folder / "queue"  # the services keep their records next to it
        self._dice = Random(SEED)
        self._stream = make_orders(self._dice)
        self._express = make_express_order(self._dice)
        self._orders: dict[str, Order] = {}  # all that are stored, by id, in the order of sending
        self._redriven: Counter[str] = Counter()  # by group
        self._account = Account(data=str(self._directory))
        self._crew = Crew(folder)
        self._queue = quiver.connect(self._directory)

    def tell(self) -> Account:
        """Everything, in order."""
        began = time.monotonic()
        self._create_topics()
        self._orders_arrive()
        self._services_open()
        self._a_worker_is_killed()
        self._the_queue_restarts()
        self._business_goes_on()
        self._dead_letters_are_redriven()
        self._everything_is_counted()
        self._account.seconds = round(time.monotonic() - began, 1)
        return self._account

    @property
    def orders(self) -> Collection[str]:
        """The ids of all that were placed."""
        return self._orders.keys()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._crew.close()
        finally:
            self._queue.close()

    # -- chapters ----------------------------------------------------------------------------------

    def _create_topics(self) -> None:
        self._queue.create_topic(
            "orders",
            partitions=4,
            order="key",  # the key is the customer: a customer's orders are worked on one by one
            max_attempts=3,
            dead_letter="orders.dlq",
            retry=quiver.retry("exponential", base=0.2, cap=5),
            retention="1d",  # the services are not all who want them: see `analysis`
        )
        for service in SERVICES:
            self._queue.create_group("orders", service)
        self._queue.create_topic("shipments", partitions=4)
        self._queue.create_topic("reminders")

    def _orders_arrive(self) -> None:
        self._screen.chapter("Orders arrive")
        for service, workers in WORKERS.items():
            self._crew.hire(service, workers)  # processes take a moment to start: begin now
        self._place(ORDERS_BEFORE_OPENING)
        self._queue.send("orders", asdict(self._express), key=self._express.customer, priority=9)
        self._orders[self._express.id] = self._express
        self._screen.say("behind them all, one express order with priority 9")

    def _services_open(self) -> None:
        self._screen.chapter("The services open")
        self._crew.wait_ready()
        self._crew.work(self._queue)
        staff = ", ".join(f"{workers} x {service}" for service, workers in WORKERS.items())
        self._screen.say(f"worker processes: {staff}")

    def _a_worker_is_killed(self) -> None:
        courier = self._wait_for("a worker that hangs", self._crew.stranded)
        worker = courier.worker
        exit_code = self._crew.kill(worker)
        with EffectBook(book_path(self._folder, "billing")) as book:
            charged = book.count_handled(delivery.id for delivery in courier.stranded)
        crash = Crash(worker.name, worker.pid, exit_code, len(courier.stranded), charged)
        self._account.crash = crash
        self._screen.chapter("A worker is killed")
        self._screen.say(
            f"SIGKILL to {crash.worker} (pid {crash.pid}): it held {crash.held} orders, "
            f"{crash.charged} charged, none acked"
        )

    def _the_queue_restarts(self) -> None:
        self._screen.chapter("The queue restarts")
        self._crew.pause()
        before = self._waiting()
        began = time.monotonic()
        self._queue.close()
        self._queue = quiver.connect(self._directory)
        seconds = time.monotonic() - began
        restart = Restart(before, self._waiting(), round(seconds, 3))
        self._account.restart = restart
        self._crew.work(self._queue)
        self._screen.say(
            f"closed and opened in {restart.seconds:.2f} s; orders waiting: "
            f"{sum(before.values()):,} before, {sum(restart.waiting_after.values()):,} after"
        )

    def _business_goes_on(self) -> None:
        self._screen.chapter("Business goes on")
        self._place(ORDERS_WHILE_OPEN)
        self._a_reminder_is_delayed()
        self._the_dead_workers_leases_end()
        self._wait_until_drained()
        absorbed = self._crew.tallies["billing"].absorbed
        self._screen.say(
            f"billing absorbed {absorbed} orders that came again after it charged them"
        )
        self._the_express_order_overtook()

    def _a_reminder_is_delayed(self) -> None:
        began = time.monotonic()
        self._queue.send("reminders", b"did you like it?", delay=REMINDER_SECONDS)
        reminders = self._wait_for(
            "the reminder", lambda: self._queue.receive("reminders", wait=LOOK_SECONDS), pause=0
        )
        reminder = Reminder(REMINDER_SECONDS, round(time.monotonic() - began, 3))
        self._queue.ack(reminders)
        self._account.reminder = reminder
        self._screen.say(f"a reminder due in {reminder.due:.3f} s came after {reminder.came:.3f} s")

    def _the_dead_workers_leases_end(self) -> None:
        crash = self._account.crash
        assert crash is not None
        self._wait_for(
            "the dead worker's leases to end",
            lambda: self._queue.groups("orders")["billing"].timed_out >= crash.held,
        )
        self._screen.say(
            f"the leases of {crash.worker} ({LEASE_SECONDS:.0f} s) ended; another worker has its orders"
        )

    def _the_express_order_overtook(self) -> None:
        sent_as = list(self._orders).index(self._express.id) + 1
        turn = self._crew.tallies["billing"].turn
        before = list(self._orders)[: sent_as - 1]
        overtook = count_overtaken(self._express.id, before, turn)
        express = Express(sent_as, turn[self._express.id], overtook)
        self._account.express = express
        self._screen.say(
            f"the express order, sent as no. {express.sent_as:,}, came as no. "
            f"{express.delivered_as:,}: it overtook {express.overtook:,}"
        )

    def _dead_letters_are_redriven(self) -> None:
        self._screen.chapter("Dead letters")
        letters = [letter.origin for letter in self._queue.read("orders.dlq") if letter.origin]
        self._account.dead_letters = dict(Counter(letter.reason for letter in letters))
        self._redriven = Counter(letter.group for letter in letters)
        self._screen.show_dead_letters(letters)
        self._repair_notifications()
        absorbed = self._absorbed()
        self._account.redriven = self._queue.redrive("orders.dlq")
        self._wait_until_drained()
        self._screen.say(
            f"{self._account.redriven} redriven, all settled; services that had done them before "
            f"got {self._absorbed() - absorbed} of them again"
        )

    def _repair_notifications(self) -> None:
        """As one deploys a fix: the old workers go, a new one comes."""
        self._crew.pause()
        self._crew.dismiss("notifications")
        self._crew.hire("notifications", 1, repaired=True)
        self._crew.wait_ready()
        self._crew.work(self._queue)
        self._screen.say("mail server repaired, addresses corrected")

    def _everything_is_counted(self) -> None:
        account = self._account
        charges = read_effects(book_path(self._folder, "billing"))
        mails = read_effects(book_path(self._folder, "notifications"))
        effects = {
            "billing": [charge.order_id for charge in charges],
            "inventory": [record.json()["order_id"] for record in self._queue.read("shipments")],
            "notifications": [mail.order_id for mail in mails],
        }
        groups = self._queue.groups("orders")
        account.orders = len(self._orders)
        account.services = [
            account_for(
                groups[service],
                self._crew.tallies[service],
                self._orders,
                effects[service],
                self._redriven[service],
            )
            for service in SERVICES
        ]
        account.cents_ordered = sum(order.cents for order in self._orders.values())
        account.cents_charged = sum(charge.cents for charge in charges)
        account.out_of_order = count_out_of_order(effects["billing"], self._orders)
        account.dead_letters_left = self._queue.stats("orders.dlq").depth
        account.problems = find_problems(account)

    # -- what the chapters share -------------------------------------------------------------------

    def _place(self, count: int) -> None:
        """Producers place orders at the same time; all orders of a customer go through one."""
        orders = list(islice(self._stream, count))
        shares: list[list[Order]] = [[] for _ in range(PRODUCERS)]
        for order in orders:
            shares[int(order.customer[-1]) % PRODUCERS].append(order)
        began = time.monotonic()
        with ThreadPoolExecutor(PRODUCERS) as pool:
            stored = sum(pool.map(self._produce, shares))
        seconds = time.monotonic() - began
        assert stored == count, "closing a producer confirms everything, or raises"
        self._orders |= {order.id: order for order in orders}
        self._screen.say(
            f"{PRODUCERS} producers placed {count:,} orders in {seconds:.2f} s, synced to disk"
        )

    def _produce(self, orders: list[Order]) -> int:
        with self._queue.producer("orders") as producer:
            for order in orders:
                producer.send(asdict(order), key=order.customer)
        return producer.confirmed

    def _waiting(self) -> dict[str, int]:
        return {name: group.lag for name, group in self._queue.groups("orders").items()}

    def _absorbed(self) -> int:
        return sum(tally.absorbed for tally in self._crew.tallies.values())

    def _wait_until_drained(self) -> None:
        self._wait_for("all orders to be settled", lambda: not any(self._waiting().values()))

    def _wait_for(
        self, what: str, look: Callable[[], T | None], *, pause: float = LOOK_SECONDS
    ) -> T:
        """Look again and again until there is something; meanwhile show how far the services are."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := look()):
            self._crew.raise_problems()
            self._screen.show_progress(self._queue.stats("orders"))
            if time.monotonic() > deadline:
                raise Stuck(f"waited {PATIENCE_SECONDS:.0f} s in vain for {what}")
            time.sleep(pause)
        self._screen.show_progress(self._queue.stats("orders"))
        return found

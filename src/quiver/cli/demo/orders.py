"""The orders: what customers buy, and the mail addresses that will make trouble."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

CUSTOMERS: Final = 240
BAD_ADDRESS_SHARE: Final = 0.008
DEAD_SERVER_SHARE: Final = 0.012
DEAD_SERVER: Final = "down.example"  # no mail server answers there, until it is repaired


@dataclass(frozen=True, slots=True)
class Order:
    """What a customer bought, and the address that was typed in at the checkout."""

    id: str
    customer: str
    cents: int
    email: str


def make_orders(dice: Random) -> Iterator[Order]:
    """Orders without end, numbered in the order they are placed."""
    number = 0
    while True:
        number += 1
        customer = f"customer-{dice.randrange(CUSTOMERS):03}"
        yield Order(f"order-{number:05}", customer, dice.randrange(500, 20_000), _email(dice))


def make_express_order(dice: Random) -> Order:
    """The one order that cannot wait."""
    return Order("order-express", "customer-express", dice.randrange(500, 20_000), "vip@ok.example")


def _email(dice: Random) -> str:
    roll = dice.random()
    if roll < BAD_ADDRESS_SHARE:
        return "typo.ok.example"
    if roll < BAD_ADDRESS_SHARE + DEAD_SERVER_SHARE:
        return f"someone@{DEAD_SERVER}"
    return "someone@ok.example"

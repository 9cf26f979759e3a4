"""What a service has done, in an SQLite file: the idempotent consumer.

A message may be delivered more than once: a worker can die after the effect and before the ack. So
the effect and the message's id are written in one transaction, and a message whose id is there
already changes nothing. The message id stays the same over retries, dead letter and redrive.

`effects` itself allows an order twice. The idempotence is in `handled`, and the final count looks
at `effects`: if the first is broken, the second shows it.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

BUSY_SECONDS: Final = 30.0  # how long to wait for another worker of the service to commit
TABLES: Final = """
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS handled (message_id TEXT PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS effects (order_id TEXT NOT NULL, cents INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Effect:
    """Something was done for an order, once."""

    order_id: str
    cents: int


class EffectBook:
    """The record of one service; its workers share the file."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, timeout=BUSY_SECONDS)
        self._database.executescript(TABLES)

    def record(self, message_id: str, effect: Effect) -> bool:
        """Do the effect, unless the message was handled before; say whether it was done."""
        with self._database as transaction:
            fresh = transaction.execute(
                "INSERT OR IGNORE INTO handled VALUES (?)", (message_id,)
            ).rowcount
            if fresh:
                transaction.execute(
                    "INSERT INTO effects VALUES (?, ?)", (effect.order_id, effect.cents)
                )
        return bool(fresh)

    def effects(self) -> list[Effect]:
        """Everything that was done, in the order it was done."""
        rows = self._database.execute("SELECT order_id, cents FROM effects ORDER BY rowid")
        return [Effect(order_id, cents) for order_id, cents in rows]

    def count_handled(self, message_ids: Iterable[str]) -> int:
        """How many of these messages were handled."""
        question = "SELECT count(*) FROM handled WHERE message_id = ?"
        return sum(self._database.execute(question, (one,)).fetchone()[0] for one in message_ids)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()


def read_effects(path: Path) -> list[Effect]:
    """The effects in a service's file."""
    with EffectBook(path) as book:
        return book.effects()

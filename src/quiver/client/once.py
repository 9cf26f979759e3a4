"""The idempotent consumer: effects outside the queue, once per message."""

import sys
from typing import Any, Final

from quiver.client.results import Leased
from quiver.errors import InvalidRequest

MARKS: Final = {"qmark": "?", "format": "%s", "pyformat": "%s"}


def once(connection: Any, delivery: Leased) -> bool:
    """Whether your database sees this message for the first time; it will not the next time.

    Call it inside the transaction that makes the effect, on the same DB-API connection (SQLite or
    PostgreSQL). The mark and the effect are then committed together or not at all, so a message that
    is delivered twice has its effect once:

        with connection:                                  # a transaction of yours
            if quiver.once(connection, delivery):
                connection.execute("update …")
        delivery.ack()

    Marks are rows of the table `quiver_once`, which is made if it is missing. Delete those that are
    older than any redelivery or redrive you expect.

    Args:
        connection: A DB-API connection to SQLite or PostgreSQL, in a transaction of yours.
        delivery: The message.
    """
    module = sys.modules[type(connection).__module__.partition(".")[0]]
    mark = MARKS.get(getattr(module, "paramstyle", ""))
    if mark is None:
        raise InvalidRequest(
            "once() needs a DB-API connection to SQLite or PostgreSQL, not a "
            f"{type(connection).__name__}"
        )
    cursor = connection.cursor()
    try:
        cursor.execute(
            "create table if not exists quiver_once (topic text not null, consumers text not null, "
            "message text not null, marked_at timestamp not null default current_timestamp, "
            "primary key (topic, consumers, message))"
        )
        cursor.execute(
            "insert into quiver_once (topic, consumers, message) "  # noqa: S608  # mark is ours
            f"values ({mark}, {mark}, {mark}) on conflict do nothing",
            (delivery.topic, delivery.group, delivery.id),
        )
        return bool(cursor.rowcount == 1)
    finally:
        cursor.close()

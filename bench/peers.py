"""What Quiver is held against, each with its best durable settings, verified."""

import os
import sqlite3
from pathlib import Path

import litequeue
import persistqueue

from quiver import limits

FULL = 2  # PRAGMA synchronous: in WAL mode, every commit is synced before it returns


class NotDurable(Exception):
    """A peer does not sync what it confirms, so it cannot be compared."""


class PersistQueue:
    """`persistqueue.SQLiteAckQueue` as it comes: SQLite's default is FULL, and it keeps that.

    Its API has no batches. `auto_commit=False` is refused by the ack queue, and the plain
    SQLiteQueue of version 1.1 takes it but commits (and syncs) every put all the same.
    """

    settings = (
        "SQLiteAckQueue as it comes, a synced commit each put (PRAGMA says: journal_mode=wal, "
        "synchronous=2, which is FULL)"
    )

    def __init__(self, folder: Path) -> None:
        self._queue = persistqueue.SQLiteAckQueue(str(folder / "persist-queue"))
        demand_full(self._queue._putter)

    def put(self, body: bytes) -> int:
        self._queue.put(body)
        return 1

    def take(self) -> int:
        """Get one message and ack it: two commits."""
        self._queue.ack(self._queue.get(block=False))
        return 1

    def close(self) -> None:
        self._queue.close()


class LiteQueue:
    """`litequeue.LiteQueue`, made durable: it sets synchronous=NORMAL, which loses confirmed messages."""

    settings = (
        "LiteQueue on whose connection we set synchronous=FULL, as its own NORMAL would not sync "
        "what it confirms (PRAGMA says: journal_mode=wal, synchronous=2, which is FULL)"
    )

    def __init__(self, folder: Path) -> None:
        self._queue = litequeue.LiteQueue(folder / "litequeue.db")
        self._queue.conn.execute("PRAGMA synchronous = FULL")
        demand_full(self._queue.conn)

    def put(self, text: str) -> int:
        self._queue.put(text)
        return 1

    def put_many(self, texts: list[str]) -> int:
        """All in one transaction, synced once: the nearest it has to a batch."""
        with self._queue.transaction():
            for text in texts:
                self._queue.put(text)
        return len(texts)

    def take(self) -> int:
        """Pop one message and mark it done: two commits."""
        self._queue.done(self._queue.pop().message_id)
        return 1

    def close(self) -> None:
        self._queue.close()


class BareLoop:
    """The least that can be done in Python: write the bytes behind the others and sync them.

    With `reserve` the space is allocated ahead, in the steps of Quiver's log: then the file does not
    grow with every write, and a sync has less to do. That is the harder one to keep up with.
    """

    def __init__(self, folder: Path, *, reserve: bool) -> None:
        path = folder / f"bare-{reserve}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._reserve = reserve
        self._room = 0
        self._end = 0

    def write(self, data: bytes) -> None:
        if self._reserve and self._end + len(data) > self._room:
            os.posix_fallocate(self._file, self._room, limits.WAL_ALLOCATE_BYTES)
            self._room += limits.WAL_ALLOCATE_BYTES
        written = os.pwrite(self._file, data, self._end)
        assert written == len(data)
        self._end += written
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


def demand_full(connection: sqlite3.Connection) -> None:
    """What SQLite itself says: it syncs every commit."""
    synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
    journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if synchronous < FULL or journal != "wal":
        raise NotDurable(f"synchronous={synchronous}, journal_mode={journal}")

"""What happened to messages, written down as it happens: an output of the core, not a part of its state.

A row says that one thing happened to a range of messages of a partition. Rows gather here until
somebody takes them; a row that continues the one before it (same entry, same event, next offsets)
makes that one longer. An entry that is applied again gives the same rows again, so whoever keeps
them may forget what came after a snapshot: the log has it.

Nothing here may influence what the core decides.
"""

from quiver import limits
from quiver.model.ledger import FIXED_BYTES, MOVING, ROW, Event, LedgerRows


class Ledger:
    """Rows that nobody has taken yet."""

    __slots__ = ("_data", "_first", "_index", "_last", "_names", "_now_ms")

    def __init__(self, after: int = 0) -> None:
        """No rows; the first will be of a later entry than `after`."""
        self._index = after
        self._now_ms = 0
        self._clear()

    def _clear(self) -> None:
        self._data = bytearray()
        self._names = _Names()
        self._first = self._index + 1
        self._last = b""  # the last row of this entry, if there is one

    def at(self, index: int, now_ms: int) -> None:
        """What comes next happens in this entry."""
        self._index = index
        self._now_ms = now_ms
        self._last = b""

    def add(
        self, event: Event, topic: str, partition: int, start: int, end: int, group: str = "",
        consumer: str = "", attempt: int = 0, reason: str = "", until_ms: int = 0,
        to_topic: str = "", to_partition: int = -1, also: int = -1,
    ) -> None:  # fmt: skip
        """It happened to `start … end`. `also` is the row (sent) or offset (moved) of the first."""
        names = self._names
        row = ROW.pack(
            self._now_ms, self._index, event, names[topic], partition,
            names[group] if group else 0, names[consumer] if consumer else 0, attempt,
            names[reason] if reason else 0, until_ms, names[to_topic] if to_topic else 0,
            to_partition, start, end - start, start if also < 0 else also,
        )  # fmt: skip
        if self._last:
            row = self._joined(row)
        self._data += row
        self._last = row

    def _joined(self, row: bytes) -> bytes:
        """The row, or, if it continues the last one, both as one in place of that."""
        last = self._last
        if row[:FIXED_BYTES] != last[:FIXED_BYTES]:
            return row
        start, count, also = MOVING.unpack_from(last, FIXED_BYTES)
        next_start, more, next_also = MOVING.unpack_from(row, FIXED_BYTES)
        if (next_start, next_also) != (start + count, also + count):
            return row
        del self._data[-len(row) :]
        return row[:FIXED_BYTES] + MOVING.pack(start, count + more, also)

    @property
    def is_full(self) -> bool:
        """Whether somebody should take the rows, to keep the memory they need in bounds."""
        return (
            len(self._data) >= limits.LEDGER_ROWS_MAX * ROW.size
            or self._names.chars >= limits.LEDGER_CHARS_MAX
        )

    def peek(self) -> LedgerRows | None:
        """A copy of the rows."""
        if not self._data:
            return None
        return LedgerRows(self._first, self._index, bytes(self._data), tuple(self._names))

    def take(self) -> LedgerRows | None:
        """The rows of all entries since they were taken last; they are somebody else's now."""
        rows = self.peek()
        self._clear()
        return rows


class NoLedger(Ledger):
    """For topics that keep none."""

    __slots__ = ()

    def add(self, *_: object, **__: object) -> None:
        """It does not matter."""


class _Names(dict[str, int]):
    """Texts by number, in the order they came."""

    def __init__(self) -> None:
        super().__init__({"": 0})
        self.chars = 0

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        self.chars += len(text)
        return number

"""Errors and warnings as they travel: what a node says, and what a caller gets."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec

from quiver import limits
from quiver.errors import (
    BehindRetention,
    QuiverError,
    QuotaExceeded,
    ReceiptExpired,
    StorageFailed,
    Unauthenticated,
    UnreadableMessages,
)
from quiver.notices import Notice

UNSURE: Final = ("internal_error", StorageFailed.code)  # the node may have done it all the same
WHERE_TOKENS_GO: Final = "Give one in QUIVER_TOKEN, or in the address: quiver://TOKEN@host:port"


class Trouble(msgspec.Struct, frozen=True, array_like=True):
    """An error: `code` is that of the Python error, `refused` has receipts, `after` is in seconds."""

    code: str
    detail: str
    refused: tuple[Any, ...] = ()
    after: float | None = None

    @classmethod
    def of(cls, error: QuiverError) -> "Trouble":
        """What is told of an error."""
        refused = tuple(error.refused) if isinstance(error, ReceiptExpired) else ()
        after = error.retry_after if isinstance(error, QuotaExceeded) else None
        return cls(error.code, str(error), refused, after)

    def error(self) -> QuiverError:
        """The error that it tells of."""
        kind = errors().get(self.code, QuiverError)
        if issubclass(kind, ReceiptExpired):
            return kind(self.detail, self.refused)
        if issubclass(kind, Unauthenticated):
            return kind(f"{self.detail}. {WHERE_TOKENS_GO}")
        if issubclass(kind, QuotaExceeded) and self.after is not None:
            return kind(self.detail, self.after)
        return kind(self.detail)


class Warned(msgspec.Struct, frozen=True, array_like=True):
    """What a caller should be warned of: see `BehindRetention`, and `UnreadableMessages`."""

    message: str
    topic: str = ""
    group: str = ""
    count: int = 0
    unreadable: bool = False

    @classmethod
    def all_of(cls, notices: Sequence[Notice]) -> "tuple[Warned, ...]":
        """As many as an answer has room for, and the first in any case."""
        told: list[Warned] = []
        room = limits.WARNINGS_BYTES_MAX
        for notice in notices[: limits.NOTICES_MAX]:
            told.append(cls.of(notice))
            room -= len(told[-1].message)
            if room <= 0:
                break
        return tuple(told)

    @classmethod
    def of(cls, notice: Notice) -> "Warned":
        """What is told of a warning."""
        text = str(notice)[: limits.WARNING_CHARS_MAX]
        if isinstance(notice, UnreadableMessages):
            return cls(text, unreadable=True)
        return cls(text, notice.topic, notice.group, notice.count)

    def notice(self) -> Notice:
        """The warning that it tells of."""
        if self.unreadable:
            return UnreadableMessages(self.message)
        return BehindRetention(self.message, self.topic, self.group, self.count)


@cache
def errors() -> dict[str, type[QuiverError]]:
    """Every error by its code."""
    found: dict[str, type[QuiverError]] = {}
    waiting: list[type[QuiverError]] = [QuiverError]
    while waiting:
        kind = waiting.pop()
        found.setdefault(kind.code, kind)  # not one that only has other words for it
        waiting += kind.__subclasses__()
    return found

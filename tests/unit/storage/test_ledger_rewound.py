"""The ledger's files after the queue's time was set back: a file may be younger than those behind it."""

import pytest

from quiver import limits
from quiver.storage.ledger import LedgerSpan, spans
from tests.unit.storage.test_ledger import DAY_MS, entries, open_book, rows, saved

WRONG_MS = 20_000 * DAY_MS


@pytest.mark.parametrize("most", [2, 3, 4])
def test_what_is_old_goes_and_nothing_else(files, monkeypatch, most):
    monkeypatch.setattr(limits, "LEDGER_FILES_MAX", 100)
    book = open_book(files)
    saved(book, rows(1, 1, WRONG_MS), WRONG_MS)
    for day in range(2, 9):
        saved(book, rows(day, day), day * DAY_MS)
    monkeypatch.setattr(limits, "LEDGER_FILES_MAX", most)
    saved(book, None, 34 * DAY_MS)  # days 2 and 3 are over
    assert entries(book) == [1, 4, 5, 6, 7, 8]
    assert LedgerSpan(2, 2) not in spans(files)
    assert LedgerSpan(3, 3) not in spans(files)

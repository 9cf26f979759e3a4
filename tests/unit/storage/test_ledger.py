"""The ledger's files: what is kept, merged, dropped, and noticed to be broken."""

import pyarrow.parquet as pq
import pytest

from quiver import limits
from quiver.core.delivery.ledger import Ledger
from quiver.errors import CorruptLedger, DiskFull, StorageFailed
from quiver.model.ledger import Event, LedgerRows
from quiver.storage.doctor import inspect
from quiver.storage.files import DiskFiles
from quiver.storage.ledger import LedgerFiles, LedgerSpan, _grouped, spans
from quiver.testing import MemoryFiles

DAY_MS = 86_400_000


def no_rest() -> None:
    pass


def rows(first: int, last: int, time_ms: int | None = None) -> LedgerRows:
    """A row for each entry; an entry a day."""
    ledger = Ledger(after=first - 1)
    for index in range(first, last + 1):
        ledger.at(index, index * DAY_MS if time_ms is None else time_ms)
        ledger.add(Event.SENT, "t", 0, index, index + 1, also=0)
    made = ledger.take()
    assert made is not None
    return made


def saved(book: LedgerFiles, found: LedgerRows | None, now_ms: int) -> None:
    page = book.begin(found, now_ms)
    page.save(no_rest)
    page.tidy(no_rest)
    book.finish(page)


def entries(book: LedgerFiles, **wanted) -> list[int]:
    tables = book.reading(None).tables(**wanted)
    return [entry for table in tables for entry in table["entry"].to_pylist()]


def open_book(files, after: int = 10**9, days: int = 30) -> LedgerFiles:
    book = LedgerFiles(files, after, days * DAY_MS)
    book.clean()
    return book


def test_rows_come_back_in_order_from_files_and_memory(files):
    book = open_book(files)
    saved(book, rows(1, 3), 0)
    saved(book, rows(4, 4), 0)
    page = book.begin(rows(5, 6), 0)
    tables = book.reading(rows(7, 8)).tables()
    assert [entry for table in tables for entry in table["entry"].to_pylist()] == [*range(1, 9)]
    page.save(no_rest)  # on disk, and not yet confirmed by a snapshot: still only once
    assert entries(book) == [*range(1, 7)]
    book.finish(page)
    assert entries(book) == [*range(1, 7)]
    assert spans(files) == [LedgerSpan(1, 3), LedgerSpan(4, 4), LedgerSpan(5, 6)]


def test_no_file_is_made_of_nothing(files):
    book = open_book(files)
    saved(book, None, 0)
    assert spans(files) == []
    assert entries(book) == []


def test_any_tool_can_read_a_file(tmp_path):
    saved(open_book(DiskFiles(tmp_path)), rows(1, 3), 0)
    table = pq.read_table(tmp_path / LedgerSpan(1, 3).name)
    assert table["event"].to_pylist() == ["sent"] * 3
    assert table["topic"].to_pylist() == ["t"] * 3


def test_opening_removes_what_the_log_will_tell_again(files):
    book = open_book(files)
    saved(book, rows(1, 3), 0)
    saved(book, rows(4, 9), 0)
    assert entries(open_book(files, after=5)) == [1, 2, 3]
    assert spans(files) == [LedgerSpan(1, 3)]


def test_opening_removes_what_a_merge_left_behind(files):
    for first, last in ((1, 3), (4, 6), (7, 9)):
        saved(open_book(files), rows(first, last), 0)
    merged = open_book(MemoryFiles()).begin(rows(1, 6), 0)
    merged.files = files
    merged.save(no_rest)
    assert spans(files) == [LedgerSpan(1, 3), LedgerSpan(1, 6), LedgerSpan(4, 6), LedgerSpan(7, 9)]
    assert entries(open_book(files)) == [*range(1, 10)]
    assert spans(files) == [LedgerSpan(1, 6), LedgerSpan(7, 9)]


def test_many_small_files_become_few(files, monkeypatch):
    monkeypatch.setattr(limits, "LEDGER_FILES_MAX", 6)
    book = open_book(files, days=10_000)
    for index in range(1, 40):
        saved(book, rows(index, index), 0)
        assert len(spans(files)) <= 6
    assert entries(book) == [*range(1, 40)]
    assert entries(open_book(files)) == [*range(1, 40)]


def test_merged_rows_are_in_row_groups_worth_reading(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LEDGER_FILES_MAX", 4)
    monkeypatch.setattr(limits, "LEDGER_GROUP_ROWS", 5)
    book = open_book(DiskFiles(tmp_path))
    for index in range(1, 15):
        saved(book, rows(index, index, time_ms=0), 0)
    sizes = []
    for span in spans(DiskFiles(tmp_path)):
        metadata = pq.read_metadata(tmp_path / span.name)
        sizes.append([metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)])
    assert sizes == [[5, 5, 1], [1], [1], [1]]


def test_neighbours_that_span_least_time_are_merged():
    found = [(LedgerSpan(at, at), start, end) for at, (start, end) in enumerate(
        [(0, 100), (100, 200), (200, 210), (210, 220), (220, 300)])]  # fmt: skip
    groups = _grouped(found, 3)
    assert [[span.first for span in group] for group in groups] == [[0], [1], [2, 3, 4]]
    assert _grouped(found, 5) == [[span] for span, _, _ in found]


def test_a_merge_finds_no_room_and_waits(monkeypatch):
    monkeypatch.setattr(limits, "LEDGER_FILES_MAX", 2)
    files = MemoryFiles()
    book = open_book(files)
    for index in (1, 2):
        saved(book, rows(index, index), 0)
    page = book.begin(rows(3, 3), 0)
    page.save(no_rest)
    files.capacity_bytes = files.used_bytes
    page.tidy(no_rest)
    book.finish(page)
    assert spans(files) == [LedgerSpan(1, 1), LedgerSpan(2, 2), LedgerSpan(3, 3)]
    files.capacity_bytes = None
    saved(book, None, 0)
    assert len(spans(files)) < 3
    assert entries(book) == [1, 2, 3]
    assert not [name for name in files.names() if name.endswith(".tmp")]


def test_a_page_without_room_leaves_nothing_and_is_saved_with_the_next():
    files = MemoryFiles()
    book = open_book(files)
    files.capacity_bytes = 100
    with pytest.raises(DiskFull):
        book.begin(rows(1, 3), 0).save(no_rest)
    assert files.names() == []
    files.capacity_bytes = None
    assert entries(book) == [1, 2, 3]
    saved(book, rows(4, 5), 0)
    assert spans(files) == [LedgerSpan(1, 5)]
    assert entries(book) == [1, 2, 3, 4, 5]


def test_a_file_goes_when_all_of_it_is_too_old(files):
    book = open_book(files, days=10)
    saved(book, rows(1, 5), 5 * DAY_MS)
    saved(book, rows(6, 10), 15 * DAY_MS)
    assert entries(book) == [*range(1, 11)]
    saved(book, rows(11, 11), 15 * DAY_MS + 1)
    assert entries(book) == [*range(6, 12)]
    assert spans(files) == [LedgerSpan(6, 10), LedgerSpan(11, 11)]


def test_only_what_may_be_wanted_is_read(files, monkeypatch):
    monkeypatch.setattr(limits, "LEDGER_GROUP_ROWS", 2)
    book = open_book(files, days=1_000)
    saved(book, rows(1, 8), 0)
    assert entries(book, first=5) == [5, 6, 7, 8]
    assert entries(book, start_ms=4 * DAY_MS, end_ms=6 * DAY_MS) == [4, 5]


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_damaged_file_is_reported_and_the_rest_goes_on(keep, monkeypatch):
    monkeypatch.setattr(limits, "LEDGER_FILES_MAX", 2)
    files = MemoryFiles()
    book = open_book(files, days=1)
    saved(book, rows(1, 3), 0)
    file = files.open(LedgerSpan(1, 3).name)
    file.truncate(file.size() + keep if keep < 0 else keep)
    book = open_book(files, days=1)
    with pytest.raises(CorruptLedger, match=r"ledger-.*move it away"):
        entries(book)
    (finding,) = [x for x in inspect(files) if x.file == LedgerSpan(1, 3).name]
    assert (finding.severity, finding.kind, finding.last) == ("warning", "untold", 3)
    for index in (101, 102, 103):
        saved(book, rows(index, index), 100 * DAY_MS)
    assert spans(files) == [LedgerSpan(1, 3), LedgerSpan(101, 102), LedgerSpan(103, 103)]
    assert entries(book, first=101) == [101, 102, 103]
    files.remove(LedgerSpan(1, 3).name)
    assert entries(open_book(files)) == [101, 102, 103]


def test_a_file_that_is_gone_is_left_to_a_person(files, monkeypatch):
    monkeypatch.setattr(limits, "LEDGER_FILES_MAX", 2)
    book = open_book(files)
    saved(book, rows(1, 3), 0)
    files.remove(LedgerSpan(1, 3).name)
    for index in (4, 5, 6):
        saved(book, rows(index, index), 0)
    with pytest.raises(StorageFailed, match="ledger-"):
        entries(book)
    assert entries(open_book(files)) == [4, 5, 6]


def test_a_flipped_bit_in_the_rows_is_noticed():
    files = MemoryFiles()
    book = open_book(files)
    saved(book, rows(1, 50), 0)
    file = files.open(LedgerSpan(1, 50).name)
    at = file.size() // 8  # among the pages, far before the footer
    file.write(at, [bytes([file.read(at, 1)[0] ^ 4])])
    with pytest.raises(CorruptLedger):
        entries(book)


def test_the_doctor_knows_the_ledger(files):
    saved(open_book(files), rows(1, 3), 0)
    (finding,) = [x for x in inspect(files) if x.kind == "ledger"]
    assert finding.severity == "ok"
    assert finding.text == "what happened in entries 1 to 3, 3 rows"

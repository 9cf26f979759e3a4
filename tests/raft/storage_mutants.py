"""Mistakes planted in the files of a peer, one at a time, and the tests that must see each of them.

A mutant is an edit of the source: pieces of text that are there once, and what stands there instead. The
numbers are those of the cluster's list of mistakes; the letters are variants.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[2] / "src" / "quiver"
UNIT: Final = "tests/unit/storage"
CRASHES: Final = (
    f"{UNIT}/test_crash_peers.py::test_a_crash_at_any_operation_breaks_no_promise[{{}}]"
)
SOME: Final = CRASHES.format("some-before")
NONE: Final = CRASHES.format("none-before")


@dataclass(frozen=True)
class StorageMutant:
    """An edit of a file, and the test that must fail because of it."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    dies_by: str

    def apply(self, root: Path) -> None:
        """Plant it in the copy of the package in `root`."""
        path = root / self.file
        text = path.read_text()
        for old, new in self.edits:
            text = text.replace(old, new)
        path.write_text(text)


LOWER: Final = (
    "            self._mark.lower(synced, min(self.commit_index, synced), self.term_of(synced))\n"
)
REMOVE: Final = """            for first in reversed(doomed):
                self._files.remove(name_of(first))
                self._files.sync_directory()
"""
TRUNCATE: Final = """            log.file.truncate(log.end)
            log.file.sync()
            for first in (*doomed"""
AFTERWARDS: Final = "            for first in (*doomed"

WAL: Final = "storage/wal.py"
MARK: Final = "storage/mark.py"
VOTE: Final = "storage/vote.py"
PEERS: Final = f"{UNIT}/test_wal_peers.py"

MUTANTS: Final = (
    StorageMutant(
        "4: a sync counts for what was appended while it went on",
        WAL,
        (("self._count_synced(pending.index)", "self._count_synced(self.last_index)"),),
        NONE,
    ),
    StorageMutant(
        "10a: a vote is told before it is durable",
        VOTE,
        (("                self._file.sync()\n", ""),),
        f"{UNIT}/test_vote.py::test_each_vote_is_durable_when_it_is_written",
    ),
    StorageMutant(
        "10b: the only good slot of the vote is overwritten first",
        VOTE,
        (("self._weaker = 1 - slots.index(self._last)", "self._weaker = slots.index(self._last)"),),
        f"{UNIT}/test_vote.py::"
        "test_a_crash_at_any_operation_leaves_the_last_vote_or_the_one_that_was_written",
    ),
    StorageMutant(
        "10c: the vote has one slot, overwritten in place",
        VOTE,
        (
            ("            for _ in (0, 1):", "            for self._weaker in (0,):"),
            ("slots = [self._read(file, at) for at in (0, 1)]", "slots = [self._read(file, 0)]"),
        ),
        f"{UNIT}/test_vote.py::"
        "test_a_crash_at_any_operation_leaves_the_last_vote_or_the_one_that_was_written",
    ),
    StorageMutant(
        "10d: the term is saved, and the old vote kept",
        VOTE,
        (("term, peer or _NOBODY)", "term, last.peer or peer or _NOBODY)"),),
        f"{UNIT}/test_vote.py::test_each_vote_is_durable_when_it_is_written",
    ),
    StorageMutant(
        "12a: the log is cut first, the mark lowered second",
        WAL,
        ((LOWER, ""), (AFTERWARDS, LOWER + AFTERWARDS)),
        NONE,
    ),
    StorageMutant(
        "12b: one slot of the mark is lowered",
        MARK,
        (("        for _ in (0, 1):\n", "        for _ in (0,):\n"),),
        f"{UNIT}/test_mark.py::test_what_was_lowered_does_not_come_back_whichever_slot_is_damaged",
    ),
    StorageMutant(
        "12c: the lowered mark is not synced",
        MARK,
        (("            self._write(synced, commit, term)\n            self.sync()\n",
          "            self._write(synced, commit, term)\n"),),
        NONE,
    ),
    StorageMutant(
        "12d: the mark is lowered to what is left, durable or not",
        WAL,
        (("            synced = min(self.synced_index, after)\n", "            synced = after\n"),),
        NONE,
    ),
    StorageMutant(
        "13: a cut leaves what counts as synced",
        WAL,
        (("            self.synced_index = 0  # of another log; this one was synced as a whole\n", ""),),
        f"{PEERS}::test_a_torn_write_behind_a_cut_is_torn_and_no_damage",
    ),
    StorageMutant(
        "13b: a cut counts as synced what it has not synced",
        WAL,
        ((TRUNCATE, TRUNCATE.replace("            log.file.sync()\n", "")),),
        NONE,
    ),
    StorageMutant(
        "14a: the file is truncated before those behind it are removed",
        WAL,
        ((REMOVE, ""), (TRUNCATE, TRUNCATE.replace(AFTERWARDS, REMOVE + AFTERWARDS))),
        NONE,
    ),
    StorageMutant(
        "14b: the files behind a cut are removed, the first one first",
        WAL,
        (("            for first in reversed(doomed):", "            for first in doomed:"),),
        NONE,
    ),
    StorageMutant(
        "14c: the directory is synced once, behind all removals",
        WAL,
        ((REMOVE, REMOVE.replace("                self._files.sync", "            self._files.sync")),),
        SOME,
    ),
    StorageMutant(
        "15a: a cut leaves the places of what is gone",
        WAL,
        (("self._places.items() if index <= after}", "self._places.items()}"),),
        f"{PEERS}::test_what_is_cut_is_gone_and_the_log_goes_on_with_other_entries",
    ),
    StorageMutant(
        "15b: a cut leaves files open that get their names again",
        WAL,
        (("            self._opened.cache_clear()  # of files that get their name again\n", ""),),
        f"{PEERS}::test_a_log_can_be_cut_again_and_again",
    ),
    StorageMutant(
        "15c: a place is known by its index alone",
        "storage/logfile.py",
        ((" and term in (None, header.term):", ":"),),
        f"{PEERS}::test_an_old_place_does_not_read_the_entry_that_came_instead",
    ),
    StorageMutant(
        "15d: a cut leaves the terms of what is gone",
        WAL,
        (("            self._table.cut(after)\n", ""),),
        f"{PEERS}::test_what_is_cut_is_gone_and_the_log_goes_on_with_other_entries",
    ),
    StorageMutant(
        "cut: what is committed is cut",
        WAL,
        (("assert self.commit_index <= after, (", "assert after >= 0, ("),),
        f"{PEERS}::test_what_is_committed_is_never_cut",
    ),
    StorageMutant(
        "cut: a sync that is under way counts afterwards",
        WAL,
        (("            self._drain()\n            log, now_ms", "            log, now_ms"),),
        PEERS,
    ),
    StorageMutant(
        "23a: the log is let go of although peers want it",
        WAL,
        (("floor = min(before + 1, self._floor(wanted))", "floor = before + 1"),),
        f"{PEERS}::test_what_a_peer_still_wants_stays",
    ),
    StorageMutant(
        "23b: the log is let go of although a transfer has pinned it",
        WAL,
        ((" and self._pinned[first] <= 0", ""),),
        f"{PEERS}::test_what_a_transfer_has_pinned_stays_until_it_ends",
    ),
    StorageMutant(
        "mark: what is not durable is told to readers",
        WAL,
        (("self._mark.write(synced, min(self.commit_index, synced), self",
          "self._mark.write(synced, self.commit_index, self"),),
        f"{PEERS}::test_with_peers_readers_are_told_what_is_committed_and_durable",
    ),
    StorageMutant(
        "mark: the highest slot counts, not the last",
        MARK,
        (("        self._last = max(slots)", "        self._last = max(slots, key=lambda s: s.synced)"),),
        f"{UNIT}/test_mark.py::test_in_version_2_the_last_one_counts",
    ),
    StorageMutant(
        "1: what is found counts as committed",
        WAL,
        (("if self._alone:\n            self.commit", "if True:\n            self.commit"),),
        f"{PEERS}::test_a_scan_tells_terms_and_sizes_and_applies_nothing",
    ),
)  # fmt: skip
